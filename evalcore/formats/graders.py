"""What graders need from files: judges, prompts, templates of assertions, plug-ins, programs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Required

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.documents import json_reason, parse_json, read_document
from evalcore.formats.section import STRICT, in_evalcore
from evalcore.formats.targets import Targets
from evalcore.formats.variables import Variables, interpolate, names_file
from evalcore.formats.warnings import ReferenceFields
from evalcore.judging.prompts import VARIABLES, variables_of
from evalcore.model.assertion import Assertion
from evalcore.model.identity import EMBEDDING_TARGETS
from evalcore.model.suite import FILE_RULES
from evalcore.model.target import Target
from evalcore.problems import Problems
from evalcore.settings import ancestors_within, find_upward, repository_root
from evalcore.shapes import adapter, explain
from evalcore.trust.files import resolve_inside
from evalcore.wording import Loc, shown_path, suggest

DEFAULT_JUDGES: Final = ("judge", "grader")
_LARGEST_PROMPT: Final = 1 << 20
_METADATA: Final = re.compile(r"metadata\.[\w.-]+")

ReadMembers = Callable[[Sequence[Any], Loc, Problems], list[Assertion]]


class Graders:
    """Reads what graders need: prompts from files, judges from the suite's targets.

    Without `targets` (a single assertion on its own) nothing is known of judges. `default` is the
    suite's own judge, or a target called 'judge' or 'grader' once an assertion needs one.
    `file_rules` are the rules by which the suite's file is read (`model.suite.FILE_RULES`).
    """

    def __init__(
        self,
        folder: Path,
        targets: Targets | Callable[[], Targets] | None = None,
        file_rules: int = FILE_RULES,
    ) -> None:
        """Take the targets, or what opens them once they are needed."""
        self.file_rules = file_rules
        self.folder = folder.resolve()
        self.default: str | None = None
        self.reference_fields = ReferenceFields()
        self._targets = targets
        self.inline: dict[str, Mapping[str, Any]] = {}
        self._beside: Path | None = None

    @contextmanager
    def reading_beside(self, folder: Path) -> Iterator[None]:
        """Look for prompts in `folder` first, as long as the context lasts."""
        before, self._beside = self._beside, folder
        try:
            yield
        finally:
            self._beside = before

    @property
    def targets(self) -> Targets | None:
        """The suite's targets; None where nothing is known of them."""
        if self._targets is not None and not isinstance(self._targets, Targets):
            self._targets = self._targets()
        return self._targets

    @property
    def used(self) -> Mapping[str, Target]:
        """The targets that were needed."""
        return self._targets.used if isinstance(self._targets, Targets) else {}

    @property
    def file_problems(self) -> list[Problems]:
        """The collector of the `targets.yaml`, if it was opened."""
        opened = self._targets if isinstance(self._targets, Targets) else None
        return [] if opened is None or opened.file_problems is None else [opened.file_problems]

    def use_suites(
        self,
        section: Mapping[str, Any],
        problems: Problems,
        loc_of: Callable[[str], Loc] = in_evalcore,
    ) -> None:
        """Take the suite's own judge, `judge` of the section; `loc_of` says where it stands."""
        self.default = section.get("judge")
        if self.default is not None:
            self.use(self.default, loc_of("judge"), problems)

    def use(self, name: str | None, loc: Loc, problems: Problems) -> None:
        """Take a target as a judge (None: the suite's); note a name that no target has."""
        if name is None:
            self._use_default(loc, problems)
        elif self.targets is not None:
            self.targets.use(name, loc, problems)

    def _use_default(self, loc: Loc, problems: Problems) -> None:
        """Take a target called 'judge' or 'grader' as the suite's judge, if there is no other."""
        if self.default is not None or self.targets is None:
            return
        self.default = next((name for name in DEFAULT_JUDGES if name in self.targets), None)
        if self.default is not None:
            self.targets.use(self.default, loc, problems)

    def prompt_text(self, written: str | None) -> str | None:
        """Return the text of a prompt: a file's if it is written `file://…` or as a path."""
        if written is None:
            return None
        if not names_file(written):
            return written
        name = written.removeprefix("file://")
        try:
            folder = self.folder
            if self._beside is not None and (self._beside / name).is_file():
                folder = self._beside
            path = resolve_inside(repository_root(self.folder), folder, name)
            if path.stat().st_size > _LARGEST_PROMPT:
                raise AssertionValueError(f"prompt {name!r} is larger than 1 MiB")
            text = path.read_text("utf-8-sig")
        except (EvalError, OSError, UnicodeDecodeError) as error:
            raise AssertionValueError(f"the prompt cannot be read: {error}") from error
        if not text.strip():
            raise AssertionValueError(f"the prompt {name!r} is empty")
        return text


