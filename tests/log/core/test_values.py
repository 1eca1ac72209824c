"""`value` against `dataclass(frozen=True, slots=True)`, whose place it takes."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace
from typing import Any

import pytest

from semel.log.core.values import value


class Plain:
    number: int
    name: str
    limit: int | None = None


def _class_made_by(decorator: Any) -> Any:
    return decorator(
        type("Thing", (), {"__annotations__": Plain.__annotations__, "limit": None, "__doc__": "A thing."})
    )


OURS = _class_made_by(value)
THEIRS = _class_made_by(dataclass(frozen=True, slots=True))


@value
class Point:
    x: int
    y: int = 7


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, "a"), {}), ((1,), {"name": "a"}), ((), {"limit": 3, "name": "a", "number": 1}), ((1, "a", 3), {})],
)
def test_a_value_is_made_shown_compared_and_hashed_as_a_frozen_data_class_is(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    ours, theirs = OURS(*args, **kwargs), THEIRS(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == OURS(*args, **kwargs)
    assert ours != OURS(2, "a")
    assert ours != theirs
    assert [getattr(ours, field.name) for field in fields(ours)] == [getattr(theirs, f.name) for f in fields(theirs)]


@pytest.mark.parametrize(("args", "kwargs"), [((1,), {}), ((), {}), ((1, "a", 2, 3), {}), ((1, "a"), {"more": 1})])
def test_wrong_arguments_are_refused_with_the_first_object_and_later(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    fresh = _class_made_by(value)
    for _ in range(2):
        with pytest.raises(TypeError):
            fresh(*args, **kwargs)
    assert fresh(1, "a").limit is None


def test_a_value_cannot_be_changed_and_has_no_other_attributes() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError, match="x"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="x"):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.other = 2
    assert not hasattr(point, "__dict__")


def test_the_tools_for_data_classes_know_a_value() -> None:
    point = Point(1)
    assert is_dataclass(type(point))
    assert replace(point, y=9) == Point(1, 9)
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    match point:
        case Point(x, y):
            assert (x, y) == (1, 7)
    assert [field.name for field in fields(Point)] == ["x", "y"]
