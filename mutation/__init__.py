"""Mutation testing of the core: small changes of its code, each of which some test has to notice."""
