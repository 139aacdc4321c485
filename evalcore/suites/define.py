"""`define_suite` and `variant`: a suite in code, checked as a whole."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final, TypedDict, Unpack

import orjson

from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.options import LoadOptions
from evalcore.formats.quarantine import load_quarantined
from evalcore.formats.sources import names_stored_cases
from evalcore.formats.suite_file import read_suite
from evalcore.gates.gate import Gate
from evalcore.gates.registry import GATES
from evalcore.jsonvalues import has_equal_keys, has_infinite, json_form, plain_value
from evalcore.model.run import GateSpec
from evalcore.model.suite import Source, Suite
from evalcore.problems import Problems
from evalcore.targets.function_context import FlowVariant
from evalcore.trust.imports import LOCAL, ImportPolicy
from evalcore.wording import path_text

# Values whose `repr` is what they are.
_WRITTEN: Final = (
    *(str, int, float, complex, bytes, bytearray, range, type(None)),
    *(date, time, Decimal, Enum, PurePath, re.Pattern),
)
_DEEPEST: Final = 4


def name_of(value: Any) -> str:
    """Return what a function, class or instance is called in a plan."""
    if isinstance(value, functools.partial):
        return name_of(value.func)
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")


class Behaviours:
    """Digests of the code of functions and objects; files are read once."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}

    def of(self, value: Any) -> str:
        """Return a SHA-256 (hex) that changes when the code of a callable does.

        Of the module's file and what it imports from below its root, the place in it, the values
        that it closes over and its defaults, as far as they are plain. Without a file, of the code
        itself and of what that uses of its module. No address and no id is in it.
        """
        described = json.dumps(self._described(value), sort_keys=True)
        return hashlib.sha256(described.encode("utf-8", "replace")).hexdigest()

    def _described(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, _WRITTEN):
            return [type(value).__qualname__, repr(value)]
        if depth >= _DEEPEST:
            return type(value).__qualname__
        # Code within code counts to any depth.
        step = -1 if isinstance(value, types.CodeType) else 1
        described = partial(self._described, depth=depth + step)
        value = _parts_of(value)
        if isinstance(value, list | tuple):
            return [*map(described, value)]
        if isinstance(value, set | frozenset):
            return sorted(map(described, value), key=json.dumps)
        if isinstance(value, Mapping):
            return {str(key): described(item) for key, item in value.items()}
        if inspect.isfunction(value):
            bound = value.__defaults__, value.__kwdefaults__, _closed_over(value)
            line = value.__code__.co_firstlineno
            return [*self._named(value, described), line, *map(described, bound)]
        if inspect.isclass(value) or inspect.isbuiltin(value) or inspect.ismodule(value):
            return self._named(value, described)
        # Its attributes, and those in slots.
        return [*self._named(type(value), described), described(object.__getstate__(value))]

    def _named(self, value: Any, described: Callable[[Any], Any]) -> list[Any]:
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        source: Any = self._file_digest(value)
        if source is None and inspect.isfunction(value):
            # Without a file, also what it uses of its module: a notebook's other cells.
            names = sorted({*_names_in(value.__code__)} & {*value.__globals__})
            used = {name: value.__globals__[name] for name in names}
            others = {name: each for name, each in used.items() if each is not value}
            source = [described(value.__code__), described(others)]
        elif source is None and inspect.isclass(value) and module == "__main__":
            source = described({k: v for k, v in vars(value).items() if inspect.isfunction(v)})
        return [str(module), str(name), source]

    def _file_digest(self, value: Any) -> str | None:
        code = getattr(value, "__code__", None)
        name = getattr(code, "co_filename", None)
        if name is None:
            module = sys.modules.get(str(getattr(value, "__module__", "")))
            name = getattr(module, "__file__", None)
        if not isinstance(name, str):
            return None
        if name not in self._files:
            from evalcore.trust.code_digests import digest_of_file

            self._files[name] = digest_of_file(Path(name))
        return self._files[name]


def _parts_of(value: Any) -> Any:
    """Return what a partial function, a method or code is made of; any other value as it is.

    Where code stands in a file is no part of it.
    """
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    return [value.__func__, value.__self__] if inspect.ismethod(value) else value


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _names_in(value)


def _closed_over(function: Any) -> list[Any]:
    values = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            values.append(cell.cell_contents)
    return values


