"""Fuzzing: every parser of the project is fed what nobody would send, and has to keep a property for all of it."""
