"""Run statements: one after another, each seeing what those before it left.

Everything here is a coroutine; one whose tools wait for nothing never suspends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget, LimitError
from evalcore.expressions.match_patterns import match_groups
from evalcore.expressions.values import SCALARS, in_order, walk
from evalcore.scripts.failure import ToolError, is_caught
from evalcore.scripts.iteration import Iteration, Scope
from evalcore.scripts.score import text_of
from evalcore.scripts.statements import (
    Body,
    Call,
    Eval,
    ForEach,
    If,
    Match,
    Starlark,
    Statement,
)

RESULT: Final = "_"
_KEY: Final = "key"
_GROUPS: Final = "_match_groups"
_MOST_ROUNDS: Final = 100_000
# Together, as a loop can gather what no single expression may make.
_MOST_BYTES: Final = 100_000_000
_WALKED: Final = 100_000_000


def waits(body: Body, seen: set[int] | None = None) -> bool:
    """Whether statements may have to be waited for: a model, a server, somebody's Python."""
    found = set() if seen is None else seen
    return any(_statement_waits(statement, found) for statement in body.statements)


def _statement_waits(statement: Statement, seen: set[int]) -> bool:
    match statement:
        case Call():
            return statement.tool.waits(seen)
        case If():
            other = statement.otherwise
            return waits(statement.then, seen) or (other is not None and waits(other, seen))
        case ForEach():
            return waits(statement.body, seen)
        case Match():
            bodies = [matcher.then for matcher in statement.matchers]
            if statement.default is not None:
                bodies.append(statement.default)
            return any(waits(body, seen) for body in bodies)
        case Starlark():
            return True  # it runs in a process of its own
        case _:
            return False


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
    match statement:
        case Eval():
            result = statement.tree.render(scope)
        case Call():
            result = await _call(statement, scope, run)
        case If():
            result = await _if(statement, scope, run)
        case ForEach():
            result = await _for_each(statement, scope, run)
        case Match():
            result = await _match(statement, scope, run)
        case _:
            result = await _starlark(statement, scope, run)
    if statement.store_as is not None:
        scope[statement.store_as] = result
    return result


async def _call(statement: Call, scope: Scope, run: Iteration) -> Any:
    params = {} if statement.params is None else statement.params.render(scope)
    if params is None:
        params = {}
    if not isinstance(params, Mapping):
        raise ToolError("TypeError", f"the params of '{statement.tool.name}' are no mapping")
    if not statement.catch:
        return await statement.tool.call(dict(params), scope, run)
    try:
        return await statement.tool.call(dict(params), scope, run)
    except Exception as error:
        # Whatever the tool raises is its result, if the file says so.
        if not is_caught(error, statement.catch):
            raise
        return None


async def _if(statement: If, scope: Scope, run: Iteration) -> Any:
    if statement.condition.render(scope):
        return await run_body(statement.then, scope, run)
    if statement.otherwise is not None:
        return await run_body(statement.otherwise, scope, run)
    return None


async def _for_each(statement: ForEach, scope: Scope, run: Iteration) -> Any:
    elements = statement.elements.render(scope)
    if isinstance(elements, Mapping):
        rounds = [{**scope, RESULT: value, _KEY: key} for key, value in elements.items()]
        return dict(zip(elements, await _rounds(statement, rounds, run), strict=True))
    if isinstance(elements, set | frozenset):
        elements = in_order(elements)
    if isinstance(elements, list | tuple | range):
        if len(elements) > _MOST_ROUNDS:
            message = f"for_each over {len(elements)} elements; at most {_MOST_ROUNDS}"
            raise ToolError("LimitError", message)
        return await _rounds(statement, [{**scope, RESULT: one} for one in elements], run)
    return await run_body(statement.body, {**scope, RESULT: elements}, run)


