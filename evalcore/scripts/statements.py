"""The statements of scripts: reading them from a file, and running them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Protocol, Self, TypeVar

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import core_schema

from evalcore.errors import UsageError
from evalcore.expressions.engine import (
    ExpressionError,
    ExpressionSyntaxError,
    LimitError,
    compile_script,
    in_order,
    size_of,
)
from evalcore.expressions.limits import script_result
from evalcore.expressions.template import Tree, compile_tree
from evalcore.patterns import Pattern, PatternError, PatternMatch, compile_pattern
from evalcore.scripts.iteration import Iteration, Scope, Tool, ToolError, is_caught
from evalcore.scripts.score import text_of
from evalcore.shapes import Declared, Listed, Text, adapter, explain
from evalcore.wording import Loc, describe, known_names, suggest


class MistakeCollector(Protocol):
    """Takes mistakes and warnings, each at a path of the file."""

    def add(self, loc: Loc, message: str) -> None:
        """Note a mistake: the file does not load."""

    def warn(self, loc: Loc, message: str) -> None:
        """Note what is accepted and has no effect, or not the expected one."""

    def line(self, loc: Loc) -> str:
        """Return where a path stands, `file:line` or as much of it as is known."""


class RaisingCollector:
    """For what a loader has accepted: a mistake that remains is an error at once."""

    def add(self, loc: Loc, message: str) -> None:
        """Raise `UsageError`."""
        path = ".".join(str(part) for part in loc)
        raise UsageError(f"{path}: {message}")

    def warn(self, loc: Loc, message: str) -> None:
        """Do nothing: the loader has reported it."""

    def line(self, loc: Loc) -> str:
        """Return the path."""
        return ".".join(str(part) for part in loc)


S = TypeVar("S", bound=Declared)


def read_shape(
    shape: type[S],
    raw: Any,
    loc: Loc,
    mistakes: MistakeCollector,
    compiled: Mapping[str, Any] | None = None,
) -> S | None:
    """Return `raw` as an instance of `shape`, None if something is wrong.

    `compiled` are members that are made already; they take the place of those in `raw`.
    """
    values = {**raw, **compiled} if compiled else raw
    try:
        instance: S = adapter(shape).validate_python(values)
    except ValidationError as error:
        for path, message in explain(error, raw, shape):
            mistakes.add((*loc, *path), message)
        return None
    return instance


def is_text(key: object, loc: Loc, mistakes: MistakeCollector) -> bool:
    """Whether a key of a mapping at `loc` is text; note it if it is not."""
    if not isinstance(key, str):
        text = f"a key must be text, got {describe(key)}; write it in quotes"
        mistakes.add((*loc, str(key)), text)
    return isinstance(key, str)


class Toolbox:
    """The tools of one list; what it lacks is looked for in the one around it."""

    def __init__(self, parent: Toolbox | None = None, *, chain: bool = False) -> None:
        """Take the toolbox around it; `chain` says that no name of it may be defined again."""
        self.tools: dict[str, Tool] = {}
        self._places: dict[str, str] = {}
        self._parent = parent
        self.chain = chain

    def add(self, tool: Tool, place: str) -> str | None:
        """Add a tool; return where another one of its name stands, if that is not allowed."""
        box: Toolbox | None = self
        while box is not None:
            if tool.name in box.tools:
                return box._places[tool.name]
            box = box._parent if box.chain else None
        self.tools[tool.name], self._places[tool.name] = tool, place
        return None

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, the innermost first."""
        if name in self.tools:
            return self.tools[name]
        return None if self._parent is None else self._parent.find(name)

    def outside(self, name: str) -> Tool | None:
        """Return the tool of that name around this toolbox."""
        return None if self._parent is None else self._parent.find(name)

    def visible(self) -> dict[str, Tool]:
        """Return every tool that can be called here."""
        outer = {} if self._parent is None else self._parent.visible()
        return {**outer, **self.tools}


RESULT: Final = "_"


