"""The target `script`: a test of a script suite, run statement by statement."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError, TargetError, UsageError
from evalcore.model.annotation import JUDGED_VALUES
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import SkippedError
from evalcore.model.suite import Case
from evalcore.redaction.redactor import PROCESS
from evalcore.scripts.iteration import Iteration, kind_of
from evalcore.scripts.mcp import McpServers
from evalcore.scripts.models import VARIANT_KEYS, merged_models, model_entry
from evalcore.scripts.program import (
    Layer,
    LevelReader,
    Test,
    judged_values,
    read_levels,
)
from evalcore.scripts.score import score_of, text_of
from evalcore.scripts.statements import RaisingCollector, run_body
from evalcore.scripts.tools import ToolReader
from evalcore.targets.options import (
    ENVIRONMENT,
    KEYLESS_MODES,
    BuildContext,
    context_for,
    variables_of,
)
from evalcore.targets.registry import first_mistake
from evalcore.targets.work import Work
from evalcore.trust.secrets import telling_values

if TYPE_CHECKING:
    from evalcore.providers.chat import ChatModel

_KEPT_TESTS: Final = 1_024
_SHORTEST_SECRET: Final = 4


class ScriptTarget:
    """Runs a test of the suite per item: its statements, in a scope of their own."""

    def __init__(
        self, definition: Mapping[str, Any], variant: Mapping[str, Any], context: BuildContext
    ) -> None:
        """Take what the loader made: `layers` (data and tools, the outermost first), `models`,
        `mcp`, `env`.

        A variant lays `models` over the script's, key by key, and `data` over the suite file's
        shared data. Raises `UsageError` for anything else in it.
        """
        unknown = sorted(set(variant) - set(VARIANT_KEYS))
        if unknown:
            keys = ", ".join(VARIANT_KEYS)
            raise UsageError(f"a variant of a script has no '{unknown[0]}'; it has {keys}")
        models = definition.get("models") or {}
        self._models = merged_models(models, variant.get("models") or {})
        self._context = context
        self._built: dict[str, ChatModel] = {}
        servers = definition.get("mcp") or {}
        names = tuple(definition.get("secrets") or ())
        self._outermost = outermost(definition.get("env") or (), context)
        self._servers = McpServers(servers, self._outermost)
        self._starts_servers = any("url" not in server for server in servers.values())
        env = self._outermost["env"]
        named = [env[name] for name in names if name in env]
        PROCESS.learn(named)
        # Short words, too, which the process does not cover everywhere.
        secrets = {*named, *telling_values(env)}
        self._secrets = tuple(each for each in secrets if len(each) >= _SHORTEST_SECRET)
        mistakes = RaisingCollector()
        reader = LevelReader(ToolReader(mistakes, servers, None), mistakes)
        layers = [Layer(tuple(path), raw, chain) for path, raw, chain in definition["layers"]]
        if variant.get("data"):
            depth = definition.get("variant_layer", len(layers))
            layers.insert(depth, Layer(("variant",), {"data": variant["data"]}, chain=True))
        self._reader, self._levels = reader, read_levels(tuple(layers), reader)
        self._tests: OrderedDict[str, tuple[Any, Test]] = OrderedDict()

    def waits(self, case: Case) -> bool:
        """Return whether the test calls what has to be waited for."""
        return self._test(case).waits

    async def answer(self, work: Work) -> Evidence:
        """Return the evidence; raise `TargetError` of the exception's kind, or `SkippedError`."""
        test = self._test(work.case)
        run = self._running(work)
        try:
            scope = test.enter(self._outermost, work.iteration)
            value = await run_body(test.body, scope, run)
            judged = judged_values(work.case.metadata.get(JUDGED_VALUES, ()), scope)
        except Exception as error:  # noqa: BLE001 - an exception of a test's tools is its result
            failure = _failure(error)
            if not isinstance(failure, SkippedError):
                failure.message = self._hidden(failure.message)
            raise failure from None
        shown = _evidence(value, run, judged)
        hide = self._hidden
        return shown._replace(output=hide(shown.output), details=hide(shown.details))

    def _hidden(self, value: Any) -> Any:
        """Return a value with the secrets in its texts covered."""
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, "[redacted]")
        elif isinstance(value, list):
            return [self._hidden(each) for each in value]
        elif isinstance(value, Mapping):
            return {key: self._hidden(each) for key, each in value.items()}
        return value

    def _test(self, case: Case) -> Test:
        raw, test = self._tests.get(case.id, (None, None))
        if test is None or raw is not case.input:
            test = self._reader.test(case.input, (case.id,), self._levels)
            assert test is not None  # noqa: S101 - the reader has raised else
            self._tests[case.id] = (case.input, test)
            if len(self._tests) > _KEPT_TESTS:
                self._tests.popitem(last=False)
        return test

    def _running(self, work: Work) -> Iteration:
        if self._starts_servers:
            work.imports.check_command("an MCP server")
        model = partial(self.model, mode=work.mode)
        return Iteration(work.imports, model, self._servers.call, work.complete, work.folder)

    def model(self, name: str, mode: str) -> ChatModel:
        """Return the model of that name, made once; raise `TargetError`."""
        if name not in self._built:
            self._built[name] = self._build(name, mode)
        return self._built[name]

    def _build(self, name: str, mode: str) -> ChatModel:
        from pydantic import ValidationError

        from evalcore.providers.chat import ChatOptions, chat_model

        entry = self._models.get(name)
        if entry is None:
            if self._models:
                names = ", ".join(self._models)
                raise TargetError("model", f"there is no model '{name}'; the script has {names}")
            entry = self._unnamed(name, mode)
        protocol, written, _, reasoning = model_entry(entry)
        options, context = context_for(
            name, written, self._context.folder, self._context.surroundings
        )
        context.check(mode)
        try:
            checked = ChatOptions.model_validate(options)
        except ValidationError as error:
            raise TargetError("model", f"model '{name}': {first_mistake(error)}") from error
        chat = chat_model(protocol, name, checked, context.environment, context.secret_headers())
        return replace(chat, strips_reasoning=reasoning == "strip")

    def _unnamed(self, name: str, mode: str) -> Mapping[str, Any]:
        """Return what answers where no script names a model: the provider of the environment."""
        environment = self._context.environment
        has_openai, has_anthropic = (
            any(environment.get(key) for key in ENVIRONMENT if key.startswith(prefix))
            for prefix in ("OPENAI", "ANTHROPIC")
        )
        if not (has_openai or has_anthropic) and mode not in KEYLESS_MODES:
            message = f"there is no model '{name}': name a script whose 'models' has it"
            raise TargetError("model", f"{message}, or set OPENAI_BASE_URL or OPENAI_API_KEY")
        only_anthropic = has_anthropic and not has_openai
        return {"provider": "anthropic" if only_anthropic else "openai", "model": name}


def outermost(names: Any, context: BuildContext) -> dict[str, Any]:
    """Return the outermost scope: `env`, the variables that may be read, and those `names`."""
    values = dict(variables_of(context.folder, context.surroundings or os.environ).values)
    return {**{name: values[name] for name in names if name in values}, "env": values}


def _evidence(value: Any, run: Iteration, judged: Mapping[str, Mapping[str, str]]) -> Evidence:
    score, warning = score_of(value)
    details: dict[str, Any] = {"score": score}
    warnings = [*run.warnings, *([warning] if warning else ())]
    if warnings:
        details["warnings"] = warnings
    if judged:
        details[JUDGED_VALUES] = judged
    return Evidence(text_of(value), details=details)


def _failure(error: Exception) -> TargetError:
    """Return what ends the iteration: with the kind of the exception, by which it can be caught."""
    if isinstance(error, SkippedError):
        return error
    if isinstance(error, RecursionError):
        return TargetError("RecursionError", "statements or values are nested too deep")
    from evalcore.trust.imports import ForeignError

    kind = str(getattr(error, "kind", "") or kind_of(error))
    if isinstance(error, EvalError | ForeignError):
        return TargetError(kind, str(error))
    return TargetError(kind, f"{type(error).__name__}: {error}")
