"""The form of the flow `nightly`: many suites, and what is laid over all of them.

Each parameter of the run of one suite stands here under the same name, with the same
bounds and words (`evalcore.prefect.parameters`), except what only makes sense for a single suite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from evalcore.errors import EvalError
from evalcore.model.quarantine import QUARANTINE_FILE
from evalcore.prefect.parameters import EvaluateParameters
from evalcore.trust.globs import has_magic, matching_files

MAX_AT_ONCE = 16

# They name one suite, cases of it, or a run of it.
_OF_ONE_SUITE = frozenset({"suite", "cases", "resume"})


class Night(BaseModel):
    """Which suites are evaluated. Flat, with literal defaults, as `EvaluateParameters`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suites: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]],
        Field(
            min_length=1,
            max_length=1000,
            description="The suites' files, relative to the worker's working folder and below it; "
            "`*`, `?` and `**` stand for many.",
            examples=[["evals/**/*.eval.yaml"]],
        ),
    ]
    at_once: Annotated[
        int,
        Field(ge=1, le=MAX_AT_ONCE, description="How many suites are evaluated at the same time."),
    ] = 1

    def of_suite(self, suite: str) -> dict[str, Any]:
        """Return the parameters of the flow `evaluate` for one of the suites."""
        return {"suite": suite} | self.model_dump(exclude=set(Night.model_fields))


def _shared_fields() -> dict[str, Any]:
    hints = get_type_hints(EvaluateParameters, include_extras=True)
    return {
        name: (hints[name], field.default)
        for name, field in EvaluateParameters.model_fields.items()
        if name not in _OF_ONE_SUITE
    }


NightlyParameters: type[Night] = create_model(
    "NightlyParameters", __base__=Night, **_shared_fields()
)


def find_suites(patterns: list[str], folder: Path) -> list[tuple[str, bool]]:
    """Return the files that the patterns name, in their order, each once.

    A pattern's own files are in alphabetical order. A pattern that no file below `folder` matches
    stands for itself, with False; a plain name is never looked for.
    """
    suites: dict[str, bool] = {}
    for pattern in patterns:
        if not has_magic(pattern):
            suites.setdefault(pattern, True)
            continue
        files = _matching(pattern, folder)
        for name in files:
            suites.setdefault(name, True)
        if not files:
            suites.setdefault(pattern, False)
    return list(suites.items())


def _matching(pattern: str, folder: Path) -> list[str]:
    """Return the files below `folder` that match, relative to it; nothing hidden."""
    if Path(pattern).is_absolute():
        return []
    try:
        names = matching_files(pattern, folder, folder)
    except (EvalError, ValueError):
        return []
    return [
        name
        for name in names
        if not any(part.startswith(".") for part in Path(name).parts)
        # It stands beside suites and is none.
        and Path(name).name != QUARANTINE_FILE
    ]
