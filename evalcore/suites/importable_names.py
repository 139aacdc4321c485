"""The functions of a suite in Python under names that other processes can import.

`module:function` in place of `local:function`: worker processes, other machines and later commands
can execute such a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.suites.define import EvalSuite
from evalcore.trust.imports import ImportPolicy

_LISTS: Final = ("scorers", "gates")


def with_importable_names(
    suite: EvalSuite, module: ModuleType, name: str, imports: ImportPolicy
) -> EvalSuite:
    """Return the suite with every function named by its module, as far as that can be imported.

    `name` is what `imports` finds `module`, the suite's own, by. Lambdas, closures and objects
    without a name in it stay in `objects` and keep their local names.
    """
    references: dict[str, str] = {}
    for local, value in suite.objects.items():
        reference = _reference(value, module, name, imports)
        if reference is not None:
            references[local] = reference
    if not references:
        return suite
    objects = {local: value for local, value in suite.objects.items() if local not in references}
    return replace(suite, raw=_renamed(suite.raw, references), objects=objects)


def _reference(value: Any, module: ModuleType, name: str, imports: ImportPolicy) -> str | None:
    """Return the name under which the same object is imported; None if there is none."""
    candidates = []
    home, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(home, str) and isinstance(inner, str) and "<" not in inner:
        candidates.append(f"{home}:{inner}")
    bound = (key for key, member in vars(module).items() if member is value)
    candidates.extend(f"{name}:{key}" for key in bound if not key.startswith("__"))
    return next((text for text in candidates if _is_imported_as(text, value, imports)), None)


def _is_imported_as(reference: str, value: Any, imports: ImportPolicy) -> bool:
    method = "" if callable(value) else "score"
    try:
        return imports.load(reference, method) is value
    except EvalError:
        return False


def _renamed(raw: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """Return what a suite file would say, its functions by their references."""

    def renamed(entry: Any) -> Any:
        if not isinstance(entry, Mapping) or entry.get("callable") not in references:
            return entry
        written = {key: value for key, value in entry.items() if key != "behaviour"}
        return {**written, "callable": references[entry["callable"]]}

    changed = {**raw, **{key: _each(raw[key], renamed) for key in _LISTS if key in raw}}
    flow = raw.get("flow")
    if isinstance(flow, Mapping):
        changed["flow"] = {key: renamed(value) for key, value in renamed(flow).items()}
    if isinstance(raw.get("cases"), list):
        changed["cases"] = [_renamed_case(case, renamed) for case in raw["cases"]]
    return changed


def _renamed_case(case: Any, renamed: Callable[[Any], Any]) -> Any:
    if not isinstance(case, Mapping) or "assertions" not in case:
        return case
    return {**case, "assertions": _each(case["assertions"], renamed)}


def _each(entries: Any, renamed: Callable[[Any], Any]) -> Any:
    return [renamed(entry) for entry in entries] if isinstance(entries, list) else entries
