"""Random expressions: the safe ones mean what Python means, the others reach nothing.

The expressions are written from a grammar, so that most of them are well formed; names, attributes
and calls that are forbidden stand among them in the second grammar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from evalcore.expressions.engine import ExpressionError, ExpressionSyntaxError
from evalcore.expressions.template import compile_template
from tests.support.examples import examples

DATA: dict[str, Any] = {
    "n": 3,
    "x": 0.5,
    "s": "Hello, wörld",
    "t": (1, "b", None),
    "xs": [3, 1, 2],
    "words": ["alpha", "beta", ""],
    "d": {"a": 1, "b": [1, 2], 3: "c"},
    "nothing": None,
    "yes": True,
}
LIMITS = ("LimitError", "RecursionError")
ALLOWED = (str, int, float, bool, type(None), list, tuple, dict, set, range, slice)


class Tape:
    """Choices read from a list of numbers; when it is out, the first choice is taken."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = iter(numbers)

    def choose(self, choices: Sequence[str]) -> str:
        return choices[next(self._numbers, 0) % len(choices)]

    def write(self, grammar: Mapping[str, Sequence[str]], rule: str, depth: int) -> str:
        """Write a rule out: each word in capitals of its text is a rule itself."""
        choices = grammar["LEAF"] if rule == "E" and depth > 5 else grammar[rule]
        shape = self.choose(choices)
        return RULE.sub(lambda found: self.write(grammar, found[0], depth + 1), shape)


RULE = re.compile(r"\b[A-Z]+\b")
LEAF = [
    "0",
    "1",
    "2",
    "7",
    "0.5",
    "1e3",
    "True",
    "False",
    "None",
    "''",
    "'a'",
    "'lo'",
    "'x,y,z'",
    "[]",
    "()",
    "{}",
    "[1, 2]",
    "(1,)",
    "{'a': 1}",
    "{1, 2}",
    "range(4)",
    "'{}'",
    "'{0!r:>5}'",
    "'%s-%s'",
    "'12'",
    "' 7 '",
    "n",
    "x",
    "s",
    "t",
    "xs",
    "words",
    "d",
    "nothing",
    "yes",
    "v",
    "w",
    "_",
]


def words(text: str) -> list[str]:
    """Return the choices of a rule, none of which has a blank."""
    return text.split()


SAFE: dict[str, Sequence[str]] = {
    "LEAF": LEAF,
    "OP": ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^"],
    "CMP": ["<", "<=", ">", ">=", "==", "!=", "in", "not in", "is", "is not"],
    "FUN": words("""
        abs all any bool chr dict divmod enumerate float int len list max min ord pow range
        reversed round set sorted str sum tuple zip
    """),
    "METHOD": words("""
        upper lower title strip split rsplit splitlines join replace count index find rfind
        startswith endswith format center ljust zfill partition isdigit isalpha capitalize
        swapcase removeprefix append extend insert pop remove reverse sort copy clear get
        keys values items setdefault update add discard union intersection difference
        issubset isdisjoint
    """),
    "FIELD": words("""
        s n x xs d s:>8 x:.2f s!r n!s:>6 n:d n:x x:e n:, n:05 s!a xs:>9 v:{n}
    """),
    "TARGET": ["v", "w", "v, w", "v, *w", "(v, w)", "_"],
    "E": [
        *LEAF[::3],
        "(E OP E)",
        "(E OP E)",
        "(E CMP E)",
        "(E < E <= E)",
        "(-E)",
        "(not E)",
        "(E and E)",
        "(E or E)",
        "(E if E else E)",
        "[E, *E]",
        "(E, E)",
        "{E: E}",
        "{**E, 'k': E}",
        "E[E]",
        "E[E:E]",
        "FUN(E)",
        "FUN(E, E)",
        "E.METHOD(E)",
        "E.METHOD()",
        "E.METHOD(E, E)",
        "[E for TARGET in E]",
        "[E for TARGET in E if E]",
        "[E for v in E for w in E]",
        "[[E for v in xs] for w in E]",
        "sum(E for TARGET in E)",
        "any(E for TARGET in E)",
        "list(zip((E for v in E), (E for v in E)))",
        "{E for TARGET in E}",
        "{E: E for TARGET in E}",
        "sorted(E, key=lambda v: E)",
        "max(E, key=lambda v: E)",
        "list(map(lambda v: E, E))",
        "list(filter(lambda v: E, E))",
        "list(map(str, E))",
        "isinstance(E, (int, str))",
        'f"<{FIELD}>{FIELD}"',
        'f"{xs!r:>20}{v}"',
    ],
}
WILD: dict[str, Sequence[str]] = {
    **SAFE,
    "LEAF": [*LEAF, "obj", "fn", "mod", "gen", "kind"],
    "NAME": words("""
        obj fn mod gen kind __builtins__ eval open type getattr vars len d
    """),
    "ATTR": words("""
        __class__ __init__ __globals__ __builtins__ __import__ __mro__ __subclasses__
        __dict__ _x gi_frame f_globals cr_code func_code mro token format format_map encode
        read a b
    """),
    "E": [
        *SAFE["E"],
        "E.ATTR",
        "E.ATTR",
        "NAME.ATTR",
        "E.ATTR()",
        "E(E)",
        "NAME(E)",
        "NAME(*E)",
        "FUN(**E)",
        "FUN(E, key=NAME)",
        "E.sort(key=NAME)",
        "map(E, E)",
        "filter(NAME, E)",
        "(lambda v: E)",
        "'{0.ATTR}'.format(E)",
        "'{a[ATTR]}'.format(a=E)",
        "'{a.ATTR}'.format_map({'a': E})",
        "f'{NAME.ATTR}'",
        "f'{NAME!r:>9}'",
        "(E for v in E)",
        "(v := E)",
        "NAME.METHOD(E)",
        "[E for ATTR in E]",
        "[E for d.ATTR in E]",
        "'%(ATTR)s' % E",
        "map(str.METHOD, E)",
        "as_yaml(E)",
        "parse_json(E)",
        "get(E, E, E)",
        "log(E)",
        "E.METHOD(E, **E)",
        "(await E)",
        "E.d.a",
    ],
}
tapes = st.lists(st.integers(0, 255), max_size=60)
safe = tapes.map(lambda numbers: Tape(numbers).write(SAFE, "E", 0))
wild = tapes.map(lambda numbers: Tape(numbers).write(WILD, "E", 0))


