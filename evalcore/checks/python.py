"""What a Python function that checks an output is called with."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from evalcore.checks.base import Check, Fault, Subject
from evalcore.checks.json import SCHEMA_PATTERN_S, SchemaProblem, first_mistake
from evalcore.errors import EvalError, TargetError
from evalcore.jsonvalues import own_copy, parse
from evalcore.model.assertion import FAILED, PASSED, Outcome, Verdict, broken, failed
from evalcore.model.evidence import Evidence
from evalcore.model.scoring import reaches
from evalcore.model.suite import Case, artifact_of
from evalcore.shapes import CALLABLE, Share, Text
from evalcore.trust.imports import (
    ForeignError,
    ImportPolicy,
    arguments_for,
    call_foreign,
    find_callable,
)
from evalcore.wording import describe_error, one_line

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine


_ENTRY: Final = "evalcore.checks.python:check_in_worker"


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """One call of a function that checks an output: which, from where, and with what."""

    reference: str
    imports: ImportPolicy
    output: str
    evidence: Evidence
    case: Case
    context: Mapping[str, Any]

    async def answer(self, function: Callable[..., Any]) -> Any:
        """Return what the function answers to `(output, context)`, or to as many as it takes.

        A parameter named `artifact`, `context` or `output` gets that at any position. The values
        are the function's own, not those of other checks. Raise `ForeignError`.
        """
        values = _Values(output=self.output, context=own_copy(self.context))
        values.make = partial(artifact_of, self.evidence, self.case)
        names = {name: name for name in ("artifact", "context", "output")}
        in_order = ("output", "context")
        arguments, keywords = arguments_for(function, values, in_order, names, keeps_defaults=True)
        return await call_foreign(function, *arguments, **keywords)


class _Values(dict[str, Any]):
    """The values of parameters; the artifact is made for functions that take it."""

    make: Callable[[], Any]

    def __missing__(self, name: str) -> Any:
        return self.make()


async def check_in_worker(check: PythonCheck, engine: Engine) -> Any:
    """Return what the function answers, as a JSON value: what a worker process runs."""
    try:
        function = check.imports.load(check.reference)
        engine.loaded()
        answer = await check.answer(function)
    except EvalError as error:
        raise TargetError("import", str(error)) from error
    except ForeignError as error:
        raise TargetError("python", describe_error(error.__cause__ or error)) from error
    if isinstance(answer, Mapping):
        return dict(answer)
    if answer is None or isinstance(answer, bool | int | float | str | list):
        return answer
    raise TargetError("python", f"it returned {type(answer).__name__}; return a bool or a mapping")


# promptfoo's name of it, and how its Python wrapper spells that keyword.
_PASSED = ("passed", "pass", "pass_")
_RUNNER = Path(__file__).with_name("plugin_runner.py")

Reference = Annotated[str, Field(pattern=CALLABLE)]


class Custom(Check):
    """The plug-in `id` passes: `get_assert(output, context)` of the file `source`.

    It runs in a Python process of its own and returns what `returns` declares: `bool`, or
    `grading_result`, a mapping `{passed, score, reason}`. Anything else, a crash, a time-out and a
    `config` that the manifest's `params` (a JSON Schema) do not allow are errors; in the last case
    the plug-in is not started.
    """

    expected_field: ClassVar[str] = "id"

    id: str
    source: str
    returns: Literal["bool", "grading_result"]
    params: dict[str, Any] | None = None
    config: dict[str, Any] | None = None

    async def check(self, subject: Subject) -> Verdict:
        """Start the plug-in and read its answer."""
        from evalcore.trust.commands import run_command

        mistake = _config_mistake(self, subject.context.regex_timeout_s)
        if mistake is not None:
            return broken(mistake)
        subject.context.imports.check_command("the plug-in")
        question = {"output": subject.output, "context": _context(subject, self.config, self.id)}
        timeout_s = subject.context.plugin_timeout_s
        ended = await run_command(
            [sys.executable, "-I", str(_RUNNER), self.source],
            stdin=json.dumps(question, default=str).encode(),
            cwd=subject.context.folder,
            timeout_s=timeout_s,
        )
        if ended.timed_out:
            return broken(f"the plug-in did not answer within {timeout_s:g} s")
        try:
            answer = parse(ended.stdout)["returned"]
        except (ValueError, TypeError, KeyError):
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"it ended with exit code {ended.exit_code}"
            return broken(one_line(f"the plug-in failed: {reason}"))
        if self.returns == "bool":
            if isinstance(answer, bool):
                return PASSED if answer else failed("the plug-in returned false")
            return broken(one_line(f"the plug-in has to return a bool, not {answer!r}"))
        return _grading_verdict(answer, "the plug-in")

    def faults(self) -> Iterator[Fault]:
        """Yield that the `config` breaks the manifest's `params`."""
        mistake = _config_mistake(self, SCHEMA_PATTERN_S)
        if mistake is not None:
            yield Fault(("config",), mistake)


