"""The targets of a suite: inline, or in the nearest `targets.yaml` upward."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Required

from pydantic import Discriminator, Tag, with_config
from typing_extensions import TypedDict

from evalcore.errors import UsageError
from evalcore.formats.documents import as_json, read_document
from evalcore.formats.options import LoadOptions
from evalcore.formats.section import OPEN, STRICT, UniqueIds
from evalcore.formats.variables import Variables, interpolate
from evalcore.model.target import DEFAULT_VARIANT, SERVICES, Target, Variant
from evalcore.problems import Problems
from evalcore.settings import find_upward
from evalcore.shapes import Count, Text
from evalcore.targets.registry import (
    COMMON_OPTIONS,
    MODEL_KINDS,
    kind_facts,
    merged_options,
    options_model,
)
from evalcore.targets.templates import template_faults
from evalcore.targets.wrappers import OPTION
from evalcore.trust.secrets import (
    is_secret_path,
    known_addresses,
    literals_of_target,
    secret_options,
    without_literals,
)
from evalcore.wording import Loc, shown_path, suggest

# Providers with the interface of OpenAI: the address, as it is called for one that is written.
_ADDRESSES: Final = {
    "azure": "{endpoint}/openai/v1",
    "gemini": SERVICES["google"][0],
    "openai": "{endpoint}",
    "openrouter": SERVICES["openrouter"][0],
}
_MODELS: Final = frozenset({*_ADDRESSES, "anthropic"})
_NAMES: Final = {
    "api_version": "version",
    "deployment": "model",
    "endpoint": "base_url",
    "max_output_tokens": "max_tokens",
    "resource": "base_url",
}
_NO_EFFECT: Final = (
    "api_format",
    "log_dir",
    "log_directory",
    "log_format",
    "log_output_format",
    "max_retries",
    "retry_backoff_factor",
    "retry_initial_delay_ms",
    "retry_max_delay_ms",
    "retry_status_codes",
    "stream_log",
    "thinking_budget",
    "version",
)


def translated(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of `targets:` with AgentV's names replaced by ours.

    `azure`, `gemini` and `openrouter` are `openai` at their address. Keys without effect here are
    left out. An entry that has none of AgentV's names is returned as it is.
    """
    if "judge_target" in raw and "grader_target" not in raw:
        raw = _renamed(raw, {"judge_target": "grader_target"})
    provider = raw.get("provider")
    if provider not in _MODELS and "use_target" not in raw:
        return raw
    entry = {key: value for key, value in raw.items() if _NAMES.get(key, key) not in _NO_EFFECT}
    entry = _renamed(entry, {old: new for old, new in _NAMES.items() if new not in entry})
    address = _ADDRESSES.get(str(provider))
    if address is None:
        return entry
    entry["provider"] = "openai"
    endpoint = entry.get("base_url")
    if "{endpoint}" not in address:
        entry.setdefault("base_url", address)
    elif isinstance(endpoint, str) and "/openai/" not in endpoint:
        entry["base_url"] = address.replace("{endpoint}", endpoint.rstrip("/"))
    return entry


def own_name(key: str | int) -> str | int:
    """Return what an option of AgentV's is called here."""
    return _NAMES.get(key, key) if isinstance(key, str) else key


def _renamed(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in entry.items()}


@with_config(OPEN)
class ProviderTarget(TypedDict, total=False):
    """A named target: the provider says its kind, the rest are that kind's options."""

    name: Required[Text]
    provider: Required[Text]


@with_config(OPEN)
class DerivedTarget(TypedDict, total=False):
    """A named target with the kind and the options of another, its own laid over them."""

    name: Required[Text]
    use_target: Required[Text]


def _kind_of_target(value: object) -> str:
    uses = isinstance(value, dict) and "use_target" in value
    return "<use_target>" if uses else "<provider>"


TargetShape = Annotated[
    Annotated[ProviderTarget, Tag("<provider>")] | Annotated[DerivedTarget, Tag("<use_target>")],
    Discriminator(_kind_of_target),
]


@with_config(STRICT)
class TargetCommon(TypedDict, total=False):
    """Options of a target of any kind (`COMMON_OPTIONS`)."""

    grader_target: Text
    fallback_targets: list[Text]
    reasoning: Literal["strip", "keep"]
    workers: Count


