"""Values behave as the frozen dataclasses that they stand for (ADR 0009)."""

from typing import ClassVar

import pytest

from murmur.domain.value import Value


class Point(Value):
    x: int
    y: int = 2
    unit: ClassVar[str] = "m"


class Other(Value):
    x: int
    y: int = 2


class Read(Value):
    uncompared = ("at",)
    text: str
    at: int = 0


class Nothing(Value):
    pass


def test_fields_are_given_in_order_or_by_name_and_default() -> None:
    assert (Point(1).x, Point(1).y, Point(x=3, y=4).y, Point(1, y=5).y) == (1, 2, 4, 5)
    assert Point.__match_args__ == ("x", "y")


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_a_wrong_number_of_fields_is_an_error(arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="Point takes x, y"):
        Point(*arguments)


def test_a_field_that_is_unknown_or_given_twice_is_an_error() -> None:
    with pytest.raises(TypeError):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(1, x=2)  # type: ignore[misc]


def test_values_are_equal_within_one_class_only() -> None:
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2)
    assert len({Point(1), Point(1, 2), Other(1), Nothing(), Nothing()}) == 3


def test_a_field_that_is_not_compared_is_not() -> None:
    assert Read("a", 1) == Read("a", 2)
    assert hash(Read("a", 1)) == hash(Read("a", 2))
    assert Read("a") != Read("b")


def test_a_value_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    assert point.x == 1


def test_a_value_is_true_and_shows_its_fields() -> None:
    assert bool(Nothing()) is True
    assert (repr(Point(1)), repr(Nothing())) == ("Point(x=1, y=2)", "Nothing()")


def test_values_match_by_position() -> None:
    match Point(1, 7):
        case Point(x, y):
            assert (x, y) == (1, 7)


def test_a_value_is_replaced_in_what_is_named_only() -> None:
    assert Point(1).replaced(y=3) == Point(1, 3)
    with pytest.raises(TypeError):
        Point(1).replaced(z=3)
