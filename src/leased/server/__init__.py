"""The lock service: the engine over a store, behind HTTP, with credentials, rules and limits."""
