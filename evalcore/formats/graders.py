"""Which version of an npm package a suite has beside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from pydantic import ValidationError

from evalcore.checks.base import AssertionValueError
from evalcore.errors import EvalError
from evalcore.formats.documents import json_reason, parse_json
from evalcore.formats.targets import Targets
from evalcore.formats.variables import names_file
from evalcore.formats.warnings import ReferenceFields
from evalcore.judging.prompts import VARIABLES, variables_of
from evalcore.model.assertion import Assertion
from evalcore.model.identity import EMBEDDING_TARGETS
from evalcore.model.suite import FILE_RULES
from evalcore.model.target import Target
from evalcore.problems import Problems
from evalcore.settings import ancestors_within, repository_root
from evalcore.shapes import adapter, explain
from evalcore.trust.files import resolve_inside
from evalcore.wording import Loc, suggest


def installed_version(folder: Path, packages: tuple[str, ...]) -> str | None:
    """Return the version of the nearest of the packages from `folder` up to its repository's root.

    It is installed in a `node_modules` there, or is a package of the repository itself
    (`packages/NAME`). None if there is none.
    """
    for ancestor in ancestors_within(folder, repository_root(folder)):
        for package in packages:
            own = ancestor / "packages" / package.rpartition("/")[2]
            for home in (ancestor / "node_modules" / package, own):
                version = _version(home / "package.json", package)
                if version is not None:
                    return version
    return None


def _version(manifest: Path, package: str) -> str | None:
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads(manifest.read_bytes())
        is_package = isinstance(value, dict) and value.get("name", package) == package
        version = value.get("version") if is_package else None
        return version if isinstance(version, str) else None
    return None


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
        self._inline: dict[str, Mapping[str, Any]] = {}
        self._versions: dict[tuple[str, ...], str | None] = {}
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

    def inline(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> dict[str, Any]:
        """Return the judge that a mapping describes, as `JudgeSpec` takes it.

        `{provider, model, …}` is a target of its own: `provider` is a target's name, whose options
        the others are laid over, or a kind of target.
        """
        options = {str(key): value for key, value in raw.items() if key != "provider"}
        if "model_name" in options:
            options["model"] = options.pop("model_name")
        provider = raw.get("provider")
        if not isinstance(provider, str):
            raise AssertionValueError("a judge of its own has a 'provider', such as openai")
        name = f"{provider}/{options['model']}" if "model" in options else provider
        targets = self.targets
        if targets is None:
            return {"name": name}
        entry = {"use_target" if provider in targets else "provider": provider, **options}
        name = self._free_name(name, entry)
        if name not in self._inline:
            self._inline[name] = entry
            targets.define(name, {"name": name, **entry}, loc, problems)
        targets.use(name, loc, problems)
        return {"name": name}

    def _free_name(self, name: str, entry: Mapping[str, Any]) -> str:
        """Return a name that no other judge has."""
        targets, free, number = self.targets, name, 1
        while self._inline.get(free, entry) != entry or (
            free not in self._inline and targets is not None and free in targets
        ):
            number += 1
            free = f"{name}#{number}"
        return free

    def use_suites(
        self, execution: Mapping[str, Any], section: Mapping[str, Any], problems: Problems
    ) -> None:
        """Take the suite's own judge: `execution.grader_target` or `evalcore.judge`."""
        for where, values, key in (
            ("execution", execution, "grader_target"),
            ("evalcore", section, "judge"),
        ):
            name = values.get(key)
            if name is not None:
                self.default = name
                self.use(name, (where, key), problems)
                return

    def at(self, loc: Loc, problems: Problems, read_members: ReadMembers) -> GraderReader:
        """Return the reader of the assertion at `loc`."""
        return GraderReader(self, loc, problems, read_members)

    def judges(
        self, written: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> list[dict[str, Any]]:
        """Return who judges, as `JudgeSpec` takes it; note names that no target has."""
        keys = [key for key in ("judge", "target", "judges") if key in written]
        if len(keys) > 1:
            raise AssertionValueError(f"'{keys[0]}' and '{keys[1]}' name judges; keep one")
        common = {key: written[key] for key in ("model", "temperature") if key in written}
        if not keys:
            self._use_default(loc, problems)
            return [common]
        key, listed = keys[0], written[keys[0]]
        if not listed:
            raise AssertionValueError(f"'{key}' names no judge")
        if not isinstance(listed, list):
            return [{**common, **self._judge(listed, (*loc, key), problems)}]
        return [
            {**common, **self._judge(entry, (*loc, key, index), problems)}
            for index, entry in enumerate(listed)
        ]

    def _judge(self, written: Any, loc: Loc, problems: Problems) -> dict[str, Any]:
        if isinstance(written, Mapping) and "provider" in written:
            return self.inline(written, loc, problems)
        if not written or not isinstance(written, str | Mapping):
            message = f"a judge is a target's name or {{provider, model}}: {written!r}"
            raise AssertionValueError(message)
        judge = {"name": written} if isinstance(written, str) else dict(written)
        if "name" in judge and "target" in judge:
            raise AssertionValueError("a judge has 'name' or 'target', which mean the same")
        judge["name"] = judge.pop("target", judge.get("name"))
        self.use(judge["name"], loc, problems)
        return judge

    def embedding(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> dict[str, Any]:
        """Return who embeds, as `JudgeSpec` takes it: the target named, or one called so."""
        if "judge" in raw and "target" in raw:
            raise AssertionValueError("'judge' and 'target' mean the same; keep one")
        common = {"model": raw["model"]} if "model" in raw else {}
        name = raw.get("target", raw.get("judge"))
        if name is None and self.targets is not None:
            name = next((target for target in EMBEDDING_TARGETS if target in self.targets), None)
        if name is None:
            return common
        self.use(name, (*loc, "judge" if "judge" in raw else "target"), problems)
        return {"name": name, **common}

    def installed_version(self, packages: tuple[str, ...]) -> str | None:
        """Return the version of the nearest of these npm packages; it is looked for once."""
        if packages not in self._versions:
            self._versions[packages] = installed_version(self.folder, packages)
        return self._versions[packages]

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

    def prompt(self, written: str | None) -> str | None:
        """Return the prompt, from its file if it is one; its variables are known ones."""
        prompt = self.prompt_text(written)
        for name in () if prompt is None else variables_of(prompt):
            if name not in VARIABLES and _METADATA.fullmatch(name) is None:
                names = [*VARIABLES, "metadata.x"]
                raise AssertionValueError(
                    f"the prompt has an unknown variable '{{{{{name}}}}}'.{suggest(name, names)}"
                )
        return prompt

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
    read_members: ReadMembers

    @property
    def file_rules(self) -> int:
        """The rules by which the suite's file is read."""
        return self.graders.file_rules

    def parse_json(self, text: str, *loc: str | int) -> Any:
        """Return the value of a JSON text; NaN, infinities and duplicate keys are refused."""
        try:
            return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            reason = _json_mistake(text) or str(error)
            raise AssertionValueError(f"is not JSON: {reason}", *loc) from None

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
        """Return who judges; note names that no target has."""
        return self.graders.judges(written, (*self.loc, *loc), self.problems)

    def inline_judge(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the judge that `{provider, model, …}` describes."""
        return self.graders.inline(written, self.loc, self.problems)

    def embedding(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return who embeds."""
        return self.graders.embedding(written, self.loc, self.problems)

    def prompt(self, written: str | None) -> str | None:
        """Return the text of a prompt, from its file if it names one."""
        return self.graders.prompt(written)

    def installed_version(self, packages: Iterable[str]) -> str | None:
        """Return the version of the first of these npm packages that is installed for the suite."""
        return self.graders.installed_version(tuple(packages))

    def use_judges(self, names: Iterable[str], *loc: str | int) -> None:
        """Take these targets as judges, and the suite's; note names that no target has."""
        self.graders.use(None, (*self.loc, *loc), self.problems)
        for index, name in enumerate(names):
            self.graders.use(name, (*self.loc, *loc, index), self.problems)

    def compare_fields(self, fields: Mapping[str, bool]) -> None:
        """Note fields that are compared with the expected output's, and which are required."""
        self.graders.reference_fields.compare(fields)

    def members(self, raw: Sequence[Any], *loc: str | int) -> list[Assertion]:
        """Return the assertions of a list at `loc`; those that are wrong are noted."""
        return self.read_members(raw, (*self.loc, *loc), self.problems)


def _json_mistake(text: str) -> str:
    try:
        parse_json(text.encode(errors="replace"))
    except ValueError as reason:
        return json_reason(reason)
    return ""


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a number that JSON can hold")