class GraderReader(NamedTuple):
    """What a check asks while its assertion at `loc` is read (`evalcore.checks.base.Reader`)."""

    graders: Graders
    loc: Loc
    problems: Problems
    read_members: ReadMembers = lambda _raw, _loc, _problems: []

    @property
    def file_rules(self) -> int:
        """The rules by which the suite's file is read."""
        return self.graders.file_rules

    def parse_json(self, text: str, *loc: str | int) -> Any:
        """Return the value of a JSON text; NaN, infinities and duplicate keys are refused."""
        try:
            return parse_json(text.encode(errors="replace"))
        except ValueError as error:
            raise AssertionValueError(f"is not JSON: {json_reason(error)}", *loc) from None

    def validate(self, shape: Any, value: Any, *loc: str | int) -> Any:
        """Return the value as pydantic validates it; note every mistake in it."""
        try:
            return adapter(shape).validate_python(value)
        except ValidationError as error:
            *before, (last_loc, last_message) = explain(error, value, shape)
            for path, message in before:
                self.problems.add((*self.loc, *loc, *path), message)
            raise AssertionValueError(last_message, *loc, *last_loc) from None

    def judges(self, written: Mapping[str, Any], *loc: str | int) -> list[dict[str, Any]]:
        """Return who judges, as `JudgeSpec` takes it; note names that no target has."""
        keys = [key for key in ("judge", "target", "judges") if key in written]
        if len(keys) > 1:
            raise AssertionValueError(f"'{keys[0]}' and '{keys[1]}' name judges; keep one")
        common = {key: written[key] for key in ("model", "temperature") if key in written}
        if not keys:
            self._use(None, *loc)
            return [common]
        key, listed = keys[0], written[keys[0]]
        if not listed:
            raise AssertionValueError(f"'{key}' names no judge")
        entries = enumerate(listed) if isinstance(listed, list) else [(None, listed)]
        places = (((*loc, key) if at is None else (*loc, key, at), entry) for at, entry in entries)
        return [{**common, **self._judge(entry, *place)} for place, entry in places]

    def _judge(self, written: Any, *loc: str | int) -> dict[str, Any]:
        if isinstance(written, Mapping) and "provider" in written:
            return self.inline_judge(written, *loc)
        if not written or not isinstance(written, str | Mapping):
            message = f"a judge is a target's name or {{provider, model}}: {written!r}"
            raise AssertionValueError(message)
        judge = {"name": written} if isinstance(written, str) else dict(written)
        if "name" in judge and "target" in judge:
            raise AssertionValueError("a judge has 'name' or 'target', which mean the same")
        judge["name"] = judge.pop("target", judge.get("name"))
        self._use(judge["name"], *loc)
        return judge

    def inline_judge(self, written: Mapping[str, Any], *loc: str | int) -> dict[str, Any]:
        """Return the judge that a mapping describes, as `JudgeSpec` takes it.

        `{provider, model, …}` is a target of its own: `provider` is a target's name, whose options
        the others are laid over, or a kind of target.
        """
        options = {str(key): value for key, value in written.items() if key != "provider"}
        if "model_name" in options:
            options["model"] = options.pop("model_name")
        provider = written.get("provider")
        if not isinstance(provider, str):
            raise AssertionValueError("a judge of its own has a 'provider', such as openai")
        name = f"{provider}/{options['model']}" if "model" in options else provider
        targets, inline = self.graders.targets, self.graders.inline
        if targets is None:
            return {"name": name}
        entry = {"use_target" if provider in targets else "provider": provider, **options}
        name = _free_name(name, entry, inline, targets)
        if name not in inline:
            inline[name] = entry
            targets.define(name, {"name": name, **entry}, (*self.loc, *loc), self.problems)
        self._use(name, *loc)
        return {"name": name}

    def embedding(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return who embeds, as `JudgeSpec` takes it: the target named, or one called so."""
        if "judge" in written and "target" in written:
            raise AssertionValueError("'judge' and 'target' mean the same; keep one")
        common = {"model": written["model"]} if "model" in written else {}
        name = written.get("target", written.get("judge"))
        if name is None and self.graders.targets is not None:
            name = next(
                (target for target in EMBEDDING_TARGETS if target in self.graders.targets), None
            )
        if name is None:
            return common
        self._use(name, "judge" if "judge" in written else "target")
        return {"name": name, **common}

    def prompt(self, written: str | None) -> str | None:
        """Return the prompt, from its file if it is one; its variables are known ones."""
        prompt = self.graders.prompt_text(written)
        for name in () if prompt is None else variables_of(prompt):
            if name not in VARIABLES and _METADATA.fullmatch(name) is None:
                names = [*VARIABLES, "metadata.x"]
                raise AssertionValueError(
                    f"the prompt has an unknown variable '{{{{{name}}}}}'.{suggest(name, names)}"
                )
        return prompt

    def _use(self, name: str | None, *loc: str | int) -> None:
        self.graders.use(name, (*self.loc, *loc), self.problems)

    def use_judge(self, *loc: str | int) -> None:
        """Take the suite's judge; note that there is none."""
        self._use(None, *loc)

    def compare_fields(self, fields: Mapping[str, bool]) -> None:
        """Note fields that are compared with the expected output's, and which are required."""
        self.graders.reference_fields.compare(fields)

    def members(self, raw: Sequence[Any], *loc: str | int) -> list[Assertion]:
        """Return the assertions of a list at `loc`; those that are wrong are noted."""
        return self.read_members(raw, (*self.loc, *loc), self.problems)


def _free_name(
    name: str, entry: Mapping[str, Any], inline: Mapping[str, Any], targets: Targets
) -> str:
    """Return a name that no other judge has."""
    free, number = name, 1
    while inline.get(free, entry) != entry or (free not in inline and free in targets):
        number += 1
        free = f"{name}#{number}"
    return free


DEEPEST_INCLUDE: Final = 3
_FOLDER: Final = ".agentv/templates"
_SUFFIXES: Final = (".yaml", ".yml")


class AssertionTemplate(NamedTuple):
    """What a template lists under `assertions`, and the collector of the mistakes in it."""

    path: Path
    entries: list[Any]
    problems: Problems


def is_include(entry: object) -> bool:
    """Whether an entry of a list of assertions stands for those of a template."""
    return isinstance(entry, dict) and len(entry) == 1 and "include" in entry


class AssertionTemplates:
    """Opens the templates that the assertions of a suite include."""

    def __init__(self, folder: Path, variables: Variables) -> None:
        self._folder = folder.resolve()
        self._variables = variables

    def find(self, name: str, beside: Path | None = None) -> Path:
        """Return the path of a template; raise `EvalError` if there is none in the repository.

        A bare name is `.agentv/templates/NAME.yaml`, the nearest one upward; any other is a path,
        looked for from the folder `beside` and from the suite's, upward.
        """
        folders = [folder for folder in (beside, self._folder) if folder is not None]
        if name.startswith(".") or "/" in name or "\\" in name:
            folder = next((each for each in folders if (each / name).is_file()), self._folder)
            return resolve_inside(repository_root(self._folder), folder, name)
        for folder in folders:
            path = find_upward(folder, [f"{_FOLDER}/{name}{suffix}" for suffix in _SUFFIXES]).path
            if path is not None:
                return path
        root = repository_root(self._folder)
        raise UsageError(f"no template '{name}': there is no {_FOLDER}/{name}.yaml up to {root}")

    def open(self, path: Path) -> AssertionTemplate:
        """Return what the template at `path` holds; raise `LoadError` if it cannot be read."""
        document = read_document(path, shown_path(path))
        problems = Problems(document.file, document.locate)
        raw = interpolate(document.value, self._variables, (), problems)
        entries = raw.get("assertions") if isinstance(raw, dict) else None
        if not isinstance(entries, list):
            problems.add((), "a template of assertions is a mapping with a list 'assertions'")
            entries = []
        return AssertionTemplate(path, entries, problems)


@with_config(STRICT)
class PluginManifest(TypedDict, total=False):
    """What a plug-in declares. `params` is the JSON Schema of an assertion's `config`."""

    version: Required[str | float | int]
    id: Required[str]
    kind: Required[Literal["assertion"]]
    name: str
    description: str
    returns: Required[Literal["bool", "grading_result"]]
    source: Required[Annotated[str, Field(min_length=1)]]
    params: dict[str, Any] | None


def find_plugin(
    plugin: str, config: dict[str, Any], folder: Path, loc: Loc, problems: Problems
) -> dict[str, Any]:
    """Return the parameters of the check `custom`; note a missing or wrong manifest.

    A config that breaks the manifest's `params` is left to the check, which makes it an assertion
    error.
    """
    from evalcore.checks.json import schema_faults

    loc = (*loc, "type")
    manifest_name = f"custom/assertions/{plugin}.yaml"
    path, refused = find_upward(folder, (manifest_name,))
    if path is None:
        missing = f"no {manifest_name} here or in a folder above, up to the root of the repository"
        reasons = "".join(f"; {other}" for other in refused)
        problems.add(loc, f"no plug-in '{plugin}': {missing}{reasons}")
        return {}
    try:
        manifest = _read_manifest(path, path.stat().st_mtime_ns)
    except LoadError as error:
        problems.include(error.problems)
        return {}
    file = shown_path(path)
    if manifest["id"] != plugin:
        problems.add(loc, f"{file} declares the id '{manifest['id']}', not '{plugin}'")
    source = _source(path.parent.resolve(), manifest["source"])
    if source is None:
        problems.add(loc, f"{file}: source: no file '{manifest['source']}' beside it")
    params = manifest.get("params")
    for fault in list(schema_faults(params))[:1] if params else ():
        problems.add(loc, f"{file}: params: {fault.message}")
    return {
        "id": plugin,
        "source": str(source),
        "returns": manifest["returns"],
        "params": manifest.get("params"),
        "config": config,
    }


def _source(folder: Path, name: str) -> Path | None:
    """Return the plug-in's program, None if there is none below the manifest's folder."""
    try:
        program = (folder / name).resolve()
        return program if program.is_relative_to(folder) and program.is_file() else None
    except (OSError, ValueError):  # a name no file system takes
        return None


@lru_cache(maxsize=64)
def _read_manifest(path: Path, _changed_ns: int) -> PluginManifest:
    document = read_document(path, shown_path(path))
    problems = Problems(document.file, document.locate)
    problems.check_shape(document.value, PluginManifest)
    problems.raise_if_any()
    manifest: PluginManifest = document.value
    return manifest


# In older versions of AgentV graders are called judges.
_FOLDERS: Final = (".agentv/assertions", ".agentv/graders", ".agentv/judges")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w-]*")
_PROGRAM_SUFFIXES: Final = (".ts", ".js", ".mts", ".mjs", ".py")
# What every assertion of a test file may say; the rest is the program's `config`.
_COMMON: Final = frozenset({"name", "weight", "required", "min_score", "negate"})