TOUCHED: list[object] = []


class Tempting:
    """What must not be reached: any use of it by a name is noted."""

    def __getattribute__(self, name: str) -> Any:
        if name not in ("__class__", "__dict__"):
            TOUCHED.append(name)
        return object.__getattribute__(self, name)

    def __call__(self, *values: object, **named: object) -> object:
        TOUCHED.append("called")
        return self


def function(*values: object, **named: object) -> object:
    TOUCHED.append("called")
    return function


def fresh() -> dict[str, Any]:
    """Return the scope anew: an expression may change its lists."""
    return {
        **DATA,
        "xs": [*DATA["xs"]],
        "words": [*DATA["words"]],
        "d": {**DATA["d"], "b": [1, 2]},
        "_": "previous",
    }


def settled(value: Any) -> Any:
    """Return what Python gives as this package returns it: lists for what is lazy."""
    kind = type(value).__name__
    if kind in ("generator", "map", "filter", "zip", "enumerate", "dict_keys", "dict_items"):
        return list(value)
    if kind in ("dict_values", "list_reverseiterator", "range_iterator", "reversed"):
        return list(value)
    return list(value) if kind.endswith("iterator") else value


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(alike, one.values(), other.values()))
    return bool(one == other)


@examples(150)
@given(safe)
def test_a_safe_expression_means_what_python_means(text: str) -> None:
    ours = theirs = failure = None
    try:
        ours = compile_template(f"${{{text}}}").render(fresh())
    except ExpressionError as error:
        failure = error.kind
        assume(failure not in LIMITS)
    except ExpressionSyntaxError as error:
        failure = str(error)
    try:
        theirs = settled(eval(text, fresh()))
    except Exception:  # noqa: BLE001 - whatever the random expression ends with
        python_failed = True
    else:
        python_failed = False
    if python_failed:
        assert failure is not None, (text, ours)
        return
    if isinstance(theirs, complex) or _holds_lazy(theirs):
        assert failure is not None
        return
    assert failure is None, (text, failure, theirs)
    assert alike(ours, theirs), (text, ours, theirs)


def _holds_lazy(value: Any) -> bool:
    if isinstance(value, (list, tuple, set)):
        return any(map(_holds_lazy, value))
    if isinstance(value, dict):
        return any(map(_holds_lazy, value.values()))
    return not isinstance(value, ALLOWED)


@examples(150)
@given(wild)
def test_a_wild_expression_reaches_nothing_and_breaks_nothing(text: str) -> None:
    import types

    TOUCHED.clear()
    given_by_tools: dict[str, Any] = {
        "obj": Tempting(),
        "fn": function,
        "mod": types,
        "gen": (each for each in range(3)),
    }
    value = message = None
    try:
        value = compile_template(f"${{{text}}}").render({**fresh(), **given_by_tools})
    except (ExpressionError, ExpressionSyntaxError) as error:
        message = str(error)
    assert message != ""
    assert "called" not in TOUCHED
    assert not {name for name in TOUCHED if not str(name).startswith("__")}
    own = set(map(id, given_by_tools.values()))
    assert all(isinstance(each, ALLOWED) or id(each) in own for each in _all_within(value)), text


def _all_within(value: Any) -> Iterable[Any]:
    yield value
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _all_within(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _all_within(key)
            yield from _all_within(each)


@examples(100)
@given(st.text(alphabet=st.sampled_from("${}()[]'\"\\fabx._:,#\n +*1"), max_size=40))
def test_no_text_breaks_the_reading_of_templates(text: str) -> None:
    places: tuple[int, int] = (1, 1)
    message: str | None = None
    try:
        compile_template(text).render({"a": 1, "b": "x"})
    except ExpressionSyntaxError as error:
        places = (error.line, error.column)
    except ExpressionError as error:
        message = str(error)
    assert min(places) >= 1
    assert message != ""
