"""`get`, `parse_json`, `print_json`, `as_yaml`, `log`: the functions that are not Python's."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.lookup import item
from evalcore.expressions.percent import percent
from evalcore.expressions.texts import to_text
from evalcore.expressions.values import (
    EvaluationFailure,
    Lazy,
    check_key,
    describe,
    in_order,
    plain,
    walk,
)

_log: Final = logging.getLogger(__name__)
_WIDEST: Final = 1 << 30
_LONGEST_RECORD: Final = 10_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# The writer of YAML is slow.
_STEPS_PER_NODE: Final = 10
# A thousand records a statement.
_STEPS_PER_RECORD: Final = 100


def get(budget: Budget, source: Any, key: Any, default: Any = None) -> Any:
    """Return a mapping's value or a sequence's element, or the default where there is none."""
    if isinstance(source, Mapping):
        check_key(key, budget)
        return source.get(key, default)
    if isinstance(source, (list, tuple, str, range)) and isinstance(key, int):
        inside = -len(source) <= key < len(source)
        return item(budget, source, key) if inside else default
    return default


def parse_json(budget: Budget, text: Any, ignore_error: Any = False) -> Any:
    """Return the value of a JSON text; with `ignore_error`, the text itself where it is none."""
    text = plain(text)
    if type(text) is not str:
        if ignore_error:
            return text
        raise EvaluationFailure("TypeError", f"parse_json() takes a text, not {describe(text)}")
    elements = text.count(",") + text.count("[") + text.count("{")
    budget.room(len(text) + 8 * elements)
    budget.charge(elements >> 3)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if ignore_error:
            return text
        raise EvaluationFailure(
            "ValueError", f"parse_json(): the text is no JSON: {error}"
        ) from None


def print_json(budget: Budget, value: Any, pretty: Any = False) -> str:
    """Return the value as JSON, indented if it is to be pretty; what JSON lacks is its text."""
    if type(value) is Lazy:
        raise EvaluationFailure(
            "TypeError", "print_json() takes no generator; make a list of it: list(…)"
        )
    nodes, size = walk(value, budget)
    budget.charge(1 + nodes)
    budget.room(size)
    tree = _plain_tree(value, None, budget)
    try:
        text = json.dumps(tree, ensure_ascii=False, indent=2 if pretty else None)
    except (TypeError, RecursionError) as error:
        raise EvaluationFailure("TypeError", f"print_json(): {error}") from None
    budget.room(len(text))
    return text


def as_yaml(budget: Budget, value: Any, trim: Any = None) -> str:
    """Return the value as YAML, in block style and the mapping's own order.

    `trim` shortens every text to so many characters.
    """
    if type(value) is Lazy:
        raise EvaluationFailure(
            "TypeError", "as_yaml() takes no generator; make a list of it: list(…)"
        )
    budget.charge(_STEPS_PER_NODE * (1 + walk(value, budget)[0]))
    import yaml

    longest = trim if type(trim) is int and trim > 0 else None
    text = yaml.dump(
        _plain_tree(value, longest, budget),
        Dumper=_dumper(),
        allow_unicode=True,
        sort_keys=False,
        width=_WIDEST,
    )
    budget.room(len(text))
    return text.removesuffix("...\n") if not isinstance(value, (Mapping, list, tuple)) else text


def _dumper() -> Any:
    import yaml

    class Writer(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, _: Any) -> bool:
            return True

    return Writer


def _plain_tree(value: Any, longest: int | None, budget: Budget) -> Any:
    """Return the value of builtin classes only, sets as lists, and anything else as its text.

    So is a mapping's key that is a tuple or a set.
    """
    value = plain(value)
    if type(value) is str:
        long = longest is not None and len(value) > longest
        return f"{value[:longest]}…" if long else value
    if value is None or type(value) in (int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {
            _plain_key(key, longest, budget): _plain_tree(each, longest, budget)
            for key, each in value.items()
        }
    if isinstance(value, (set, frozenset)):
        value = in_order(value)
    if isinstance(value, (list, tuple)):
        return [_plain_tree(each, longest, budget) for each in value]
    return str(value)


def _plain_key(key: Any, longest: int | None, budget: Budget) -> Any:
    if isinstance(key, (tuple, frozenset)):
        key = to_text(key, budget)
    return _plain_tree(key, longest, budget)


def log(budget: Budget, message: Any, *values: Any) -> None:
    """Write a message, `%` fields filled with the values, to the log; return None."""
    budget.charge(_STEPS_PER_RECORD)
    text = to_text(message, budget)
    if values:
        text = percent(text, values, budget)
    # What a script says stays on one line of the log.
    _log.info("%s", _CONTROL.sub(lambda sign: repr(sign[0])[1:-1], text[:_LONGEST_RECORD]))
