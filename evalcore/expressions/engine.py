"""Expressions and scripts: Python that RestrictedPython compiles, with plain data in its scope.

The syntax tree is refused or rewritten when the text is read: attributes are keys of mappings,
methods those of builtin classes, and no name begins with an underscore. Nothing here bounds time
and memory; `limits` says where a text runs.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import functools
import json
import math
import operator
import re
import string
import warnings
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any, Final, NamedTuple, NoReturn

from RestrictedPython.Guards import guarded_iter_unpack_sequence, guarded_unpack_sequence
from RestrictedPython.transformer import RestrictingNodeTransformer

from evalcore.errors import EvalError
from evalcore.wording import nearest, one_line

LONGEST_SOURCE: Final = 160
_LONGEST_MESSAGE: Final = 400
_LONGEST_TEXT: Final = 50_000
_LONGEST_RECORD: Final = 10_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_COMMENT: Final = re.compile(r"#.*")
_WRITTEN: Final = re.compile(r"\S")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+(?=>)")
BYTES: Final = 10_000_000
DEEPEST: Final = 100
# Bytes of the variables of what is evaluated at once: where values are put together, and else.
_LITTLE: Final = 1 << 15
_MUCH: Final = 1 << 20
_LARGEST_BITS: Final = 10_000
_MOST_DIGITS: Final = 3_000
# The only names beginning with an underscore, all of them the statements' own.
_UNDERSCORED: Final = frozenset({"_", "_match_groups"})


class ExpressionSyntaxError(EvalError):
    """A text cannot be read as a template or a script; for load errors.

    `line` and `column` count from 1 within the text that was given; `path` leads to that text
    where it stands in a larger value (`compile_tree`).
    """

    def __init__(
        self, message: str, line: int = 1, column: int = 1, path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message, line, column, path)
        self.message = message
        self.line = line
        self.column = column
        self.path = path

    def __str__(self) -> str:
        position = f"column {self.column}"
        if self.line > 1:
            position = f"line {self.line}, {position}"
        return f"{self.message} ({position})"


class ExpressionError(EvalError):
    """An expression, a script or a pattern gave no value.

    `kind` is the name of the exception's class as Python has it ("ZeroDivisionError"), or
    "LimitError" where memory or time ran out; `reason` is the message without the source.
    """

    def __init__(self, kind: str, reason: str, source: str = "") -> None:
        super().__init__(kind, reason, source)
        self.kind = kind
        self.reason = one_line(reason, _LONGEST_MESSAGE)
        self.source = source

    def __str__(self) -> str:
        source = f"{one_line(self.source, LONGEST_SOURCE)}: " if self.source else ""
        return f"{source}{self.kind}: {self.reason}"


class LimitError(Exception):
    """A value would be too large."""


class UnboundedError(Exception):
    """What was evaluated at once has to be evaluated where it can be stopped."""


SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_DATES: Final = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, Decimal)
ATOMS: Final = SCALARS | {range, *_DATES}
_VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_SETS: Final = (set, frozenset)
_SEQUENCES: Final = (str, list, tuple)


def size_of(value: Any, most: int = BYTES) -> int:
    """Return the bytes of plain data: a text's characters, and eight for each element.

    Raise `LimitError` for more than `most` or a value that is nested too deeply, and `TypeError`
    for what is no plain data.
    """
    size, level = 0, [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                size += len(each)
            elif kind in (list, tuple, set, frozenset):
                below += each
            elif kind is dict:
                below += each
                below += each.values()
            elif kind not in ATOMS:
                raise TypeError(_no_data(each))
            elif kind is int:
                size += each.bit_length() >> 3
            size += 8
            if size + 8 * len(below) > most:
                raise LimitError(f"a value is larger than {most:,} bytes")
        if not below:
            return size
        level = below
    raise LimitError(f"a value is nested deeper than {DEEPEST} levels")


def plain_data(value: Any, depth: int = 0) -> Any:
    """Return what a tool gave as plain data: models and dataclasses as mappings, a class derived
    from a builtin one as that, anything else as its text.

    Raises `LimitError` for a value that is nested too deeply.
    """
    if type(value) in ATOMS:
        return value
    if depth > DEEPEST:
        raise LimitError(f"a value is nested deeper than {DEEPEST} levels")
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {plain_data(k, depth + 1): plain_data(v, depth + 1) for k, v in value.items()}
    for base in (list, tuple, *_SETS):
        if isinstance(value, base):
            return base(plain_data(each, depth + 1) for each in value)
    atom: Any = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
    return without_address(str(value)) if atom is None else atom.__new__(atom, value)


def _no_data(value: Any) -> str:
    if hasattr(value, "__next__") or isinstance(value, _VIEWS):
        return "a generator in a value; make a list of it: list(…)"
    return f"{describe(value)} is no value" if not callable(value) else "a function is no value"


def describe(value: Any) -> str:
    """Return "a list", "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def in_order(members: Collection[Any]) -> list[Any]:
    """Return the members of a set in an order that is the same in every process."""
    return sorted(members, key=lambda member: (type(member).__name__, repr(member)))