class ProgramAssertion(NamedTuple):
    """A type of assertion, and the command that grades it."""

    name: str
    command: tuple[str, ...]

    def written(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `code-grader` that an assertion of this type is."""
        common = {key: value for key, value in raw.items() if key in _COMMON}
        config = {key: value for key, value in raw.items() if key not in {*_COMMON, "type"}}
        grader = {"type": "code-grader", "command": list(self.command), "name": self.name}
        return {**grader, **common, **({"config": config} if config else {})}


def program_assertions(folder: Path) -> dict[str, ProgramAssertion]:
    """Return the types that programs define, from `folder` up to the root of its repository.

    Of programs with the same name one in `assertions` wins, then the nearest. One that another user
    may have put there does not count.
    """
    start = folder.resolve()
    programs: dict[str, ProgramAssertion] = {}
    for below in _FOLDERS:
        for ancestor in ancestors_within(start, repository_root(start)):
            for file in sorted((ancestor / below).glob("*")):
                name, is_known = file.stem, file.suffix in _PROGRAM_SUFFIXES
                if name in programs or not is_known or not _NAME.fullmatch(name):
                    continue
                path, _ = find_upward(ancestor, (f"{below}/{file.name}",))
                if path is not None:
                    command = (*_runner(file.suffix), os.path.relpath(path, start))
                    programs[name] = ProgramAssertion(name, command)
    return programs


def _runner(suffix: str) -> tuple[str, ...]:
    """Return the command that runs a file: Bun as AgentV does; without it, Node.js."""
    if suffix == ".py":
        return ("python3",)
    return ("bun", "run") if shutil.which("bun") else ("node",)