def _config_mistake(check: Custom, regex_timeout_s: float) -> str | None:
    """Return how the assertion's `config` breaks the manifest's `params`, None if it does not.

    An assertion without `config` has an empty one.
    """
    if check.params is None:
        return None
    config = {} if check.config is None else check.config
    try:
        mistake = first_mistake(config, check.params, regex_timeout_s)
    except SchemaProblem as problem:
        return f"the params of the plug-in '{check.id}': {problem}"
    if mistake is None:
        return None
    return f"the config of the plug-in '{check.id}' breaks its params: {mistake}"


class Python(Check):
    """The function `callable` (`module:function`) passes.

    It is called as `fn(output, context)`, `fn(output)` or `fn(artifact)` and may be a coroutine
    function. It returns a bool, a number in [0, 1], which passes from `threshold` (1) on, or a
    mapping `{passed, score, reason}`. Anything else, an exception and a time-out are errors.
    """

    expected_field: ClassVar[str] = "callable"

    callable: Reference
    config: dict[str, Any] | None = None
    threshold: float | None = None
    behaviour: str | None = None

    async def check(self, subject: Subject) -> Verdict:
        """Call the function and read its answer."""
        reference, context = self.callable, subject.context
        # What else a case has is not for a check, and other assertions need not cross over.
        case = Case(
            subject.case.id, subject.case.input, expected_output=subject.case.expected_output
        )
        given = _context(subject, self.config)
        call = PythonCheck(
            reference, context.imports, subject.output, subject.evidence, case, given
        )
        timeout_s = context.plugin_timeout_s
        workers = None if reference in context.objects else context.workers.of(None)
        try:
            if workers is not None:
                from evalcore.isolation.pool import Job

                answer = await workers.call(Job(_ENTRY, call), timeout_s=timeout_s)
            else:
                function = find_callable(reference, context.imports, context.objects)
                answer = await asyncio.wait_for(call.answer(function), timeout_s)
        except TargetError as error:
            return broken(str(error) if error.kind == "import" else f"{reference} failed: {error}")
        except ForeignError as error:
            return broken(f"{reference} failed: {describe_error(error.__cause__ or error)}")
        except TimeoutError:
            return broken(f"{reference} did not return within {timeout_s:g} s")
        return self._verdict(answer)

    def _verdict(self, answer: Any) -> Verdict:
        reference = self.callable
        if isinstance(answer, bool):
            return PASSED if answer else failed(f"{reference} returned False")
        if isinstance(answer, int | float):
            if not 0 <= answer <= 1:
                return broken(f"{reference} returned {answer!r}, a score is in [0, 1]")
            passed = reaches(answer, 1.0 if self.threshold is None else self.threshold)
            message = "" if passed else f"{reference} returned {answer:.4g}"
            return Verdict(Outcome.PASSED if passed else Outcome.FAILED, float(answer), message)
        return _grading_verdict(answer, reference)

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `python` means in workflow files."""
        return "python", {
            "callable": written["callable"],
            "config": written.get("config") or {},
            "threshold": written.get("threshold"),
        }

    @classmethod
    def read_suite(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `python` means in suite files."""
        names = cls.__annotations__
        return "python", {name: written[name] for name in names if name in written}


def _context(
    subject: Subject, config: Mapping[str, Any] | None, plugin: str | None = None
) -> dict[str, Any]:
    case = subject.case
    return {
        "config": config,
        "id": plugin,
        "case_id": case.id,
        "input": case.input,
        "expected_output": case.expected_output,
        "criteria": case.criteria,
        "metadata": dict(case.metadata),
        "outputs": dict(subject.evidence.outputs),
        "metrics": dataclasses.asdict(subject.metrics),
    }


def _grading_verdict(answer: Any, who: str) -> Verdict:
    """Return the verdict of a `{passed, score, reason}`, an error if it is not one."""
    if not isinstance(answer, Mapping):
        return broken(one_line(f"{who} has to return {{passed, score, reason}}, not {answer!r}"))
    spellings = [key for key in _PASSED if key in answer]
    if len(spellings) > 1:
        return broken(f"{who} returned '{spellings[0]}' and '{spellings[1]}'; one of them says it")
    passed = answer[spellings[0]] if spellings else None
    score, reason = answer.get("score"), answer.get("reason")
    if not isinstance(passed, bool):
        return broken(one_line(f"{who}: 'passed' has to be a bool, not {passed!r}"))
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        return broken(one_line(f"{who}: 'score' has to be a number in [0, 1], not {score!r}"))
    if not isinstance(reason, str):
        return broken(one_line(f"{who}: 'reason' has to be a text, not {reason!r}"))
    base = PASSED if passed else FAILED
    return base._replace(score=float(score), message=one_line(reason))


class SuitePythonKeys(TypedDict, total=False):
    """The keys of `python` in suite files that are no fields, or have another type."""

    path: Text
    threshold: Share
    value: Any
    behaviour: str