def without_address(text: str) -> str:
    """Return the text of an object without the address in memory, which differs in every run."""
    return _ADDRESS.sub("", text)


def to_text(value: Any = "") -> str:
    """Return `str(value)`, the members of sets in their order."""
    return value if isinstance(value, str) else written(value)


def written(value: Any) -> str:
    """Return `repr(value)`, the members of sets in their order."""
    kind = type(value)
    if kind is dict:
        pairs = (f"{written(key)}: {written(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if kind is list:
        return f"[{', '.join(map(written, value))}]"
    if kind is tuple:
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    if kind in _SETS and value:
        parts = f"{{{', '.join(map(written, in_order(value)))}}}"
        return parts if kind is set else f"frozenset({parts})"
    if kind in _VIEWS:
        return f"{kind.__name__}({written(list(value))})"
    if hasattr(value, "__next__"):
        raise TypeError("a generator has no text; make a list of it: list(…)")
    return str(value) if kind in _DATES else without_address(repr(value))


def _items(value: Any) -> Any:
    """Return what is iterated over: the members of a set in their order."""
    return in_order(value) if isinstance(value, _SETS) else value


def _ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets the members of sets in their order."""

    @functools.wraps(function, updated=())
    def ordered(*values: Any, **named: Any) -> Any:
        return function(*map(_items, values), **named)

    return ordered


def _key_of(value: Any, name: str) -> Any:
    """Return the value of a mapping's key, or a method of a class; nothing else has attributes."""
    base = next((kind for function, kind in _CLASSES if function is value), None)
    if base is not None and name in _METHODS[base]:
        return lambda each, *values: _method_of(base, each, name)(*values)
    if name.startswith("_") or not isinstance(value, Mapping):
        raise AttributeError(
            f"{describe(value)} has no attribute {name!r} here (mappings have their keys; "
            "methods must be called)"
        )
    if name not in value:
        raise KeyError(f"no key {name!r}{suggestion(name, value)}")
    return value[name]


def suggestion(name: str, names: Iterable[Any]) -> str:
    """Return "; did you mean 'x'?" for the name nearest to this one, or nothing."""
    near = nearest(name, [each for each in names if isinstance(each, str) and len(each) < 100])
    return f"; did you mean {near!r}?" if near else ""


def _element(value: Any, index: Any) -> Any:
    if isinstance(value, dict) and not isinstance(index, slice) and index not in value:
        raise KeyError(f"no key {index!r}")
    return value[index]


class _Formatter(string.Formatter):
    """`str.format`, whose fields reach values by position, key and index only."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        if isinstance(key, str) and key.startswith("_") and key != "_":
            raise AttributeError(f"names beginning with '_' are not available: {key}")
        if isinstance(key, int) and key >= len(args):
            raise IndexError(f"format() has no value for field {key}")
        return super().get_value(key, args, kwargs)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, steps = formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, step in steps:
            value = _key_of(value, step) if is_attribute else _element(value, step)
        return value, first


def _format(template: str, *values: Any, **named: Any) -> str:
    return _Formatter().vformat(template, values, named)


def _pop_first(members: set[Any]) -> Any:
    if not members:
        raise KeyError("pop from an empty set")
    first = in_order(members)[0]
    members.remove(first)
    return first


_REFUSED_METHODS: Final = frozenset({"encode", "translate", "maketrans", "fromkeys", "fromhex"})
_METHODS: Final = {
    base: frozenset(name for name in dir(base) if name[0] != "_") - _REFUSED_METHODS
    for base in (str, list, tuple, dict, set, frozenset, float, *_VIEWS)
}
_CHANGING: Final = frozenset(
    {
        *("append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "popitem"),
        *("setdefault", "update", "add", "discard", "difference_update", "intersection_update"),
        "symmetric_difference_update",
    }
)


def _method(value: Any, name: str) -> Callable[..., Any]:
    """Return a method of a value's builtin class."""
    base = type(value)
    if name not in _METHODS.get(base, ()):
        near = suggestion(name, _METHODS.get(base, ()))
        message = f"{describe(value)} has no method {name!r} that can be called here{near}"
        raise AttributeError(message)
    if base is str and name == "format":
        return functools.partial(_format, value)
    if base is str and name == "format_map":
        return lambda values: _Formatter().vformat(value, (), values)
    if base is set and name == "pop":
        return lambda: _pop_first(value)
    method: Callable[..., Any] = getattr(value, name)
    return _ordered(method) if name in ("join", "extend") else method


def _step_here(value: Any, name: str) -> Callable[..., Any]:
    method = _method(value, name)

    def step(*values: Any, **named: Any) -> Any:
        if any(_holds(each, value) for each in (*values, *named.values())):
            raise UnboundedError  # the value would contain itself, or something that is no data
        return method(*values, **named)

    return step


def _holds(value: Any, collection: Any) -> bool:
    """Whether a value is or contains a collection, or something that is no data."""
    if isinstance(value, dict):
        return value is collection or any(_holds(each, collection) for each in value.values())
    if isinstance(value, (list, tuple, *_SETS)):
        return value is collection or any(_holds(each, collection) for each in value)
    return type(value) not in ATOMS


def _method_of(base: type, value: Any, name: str) -> Callable[..., Any]:
    if not isinstance(value, base):
        raise TypeError(f"a {base.__name__} is wanted, not {describe(value)}")
    return _method(value, name)


def _times(left: Any, right: Any) -> Any:
    for value, count in ((left, right), (right, left)):
        if isinstance(value, _SEQUENCES) and isinstance(count, int):
            _check_room(len(value) * (1 if isinstance(value, str) else 8) * max(count, 0))
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def _times_here(left: Any, right: Any) -> Any:
    if isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
        raise UnboundedError  # what is repeated shares its elements: it may be large to walk
    return _times(left, right)


def _percent_here(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise UnboundedError  # a width makes a text of any length
    return left % right


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        _check_room((len(left) + len(right)) * (1 if isinstance(left, str) else 8))
    return left + right


def _rounded(value: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > _MOST_DIGITS:
        raise ValueError("round() takes a smaller number of digits")
    return round(value, digits)


def _power(base: Any, exponent: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        if isinstance(exponent, int) and isinstance(modulus, int):
            _check_bits(max(exponent.bit_length(), modulus.bit_length()))
        return pow(base, exponent, modulus)
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        _check_bits(base.bit_length() * max(exponent, 1))
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the result is a complex number")
    return result


def _shifted(value: Any, count: Any) -> Any:
    if isinstance(value, int) and isinstance(count, int) and value:
        _check_bits(value.bit_length() + count)
    return value << count


def _percent(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        size_of(right)
    return left % right


def _formatted(value: Any, spec: str) -> str:
    return format(value, spec)  # in a frame of its own: formatting a date imports


def _check_bits(bits: int) -> None:
    if bits > _LARGEST_BITS:
        raise LimitError(f"an integer would have more than {_LARGEST_BITS} bits")


def _check_room(size: int) -> None:
    if size > BYTES:
        raise LimitError(f"a value would be larger than {BYTES:,} bytes")


def _get(source: Any, key: Any, default: Any = None) -> Any:
    """Return a mapping's value or a sequence's element, or the default where there is none."""
    try:
        return source[key]
    except (LookupError, TypeError):
        return default


def _parse_json(text: Any, ignore_error: Any = False) -> Any:
    """Return the value of a JSON text; with `ignore_error`, the text itself where it is none."""
    if not isinstance(text, str):
        if ignore_error:
            return text
        raise TypeError(f"parse_json() takes a text, not {describe(text)}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if ignore_error:
            return text
        raise ValueError(f"parse_json(): the text is no JSON: {error}") from None


def _print_json(value: Any, pretty: Any = False) -> str:
    """Return the value as JSON, indented if it is to be pretty; what JSON lacks is its text."""
    tree = json_tree(_data("print_json", value))
    return json.dumps(tree, ensure_ascii=False, indent=2 if pretty else None)


def _as_yaml(value: Any, trim: Any = None) -> str:
    """Return the value as YAML; `trim` shortens every text to so many characters."""
    import yaml

    class Writer(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, _: Any) -> bool:
            return True

    tree = json_tree(_data("as_yaml", value), trim if isinstance(trim, int) and trim > 0 else None)
    text: str = yaml.dump(tree, Dumper=Writer, allow_unicode=True, sort_keys=False, width=1 << 30)
    return text if isinstance(value, (dict, list, tuple)) else text.removesuffix("...\n")


def _data(name: str, value: Any) -> Any:
    if hasattr(value, "__next__"):
        raise TypeError(f"{name}() takes no generator; make a list of it: list(…)")
    size_of(value)
    return value


def json_tree(value: Any, longest: int | None = None) -> Any:
    """Return the value of JSON's types only; what else there is as its text."""
    if isinstance(value, str):
        is_long = longest is not None and len(value) > longest
        return f"{value[:longest]}…" if is_long else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            to_text(key) if isinstance(key, (tuple, frozenset)) else json_tree(key, longest):
            json_tree(each, longest)
            for key, each in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple, range, *_SETS)):
        return [json_tree(each, longest) for each in _items(value)]
    return to_text(value)


def record_of(message: Any, *values: Any) -> str:
    """Return what `log(message, *values)` says, on one line."""
    text = to_text(message)
    text = text % values if values else text
    return _CONTROL.sub(lambda sign: repr(sign[0])[1:-1], text[:_LONGEST_RECORD])


_TYPES: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (bool, dict, float, frozenset, int, list, set, str, tuple)
}
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{f.__name__: f for f in (abs, all, any, bool, chr, dict, divmod, float, int, isinstance)},
    **{f.__name__: f for f in (len, ord, range, reversed, set, frozenset, hex, oct)},
    **{f.__name__: _ordered(f) for f in (enumerate, filter, list, map, max, min, sorted, sum)},
    **{f.__name__: _ordered(f) for f in (tuple, zip)},
    "as_yaml": _as_yaml,
    "get": _get,
    "parse_json": _parse_json,
    "pow": _power,
    "print_json": _print_json,
    "repr": written,
    "round": _rounded,
    "slice": slice,
    "str": to_text,
}
_CLASSES: Final = [(FUNCTIONS[name], kind) for name, kind in _TYPES.items() if kind in _METHODS]
_EXCEPTIONS: Final = (Exception, ArithmeticError, AttributeError, IndexError, KeyError)
_EXCEPTIONS_OF_VALUES: Final = (LookupError, NameError, TypeError, ValueError, ZeroDivisionError)


_IN_PLACE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": _times,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": _power,
    "<<=": _shifted,
    ">>=": operator.irshift,
    "|=": operator.ior,
    "&=": operator.iand,
    "^=": operator.ixor,
}


def _writable(value: Any) -> Any:
    if type(value) not in (list, dict):
        raise TypeError(f"elements of {describe(value)} cannot be set")
    return value


_TABLE: Final[dict[str, Any]] = {
    **FUNCTIONS,
    **{f"_f_{name}": function for name, function in FUNCTIONS.items()},
    **{f"_t_{name}": kind for name, kind in _TYPES.items()},
    **{error.__name__: error for error in (*_EXCEPTIONS, *_EXCEPTIONS_OF_VALUES)},
    "_getattr_": _key_of,
    "_getitem_": _element,
    "_getiter_": _items,
    "_method_": _method,
    "_step_": _method,
    "_times_": _times,
    "_shifted_": _shifted,
    "_ascii_": lambda value: written(value).encode("ascii", "backslashreplace").decode("ascii"),
    "_formatted_": _formatted,
    "_percent_": _percent,
    "_plus_": _plus,
    "_apply_": lambda function, *values, **named: function(*values, **named),
    "_iter_unpack_sequence_": guarded_iter_unpack_sequence,
    "_unpack_sequence_": guarded_unpack_sequence,
    "_inplacevar_": lambda sign, left, right: _IN_PLACE[sign](left, right),
    "_write_": _writable,
}
_HERE: Final = {
    **_TABLE,
    "_times_": _times_here,
    "_percent_": _percent_here,
    "_step_": _step_here,
}
_GUARDED: Final = {
    ast.Add: "_plus_",
    ast.Mod: "_percent_",
    ast.Mult: "_times_",
    ast.Pow: "_f_pow",
    ast.LShift: "_shifted_",
}
# Comprehensions and calls of these take time in proportion to their data.
_LINEAR: Final = frozenset(
    {
        *("abs", "all", "any", "bool", "float", "get", "int", "isinstance", "len", "list", "max"),
        *("min", "parse_json", "print_json", "repr", "round", "set", "sorted", "str", "sum"),
        *("tuple", "capitalize", "count", "endswith", "find", "index", "isalpha", "isdigit"),
        *("items", "join", "keys", "lower", "lstrip", "rstrip", "split", "splitlines"),
        *("startswith", "strip", "title", "upper", "values"),
    }
)
# What changes one element, as the whole of an expression.
_STEPS: Final = frozenset(
    {"add", "append", "clear", "discard", "insert", "pop", "popitem", "remove", "setdefault"}
)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEAR_OPERATORS: Final = (ast.Mult, ast.Pow, ast.LShift, ast.Add, ast.Mod)


class _Policy(RestrictingNodeTransformer):
    """What a text may say; `text` places mistakes."""

    def __init__(self, text: str, *, is_script: bool) -> None:
        super().__init__()
        self._text, self._is_script = text, is_script
        self._comprehensions = 0
        self.is_bounded = not is_script
        self.changes = self.walks = False
        self.whole: ast.AST | None = None

    def error(self, node: ast.AST, info: str) -> NoReturn:
        """Raise the error for what stands at a node."""
        line = getattr(node, "lineno", 1)
        lines = self._text.split("\n")
        before = lines[line - 1].encode("utf-8", "surrogatepass") if line <= len(lines) else b""
        opened = 1 if line == 1 and not self._is_script else 0
        column = getattr(node, "col_offset", 0) - opened
        column = len(before[: max(0, column)].decode("utf-8", "replace"))
        raise ExpressionSyntaxError(info, line, column + 1)

    def not_allowed(self, node: ast.AST) -> NoReturn:
        self.error(node, f"{type(node).__name__} is not available")

    def check_name(
        self,
        node: ast.AST,
        name: str | None,
        allow_magic_methods: bool = False,  # noqa: ARG002
    ) -> None:
        if name is not None and name.startswith("_") and name not in _UNDERSCORED:
            self.error(node, f"names beginning with '_' are not available: {name}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.check_name(node, node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, (bytes, complex)) or node.value is ...:
            self.error(node, f"{describe(node.value)} is not available")
        if isinstance(node.value, int) and node.value.bit_length() > _LARGEST_BITS:
            self.error(node, "the integer is too large")
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.error(node, "':=' is not available")

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.not_allowed(node)

    visit_Import = visit_ImportFrom = visit_Global = not_allowed

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr.startswith("_"):
            self.error(node, f"attributes beginning with '_' are not available: {node.attr}")
        if not isinstance(node.ctx, ast.Load):
            self.error(node, "an attribute cannot be set; keys are set by d['key'] = …")
        return self._call("_getattr_", [self.visit(node.value), ast.Constant(node.attr)], node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        is_dear = isinstance(node.op, _DEAR_OPERATORS) and self._comprehensions
        self.is_bounded &= not is_dear
        self.walks |= isinstance(node.op, ast.Add)
        if isinstance(node.op, ast.MatMult):
            self.error(node, "'@' is not available")
        node = self.node_contents_visit(node)
        guard = _GUARDED.get(type(node.op))
        return node if guard is None else self._call(guard, [node.left, node.right], node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node = self.node_contents_visit(node)
        self.is_bounded &= node.format_spec is None
        guards = {ord("r"): "_f_repr", ord("a"): "_ascii_", ord("s"): "_f_str"}
        if node.format_spec is None or node.conversion in guards:
            guard = guards.get(node.conversion, "_f_str")
            node.value, node.conversion = self._call(guard, [node.value], node.value), -1
        if node.format_spec is not None:
            # Formatting a date imports, which the table of an expression does not offer.
            node.value = self._call("_formatted_", [node.value, node.format_spec], node.value)
            node.format_spec = None
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self.is_bounded = False
        return super().visit_Lambda(node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        for each in ast.walk(node.target):
            if isinstance(each, ast.Subscript):
                self.error(each, "a comprehension sets names only")
        return super().visit_comprehension(node)

    def visit_Call(self, node: ast.Call) -> Any:
        function = node.func
        for keyword in node.keywords:
            self.check_name(keyword.value, keyword.arg)
        name = function.attr if isinstance(function, ast.Attribute) else ""
        if isinstance(function, ast.Name):
            self.check_name(function, name := function.id)
        is_step = node is self.whole and name in _STEPS
        self.is_bounded &= is_step or name in _LINEAR
        self.walks |= name == "join"
        if isinstance(function, ast.Attribute):
            if name.startswith("_"):
                self.error(function, f"names beginning with '_' are not available: {name}")
            self.changes |= name in _CHANGING
            target = self.visit(function.value)
            guard = "_step_" if is_step else "_method_"
            node.func = self._call(guard, [target, ast.Constant(name)], function)
        elif not isinstance(function, ast.Name):
            node.func = self.visit(function)
        elif not self._is_script:
            node.func = ast.copy_location(ast.Name(f"_f_{name}", ast.Load()), function)
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        if name == "isinstance" and len(node.args) == 2 and isinstance(function, ast.Name):
            node.args[1] = self._types(node.args[1])
        return node

    def _types(self, node: ast.expr) -> ast.expr:
        """Return the names of types that `isinstance` takes, as types."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                if each.id not in _TYPES:
                    names = ", ".join(sorted(_TYPES))
                    self.error(each, f"isinstance() takes the names of types ({names})")
                each.id = f"_t_{each.id}"
            elif not isinstance(each, (ast.Tuple, ast.BinOp, ast.BitOr, ast.Load, ast.Constant)):
                self.error(node, "isinstance() takes the names of types")
        return node

    def _call(self, guard: str, values: list[ast.expr], node: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(guard, ast.Load()), values, [])
        ast.copy_location(call, node)
        return ast.fix_missing_locations(call)

    def visit(self, node: ast.AST) -> Any:
        """Visit a node; a comprehension within another one is not bounded."""
        if not isinstance(node, _COMPREHENSIONS):
            return super().visit(node)
        self._comprehensions += 1
        self.walks = True
        self.is_bounded &= self._comprehensions == 1 and len(node.generators) == 1
        node = super().visit(node)
        self._comprehensions -= 1
        return node


class Code(NamedTuple):
    """A compiled text, and the names that it looks up.

    It takes little time and memory where its variables hold at most `most_bytes`. `changes`: it
    calls a method that may change a collection.
    """

    source: str
    code: CodeType
    names: frozenset[str]
    most_bytes: int
    changes: bool


@lru_cache(maxsize=16_384)
def compile_expression(text: str) -> Code:
    """Compile one expression, which may be of several lines, as if in parentheses.

    Raises `ExpressionSyntaxError` with the position in `text`.
    """
    return _compiled(text, is_script=False)


@lru_cache(maxsize=1_024)
def compile_script(text: str) -> Code:
    """Compile statements; raises `ExpressionSyntaxError`."""
    return _compiled(text, is_script=True)


def _compiled(text: str, *, is_script: bool) -> Code:
    if len(text) > _LONGEST_TEXT:
        raise ExpressionSyntaxError(f"an expression has at most {_LONGEST_TEXT} characters")
    policy, mode = _Policy(text, is_script=is_script), "exec" if is_script else "eval"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name a file that does not exist
            # The brackets within an expression are balanced: `template` saw to that.
            tree: Any = ast.parse(text if is_script else f"({text}\n)", mode=mode)
            if not is_script and not _WRITTEN.search(_COMMENT.sub("", text)):
                raise ExpressionSyntaxError("the expression is empty")
            policy.whole = None if is_script else tree.body
            tree = policy.node_contents_visit(tree)
            code = compile(ast.fix_missing_locations(tree), "<expression>", mode)
    except SyntaxError as error:
        raise _placed(error, text, opened=not is_script) from None
    except ValueError as error:
        # Python's own limit for the digits of a literal speaks of its settings.
        large = "integer string conversion" in str(error)
        raise ExpressionSyntaxError("the integer is too large" if large else str(error)) from None
    except (MemoryError, RecursionError, OverflowError):
        raise ExpressionSyntaxError("the expression is too deeply nested") from None
    names = frozenset(name for name in _names_of(code) if name in _UNDERSCORED or name[0] != "_")
    most_bytes = 0 if not policy.is_bounded else _LITTLE if policy.walks else _MUCH
    return Code(text, code, names, most_bytes, policy.changes)


def _placed(error: SyntaxError, text: str, *, opened: bool) -> ExpressionSyntaxError:
    """Return the error with its place in the text; its end, where something is missing."""
    message = (error.msg or "invalid syntax").removesuffix(". Perhaps you forgot a comma?")
    line, lines = error.lineno or 1, text.split("\n")
    if line > len(lines):
        return ExpressionSyntaxError(message, len(lines), len(lines[-1]) + 1)
    return ExpressionSyntaxError(
        message, line, max(1, (error.offset or 1) - (opened and line == 1))
    )


def _names_of(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_of(constant)
    return names


Log = Callable[..., None]


def evaluate(code: Code, scope: Mapping[str, Any], log: Log | None = None) -> Any:
    """Return the value of an expression in a scope of plain data, which it may change.

    Raises `ExpressionError`; without a `log` also `UnboundedError`. Lazy values and views become
    lists.
    """
    names: dict[str, Any] = {"__builtins__": _HERE if log is None else _TABLE, **scope}
    if log is not None:
        names["_f_log"] = log
    try:
        value = eval(code.code, names)  # noqa: S307 - what `_Policy` left of it
        kind = type(value)
        if kind in SCALARS and kind is not str:
            return value
        if kind is GeneratorType or kind in _VIEWS or hasattr(value, "__next__"):
            value = list(value)
        size_of(value)
    except UnboundedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the text does
        raise failure_of(error, f"${{{code.source.strip()}}}") from None
    return value


def run_script(
    code: Code, scope: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Return a script's variable `result`, or else what its `run()` returns.

    Raises `ExpressionError`, and what a function raises that is no `Exception`.
    """
    names: dict[str, Any] = {"__builtins__": _TABLE, **scope, **functions}
    source = next((line.strip() for line in code.source.splitlines() if line.strip()), "")
    try:
        exec(code.code, names)  # noqa: S102 - what `_Policy` left of it
        if "result" in names:
            value = names["result"]
        elif callable(names.get("run")):
            value = names["run"]()
        else:
            raise ValueError("the script sets no variable 'result' and defines no function 'run'")
        size_of(value)
    except Exception as error:  # noqa: BLE001 - whatever the script does
        failure = failure_of(error, f"script {source!r}")
        line, step = None, error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == "<expression>":
                line = step.tb_lineno
            step = step.tb_next
        reason = f"line {line}: {failure.reason}" if line else failure.reason
        raise ExpressionError(failure.kind, reason, failure.source) from None
    return value


def failure_of(error: Exception, source: str) -> ExpressionError:
    """Return the error of an expression for what its evaluation raised."""
    if isinstance(error, MemoryError):
        return ExpressionError("LimitError", "there is not enough memory for it", source)
    if isinstance(error, RecursionError):
        return ExpressionError("RecursionError", "it is nested too deeply", source)
    if isinstance(error, NameError) and (name := getattr(error, "name", None)):
        if name.startswith("_f_"):
            near = suggestion(name[3:], FUNCTIONS)
            return ExpressionError("NameError", f"no function {name[3:]!r}{near}", source)
        return ExpressionError("NameError", f"no variable {name!r}", source)
    reason = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return ExpressionError(type(error).__name__, reason.replace("_f_", ""), source)
