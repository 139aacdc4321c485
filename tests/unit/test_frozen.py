"""`@frozen` beside the standard library's decorator: what can be seen of a class is the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from evalcore.frozen import frozen

STANDARD = dataclass(frozen=True, slots=True)
DECORATORS = {"standard": STANDARD, "frozen": frozen}


def _class(decorator: Callable[[Any], Any]) -> Any:
    class Order:
        """An order."""

        number: int
        name: str = "none"
        lines: list[int] = field(default_factory=list, compare=False)
        secret: str = field(default="s", repr=False)
        total: int = field(default=0, kw_only=True)
        made: str = field(default_factory=lambda: "here", init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.strip())

    return decorator(Order)


@frozen
class Point:
    """A place; pickles need a name of the module."""

    x: int
    y: int = 0


@frozen
class Named(Point):
    """A place with a name."""

    name: str = ""


@pytest.fixture(params=DECORATORS.values(), ids=list(DECORATORS))
def order(request: pytest.FixtureRequest) -> Any:
    return _class(request.param)


def test_values_defaults_and_order_of_parameters(order: Any) -> None:
    first, second = order(1), order(1, " a ", [3], "t", total=4)
    assert (first.number, first.name, first.lines, first.secret) == (1, "none", [], "s")
    assert (first.total, first.made) == (0, "here")
    assert (second.name, second.lines, second.secret, second.total) == ("a", [3], "t", 4)
    assert order(1).lines is not first.lines
    assert order(total=2, number=7).total == 2


@pytest.mark.parametrize(
    ("positional", "named"),
    [((), {}), ((1, "a", [], "s", 5), {}), ((1,), {"number": 2}), ((1,), {"made": "x"})],
)
def test_wrong_arguments_are_refused(order: Any, positional: Any, named: Any) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            order(*positional, **named)
    assert order(1).number == 1


def test_comparison_and_hash(order: Any) -> None:
    assert order(1, lines=[1]) == order(1, lines=[2])
    assert hash(order(1, lines=[1])) == hash(order(1))
    assert order(1) != order(2)
    assert order(1) != (1, "none", "s", 0, "here")
    assert len({order(1), order(1), order(1, total=1)}) == 2


def test_text_leaves_out_what_is_not_shown(order: Any) -> None:
    assert repr(order(1)).endswith("Order(number=1, name='none', lines=[], total=0, made='here')")


def test_text_of_an_object_within_itself(order: Any) -> None:
    made = order(1)
    made.lines.append(made)
    assert "lines=[...]" in repr(made)


def test_no_attribute_can_be_set_or_deleted(order: Any) -> None:
    made = order(1)
    with pytest.raises(FrozenInstanceError, match="number"):
        made.number = 2
    # The standard decorator's own mistake with slots makes it a `TypeError`.
    with pytest.raises((FrozenInstanceError, TypeError)):
        made.other = 2
    with pytest.raises(FrozenInstanceError, match="number"):
        del made.number
    assert made.number == 1
    assert not hasattr(made, "__dict__")


def test_what_the_standard_library_does_with_it(order: Any) -> None:
    made = order(1, total=3)
    assert replace(made, number=5).total == 3
    assert [each.name for each in fields(order)][:2] == ["number", "name"]
    assert asdict(made)["total"] == 3
    assert copy.copy(made) == made == copy.deepcopy(made)
    match made:
        case order(number, name):
            assert (number, name) == (1, "none")
        case _:
            pytest.fail("positions of a pattern")


def test_inherited_fields_come_first() -> None:
    assert Named(1, 2, "a") == Named(name="a", y=2, x=1)
    assert Named(1) != Point(1)
    assert pickle.loads(pickle.dumps(Named(1, name="b"))) == Named(1, 0, "b")


def test_a_plain_subclass_may_have_attributes_of_its_own() -> None:
    class Marked(Point):
        pass

    marked = Marked(3)
    marked.mark = "m"  # type: ignore[attr-defined]
    assert (marked.x, marked.mark) == (3, "m")  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        marked.x = 4  # type: ignore[misc]


def test_methods_of_the_class_stay() -> None:
    @frozen(slots=False)
    class Loose:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return f"<{self.text}>"

    assert Loose("A") == Loose("a")
    assert len({Loose("A"), Loose("a")}) == 1
    assert repr(Loose("A")) == "<A>"


def test_without_eq_objects_are_told_apart() -> None:
    @frozen(eq=False)
    class Handle:
        number: int

    assert Handle(1) != Handle(1)
    assert len({Handle(1), Handle(1)}) == 2


def test_a_class_without_fields() -> None:
    @frozen
    class Nothing:
        pass

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()).endswith("Nothing()")


def test_pydantic_validates_it_like_any_dataclass() -> None:
    assert TypeAdapter(Point).validate_python({"x": "4"}) == Point(4)
    assert TypeAdapter(Point).dump_python(Point(1, 2)) == {"x": 1, "y": 2}
