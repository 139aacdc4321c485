"""`define_suite` and `variant`: a suite in code, checked as a whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from evalcore.errors import LoadError, Problem
from evalcore.formats.documents import Renames
from evalcore.formats.options import LoadOptions
from evalcore.formats.quarantine import load_quarantined
from evalcore.formats.sources import names_objects, names_stored_cases
from evalcore.formats.suite_file.loader import read_suite
from evalcore.gates.gate import Gate
from evalcore.model.gate import GateSpec
from evalcore.model.suite import Source, Suite
from evalcore.problems import Problems
from evalcore.suites.json_parts import json_values, places_beyond_json
from evalcore.suites.local_names import LocalNames
from evalcore.targets.function_context import FlowVariant
from evalcore.wording import path_text

Flow = Callable[..., Any] | str | os.PathLike[str] | Mapping[str, Any]


class SuiteError(LoadError, ValueError):
    """A suite that was defined in Python is wrong; `problems` holds every mistake."""


class SuiteOptions(TypedDict, total=False):
    """What a suite may say beside its cases, variants, gates and scorers.

    `limits` are `{concurrency, timeout_s, max_cost_usd, max_tokens, max_duration_s, providers}`.
    `targets` are `{name, provider, …}`. `assertions` are those of every case. `folder` is where
    files and modules are looked for, by default that of the file that calls. `errors` is `fail`,
    `zero` or `exclude`; `truncated` is `keep` or `error`; `iterations` a number, `auto` or
    `auto:MAX`.
    """

    assertions: Iterable[Mapping[str, Any] | Callable[..., Any]]
    iterations: int | str
    reducer: str
    k: int
    limits: Mapping[str, Any]
    tags: Iterable[str]
    targets: Iterable[Mapping[str, Any]]
    primary_output: str
    errors: str
    max_error_share: float
    truncated: str
    description: str
    columns: Mapping[str, str]
    evalcore: Mapping[str, Any]
    folder: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class EvalSuite:
    """A suite that `define_suite` found sound; `raw` is what a suite file would say.

    `objects` are the functions in it, by the references that stand in their places; `line` is that
    of the file of `source` which defines it.
    """

    name: str
    raw: Mapping[str, Any]
    source: Source
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    line: int | None = None

    def read(self, options: LoadOptions, **changed: Any) -> Suite:
        """Return the suite with these keys changed; raise `SuiteError` with every mistake."""
        raw = {**self.raw, **changed}
        options = replace(options, local_objects=frozenset(self.objects))
        problems = Problems(f"suite '{self.name}'" if self.name else "suite", lambda _: None)

        def load() -> Suite:
            return read_suite(raw, self.source, options, problems, Renames(), verbatim=True)

        beyond = partial(_beyond_json, raw, problems.file)
        try:
            folder = Path(self.source.folder)
            suite = load_quarantined(load, folder, str(folder / "suite"))
        except LoadError as error:
            raise SuiteError((*error.problems, *beyond(error.problems))) from None
        if refused := tuple(beyond(())):
            raise SuiteError(refused)
        return suite


def _beyond_json(raw: Mapping[str, Any], file: str, noted: Sequence[Problem]) -> Iterator[Problem]:
    """Yield what JSON cannot hold at places of which nothing is noted yet."""
    for loc, reason in places_beyond_json(raw):
        path = path_text(loc)
        if not any(other.path and path.startswith(other.path) for other in noted):
            yield Problem(file, None, path, f"holds a value that JSON cannot: {reason}")


def variant(
    id: str,  # noqa: A002 - the word of the page
    provider: str | None = None,
    model: str | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> FlowVariant:
    """Return a small named change: provider, model, and `config`, which the flow reads."""
    # What is neither stays as it is: `define_suite` says where it stands.
    own: Any = dict(config or {}) if config is None or isinstance(config, Mapping) else config
    listed: Any = tuple(tags) if isinstance(tags, Iterable) and not isinstance(tags, str) else tags
    return FlowVariant(id, provider, model, own, listed)


def define_suite(
    name: str = "",
    flow: Flow | None = None,
    cases: Iterable[Mapping[str, Any]] | str | os.PathLike[str] = (),
    variants: Iterable[FlowVariant | Mapping[str, Any] | str] = (),
    baseline: str | None = None,
    gates: Iterable[Gate | GateSpec | Mapping[str, Any] | str] | None = None,
    scorers: Iterable[Any] = (),
    **more: Unpack[SuiteOptions],
) -> EvalSuite:
    """Return the suite; raise `SuiteError` (a `ValueError`) with every mistake in it.

    `flow` is a workflow factory or any function that answers (docs/reference/suites.md), a workflow
    definition or file, `module:function`, or a target's name. Cases are mappings with `id`,
    `input`, `tags`, `fixtures`, `assertions` (mappings or functions), or the path of a file; with
    those at an address (`s3://…`) or of a dataset (`dataset:support@3`) the suite is checked when
    it is run.
    Without `gates`: no regressions if there is a baseline, else every case has to pass.
    """
    caller = sys._getframe(1)
    folder, file = _place_of_caller(caller.f_globals.get("__file__"), more)
    names = LocalNames()
    raw: dict[str, Any] = {}
    if name:
        raw["name"] = name
    if flow is not None:
        raw["flow"] = _flow(flow, names)
    raw["cases"] = _cases(cases, names)
    written = _members(variants, _variant)
    if written not in ([], None):
        raw["variants"] = written
    if baseline is not None:
        raw["baseline"] = baseline
    listed: dict[str, tuple[Any, Callable[..., Any]]] = {
        "gates": (gates, _gate),
        "scorers": (scorers, _scorer),
        "assertions": (more.get("assertions"), _assertion),
    }
    for key, (members, written_as) in listed.items():
        if members is not None:
            raw[key] = _members(members, partial(written_as, names=names))
    for key, value in more.items():
        if key not in {"assertions", "folder"} and value is not None:
            raw[key] = _members(value, _same) if key in {"tags", "targets"} else value
    source = Source(file, str(folder), _digest(folder, file))
    suite = EvalSuite(name, raw, source, names.objects, caller.f_lineno)
    # Which addresses may be read depends on the run's store; each is read once, by the run.
    if not names_objects(raw["cases"]) and not names_stored_cases(raw["cases"]):
        suite.read(LoadOptions(environment=os.environ, secrets_required=False))
    return suite


def _place_of_caller(file: Any, more: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the suite's folder, and its file as people name it."""
    path = Path(file).resolve() if isinstance(file, str) and Path(file).is_file() else None
    named_folder = more.get("folder")
    default_folder = Path.cwd() if path is None else path.parent
    folder = default_folder if named_folder is None else Path(named_folder).resolve()
    if path is None:
        return folder, "python"
    cwd = Path.cwd()
    return folder, str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _digest(folder: Path, file: str) -> str:
    import hashlib

    path = folder / Path(file).name
    data = path.read_bytes() if path.is_file() else file.encode()
    return hashlib.sha256(data).hexdigest()


