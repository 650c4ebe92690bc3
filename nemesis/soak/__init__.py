"""Much of the same: what grows with every cycle, cancellation, reconnection or waiter shows after very many."""
