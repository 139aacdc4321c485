"""Assertions of test files that need a judge, a program or a trajectory → checks and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from evalcore.errors import EvalError
from evalcore.formats.assertions.grader_errors import AssertionValueError
from evalcore.formats.parts.reference_fields import ReferenceFields
from evalcore.formats.parts.targets_file import Targets
from evalcore.judging.fences import variables_of
from evalcore.judging.grading import VARIABLES
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import suggest
from evalcore.model.assertion import Assertion
from evalcore.model.target import Target
from evalcore.trust.files import repository_root, resolve_inside

DEFAULT_JUDGES: Final = ("judge", "grader")
EMBEDDINGS: Final = ("embeddings", "embedding")
_LARGEST_PROMPT: Final = 1 << 20
_PROMPT_SUFFIXES: Final = (".md", ".markdown", ".txt", ".prompt", ".j2", ".tmpl")
_METADATA: Final = re.compile(r"metadata\.[\w.-]+")

MakeMember = Callable[[Mapping[str, Any]], Assertion]


class Graders:
    """Reads what graders need: prompts from files, judges from the suite's targets.

    Without `targets` (a single assertion on its own) nothing is known of judges. `default` is the
    suite's own judge, or a target called 'judge' or 'grader' once an assertion needs one.
    """

    def __init__(
        self, folder: Path, targets: Targets | Callable[[], Targets] | None = None
    ) -> None:
        """Take the targets, or what opens them once they are needed."""
        self.folder = folder.resolve()
        self.default: str | None = None
        self.reference_fields = ReferenceFields()
        self._targets = targets
        self._inline: dict[str, Mapping[str, Any]] = {}

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
    def others(self) -> list[Problems]:
        """The collector of the `targets.yaml`, if it was opened."""
        opened = self._targets if isinstance(self._targets, Targets) else None
        return [] if opened is None or opened.file_problems is None else [opened.file_problems]

    def inline(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> dict[str, Any]:
        """Return the judge that a mapping describes, as `JudgeSpec` takes it.

        `{provider, model, …}` is a target of its own: `provider` is a target's name, whose options
        the others are laid over, or a kind of target. Without it: the target `name`, or the
        suite's judge, with another model or temperature.
        """
        options = {str(key): value for key, value in raw.items() if key != "provider"}
        if "model_name" in options:
            options["model"] = options.pop("model_name")
        provider = raw.get("provider")
        if provider is None and set(options) <= {"name", "target", "model", "temperature"}:
            name = options.pop("target", None)
            found = {**options, "name": options.get("name", name)}
            self.use(found["name"], loc, problems)
            return found
        if provider is None or not isinstance(provider, str):
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

    def read(
        self, kind: str, raw: Mapping[str, Any], loc: Loc, problems: Problems, make: MakeMember
    ) -> tuple[str, dict[str, Any]]:
        """Return the check of a validated assertion and its parameters.

        Raise `AssertionValueError` for what is wrong with it; unknown judges are noted. `make`
        makes the members of a composite.
        """
        match kind:
            case "llm-grader":
                return self._llm_grader(raw, loc, problems)
            case "rubrics":
                return "rubrics", {
                    **self._judged(raw, loc, problems),
                    "prompt": self.prompt(raw.get("prompt")),
                    "criteria": criteria_params(raw["criteria"]),
                }
            case _:
                from evalcore.formats.assertions.other_graders import read_other

                return read_other(self, kind, raw, loc, problems, make)

    def _llm_grader(
        self, raw: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> tuple[str, dict[str, Any]]:
        params = self._judged(raw, loc, problems)
        params["prompt"] = self.prompt(raw.get("prompt"))
        if "rubrics" in raw:
            return "rubrics", {**params, "criteria": criteria_params(raw["rubrics"])}
        return "llm-grader", params

    def _judged(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> dict[str, Any]:
        return {
            "judges": self.judges(raw, loc, problems),
            "votes": raw.get("votes", 1),
            "aggregation": raw.get("aggregation", "mean"),
            "threshold": threshold_of(raw),
        }

    def judges(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> list[dict[str, Any]]:
        """Return who judges, as `JudgeSpec` takes it; note names that no target has."""
        given = [key for key in ("judge", "target", "judges") if key in raw]
        if len(given) > 1:
            raise AssertionValueError(f"'{given[0]}' and '{given[1]}' name judges; keep one")
        common = {key: raw[key] for key in ("model", "temperature") if key in raw}
        if not given:
            self._use_default(loc, problems)
            return [common]
        listed = raw[given[0]]
        found = []
        for index, one in enumerate(listed if isinstance(listed, list) else [listed]):
            place = (*loc, given[0], index) if isinstance(listed, list) else (*loc, given[0])
            entry = {"name": one} if isinstance(one, str) else dict(one)
            if "name" in entry and "target" in entry:
                raise AssertionValueError("a judge has 'name' or 'target', which mean the same")
            entry["name"] = entry.pop("target", entry.get("name"))
            self.use(entry["name"], place, problems)
            found.append({**common, **entry})
        return found

    def embedding(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> dict[str, Any]:
        """Return who embeds, as `JudgeSpec` takes it: the target named, or one called so."""
        if "judge" in raw and "target" in raw:
            raise AssertionValueError("'judge' and 'target' mean the same; keep one")
        common = {"model": raw["model"]} if "model" in raw else {}
        name = raw.get("target", raw.get("judge"))
        if name is None and self.targets is not None:
            name = next((one for one in EMBEDDINGS if one in self.targets), None)
        if name is None:
            return common
        self.use(name, (*loc, "judge" if "judge" in raw else "target"), problems)
        return {"name": name, **common}

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
                known = [*VARIABLES, "metadata.x"]
                raise AssertionValueError(
                    f"the prompt has an unknown variable '{{{{{name}}}}}'.{suggest(name, known)}"
                )
        return prompt

    def prompt_text(self, written: str | None) -> str | None:
        """Return the text of a prompt: a file's if it is written `file://…` or as a path."""
        if written is None:
            return None
        name = written.removeprefix("file://")
        if name == written and not self._is_path(written):
            return written
        try:
            path = resolve_inside(repository_root(self.folder), self.folder, name)
            if path.stat().st_size > _LARGEST_PROMPT:
                raise AssertionValueError(f"prompt {name!r} is larger than 1 MiB")
            text = path.read_text("utf-8")
        except (EvalError, OSError, UnicodeDecodeError) as error:
            raise AssertionValueError(f"the prompt cannot be read: {error}") from error
        if not text.strip():
            raise AssertionValueError(f"the prompt {name!r} is empty")
        return text

    def _is_path(self, written: str) -> bool:
        """Whether a text names a file: one line that ends or begins as the name of one does."""
        if "\n" in written or "{{" in written or len(written) > 500:
            return False
        if written.startswith(("./", "../", "/")):
            return True
        return " " not in written and written.lower().endswith(_PROMPT_SUFFIXES)