def has_sound_common(name: str, options: dict[str, Any], loc: Loc, problems: Problems) -> bool:
    """Whether the options that any target may have are well shaped; note what is not."""
    common = {key: options[key] for key in COMMON_OPTIONS if key in options}
    label = f"target '{name}'"
    if not isinstance(options.get("api_key", ""), str | None):
        # What stands there may be a key all the same: it is not shown.
        problems.add((*loc, "api_key"), "expected text, such as ${{ NAME }}", label=label)
        return False
    return problems.check_shape(common, TargetCommon, loc, label=label)


FILE_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
_OWN_KEYS = {"name", "provider", "use_target"}


class _TargetEntry(NamedTuple):
    """A target as it is written, and where; `interpolated` says that its variables are read."""

    raw: Mapping[str, Any]
    problems: Problems
    loc: Loc
    file: Path
    interpolated: bool


class _Definition(NamedTuple):
    """A target's kind and options as they may be stored."""

    kind: str
    options: dict[str, Any]


class Targets:
    """The targets that a suite may name; those of the suite win over the file's of the same name.

    A suite may share its `targets.yaml` with others, so a target's variables are read, and its
    options checked, only when the suite names it (`use`). Mistakes are noted where they stand: in
    the suite, or in `file_problems`, the collector of the `targets.yaml`.
    """

    def __init__(
        self,
        inline: object,
        folder: Path,
        variables: Variables,
        problems: Problems,
        *,
        in_file: bool = True,
        strict: bool = False,
    ) -> None:
        """Take the suite's own targets (None if it has none), their variables already read.

        `in_file` says that they stand in a file, where a literal secret can be read again. `strict`
        makes mistakes of prompts without the question.
        """
        self._strict = strict
        self.used: dict[str, Target] = {}
        self.sound: set[str] = set()
        self.file_problems: Problems | None = None
        self._variables = variables
        self._folder = folder
        self._entries: dict[str, _TargetEntry] = {}
        self._definitions: dict[str, _Definition | None] = {}
        # A name may be defined in what cannot be read: it is not reported as unknown then.
        self.complete = True
        path, refused = find_upward(folder, FILE_NAMES)
        self._refused = tuple(map(str, refused))
        self._noted: list[str] = []
        if path is not None:
            document = read_document(path, shown_path(path))
            raw = document.value
            self.file_problems = Problems(document.file, document.locate)
            nested = isinstance(raw, dict) and "targets" in raw
            listed = raw["targets"] if nested else raw
            self._read(listed, ("targets",) if nested else (), self.file_problems, path)
        if inline is not None:
            # Messages may call the file otherwise; it lies in the suite's folder.
            file = folder / Path(problems.file).name
            self._read(inline, ("targets",), problems, file, interpolated=True)
            if not in_file:
                for entry in self._entries.values():
                    if entry.problems is problems:
                        _refuse_secret_options(entry.raw, entry.loc, problems)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all targets, used or not."""
        return tuple(self._entries)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what was passed over: files, and keys of used targets that have no effect."""
        return (*self._refused, *self._noted)

    def explain(self, collectors: Sequence[Problems]) -> None:
        """Note the files that were passed over beside other mistakes: they may be the reason."""
        if any(collector.count for collector in collectors):
            for warning in self._refused:
                collectors[0].add((), warning)

    def chosen(self, options: LoadOptions, file: str) -> str | None:
        """Return the target that the caller names; raise `UsageError` if there is none."""
        name = options.target
        if name is not None and name not in self:
            hint = suggest(name, self.names) or " None is defined."
            raise UsageError(
                f"{file}: {options.called('--target')}: unknown target '{name}'.{hint}"
            )
        return name

    def define(self, name: str, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> None:
        """Add a target that stands elsewhere in the suite, its variables already read."""
        file = self._folder / Path(problems.file).name
        self._entries[name] = _TargetEntry(raw, problems, loc, file, True)
        _refuse_secret_options(raw, loc, problems)

    def use(
        self, name: str, loc: Loc, problems: Problems, *, without: Collection[str] = ()
    ) -> None:
        """Note at `loc` that no target has this name, or at its definition what is wrong there.

        Options in `without` may be missing: they are set elsewhere.
        """
        if name in self.used:
            return
        entry = self._entries.get(name)
        if entry is None:
            self._note_unknown(name, loc, problems)
            return
        before = entry.problems.count
        definition = self._definition(name)
        if definition is None:
            return
        target = Target(name, definition.kind, definition.options)
        self.used[name] = target
        self._check_options(target, DEFAULT_VARIANT, entry.loc, entry.problems, without)
        self._embed_fallbacks(target, entry)
        if target.kind == "python":
            self._embed_models(target, entry)
        grader = definition.options.get("grader_target")
        if grader is not None:
            self.use(grader, (*entry.loc, "grader_target"), entry.problems)
        if entry.problems.count == before:
            self.sound.add(name)

    def _note_unknown(self, name: str, loc: Loc, problems: Problems) -> None:
        if self.complete and self._entries:
            problems.add(loc, f"unknown target '{name}'.{suggest(name, self._entries)}")
        elif self.complete:
            hint = "define it under 'targets:' or in a targets.yaml"
            problems.add(loc, f"unknown target '{name}': none is defined; {hint}")

    def _definition(self, name: str, after: tuple[str, ...] = ()) -> _Definition | None:
        """Return a target's kind and options; None, noted where it stands, if it has none.

        `after` are the targets whose `use_target` led here.
        """
        if name not in self._definitions:
            self._definitions[name] = self._read_definition(self._entries[name], name, after)
        return self._definitions[name]

    def _read_definition(
        self, entry: _TargetEntry, name: str, after: tuple[str, ...]
    ) -> _Definition | None:
        raw, problems, loc = entry.raw, entry.problems, entry.loc
        if not entry.interpolated:

            def is_secret(path: Loc) -> bool:
                return is_secret_path([*path[len(loc) : -1], own_name(path[-1])])

            raw = interpolate(raw, self._variables, loc, problems, is_secret)
        raw = translated(raw)
        options = {key: value for key, value in raw.items() if key not in _OWN_KEYS}
        if not has_sound_common(name, options, loc, problems):
            return None
        self._refuse_stored_literals(options, loc, problems)
        stored = without_literals(as_json(options), name, entry.file, self._folder)
        other = raw.get("use_target")
        if other is None:
            return _Definition(raw["provider"], stored)
        if other in (*after, name):
            chain = " → ".join((*after, name, other))
            problems.add((*loc, "use_target"), f"goes round in a circle: {chain}")
            return None
        if other not in self._entries:
            self._note_unknown(other, (*loc, "use_target"), problems)
            return None
        used = self._definition(other, (*after, name))
        return None if used is None else used._replace(options={**used.options, **stored})

    def _embed_fallbacks(self, target: Target, entry: _TargetEntry) -> None:
        """Replace the names of the target's fallbacks by their definitions."""
        problems = entry.problems
        names: Any = target.options.get("fallback_targets", ())
        entries = []
        for index, name in enumerate(names):
            loc = (*entry.loc, "fallback_targets", index)
            if name == target.name:
                problems.add(loc, f"'{name}' cannot stand in for itself")
            elif name not in self._entries:
                self._note_unknown(name, loc, problems)
            elif (definition := self._definition(name)) is not None:
                options = {
                    key: value
                    for key, value in definition.options.items()
                    if key == OPTION or key not in COMMON_OPTIONS
                }
                self.use(name, loc, problems)
                entries.append({"name": name, "kind": definition.kind, "options": options})
        if names:
            options = {**target.options, "fallback_targets": entries}
            self.used[target.name] = Target(target.name, target.kind, options)

    def _embed_models(self, target: Target, entry: _TargetEntry) -> None:
        """Lay the suite's own models beside a function that may ask them by name."""
        models = {
            name: other
            for name, other in self._entries.items()
            if entry.interpolated
            and other.interpolated
            and other.raw.get("provider") in MODEL_KINDS
        }
        for name, other in models.items():
            self.use(name, other.loc, other.problems)
        providers = {
            name: {"kind": model.kind, "options": dict(model.options)}
            for name in models
            if (model := self.used.get(name)) is not None
        }
        if providers:
            options = {**self.used[target.name].options, "providers": providers}
            self.used[target.name] = Target(target.name, target.kind, options)

    def use_variant(self, name: str, variant: Variant, loc: Loc, problems: Problems) -> None:
        """Note at `loc` that the variant's configuration does not fit the target of this name."""
        if name not in self.sound:
            return
        # Where any key may be a function's own, so may this one.
        is_free = kind_facts(self.used[name].kind).open_field is not None
        own = (
            {} if is_free else {key: variant.config[key] for key in variant.config if key == OPTION}
        )
        if not has_sound_common(name, own, loc, problems):
            return
        self._check_options(self.used[name], variant, loc, problems)
        self.refuse_literals(variant.config, loc, problems)

    def _check_options(
        self,
        target: Target,
        variant: Variant,
        loc: Loc,
        problems: Problems,
        without: Collection[str] = (),
    ) -> None:
        label = f"target '{target.name}'"
        try:
            model = options_model(target.kind)
        except UsageError as error:
            problems.add((*loc, "provider"), str(error), label=label)
            return
        merged = merged_options(target, variant)
        # A value that the model accepts for certain: the name of the option.
        options = {**{name: name for name in without if name in model.model_fields}, **merged}
        if not problems.check_shape(options, model, loc, label=label):
            return
        where, own = label, merged
        if variant is not DEFAULT_VARIANT:
            where, bare = f"variant '{variant.id}'", Target(target.name, target.kind, {})
            own = merged_options(bare, variant)
        for path, message, is_warning in self._faults(target.kind, merged, own):
            if is_warning and not self._strict:
                self._noted.append(f"{where}: {message}")
            else:
                problems.add((*loc, *path), message, label=label)

    def _faults(
        self, kind: str, merged: Mapping[str, Any], own: Mapping[str, Any]
    ) -> Iterator[tuple[Loc, str, bool]]:
        """Yield what is wrong with well-shaped options: path, message, whether it is a warning.

        `own` are those that are written where mistakes are noted.
        """
        from evalcore.checks.json import schema_faults
        from evalcore.targets.options import check_address

        for option in known_addresses(merged, self._variables):
            try:
                check_address(option.text)
            except ValueError as error:
                yield (*option.path,), f"with its variables replaced, {error}", False
        for path, schema in _schemas(own):
            for each in schema_faults(dict(schema)):
                yield (*path, *each.path), each.message, False
        for fault in template_faults(kind, merged):
            if fault.path[0] in own:
                yield fault.path, fault.message, fault.is_warning

    def refuse_literals(self, options: Mapping[str, Any], loc: Loc, problems: Problems) -> None:
        """Note secrets in a variant's options, which are stored with the run."""
        self._refuse_stored_literals(options, loc, problems)
        _refuse_secret_options(options, loc, problems)

    def _refuse_stored_literals(
        self, options: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> None:
        """Note secrets in options that are stored as they are written."""
        for literal in literals_of_target(options, self._variables.values.values()):
            problems.add((*loc, *literal.path), literal.message())

    def _read(
        self,
        raw: object,
        prefix: Loc,
        problems: Problems,
        file: Path,
        *,
        interpolated: bool = False,
    ) -> None:
        if not isinstance(raw, list):
            problems.add(prefix, "expected a list of targets, each with 'name' and 'provider'")
            self.complete = False
            return
        names = UniqueIds("duplicate target '{}'", "name")
        for index, entry in enumerate(raw):
            loc = (*prefix, index)
            if not problems.check_shape(entry, TargetShape, loc):
                self.complete = False
                continue
            if "use_target" in entry and "provider" in entry:
                message = "is given beside 'provider'; keep one of them"
                problems.add((*loc, "use_target"), message)
                self.complete = False
                continue
            name = entry["name"]
            names.note(name, loc, problems)
            self._entries[name] = _TargetEntry(entry, problems, loc, file, interpolated)


def _schemas(options: Mapping[str, Any]) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """Yield the schemas of a model's answer and of its tools' arguments, and where they stand."""
    written: list[tuple[Loc, Any]] = [(("response_schema",), options.get("response_schema"))]
    for index, tool in enumerate(options.get("tools") or ()):
        nested = isinstance(tool, Mapping) and "function" in tool
        own = tool["function"] if nested else tool
        loc: Loc = ("tools", index, *(("function",) if nested else ()), "parameters")
        written.append((loc, own.get("parameters") if isinstance(own, Mapping) else None))
    yield from ((path, schema) for path, schema in written if isinstance(schema, Mapping))


def _refuse_secret_options(options: Mapping[str, Any], loc: Loc, problems: Problems) -> None:
    """Note literals in secret options outside of a file's list of targets.

    Only what stands in such a list can be found again when a target is built.
    """
    message = "must not be written here, where it would be stored with the run; write"
    for option in secret_options(options):
        if option.is_literal:
            problems.add((*loc, *option.path), f"{message} ${{{{ NAME }}}} and set that variable")
