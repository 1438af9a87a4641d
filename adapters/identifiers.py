"""A new id, unlike any other and later than all before it (I1)."""

import os

import uuid_utils

from murmur.domain.ids import IdPrefix


def mint(prefix: IdPrefix) -> str:
    """Return the prefix and a fresh UUIDv7 in 32 lowercase hex digits: sorting ids sorts them by time."""
    return f"{prefix}{fresh_hex()}"


def fresh_hex() -> str:
    """Return a fresh UUIDv7 in 32 lowercase hex digits."""
    return uuid_utils.uuid7().hex


def random_hex(count: int) -> str:
    """Return so many random bytes in lowercase hex digits."""
    return os.urandom(count).hex()