def threshold_of(raw: Mapping[str, Any]) -> float | None:
    """Return the score from which a graded assertion passes; None where it says nothing."""
    for key in ("threshold", "required", "min_score"):
        value = raw.get(key)
        if value is not None and not isinstance(value, bool):
            return float(value)
    return None


def criteria_params(raw: Sequence[Any]) -> list[dict[str, Any]]:
    """Return criteria as `Criterion` takes them; raise `AssertionValueError`."""
    found: list[dict[str, Any]] = []
    for index, one in enumerate(raw):
        entry = {"outcome": one} if isinstance(one, str) else dict(one)
        found.append(_criterion(entry, index))
    ids = [one["id"] for one in found]
    for name in ids:
        if ids.count(name) > 1:
            raise AssertionValueError(f"two criteria have the id '{name}'")
    if not any(one["weight"] for one in found):
        raise AssertionValueError("no criterion has any weight")
    return found


def _criterion(entry: Mapping[str, Any], index: int) -> dict[str, Any]:
    where = f"criteria[{index}]"
    if "outcome" in entry and "description" in entry:
        raise AssertionValueError(f"{where}: 'description' is another name of 'outcome'; keep one")
    outcome = entry.get("outcome", entry.get("description"))
    levels = _levels(entry["score_ranges"], where) if "score_ranges" in entry else []
    if outcome is None and not levels:
        raise AssertionValueError(f"{where}: 'outcome' is required: what the output has to do")
    if "min_score" in entry and entry.get("required") not in (None, True, False):
        raise AssertionValueError(f"{where}: 'required' and 'min_score' are both numbers; keep one")
    return {
        "id": entry.get("id") or f"criterion-{index + 1}",
        "outcome": outcome or "; ".join(meaning for _, meaning in levels),
        "weight": float(entry.get("weight", 1.0)),
        "required": _required(entry, levels),
        "levels": levels,
    }


def _required(entry: Mapping[str, Any], levels: Sequence[Any]) -> float | None:
    if entry.get("required") is False:
        return None
    if "min_score" in entry:
        return float(entry["min_score"])
    required = entry.get("required")
    if required is True:
        return 0.8 if levels else 1.0
    return None if required is None else float(required)


def _levels(raw: Any, where: str) -> list[tuple[float, str]]:
    """Return the scores of a criterion and what they mean, the lowest first."""
    levels: list[tuple[float, str]] = []
    if isinstance(raw, Mapping):
        for key, meaning in raw.items():
            try:
                levels.append((float(key), meaning))
            except ValueError:
                message = f"{where}: score_ranges: '{key}' is no number"
                raise AssertionValueError(message) from None
    else:
        for one in raw:
            low, high = one["score_range"]
            if low > high:
                message = f"{where}: score_ranges: [{low:g}, {high:g}] begins after its end"
                raise AssertionValueError(message)
            levels.extend((edge, one["outcome"]) for edge in dict.fromkeys((low, high)))
    levels.sort(key=lambda level: level[0])
    if levels[0][0] < 0 or levels[-1][0] <= 0:
        raise AssertionValueError(f"{where}: score_ranges: scores go from 0 up to more than 0")
    return [(float(score), meaning) for score, meaning in levels]


def check_member(raw: Any, loc: Loc, problems: Problems) -> dict[str, Any] | None:
    """Return the validated mapping of a composite's member, or note what is wrong with it."""
    from evalcore.formats.test_file.shapes import AssertionShape

    try:
        checked: dict[str, Any] = adapter(AssertionShape).validate_python(raw)
    except ValidationError as error:
        problems.add_invalid(error, raw, AssertionShape, loc)
        return None
    return checked