class Compiled(NamedTuple):
    """Marks a field that the compiler makes: `form` names its method.

    Where `skips_null`, null counts as a key that is left out.
    """

    form: str
    skips_null: bool = False

    def __get_pydantic_json_schema__(
        self, _: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return a schema that fits anything; `form` is replaced by the schema of the format."""
        del handler
        return {"form": self.form, "skips_null": self.skips_null}


Template = Annotated[Tree, Compiled("tree")]


class ScriptPart(Declared, alias_generator=None, arbitrary_types_allowed=True):
    """A mapping in a script or a suite of statements; its keys are written in snake_case only."""


class Statement(ScriptPart):
    """One step of a test or a tool; `store_as` names the variable that gets its result."""

    store_as: Text | None = None

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - of a type
        """Whether the statement may wait; `asked_tools` are the tools that are asked already."""
        return False

    def bind(
        self,
        toolbox: Toolbox,  # noqa: ARG002
        raw: Mapping[str, Any],  # noqa: ARG002
        loc: Loc,  # noqa: ARG002
        mistakes: MistakeCollector,  # noqa: ARG002
    ) -> bool:
        """Find the tools that the statement names; note and return whether one is missing."""
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result."""
        raise NotImplementedError


class Body:
    """One statement, or a list of them."""

    __slots__ = ("listed", "statements")

    def __init__(self, statements: tuple[Statement, ...], *, listed: bool) -> None:
        self.statements = statements
        self.listed = listed


RequiredBody = Annotated[Body, Compiled("body")]
OptionalBody = Annotated[Body | None, Compiled("body", skips_null=True)]


@cache
def compiled_fields(shape: type[ScriptPart]) -> tuple[tuple[str, Compiled], ...]:
    """Return the keys of a class whose values the compiler makes."""
    return tuple(
        (info.alias or name, mark)
        for name, info in shape.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Compiled)
    )


def any_waits(bodies: Iterable[Body | None], asked_tools: set[int] | None = None) -> bool:
    """Whether statements may have to be waited for: a model, a server, Python of the suite."""
    tools = set() if asked_tools is None else asked_tools
    return any(
        statement.waits(tools)
        for body in bodies
        if body is not None
        for statement in body.statements
    )


async def run_body(body: Body, scope: Scope, run: Iteration) -> Any:
    """Return the result of a statement, or of the last of a list (None of an empty one).

    In a list `_` is the result of the statement before; the first one sees that of the enclosing
    list.
    """
    if not body.listed:
        return await _run(body.statements[0], scope, run)
    before = scope[RESULT]
    result = before if body.statements else None
    try:
        for statement in body.statements:
            scope[RESULT] = result
            result = await _run(statement, scope, run)
    finally:
        scope[RESULT] = before
    return result


async def _run(statement: Statement, scope: Scope, run: Iteration) -> Any:
    run.count()
    result = await statement.run(scope, run)
    if statement.store_as is not None:
        scope[statement.store_as] = result
    return result


_LISTED = 40


class CallTool(Statement):
    """Calls a tool; the exceptions that `catch` names give null."""

    call: Text
    params: Annotated[Tree | None, Compiled("params", skips_null=True)] = None
    catch: Text | Listed[Text] | None = None
    ui_hint: Any = None

    _tool: Tool = PrivateAttr()

    @field_validator("call", mode="before")
    @classmethod
    def _check_call(cls, written: Any) -> Any:
        if isinstance(written, Mapping):
            advice = "list a tool under 'tools' with a 'name', and call that name"
            raise ValueError(f"expected the name of a tool, got a mapping; {advice}")
        return written

    @field_validator("catch", mode="before")
    @classmethod
    def _check_catch(cls, written: Any) -> Any:
        names = written if isinstance(written, list) else [written]
        if written is not None and not all(isinstance(name, str) and name for name in names):
            expected = "the name of an exception class, a list of such, or '*'"
            raise ValueError(f"expected {expected}, got {describe(written)}")
        return written

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the tool waits."""
        return self._tool.waits(asked_tools)

    def bind(
        self, toolbox: Toolbox, raw: Mapping[str, Any], loc: Loc, mistakes: MistakeCollector
    ) -> bool:
        """Find the tool; warn of parameters that it does not have."""
        tool = toolbox.find(self.call)
        if tool is None:
            names = known_names(sorted(toolbox.visible()), _LISTED)
            message = f"there is no tool '{self.call}'. {names}"
            mistakes.add((*loc, "call"), message)
            return False
        self._tool = tool
        params, parameters = raw.get("params"), tool.parameters()
        if isinstance(params, Mapping) and parameters is not None:
            for key in params:
                if key not in parameters:
                    message = f"tool '{self.call}' has no parameter '{key}'; it is ignored"
                    mistakes.warn((*loc, "params", key), message)
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the tool's result."""
        params = {} if self.params is None else self.params.render(scope)
        if params is None:
            params = {}
        tool = self._tool
        if not isinstance(params, Mapping):
            raise ToolError("TypeError", f"the params of '{tool.name}' are no mapping")
        if not self.catch:
            return await tool.call(dict(params), scope, run)
        try:
            return await tool.call(dict(params), scope, run)
        except Exception as error:
            # An exception of a tool is its result where the statement catches it.
            if not is_caught(error, (self.catch,) if isinstance(self.catch, str) else self.catch):
                raise
            return None


