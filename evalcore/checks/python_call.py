"""What a Python function that checks an output is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evalcore.checks.subject import Subject
from evalcore.errors import EvalError, TargetError
from evalcore.mistakes.foreign_text import describe_error
from evalcore.model.artifact import artifact_of
from evalcore.model.evidence import Evidence
from evalcore.model.own_copy import own_copy
from evalcore.model.suite import Case
from evalcore.trust.calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool
    from evalcore.isolation.worker import Engine


_ENTRY: Final = "evalcore.checks.python_call:check_in_worker"


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """One call of a function that checks an output: which, from where, and with what."""

    reference: str
    imports: ImportPolicy
    output: str
    evidence: Evidence
    case: Case
    context: Mapping[str, Any]

    @classmethod
    def of(cls, reference: str, subject: Subject, context: Mapping[str, Any]) -> PythonCheck:
        """Return the call for what a check sees."""
        imports, case = subject.context.imports, subject.case
        # What else a case has is not for a check, and other assertions need not cross over.
        visible_case = Case(case.id, case.input, expected_output=case.expected_output)
        return cls(reference, imports, subject.output, subject.evidence, visible_case, context)

    async def answer(self, function: Callable[..., Any]) -> Any:
        """Return what the function answers; raise `ForeignError`."""
        return await call_foreign(function, *arguments_for(function, self, self.context))

    async def answer_in(self, pool: WorkerPool, timeout_s: float) -> Any:
        """Return what the function answers in a worker process.

        Raise `TargetError` if it raises or its process ends, `TimeoutError`.
        """
        from evalcore.isolation.pool import Job

        return await pool.call_within(Job(_ENTRY, self), timeout_s)


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


def arguments_for(
    function: Callable[..., Any], subject: Subject | PythonCheck, context: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the positional arguments: `(output, context)`, or as many as the function takes.

    A parameter named `artifact`, `context` or `output` gets that at any position. The values are
    the function's own, not those of other checks.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return subject.output, own_copy(context)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return subject.output, own_copy(context)
    values: dict[str, Any] = {"output": subject.output, "context": own_copy(context)}
    rest = [name for name in values if name not in {parameter.name for parameter in parameters}]
    arguments = []
    for parameter in parameters:
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}:
            break
        if parameter.name == "artifact":
            arguments.append(_artifact(subject))
        elif parameter.name in values:
            arguments.append(values[parameter.name])
        elif parameter.default is parameter.empty and rest:
            arguments.append(values[rest.pop(0)])
        else:
            break
    return tuple(arguments)


def _artifact(subject: Subject | PythonCheck) -> Any:
    case = subject.case
    return artifact_of(
        subject.evidence,
        case_id=case.id,
        case_input=case.input,
        expected_output=case.expected_output,
    )
