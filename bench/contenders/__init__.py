"""What is measured. Each runs in a process of its own (`bench.worker`) and does not know with whom it is compared."""