class If(Statement):
    """Runs `then` where the condition is true, else `else`."""

    condition: Template = Field(alias="if")
    then: RequiredBody
    otherwise: OptionalBody = Field(default=None, alias="else")

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether one of the ways waits."""
        return any_waits((self.then, self.otherwise), asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result of the way; null without one."""
        if self.condition.render(scope):
            return await run_body(self.then, scope, run)
        if self.otherwise is not None:
            return await run_body(self.otherwise, scope, run)
        return None


class Eval(Statement):
    """Gives a value; the texts in it are templates."""

    value: Template = Field(alias="eval")

    async def run(self, scope: Scope, run: Iteration) -> Any:  # noqa: ARG002 - of a call
        """Return the value."""
        return self.value.render(scope)


_KEY: Final = "key"
_MOST_ROUNDS: Final = 100_000
# Together, as a loop can gather what no single expression may make.
_MOST_BYTES: Final = 100_000_000


class ForEach(Statement):
    """Runs its body for every element, `parallelism` of them at the same time."""

    elements: Template = Field(alias="for_each")
    body: RequiredBody = Field(alias="do")
    parallelism: Annotated[int, Field(ge=0)] = 0

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the body waits."""
        return any_waits((self.body,), asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the results in the order of the elements; of a mapping one of the same keys."""
        elements = self.elements.render(scope)
        if isinstance(elements, Mapping):
            rounds = [{**scope, RESULT: value, _KEY: key} for key, value in elements.items()]
            return dict(zip(elements, await self._rounds(rounds, run), strict=True))
        if isinstance(elements, set | frozenset):
            elements = in_order(elements)
        if isinstance(elements, list | tuple | range):
            if len(elements) > _MOST_ROUNDS:
                message = f"for_each over {len(elements)} elements; at most {_MOST_ROUNDS}"
                raise ToolError("LimitError", message)
            return await self._rounds([{**scope, RESULT: element} for element in elements], run)
        return await run_body(self.body, {**scope, RESULT: elements}, run)

    async def _rounds(self, scopes: list[Scope], run: Iteration) -> list[Any]:
        """Return the results of the rounds in their order, each with a scope of its own."""
        left = _MOST_BYTES

        async def round_in(scope: Scope) -> Any:
            nonlocal left
            result = await run_body(self.body, scope, run)
            try:
                left -= size_of(result, left)
            except LimitError:
                message = f"the results of a for_each are larger than {_MOST_BYTES:,} bytes"
                raise ToolError("LimitError", message) from None
            except TypeError:  # a value of a tool's own
                left -= 8
            return result

        if self.parallelism <= 1 or len(scopes) <= 1 or not any_waits((self.body,)):
            return [await round_in(scope) for scope in scopes]
        slots = asyncio.Semaphore(self.parallelism)

        async def round_in_slot(scope: Scope) -> Any:
            async with slots:
                return await round_in(scope)

        tasks = [asyncio.ensure_future(round_in_slot(scope)) for scope in scopes]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        # The first failure in order, not in time, so that every run gives the same message.
        failures = [error for error in results if isinstance(error, BaseException)]
        for error in sorted(failures, key=lambda error: isinstance(error, asyncio.CancelledError)):
            raise error
        return list(results)


_GROUPS: Final = "_match_groups"
_SEARCH_S: Final = 1.0