async def _rounds(statement: ForEach, scopes: list[Scope], run: Iteration) -> list[Any]:
    """Return the results of the rounds in their order, each with a scope of its own."""
    import asyncio

    body = statement.body
    room = Budget(steps=_WALKED, bytes=_MOST_BYTES, seconds=math.inf)
    room.start()
    left = _MOST_BYTES

    async def round_in(scope: Scope) -> Any:
        nonlocal left
        result = await run_body(body, scope, run)
        left -= _size(result, room)
        if left < 0:
            message = f"the results of a for_each are larger than {_MOST_BYTES:,} bytes"
            raise ToolError("LimitError", message)
        return result

    if statement.parallelism <= 1 or len(scopes) <= 1 or not waits(body):
        return [await round_in(scope) for scope in scopes]
    places = asyncio.Semaphore(statement.parallelism)

    async def one(scope: Scope) -> Any:
        async with places:
            return await round_in(scope)

    tasks = [asyncio.ensure_future(one(scope)) for scope in scopes]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    # The first in order, not the first in time, so that the message is the same in every run.
    failures = [error for error in ended if isinstance(error, BaseException)]
    for error in failures:
        if not isinstance(error, asyncio.CancelledError):
            raise error
    for error in failures:
        raise error
    return list(ended)


def _size(value: Any, room: Budget) -> int:
    """Return the bytes of a result; more than are allowed for what is too large to be walked."""
    if type(value) in SCALARS:
        return len(value) if isinstance(value, str) else 8
    try:
        return walk(value, room)[1] + 8
    except LimitError:
        return _MOST_BYTES + 1


async def _match(statement: Match, scope: Scope, run: Iteration) -> Any:
    value = statement.value.render(scope)
    if statement.trim and isinstance(value, str):
        value = value.strip()
    for case, pattern, then in statement.matchers:
        if case is not None:
            if _is_case(value, case.render(scope)):
                return await run_body(then, scope, run)
        elif pattern is not None and value is not None:
            groups = match_groups(pattern, text_of(value))
            if groups is not None:
                return await _with_groups(then, list(groups[1:]), scope, run)
    return None if statement.default is None else await run_body(statement.default, scope, run)


async def _with_groups(then: Body, groups: list[Any], scope: Scope, run: Iteration) -> Any:
    outer = {name: scope[name] for name in (_GROUPS,) if name in scope}
    scope[_GROUPS] = groups
    try:
        return await run_body(then, scope, run)
    finally:
        del scope[_GROUPS]
        scope.update(outer)


def _is_case(value: Any, case: Any) -> bool:
    """Whether a value is the case; a text is also what is written like it."""
    if isinstance(value, str) != isinstance(case, str) and value is not None and case is not None:
        return text_of(value) == text_of(case)
    return bool(value == case)


async def _starlark(statement: Starlark, scope: Scope, run: Iteration) -> Any:
    import asyncio

    from evalcore.expressions.starlark import run_starlark
    from evalcore.trust.foreign_calls import in_thread

    loop = asyncio.get_running_loop()

    def function(name: str) -> Any:
        tool = statement.tools[name]

        def called(*arguments: Any, **keywords: Any) -> Any:
            params = {**_named(name, tool.parameters(), arguments), **keywords}
            asked = tool.call(params, scope, run)
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        return called

    functions = {name: function(name) for name in statement.tools}
    seen = {name: value for name, value in scope.items() if name.isidentifier()}
    return await in_thread(lambda: run_starlark(statement.source, seen, Budget(), functions))


def _named(
    tool: str, parameters: tuple[str, ...] | None, arguments: tuple[Any, ...]
) -> dict[str, Any]:
    """Return arguments that stand without a name, by the names of the tool's parameters."""
    if not arguments:
        return {}
    if parameters is None or len(arguments) > len(parameters):
        raise ToolError("TypeError", f"{tool}: name the arguments, as in {tool}(name=value)")
    return dict(zip(parameters, arguments, strict=False))
