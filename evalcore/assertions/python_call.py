"""What a Python function that checks an output is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from evalcore.assertions.subject import Subject
from evalcore.model.artifact import artifact_of


def arguments_for(
    function: Callable[..., Any], subject: Subject, context: Mapping[str, Any]
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


def _artifact(subject: Subject) -> Any:
    case = subject.case
    return artifact_of(
        subject.evidence,
        case_id=case.id,
        case_input=case.input,
        expected_output=case.expected_output,
    )