class Matcher(ScriptPart):
    """Runs its body for a value that is equal to `case`, or in which `pattern` is found."""

    case: Annotated[Tree | None, Compiled("tree")] = None
    pattern: Annotated[Pattern | None, Compiled("pattern")] = None
    then: RequiredBody

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.case is None) == (self.pattern is None):
            which = "neither" if self.case is None else "both"
            raise ValueError(f"a matcher has 'case' or 'pattern', this one has {which}")
        return self


class Match(Statement):
    """Runs the first matcher that fits, else the default."""

    value: Template = Field(alias="match")
    trim: bool = False
    matchers: Annotated[tuple[Matcher, ...], Compiled("matchers")]
    default: OptionalBody = None

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether one of the bodies waits."""
        return any_waits([*(matcher.then for matcher in self.matchers), self.default], asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result of the body that fits; null if there is none."""
        value = self.value.render(scope)
        if self.trim and isinstance(value, str):
            value = value.strip()
        for matcher in self.matchers:
            if matcher.case is not None:
                if _is_case(value, matcher.case.render(scope)):
                    return await run_body(matcher.then, scope, run)
            elif matcher.pattern is not None and value is not None:
                found = _found(matcher.pattern, text_of(value))
                if found is not None:
                    return await _with_groups(matcher.then, list(found.groups[1:]), scope, run)
        return None if self.default is None else await run_body(self.default, scope, run)


def _found(pattern: Pattern, text: str) -> PatternMatch | None:
    try:
        return pattern.search(text, _SEARCH_S)
    except PatternError as error:
        raise ExpressionError("LimitError", str(error)) from None


async def _with_groups(then: Body, groups: list[Any], scope: Scope, run: Iteration) -> Any:
    outer = {name: scope[name] for name in (_GROUPS,) if name in scope}
    scope[_GROUPS] = groups
    try:
        return await run_body(then, scope, run)
    finally:
        del scope[_GROUPS]
        scope.update(outer)


def _is_case(value: Any, case: Any) -> bool:
    """Whether a value is the case; a text also equals the value that is written like it."""
    if isinstance(value, str) != isinstance(case, str) and value is not None and case is not None:
        return text_of(value) == text_of(case)
    return bool(value == case)


class Starlark(Statement):
    """Runs a script; it may call the tools that it names."""

    source: str = Field(alias="starlark")

    _tools: dict[str, Tool] = PrivateAttr(default_factory=dict)

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        try:
            compile_script(source)
        except ExpressionSyntaxError as error:
            raise ValueError(str(error)) from error
        return source

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - the method of all statements
        """Return True: the process is waited for."""
        return True

    def bind(
        self,
        toolbox: Toolbox,
        raw: Mapping[str, Any],  # noqa: ARG002
        loc: Loc,  # noqa: ARG002
        mistakes: MistakeCollector,  # noqa: ARG002
    ) -> bool:
        """Find the tools that the script names."""
        visible = toolbox.visible()
        self._tools = {name: tool for name, tool in visible.items() if name in self.source}
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the script's result."""

        def function(name: str) -> Any:
            tool = self._tools[name]

            async def called(*arguments: Any, **keywords: Any) -> Any:
                params = {**_named(name, tool.parameters(), arguments), **keywords}
                return await tool.call(params, scope, run)

            return called

        return await script_result(
            self.source, scope, {name: function(name) for name in self._tools}
        )


def _named(
    tool: str, parameters: tuple[str, ...] | None, arguments: tuple[Any, ...]
) -> dict[str, Any]:
    """Return positional arguments by the names of the tool's parameters."""
    if not arguments:
        return {}
    if parameters is None or len(arguments) > len(parameters):
        raise ToolError("TypeError", f"{tool}: name the arguments, as in {tool}(name=value)")
    return dict(zip(parameters, arguments, strict=False))


# The key that names each statement in a file, and its class.
STATEMENTS: Final[Mapping[str, type[Statement]]] = MappingProxyType(
    {
        "eval": Eval,
        "call": CallTool,
        "if": If,
        "for_each": ForEach,
        "match": Match,
        "starlark": Starlark,
    }
)


P = TypeVar("P", bound=ScriptPart)
_DEEPEST: Final = 100


