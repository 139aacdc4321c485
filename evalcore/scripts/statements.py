"""Statements as they stand in a file → statements that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.match_patterns import compile_match_pattern
from evalcore.expressions.tree import Tree, compile_tree
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, known_names, suggest
from evalcore.patterns.bounded import PythonPattern
from evalcore.scripts.iteration import Tool
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.toolbox import Toolbox
from evalcore.scripts.words import MOST_LISTED, check_keys, is_text

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "eval": ("store_as",),
    "call": ("params", "catch", "store_as", "ui_hint"),
    "if": ("then", "else", "store_as"),
    "for_each": ("do", "parallelism", "store_as"),
    "match": ("trim", "matchers", "default", "store_as"),
    "starlark": ("store_as",),
}
_DEEPEST: Final = 100


class Body(NamedTuple):
    """One statement, or a list of them."""

    statements: tuple[Statement, ...]
    listed: bool


class Eval(NamedTuple):
    """Gives a value."""

    tree: Tree
    store_as: str | None


class Call(NamedTuple):
    """Calls a tool."""

    tool: Tool
    params: Tree | None
    catch: tuple[str, ...]
    store_as: str | None


class If(NamedTuple):
    """Goes one of two ways."""

    condition: Tree
    then: Body
    otherwise: Body | None
    store_as: str | None


class ForEach(NamedTuple):
    """Runs its body for every element."""

    elements: Tree
    body: Body
    parallelism: int
    store_as: str | None


class Matcher(NamedTuple):
    """What is run for a value that is equal to `case`, or in which `pattern` is found."""

    case: Tree | None
    pattern: PythonPattern | None
    then: Body


class Match(NamedTuple):
    """Runs the first matcher that fits, else the default."""

    value: Tree
    trim: bool
    matchers: tuple[Matcher, ...]
    default: Body | None
    store_as: str | None


class Starlark(NamedTuple):
    """Runs a script; `tools` are those that it names."""

    source: str
    tools: Mapping[str, Tool]
    store_as: str | None


Statement = Eval | Call | If | ForEach | Match | Starlark


@lru_cache(maxsize=16_384)
def _evaluated(text: str) -> Body:
    """Return the body that is one `eval` of a text; the same text has the same one."""
    return Body((Eval(compile_tree(text), None),), listed=False)


class Compiler:
    """Makes statements; what is wrong with them is noted, and they are left out."""

    def __init__(self, toolbox: Toolbox, mistakes: MistakeCollector) -> None:
        """Take the tools that can be called from these statements."""
        self._toolbox = toolbox
        self._mistakes = mistakes

    def body(self, raw: Any, loc: Loc) -> Body:
        """Return a statement or a list of them."""
        if type(raw) is dict and len(raw) == 1 and type(raw.get("eval")) is str:
            try:
                return _evaluated(raw["eval"])  # by far the most frequent
            except ExpressionSyntaxError:
                pass  # told below
        if len(loc) > _DEEPEST:
            self._mistakes.add(loc[:_DEEPEST], "statements are nested too deep")
            return Body((), listed=True)
        if not isinstance(raw, list):
            made = self._statement(raw, loc)
            return Body(() if made is None else (made,), listed=False)
        found = [self._statement(one, (*loc, index)) for index, one in enumerate(raw)]
        return Body(tuple(one for one in found if one is not None), listed=True)

    def tree(self, raw: Any, loc: Loc) -> Tree | None:
        """Return a value whose texts are templates; note what cannot be read."""
        try:
            return compile_tree(raw)
        except ExpressionSyntaxError as error:
            self._mistakes.add((*loc, *error.path), str(error))
            return None

    def _statement(self, raw: Any, loc: Loc) -> Statement | None:
        known = ", ".join(KEYS)
        if not isinstance(raw, Mapping):
            self._mistakes.add(loc, f"expected a statement ({known}), got {describe(raw)}")
            return None
        kinds = [kind for kind in KEYS if kind in raw]
        if len(kinds) != 1:
            if kinds:
                both = " and ".join(f"'{kind}'" for kind in kinds)
                message = f"a statement has one of {known}, this one has {both}"
            else:
                keys = list(raw)
                hint = suggest(keys[0], KEYS) if keys else f" {known_names(KEYS)}"
                message = f"is no statement: it has none of {known}.{hint if keys else ''}"
            self._mistakes.add(loc, message)
            return None
        kind = kinds[0]
        check_keys(raw, (kind, *KEYS[kind]), loc, self._mistakes)
        store_as = raw.get("store_as")
        if store_as is not None and not is_text(store_as, (*loc, "store_as"), self._mistakes):
            store_as = None
        made: Statement | None = getattr(self, f"_{kind}")(raw, loc, store_as)
        return made

    def _eval(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> Eval | None:
        tree = self.tree(raw["eval"], (*loc, "eval"))
        return None if tree is None else Eval(tree, store_as)

    def _call(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> Call | None:
        name, params = raw["call"], raw.get("params")
        catch = self._catch(raw.get("catch"), (*loc, "catch"))
        tree = self._params(params, (*loc, "params"))
        if not is_text(name, (*loc, "call"), self._mistakes, what="the name of a tool"):
            return None
        tool = self._toolbox.find(name)
        if tool is None:
            names = self._toolbox.names()
            message = f"there is no tool '{name}'. {known_names(names, MOST_LISTED)}"
            self._mistakes.add((*loc, "call"), message)
            return None
        known = tool.parameters()
        if isinstance(params, Mapping) and known is not None:
            for key in params:
                if key not in known:
                    message = f"tool '{name}' has no parameter '{key}'; it is ignored"
                    self._mistakes.warn((*loc, "params", key), message)
        return Call(tool, tree, catch, store_as)

    def _params(self, raw: Any, loc: Loc) -> Tree | None:
        if raw is None:
            return None
        if not isinstance(raw, Mapping | str) or (isinstance(raw, str) and "${" not in raw):
            self._mistakes.add(loc, f"expected a mapping of parameters, got {describe(raw)}")
            return None
        if isinstance(raw, Mapping) and not all(isinstance(key, str) for key in raw):
            key = next(key for key in raw if not isinstance(key, str))
            text = f"a key must be text, got {describe(key)}; write it in quotes"
            self._mistakes.add((*loc, str(key)), text)
            return None
        return self.tree(raw, loc)

    def _catch(self, raw: Any, loc: Loc) -> tuple[str, ...]:
        names = raw if isinstance(raw, list) else [] if raw is None else [raw]
        if not all(isinstance(name, str) and name for name in names):
            wanted = "the name of an exception class, a list of such, or '*'"
            self._mistakes.add(loc, f"expected {wanted}, got {describe(raw)}")
            return ()
        return tuple(names)

    def _if(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> If | None:
        condition = self.tree(raw["if"], (*loc, "if"))
        if "then" not in raw:
            self._mistakes.add((*loc, "then"), "is required")
            return None
        then = self.body(raw["then"], (*loc, "then"))
        otherwise = self.body(raw["else"], (*loc, "else")) if raw.get("else") is not None else None
        return None if condition is None else If(condition, then, otherwise, store_as)

    def _for_each(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> ForEach | None:
        elements = self.tree(raw["for_each"], (*loc, "for_each"))
        if "do" not in raw:
            self._mistakes.add((*loc, "do"), "is required")
            return None
        body = self.body(raw["do"], (*loc, "do"))
        parallelism = raw.get("parallelism", 0)
        if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism < 0:
            message = f"expected a whole number, at least 0, got {describe(parallelism)}"
            self._mistakes.add((*loc, "parallelism"), message)
            return None
        return None if elements is None else ForEach(elements, body, parallelism, store_as)

    def _match(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> Match | None:
        value = self.tree(raw["match"], (*loc, "match"))
        trim = raw.get("trim", False)
        if not isinstance(trim, bool):
            self._mistakes.add((*loc, "trim"), f"expected true or false, got {describe(trim)}")
        matchers = raw.get("matchers")
        if not isinstance(matchers, list):
            got = f"got {describe(matchers)}" if "matchers" in raw else "there is none"
            message = "expected a list of {case or pattern, then}"
            self._mistakes.add((*loc, "matchers"), f"{message}, {got}")
            return None
        made = [self._matcher(one, (*loc, "matchers", i)) for i, one in enumerate(matchers)]
        found = tuple(one for one in made if one is not None)
        default = raw.get("default")
        body = None if default is None else self.body(default, (*loc, "default"))
        return None if value is None else Match(value, bool(trim), found, body, store_as)

    def _matcher(self, raw: Any, loc: Loc) -> Matcher | None:
        if not isinstance(raw, Mapping):
            self._mistakes.add(loc, f"expected {{case or pattern, then}}, got {describe(raw)}")
            return None
        check_keys(raw, ("case", "pattern", "then"), loc, self._mistakes)
        if ("case" in raw) == ("pattern" in raw):
            what = "both" if "case" in raw else "neither"
            self._mistakes.add(loc, f"a matcher has 'case' or 'pattern', this one has {what}")
            return None
        if "then" not in raw:
            self._mistakes.add((*loc, "then"), "is required")
            return None
        then = self.body(raw["then"], (*loc, "then"))
        if "case" in raw:
            case = self.tree(raw["case"], (*loc, "case"))
            return None if case is None else Matcher(case, None, then)
        pattern = raw["pattern"]
        if not isinstance(pattern, str):
            message = f"expected a regular expression, got {describe(pattern)}"
            self._mistakes.add((*loc, "pattern"), message)
            return None
        try:
            return Matcher(None, compile_match_pattern(pattern), then)
        except ExpressionSyntaxError as error:
            self._mistakes.add((*loc, "pattern"), str(error))
            return None

    def _starlark(self, raw: Mapping[str, Any], loc: Loc, store_as: str | None) -> Any:
        from evalcore.expressions.starlark import check_starlark

        source = raw["starlark"]
        if not isinstance(source, str):
            self._mistakes.add((*loc, "starlark"), f"expected a script, got {describe(source)}")
            return None
        try:
            check_starlark(source)
        except ExpressionSyntaxError as error:
            self._mistakes.add((*loc, "starlark"), str(error))
            return None
        tools = {name: tool for name, tool in self._toolbox.visible().items() if name in source}
        return Starlark(source, tools, store_as)