def _flow(flow: Any, names: LocalNames) -> Any:
    if isinstance(flow, str):
        return flow
    if isinstance(flow, os.PathLike):
        return os.fspath(flow)
    if callable(flow):
        return names.describe(flow)
    from evalcore.targets.nodes import as_nodes, as_wrapper

    wrapper = as_wrapper(flow)
    if wrapper is not None and as_nodes(wrapper["flow"]) is not None:
        return names.describe(partial(_same_nodes, flow), "flow")
    if isinstance(flow, Mapping):
        inner = {key: _flow(value, names) for key, value in flow.items() if key == "flow"}
        return {**flow, **inner}
    return flow


def _same_nodes(flow: Any) -> Any:
    """Return the nodes of a flow that are the same for all cases: what a factory would."""
    return flow


def _cases(cases: Any, names: LocalNames) -> Any:
    if isinstance(cases, str):
        return cases
    if isinstance(cases, os.PathLike):
        return os.fspath(cases)
    return _members(cases, partial(_case, names=names))


def _members(values: Any, written: Callable[[Any], Any]) -> Any:
    """Return the members as a suite file would write them.

    What is no list stays: a text is not its letters, a mapping not its keys, and the loader says
    what belongs there.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return values
    return [written(member) for member in values]


def _same(member: Any) -> Any:
    return member


def _case(case: Any, names: LocalNames) -> Any:
    """Return a case as a suite file would write it."""
    if not isinstance(case, Mapping):
        return case
    raw = {key: value for key, value in case.items() if value is not None or key == "input"}
    listed = raw.get("assertions")
    if isinstance(listed, list | tuple):
        raw["assertions"] = [_assertion(assertion, names) for assertion in listed]
    if "tags" in raw and isinstance(raw["tags"], tuple | set | frozenset):
        raw["tags"] = sorted(raw["tags"])
    for key in ("input", "expected_output", "fixtures", "metadata"):
        if key in raw:
            raw[key] = json_values(raw[key])
    return raw


def _assertion(assertion: Any, names: LocalNames) -> Any:
    if isinstance(assertion, Mapping):
        function = assertion.get("callable")
        if callable(function):
            return {"type": "python", **assertion, **names.describe(function)}
        return dict(assertion)
    if callable(assertion):
        described = names.describe(assertion)
        name = described["callable"].partition(":")[2]
        return {"type": "python", "name": name, **described}
    return assertion


def _variant(variant: FlowVariant | Mapping[str, Any] | str) -> Any:
    if not isinstance(variant, FlowVariant):
        return {"id": variant} if isinstance(variant, str) else _mapped_variant(variant)
    raw: dict[str, Any] = {"id": variant.id, "provider": variant.provider, "model": variant.model}
    config: Any = variant.config
    raw["config"] = json_values(dict(config)) if isinstance(config, Mapping) else config
    raw["tags"] = list(variant.tags) if isinstance(variant.tags, tuple) else variant.tags
    return {key: value for key, value in raw.items() if value is not None}


def _mapped_variant(variant: Any) -> Any:
    if isinstance(variant, Mapping) and isinstance(variant.get("config"), Mapping):
        return {**variant, "config": json_values(dict(variant["config"]))}
    return variant


def _gate(gate: Any, names: LocalNames) -> Any:
    if isinstance(gate, Gate | GateSpec):
        written = {key: value for key, value in gate.params.items() if value not in (None, "")}
        gate = {"gate": gate.gate, **written}
    if isinstance(gate, Mapping) and callable(function := gate.get("callable")):
        return {**gate, "callable": names.refer(function, gate.get("name"))}
    return gate


def _scorer(scorer: Any, names: LocalNames) -> Any:
    if isinstance(scorer, str):
        return scorer
    if isinstance(scorer, Mapping):
        function = scorer.get("callable")
        is_reference = isinstance(function, str) or function is None
        return dict(scorer) if is_reference else {**scorer, **names.describe(function)}
    if not callable(scorer) and not callable(getattr(scorer, "score", None)):
        return scorer
    name = getattr(scorer, "name", None)
    named = {"name": name} if isinstance(name, str) and name else {}
    return {**named, **names.describe(scorer)}
