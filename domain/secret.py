"""What carries a secret, and how it is kept from being printed by accident (I3, I4)."""

from typing import NoReturn


class Secret:
    """A secret text whose `repr`, `str` and formatting never show it.

    `expose()` is the only way out. Equality takes the same time whatever differs.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def expose(self) -> str:
        """Return the secret text. The caller answers for where it goes."""
        return self.__value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<redacted>)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # Imported at the first comparison: listing sessions compares no secret, and pays for no OpenSSL.
        from hmac import compare_digest  # noqa: PLC0415

        return compare_digest(
            self.__value.encode("utf-8", "surrogatepass"), other.expose().encode("utf-8", "surrogatepass")
        )

    def __hash__(self) -> int:
        return hash((type(self), self.__value))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is not pickled: its bytes would leave unmarked")


class DoorToken(Secret):
    """A bearer token of a session's door."""

    __slots__ = ()


class SpawnApproval(Secret):
    """A one-use approval to launch a child."""

    __slots__ = ()


class SpawnCredential(Secret):
    """What lets a registered session ask its referee for approvals."""

    __slots__ = ()


class ControlToken(Secret):
    """The token that a session's `.control` file holds."""

    __slots__ = ()
