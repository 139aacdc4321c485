"""What a Python function that checks an output is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evalcore.checks.subject import Subject
from evalcore.checks.wording import describe_error
from evalcore.errors import EvalError, TargetError
from evalcore.model.artifact import artifact_of
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.isolation.worker_pool import WorkerPool
    from evalcore.isolation.worker_program import Engine


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
        kept = Case(case.id, case.input, expected_output=case.expected_output)
        return cls(reference, imports, subject.output, subject.evidence, kept, context)

    async def answer(self, function: Callable[..., Any]) -> Any:
        """Return what the function answers; raise `ForeignError`."""
        return await call_foreign(function, *arguments_for(function, self, self.context))

    async def answer_in(self, pool: WorkerPool, timeout_s: float) -> Any:
        """Return what the function answers in a worker process.

        Raise `TargetError` if it raises or its process ends, `TimeoutError`.
        """
        from evalcore.isolation.worker_pool import Job

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

    A parameter named `artifact`, `context` or `output` gets that, whatever its place.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return subject.output, context
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return subject.output, context
    given: dict[str, Any] = {"output": subject.output, "context": context}
    rest = [name for name in given if name not in {one.name for one in parameters}]
    arguments = []
    for one in parameters:
        if one.kind in {one.KEYWORD_ONLY, one.VAR_KEYWORD}:
            break
        if one.name == "artifact":
            arguments.append(_artifact(subject))
        elif one.name in given:
            arguments.append(given[one.name])
        elif one.default is one.empty and rest:
            arguments.append(given[rest.pop(0)])
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
