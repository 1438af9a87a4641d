"""Decisions and use cases, without I/O, clock or randomness: what may be concluded from readings already taken."""
