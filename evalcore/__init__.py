"""evalcore: evaluation of LLM workflows as a distributed job pipeline.

The public API is loaded when it is first asked for: `from evalcore import define_suite, variant,
gates, run_suite, run_suite_async, run_eval, capture`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalcore.version import VERSION

if TYPE_CHECKING:
    from evalcore import gates
    from evalcore.capture.decorator import capture
    from evalcore.checks.scorers import Score
    from evalcore.history.query import History as history  # noqa: N813  (the call opens one)
    from evalcore.model.evidence import Artifact, Evidence, Metrics
    from evalcore.model.run import GateResult
    from evalcore.suites.define import EvalSuite, SuiteError, define_suite, human, variant
    from evalcore.suites.report import CaseResult, SuiteReport
    from evalcore.suites.run import run_suite, run_suite_async
    from evalcore.suites.workflow_evals import EvalRun, run_eval

__version__ = VERSION

__all__ = [
    "Artifact",
    "CaseResult",
    "EvalRun",
    "EvalSuite",
    "Evidence",
    "GateResult",
    "Metrics",
    "Score",
    "SuiteError",
    "SuiteReport",
    "__version__",
    "capture",
    "define_suite",
    "gates",
    "history",
    "human",
    "run_eval",
    "run_suite",
    "run_suite_async",
    "variant",
]

_MODULES = {
    "Artifact": "evalcore.model.evidence",
    "CaseResult": "evalcore.suites.report",
    "EvalRun": "evalcore.suites.workflow_evals",
    "EvalSuite": "evalcore.suites.define",
    "Evidence": "evalcore.model.evidence",
    "GateResult": "evalcore.model.run",
    "Metrics": "evalcore.model.evidence",
    "Score": "evalcore.checks.scorers",
    "SuiteError": "evalcore.suites.define",
    "SuiteReport": "evalcore.suites.report",
    "define_suite": "evalcore.suites.define",
    "human": "evalcore.suites.define",
    "run_eval": "evalcore.suites.workflow_evals",
    "run_suite": "evalcore.suites.run",
    "run_suite_async": "evalcore.suites.run",
    "variant": "evalcore.suites.define",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import evalcore.cli` pays for none of them."""
    from importlib import import_module

    if name in {"capture", "history"}:  # packages that can be called
        return import_module(f"evalcore.{name}")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'evalcore' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