class StatementCompiler:
    """Makes statements; what is wrong with them is noted, and they are left out.

    A method that is the form of a `Compiled` field returns None where it notes a mistake.
    """

    def __init__(self, toolbox: Toolbox, mistakes: MistakeCollector) -> None:
        """Take the tools that can be called from these statements."""
        self._toolbox = toolbox
        self._mistakes = mistakes

    def body(self, raw: Any, loc: Loc) -> Body:
        """Return a statement or a list of them."""
        if len(loc) > _DEEPEST:
            self._mistakes.add(loc[:_DEEPEST], "statements are nested too deep")
            return Body((), listed=True)
        members = raw if isinstance(raw, list) else [raw]
        listed = isinstance(raw, list)
        statements = [
            self._statement(member, (*loc, index) if listed else loc)
            for index, member in enumerate(members)
        ]
        return Body(tuple(each for each in statements if each is not None), listed=listed)

    def tree(self, raw: Any, loc: Loc) -> Tree | None:
        """Return a value whose texts are templates."""
        try:
            return compile_tree(raw)
        except ExpressionSyntaxError as error:
            self._mistakes.add((*loc, *error.path), str(error))
            return None

    def params(self, raw: Any, loc: Loc) -> Tree | None:
        """Return the parameters of a call: a mapping, or a text that gives one."""
        if not isinstance(raw, Mapping | str) or (isinstance(raw, str) and "${" not in raw):
            self._mistakes.add(loc, f"expected a mapping of parameters, got {describe(raw)}")
            return None
        keys = raw if isinstance(raw, Mapping) else ()
        sound = all(is_text(key, loc, self._mistakes) for key in keys)
        return self.tree(raw, loc) if sound else None

    def pattern(self, raw: Any, loc: Loc) -> Pattern | None:
        """Return a regular expression."""
        if not isinstance(raw, str):
            self._mistakes.add(loc, f"expected a regular expression, got {describe(raw)}")
            return None
        try:
            return compile_pattern(raw)
        except PatternError as error:
            self._mistakes.add(loc, str(error))
            return None

    def matchers(self, raw: Any, loc: Loc) -> tuple[Matcher, ...] | None:
        """Return the matchers of a list."""
        if not isinstance(raw, list):
            expected = "a list of {case or pattern, then}"
            self._mistakes.add(loc, f"expected {expected}, got {describe(raw)}")
            return None
        matchers = [self._part(Matcher, member, (*loc, i)) for i, member in enumerate(raw)]
        return tuple(matcher for matcher in matchers if matcher is not None)

    def _statement(self, raw: Any, loc: Loc) -> Statement | None:
        kinds = [kind for kind in STATEMENTS if kind in raw] if isinstance(raw, Mapping) else []
        if len(kinds) != 1:
            self._mistakes.add(loc, _no_statement(raw, kinds))
            return None
        statement = self._part(STATEMENTS[kinds[0]], raw, loc)
        if statement is None or not statement.bind(self._toolbox, raw, loc, self._mistakes):
            return None
        return statement

    def _part(self, shape: type[P], raw: Any, loc: Loc) -> P | None:
        """Return the part of this class, its `Compiled` fields made by the methods of that name."""
        compiled: dict[str, Any] = {}
        sound = True
        for key, mark in compiled_fields(shape) if isinstance(raw, Mapping) else ():
            if key not in raw or (mark.skips_null and raw[key] is None):
                continue
            compiled[key] = getattr(self, mark.form)(raw[key], (*loc, key))
            if compiled[key] is None:
                sound = False
                compiled[key] = _STAND_INS[mark.form]
        part = read_shape(shape, raw, loc, self._mistakes, compiled)
        return part if sound else None


# Takes the place of what could not be compiled, so that the other keys are checked.
_STAND_INS: Final[Mapping[str, Any]] = {
    "tree": compile_tree(None),
    "params": compile_tree(None),
    "pattern": compile_pattern(""),
    "matchers": (),
}


def _no_statement(raw: Any, kinds: list[str]) -> str:
    """Return the message for what is no statement, or has the keys of several."""
    names = ", ".join(STATEMENTS)
    if not isinstance(raw, Mapping):
        return f"expected a statement ({names}), got {describe(raw)}"
    if kinds:
        both = " and ".join(f"'{kind}'" for kind in kinds)
        return f"a statement has one of {names}, this one has {both}"
    first = next(iter(raw), None)
    hint = known_names(STATEMENTS) if first is None else suggest(first, STATEMENTS).strip()
    return f"is no statement: it has none of {names}. {hint}"
