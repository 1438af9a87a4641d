"""How are the domain's small immutable values made, without paying for generated code at every start?

`dataclass(frozen=True, slots=True)` writes and compiles six methods a class: about a twentieth of an empty Python's
start, for each of the two dozen classes that `mur ps` needs (ADR 0009). A `Value` shares one implementation
among all. Type checkers see a frozen dataclass.
"""

from typing import Any, ClassVar, NoReturn, Self, dataclass_transform, get_origin


def _is_of_the_class(kind: object) -> bool:
    origin: object = get_origin(kind)
    return origin is ClassVar


@dataclass_transform(frozen_default=True)
class Value:
    """An immutable value: its annotated names are its fields, in order, with the class attributes as defaults.

    Values are equal when they are of one class and equal in every field but those named in `uncompared`.
    """

    uncompared: ClassVar[tuple[str, ...]] = ()
    hidden: ClassVar[tuple[str, ...]] = ()
    """Fields that `repr` leaves out: what may hold a secret."""
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Take the fields from the annotations of the class body."""
        fields = (name for name, kind in cls.__annotations__.items() if not _is_of_the_class(kind))
        cls.__match_args__ = tuple(fields)  # type: ignore[misc]  # as a dataclass does

    def __init__(self, *values: Any, **named: Any) -> None:  # type: ignore[explicit-any]
        """Give the fields in order, or by name; raise `TypeError` for any that is missing, unknown or given twice."""
        cls = type(self)
        fields = cls.__match_args__
        given = dict(zip(fields, values, strict=False))
        wrong = len(values) > len(fields) or given.keys() & named.keys() or named.keys() - set(fields)
        given |= named
        if wrong or any(name not in given and name not in cls.__dict__ for name in fields):
            raise TypeError(f"{cls.__name__} takes {', '.join(fields) or 'no fields'}")
        self.__dict__.update(given)

    def replaced(self, **changed: object) -> Self:
        """Return the same value but for what is named; raise `TypeError` for an unknown name."""
        return type(self)(**{**self.__dict__, **changed})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be removed")

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__ if name not in self.uncompared)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def __repr__(self) -> str:
        shown = (name for name in self.__match_args__ if name not in self.hidden)
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({fields})"
