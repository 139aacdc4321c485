"""Assertions in the words of every kind of file → the engine's checks.

What the kinds of files say differently is data: the table of checks (words, keys, types, fixed
fields) and `Dialect`. Types of a suite file that are not its own follow the rules of workflow files
where those have them, else those of test files; a `path` makes any of them look there instead of at
the primary output. Members of a composite follow the rules of test files where those have the type
and no `path` is written, else those of suites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Required

from pydantic import Field, ValidationError, with_config

from evalcore.checks.base import AssertionValueError, Check
from evalcore.checks.registry import (
    ANY,
    AWAITED,
    AssertionType,
    Dialect,
    WorkflowKeys,
    assertion_types,
    find_check,
)
from evalcore.checks.text import ECMASCRIPT_TRIMMED
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.documents import with_snake_keys
from evalcore.formats.graders import (
    DEEPEST_INCLUDE,
    AssertionTemplates,
    GraderReader,
    Graders,
    ProgramAssertion,
    find_plugin,
    is_include,
)
from evalcore.formats.warnings import CaseWarnings, examine_assertion, note_empty
from evalcore.jsonvalues import PathSyntaxError
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import PRIMARY_PATH, ROOTS, parse_path
from evalcore.problems import Problems
from evalcore.shapes import CUSTOM_TYPE, STRICT, adapter
from evalcore.trust.secrets import escaped
from evalcore.wording import Loc, describe, suggest, suggest_assertion

DEFAULT_REQUIRED: Final = 0.8
MAX_SHARED_ASSERTIONS: Final = 1_000
_LONGEST_NAME: Final = 30
_CUSTOM: Final = "custom:"
_TEST, _WORKFLOW, _SUITE = Dialect.TEST, Dialect.WORKFLOW, Dialect.SUITE
# The types of test files that suite files have too.
_SHARED_TYPES: Final = (
    "token-usage", "llm-grader", "rubrics", "code-grader", "composite", "tool-trajectory",
    "field-accuracy", "execution-metrics",
)  # fmt: skip
_RENAMED_KEYS: Final = ("min_score", "node_id")


def other_types() -> tuple[str, ...]:
    """Return the types of suite files in the words of workflow files and of test files."""
    workflow = [name for name in assertion_types(_WORKFLOW) if name not in assertion_types(_SUITE)]
    return (
        *workflow,
        *(name.replace("-", "_") for name in workflow if "-" in name),
        *(f"not-{name}" for name in workflow),
        *_SHARED_TYPES,
        *(name.replace("-", "_") for name in _SHARED_TYPES),
    )


@with_config(STRICT)
class CustomAssertion(WorkflowKeys, total=False):
    """A plug-in from `custom/assertions/<id>.yaml`; `type` is `custom:<id>`."""

    type: Required[Annotated[str, Field(pattern=CUSTOM_TYPE)]]


@cache
def _spellings(dialect: Dialect) -> Mapping[str, AssertionType]:
    """Return the types of a dialect by everything that may stand after `type:`."""
    kinds = assertion_types(dialect).values()
    return {spelling: kind for kind in kinds for spelling in kind.spellings}


class _Like(NamedTuple):
    """An assertion that says its type and perhaps a text, from which others are made.

    `field` is the one that holds the text; None where a text has to be read as any other is.
    `texts` has the assertions by their texts.
    """

    assertion: Assertion
    keys: int
    field: str | None
    texts: dict[str, Assertion]


class AssertionReader:
    """Reads the assertions of a file; those that test files write alike are one object.

    `notes` collects what is no mistake. `programs` are types of a test file that programs define,
    `templates` opens what it includes.
    """

    def __init__(
        self,
        graders: Graders,
        dialect: Dialect = Dialect.TEST,
        notes: CaseWarnings | None = None,
        programs: Mapping[str, ProgramAssertion] | None = None,
        templates: AssertionTemplates | None = None,
    ) -> None:
        # Whether `${{ … }}` is text in what is read.
        self.verbatim = False
        self._graders, self._dialect, self._notes = graders, dialect, notes
        self._programs, self._templates = programs or {}, templates
        self._included: dict[Path, list[Assertion]] = {}
        # The templates that are being read, the outermost first.
        self._including: list[Path] = []
        # By what was validated: `1` and `true` are told apart there.
        self._validated: dict[tuple[tuple[str, Any], ...], Assertion] = {}
        self._likes: dict[str, _Like] = {}

    def read_all(self, raw: Any, loc: Loc, problems: Problems, label: str = "") -> list[Assertion]:
        """Return the assertions of a list; every mistake in them is noted.

        Its plain texts are the criteria of one `rubrics`, which stands where the first of them is.
        """
        assertions: list[Assertion] = []
        criteria: Any = None
        for index, entry in enumerate(raw or ()):
            if type(entry) is dict and (known := self._known(entry)) is not None:
                assertions.append(known)
            elif not isinstance(entry, str) or entry in _spellings(_TEST):
                assertions += self._read_entry(entry, (*loc, index), problems, label)
            elif criteria is None:
                texts = [text for text in raw if isinstance(text, str)]
                # Each has the weight of an assertion.
                criteria = {"type": "rubrics", "criteria": texts, "weight": len(texts)}
                assertions += self._read_entry(criteria, (*loc, index), problems, label)
        return assertions

    def _known(self, raw: dict[str, Any]) -> Assertion | None:
        """Return the assertion if one like it, but for its text, was read; else None."""
        name = raw.get("type")
        like = self._likes.get(name) if type(name) is str else None
        if like is None:
            return None
        assertion, keys, field, texts = like
        if len(raw) != keys:
            return None
        if keys == 1:
            return assertion
        text = raw.get("value")
        if type(text) is not str:
            return None
        known = texts.get(text)
        if known is None and field is not None and text.strip(ECMASCRIPT_TRIMMED):
            word, check, _, params, block, weight, required, negate, *_ = assertion
            title, params = f"{word}-{text[:_LONGEST_NAME]}", {**params, field: text}
            known = Assertion(word, check, title, params, block, weight, required, negate)
            # What many tests repeat comes up early; values of a test's own would fill any cache.
            if len(texts) < MAX_SHARED_ASSERTIONS:
                texts[text] = known
        return known

    def _note_like(
        self, kind: AssertionType, written: Mapping[str, Any], assertion: Assertion
    ) -> None:
        """Keep the assertion of a test file if others can be made from it."""
        keys, text = len(written), written.get("value")
        says_more = keys > 1 and not (keys == 2 and isinstance(text, str))
        if self._dialect is not _TEST or kind.word.reads is not None or says_more:
            return
        check = find_check(assertion.check)
        field = kind.keys.get("value")
        if check.faults is not Check.faults or assertion.params.get(str(field)) != text:
            field = None
        like = self._likes.setdefault(written["type"], _Like(assertion, keys, field, {}))
        if isinstance(text, str) and keys == like.keys and len(like.texts) < MAX_SHARED_ASSERTIONS:
            like.texts[text] = assertion

    def read_members(self, raw: Sequence[Any], loc: Loc, problems: Problems) -> list[Assertion]:
        """Return the assertions of a composite; every mistake in them is noted."""
        members: list[Assertion] = []
        for index, entry in enumerate(raw):
            at = (*loc, index)
            kind = entry.get("type") if isinstance(entry, Mapping) else None
            of_suite = (
                self._dialect is _SUITE
                and isinstance(kind, str)
                and ("path" in entry or kind not in _spellings(_TEST) or _is_negated(kind))
            )
            if not of_suite:
                members += self._read_entry(entry, at, problems, dialect=_TEST)
            elif (member := self.read(entry, at, problems)) is not None:
                # A composite applies no transform of its members.
                members.append(
                    member if member.transform is None else _at_path(member, PRIMARY_PATH)
                )
        return members

    def _read_entry(
        self,
        entry: Any,
        loc: Loc,
        problems: Problems,
        label: str = "",
        dialect: Dialect | None = None,
    ) -> Sequence[Assertion]:
        if is_include(entry) and self._templates is not None:
            return self._include(entry["include"], (*loc, "include"), problems, label)
        assertion = self.read(entry, loc, problems, label, dialect=dialect)
        return () if assertion is None else (assertion,)

    def _include(
        self, name: object, loc: Loc, problems: Problems, label: str
    ) -> Sequence[Assertion]:
        """Return the assertions of a template; its mistakes are noted with its own lines, once."""
        if self._templates is None or not isinstance(name, str) or not name:
            problems.add(loc, f"expected the name of a template, got {describe(name)}", label=label)
            return ()
        beside = self._including[-1].parent if self._including else None
        try:
            path = self._templates.find(name, beside)
            if path in self._included:
                return self._included[path]
            if path in self._including:
                raise UsageError(f"'{name}' includes itself")
            if len(self._including) == DEEPEST_INCLUDE:
                raise UsageError(f"'{name}' is included more than {DEEPEST_INCLUDE} files deep")
            template = self._templates.open(path)
        except LoadError as error:
            problems.include(error.problems)
            return ()
        except EvalError as error:
            problems.add(loc, str(error), label=label)
            return ()
        self._including.append(path)
        with self._graders.reading_beside(path.parent):
            included = self.read_all(template.entries, ("assertions",), template.problems)
        self._including.pop()
        problems.include(template.problems.noted)
        self._included[path] = included
        return included

    def read(
        self,
        raw: Any,
        loc: Loc,
        problems: Problems,
        label: str = "",
        *,
        block: str | None = None,
        dialect: Dialect | None = None,
    ) -> Assertion | None:
        """Return the assertion at `loc`; None, and every mistake noted, if it is wrong.

        `block` is the one of a workflow that it belongs to. `dialect` is another than the file's.
        """
        if not isinstance(raw, dict):
            message = f"an assertion is a mapping with 'type', got {describe(raw)}"
            problems.add(loc, message, label=label)
            return None
        dialect = dialect or self._dialect
        if dialect is _SUITE:
            return self._read_of_suite(with_snake_keys(raw, _RENAMED_KEYS), loc, problems)
        name = raw.get("type")
        kind = _spellings(dialect).get(name) if isinstance(name, str) else None
        if kind is not None:
            return self._read(kind, raw, loc, problems, label, block)
        if isinstance(name, str) and dialect is _TEST and name in self._programs:
            written = self._programs[name].written(raw)
            if self.verbatim and "config" in written:
                written["config"] = escaped(written["config"])
            inner = self.read(written, loc, problems, label)
            return None if inner is None else inner._replace(type=name)
        if isinstance(name, str) and dialect is _WORKFLOW and bare_type(name).startswith(_CUSTOM):
            return self._read(None, raw, loc, problems, label, block)
        more = self._programs if dialect is _TEST else (f"{_CUSTOM}<id>",)
        message = type_mistake(raw, [*_spellings(dialect), *more])
        problems.add((*loc, "type"), message, label=label)
        return None

    def _read(
        self,
        kind: AssertionType | None,
        raw: dict[str, Any],
        loc: Loc,
        problems: Problems,
        label: str = "",
        block: str | None = None,
    ) -> Assertion | None:
        """Return an assertion of a type; of no type is a plug-in."""
        shape = CustomAssertion if kind is None else kind.shape
        try:
            validate = adapter(shape).validate_python if kind is None else kind.validate
            written: dict[str, Any] = validate(raw)
        except ValidationError as error:
            problems.add_invalid(error, raw, shape, loc, label=label)
            return None
        key: Any = None
        if kind is not None and kind.dialect is _TEST and not kind.takes_others:
            key = tuple(written.items())
            try:
                if (known := self._validated.get(key)) is not None:
                    return known
            except TypeError:  # a list as value
                key = None
        assertion = self._new(kind, raw, written, loc, problems, label, block)
        # `required: true` and `required: 1` are equal to Python and differ here. What many tests
        # repeat comes up early; values of a test's own would fill any cache.
        is_full = len(self._validated) >= MAX_SHARED_ASSERTIONS
        if key is not None and assertion is not None and not is_full and "required" not in written:
            self._validated[key] = assertion
            if kind is not None:
                self._note_like(kind, written, assertion)
        return assertion

    def _new(
        self,
        kind: AssertionType | None,
        raw: Mapping[str, Any],
        written: dict[str, Any],
        loc: Loc,
        problems: Problems,
        label: str,
        block: str | None,
    ) -> Assertion | None:
        before = problems.count
        # A suite's numbers are stored as written: identities tell `5` from `5.0`.
        fields = raw if kind is not None and kind.dialect is _SUITE else written
        required = None
        if kind is None:
            bare, config = bare_type(written["type"]), written.get("config") or {}
            plugin, folder = bare.removeprefix(_CUSTOM), self._graders.folder
            check, params = "custom", find_plugin(plugin, config, folder, loc, problems)
        else:
            bare = kind.name
            if kind.dialect is _WORKFLOW:
                fields = written = kind.without_absent(written)
                _check_config(kind, written.get("config") or {}, loc, problems)
            try:
                reader = GraderReader(self._graders, loc, problems, self.read_members)
                check, params = kind.read(fields, reader)
                of_test = kind.dialect is _TEST and "required" not in kind.own_keys
                required = _required_score(written) if of_test else kind.required_score(written)
            except AssertionValueError as error:
                problems.add((*loc, *error.loc), str(error), label=label)
        negated = _is_negated(written["type"])
        if negated and "negate" in written:
            message = f"is given beside '{written['type']}', which negates; keep one of them"
            problems.add((*loc, "negate"), message, label=label)
        if problems.count > before:
            return None
        if kind is not None and kind.dialect is _TEST and self._notes is not None:
            for path, reason in kind.idle_keys(written):
                self._notes.add(f"has no effect: {reason}", (*loc, *path), problems)
        word = f"not-{bare}" if negated else bare
        weight = written.get("weight")
        assertion = Assertion(
            word,
            check,
            written.get("name") or _name(kind, word, fields, params),
            params,
            block,
            1.0 if weight is None else float(weight),
            required,
            negated or written.get("negate", False),
            written.get("transform"),
            written.get("metric"),
        )
        examine_assertion(assertion, written, loc, problems)
        if self._notes is not None:
            warnings = None if block is None else self._notes
            note_empty(assertion, loc, problems, label, warnings)
        return assertion if problems.count == before else None

    def _read_of_suite(
        self, raw: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> Assertion | None:
        before, kind, path = problems.count, raw.get("type"), raw.get("path")
        self._check_path(path, loc, problems)
        bare = bare_type(kind) if isinstance(kind, str) else ""
        own = assertion_types(_SUITE).get(bare)
        if own is not None:
            assertion = self._read(own, dict(raw), loc, problems)
            if assertion is not None and bare.startswith("output."):
                if assertion.negate:
                    params = {**assertion.params, "negated": True}
                    assertion = assertion._replace(params=params)
                path = None
        elif bare.startswith(_CUSTOM) or bare.replace("_", "-") in assertion_types(_WORKFLOW):
            for key in ("name", "path"):
                if key in raw and (not isinstance(raw[key], str) or not raw[key]):
                    problems.add((*loc, key), f"expected text, got {describe(raw[key])}")
            rest = {key: value for key, value in raw.items() if key not in {"path", "name"}}
            rest["type"] = kind if bare.startswith(_CUSTOM) else str(kind).replace("_", "-")
            assertion = self.read(rest, loc, problems, dialect=_WORKFLOW)
            if assertion is not None and raw.get("name"):
                assertion = assertion._replace(name=raw["name"])
        elif str(kind).replace("_", "-") in _SHARED_TYPES:
            rest = {key: value for key, value in raw.items() if key != "path"}
            assertion = self.read(rest, loc, problems, dialect=_TEST)
        else:
            types = {*assertion_types(_SUITE), *assertion_types(_WORKFLOW), *_SHARED_TYPES}
            problems.add((*loc, "type"), type_mistake(raw, [*types, f"{_CUSTOM}<id>"]))
            return None
        if assertion is None or problems.count > before:
            return None
        return _at_path(assertion, path)

    def _check_path(self, path: object, loc: Loc, problems: Problems) -> None:
        if not isinstance(path, str):
            return
        try:
            root = parse_path(path)[0]
        except PathSyntaxError as error:
            problems.add((*loc, "path"), str(error))
            return
        if root not in ROOTS:
            text = f"path '{path}' finds nothing: a path begins with {', '.join(ROOTS)}"
            if self._notes is not None:
                self._notes.add(text, (*loc, "path"), problems)


def bare_type(name: str) -> str:
    """Return a type without `not-`."""
    return name.removeprefix("not-")


def _is_negated(spelling: str) -> bool:
    return spelling.startswith(("not-", "not_"))


def type_mistake(raw: Mapping[str, Any], types: Sequence[str]) -> str:
    """Return what is wrong with the type of an assertion that is none of `types`."""
    if "type" not in raw:
        keys = (key for key in raw if key in types and not _is_negated(key))
        key = next(keys, None)
        return "is required" if key is None else f"is required; write {{type: {key}, value: …}}"
    name = raw["type"]
    if not isinstance(name, str):
        return f"expected text, got {describe(name)}"
    return f"unknown assertion {describe(name)}.{suggest_assertion(name, types)}"


def _check_config(
    kind: AssertionType, config: Mapping[str, Any], loc: Loc, problems: Problems
) -> None:
    """Note a key that the type does not know: its check would quietly be another one."""
    keys = kind.word.config
    for key in config if keys != ANY else ():
        if key not in keys:
            hint = suggest(key, keys) if keys else f" '{kind.name}' takes no 'config'."
            problems.add((*loc, "config", key), f"unknown key {describe(key)}.{hint}")


def _required_score(written: Mapping[str, Any]) -> float | None:
    """Return the score below which the test fails: `required: true` means 0.8."""
    if "required" in written and "min_score" in written:
        raise AssertionValueError("'required' and its alias 'min_score' are both given; keep one")
    required = written.get("required", written.get("min_score"))
    if isinstance(required, bool):
        return DEFAULT_REQUIRED if required else None
    return None if required is None else float(required)


def _name(
    kind: AssertionType | None, word: str, written: Mapping[str, Any], params: Mapping[str, Any]
) -> str:
    """Return the name of an assertion that is given none: its type, and what it is about."""
    dialect = _WORKFLOW if kind is None else kind.dialect
    value = written.get("value")
    if dialect is _SUITE:
        keys = ("node_id", "callable", "pattern")
        value = next((written[key] for key in keys if written.get(key)), value)
        is_short = isinstance(value, str | int | float) and not isinstance(value, bool)
        return f"{word}-{str(value)[:_LONGEST_NAME]}" if is_short else word
    if isinstance(value, list):
        return f"{word}-{len(value)}"
    if dialect is _TEST:
        return word.replace("-", "_") if value is None else f"{word}-{str(value)[:_LONGEST_NAME]}"
    if not isinstance(value, str | int | float):
        return word
    compared = params.get("value")
    return f"{word}-{(compared if isinstance(compared, str) else str(value))[:_LONGEST_NAME]}"


def _at_path(assertion: Assertion, path: str | None) -> Assertion:
    """Return the assertion made on the value at the path."""
    if path is None:
        return assertion
    params: dict[str, Any] = {
        "path": path,
        "check": assertion.check,
        "params": assertion.params,
        "transform": assertion.transform,
    }
    for name in ("value", "values", "pattern", "threshold"):
        if name in assertion.params:
            params[name] = assertion.params[name]
    if assertion.negate:
        params["negated"] = True
    check = "at-path-later" if assertion.check in AWAITED else "at-path"
    return assertion._replace(check=check, params=params, transform=None)