class LocalNames:
    """Gives each object a reference `local:NAME`; `objects` has them by it."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._behaviours = Behaviours()

    def refer(self, value: Any, name: str | None = None) -> str:
        """Return the reference of an object; the same object has the same one."""
        stem = re.sub(r"[^\w.]+", "_", name or name_of(value)).strip("._") or "function"
        base = reference = f"{LOCAL}{stem}"
        number = 2
        while reference in self.objects and self.objects[reference] is not value:
            reference = f"{base}_{number}"
            number += 1
        self.objects[reference] = value
        return reference

    def describe(self, value: Any, name: str | None = None) -> dict[str, str]:
        """Return `{callable, behaviour}` of an object."""
        return {"callable": self.refer(value, name), "behaviour": self._behaviours.of(value)}


Loc = tuple[str | int, ...]


def json_values(value: Any) -> Any:
    """Return a value as JSON holds it; what JSON cannot hold stays, and is refused later."""
    try:
        return json_form(value, _dumped)
    except ValueError:
        return plain_value(value)


def _dumped(member: Any) -> Any:
    if hasattr(member, "model_dump"):  # a pydantic model
        return member.model_dump(mode="json")
    if isinstance(member, Mapping):
        return dict(member)
    raise TypeError(type(member).__name__)


def places_beyond_json(value: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield the places of values that JSON cannot hold, and why."""
    try:
        if b"null" not in orjson.dumps(value):
            return
    except orjson.JSONEncodeError:
        pass
    if isinstance(value, Mapping):
        if has_equal_keys(dict.fromkeys(value)):
            yield loc, "two keys of the same text"
        for key, member in value.items():
            yield from places_beyond_json(member, (*loc, key))
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from places_beyond_json(member, (*loc, index))
    elif has_infinite(value):
        yield loc, "NaN or an infinite number"
    else:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError as error:
            yield loc, str(error)


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
            return read_suite(raw, self.source, options, problems, verbatim=True)

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


def human(
    question: str,
    *,
    labels: Sequence[str] | None = None,
    expected: str | None = None,
    scale: Sequence[int] | None = None,
    min_score: float | None = None,
    annotators: int = 1,
    required: bool | float = False,
    **more: Any,
) -> dict[str, Any]:
    """Return the assertion as a suite file would write it; `define_suite` finds its mistakes.

    Either `labels` with the one that is `expected`, or a `scale` with the least mean that passes.
    `more` are `instructions`, `name`, `weight`, `metric`, `path` (docs/reference/annotations.md).
    """
    written = {
        "type": "human",
        "question": question,
        "annotators": annotators,
        "required": None if required is False else required,
        "labels": labels and list(labels),
        "expected": expected,
        "scale": scale and list(scale),
        "min_score": min_score,
        **more,
    }
    return {key: value for key, value in written.items() if value is not None}


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
    # Datasets are those of the run's store; they are read once, by the run.
    if not names_stored_cases(raw["cases"]):
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
    path = folder / Path(file).name
    data = path.read_bytes() if path.is_file() else file.encode()
    return hashlib.sha256(data).hexdigest()


def _flow(flow: Any, names: LocalNames) -> Any:
    if isinstance(flow, str | os.PathLike):
        return os.fspath(flow)
    if callable(flow):
        return names.describe(flow)
    from evalcore.targets.nodes import is_node_flow

    if isinstance(flow, Mapping):
        if is_node_flow(flow.get("flow")):
            return names.describe(partial(_same, flow), "flow")
        inner = {key: _flow(value, names) for key, value in flow.items() if key == "flow"}
        return {**flow, **inner}
    return flow


def _same(value: Any) -> Any:
    """Return the value; of a flow its nodes, which are the same for all cases."""
    return value


def _cases(cases: Any, names: LocalNames) -> Any:
    if isinstance(cases, str | os.PathLike):
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


def _variant(variant: Any) -> Any:
    if isinstance(variant, FlowVariant):  # which is a text, too
        raw: dict[str, Any] = {"id": variant.id, "provider": variant.provider}
        tags = list(variant.tags) if isinstance(variant.tags, tuple) else variant.tags
        raw |= {"model": variant.model, "config": variant.config, "tags": tags}
        variant = {key: value for key, value in raw.items() if value is not None}
    if isinstance(variant, str):
        return {"id": variant}
    if isinstance(variant, Mapping) and isinstance(variant.get("config"), Mapping):
        return {**variant, "config": json_values(dict(variant["config"]))}
    return variant


def _gate(gate: Any, names: LocalNames) -> Any:
    if isinstance(gate, Gate | GateSpec):
        # `None` may be another value than the default, which need not be written.
        kind = type(gate) if isinstance(gate, Gate) else GATES.get(gate.gate, Gate)
        written = {k: value for k, value in gate.params.items() if value != getattr(kind, k, ...)}
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


def _renamed(value: Any, references: Mapping[str, str]) -> Any:
    """Return what a suite file would say, its functions by their references."""
    if isinstance(value, list):
        return [_renamed(member, references) for member in value]
    if not isinstance(value, Mapping):
        return value
    local = value.get("callable")
    reference = references.get(local) if isinstance(local, str) else None
    if reference is not None:
        value = {key: member for key, member in value.items() if key != "behaviour"}
    renamed = {key: _renamed(member, references) for key, member in value.items()}
    return renamed if reference is None else {**renamed, "callable": reference}
