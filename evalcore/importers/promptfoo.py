"""A configuration of promptfoo as a suite: tests are cases, providers × prompts are variants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import LoadError
from evalcore.formats.documents import as_json, parse_document
from evalcore.importers.converted import (
    Converted,
    ConvertedCase,
    Notes,
    as_criteria,
    check_cases,
    unique_id,
)
from evalcore.importers.files import (
    ForeignFile,
    PromptfooAssertion,
    PromptfooConfiguration,
    PromptfooOptions,
    PromptfooTest,
    check_shape,
)
from evalcore.importers.promptfoo_providers import (
    ChecksModule,
    GradingProviders,
    NotTakenOverError,
    Prompt,
    Providers,
    RenderError,
    is_code,
    is_reference,
    named_files,
    path_of,
    placeholders,
    python_reference,
    python_transform,
    read_prompts,
    read_value,
    render,
    rendered_prompt,
    resolved_refs,
    resolved_variables,
    script_text,
)
from evalcore.importers.registry import ImportOptions
from evalcore.model.evidence import PRIMARY_PATH
from evalcore.model.suite import Format
from evalcore.patterns import ECMASCRIPT, PatternError, compile_pattern
from evalcore.problems import Problems
from evalcore.wording import describe, one_line

Assertion = dict[str, Any]
Test = dict[str, Any]
AT: Final = "\0at"
"""The key under which the importer keeps where a test or an assertion stands in the files."""

_QUOTED: Final = re.compile(r'(".*?"|[^,]+)(?=\s*,|\s*$)')


class Written(NamedTuple):
    """An assertion as it is written, and its value with files read and templates filled in."""

    raw: Mapping[str, Any]
    value: Any

    @property
    def kind(self) -> str:
        """The type without `not-`."""
        return str(self.raw["type"]).removeprefix("not-")

    @property
    def text(self) -> str:
        """The value as text; raise `NotTakenOverError` if it is a list or a mapping."""
        if self.value is None or isinstance(self.value, list | Mapping):
            raise NotTakenOverError("its 'value' is no text")
        return str(script_text(self.value))


def _plain(written: Written) -> Assertion:
    if not written.text:
        raise NotTakenOverError("its 'value' is empty, which promptfoo refuses")
    return {"type": written.kind, "value": written.text}


def _listed(written: Written) -> Assertion:
    value = written.value
    if not isinstance(value, list):
        value = [
            each.strip().removeprefix('"').removesuffix('"')
            for each in _QUOTED.findall(written.text)
        ]
    return {"type": written.kind, "value": [str(script_text(each)) for each in value]}


def _equals(written: Written) -> Assertion:
    if isinstance(written.value, list | Mapping):
        return {"type": "equals", "value": written.value, "config": {"mode": "json"}}
    return {"type": "equals", "value": str(script_text(written.value))}


def _regex(written: Written) -> Assertion:
    try:
        compile_pattern(written.text, dialect=ECMASCRIPT)
    except PatternError as error:
        raise NotTakenOverError(f"the pattern is none of JavaScript's: {error}") from error
    return {"type": "regex", "value": written.text, "config": {"dialect": ECMASCRIPT}}


def _json(written: Written) -> Assertion:
    schema = written.value
    if isinstance(schema, str) and schema.strip():
        try:
            schema = parse_document(schema.encode(), written.kind).value
        except LoadError as error:
            raise NotTakenOverError("its schema cannot be read") from error
    if schema and not isinstance(schema, Mapping):
        raise NotTakenOverError("its 'value' is no schema")
    return {"type": written.kind} | ({"value": schema} if schema else {})


# promptfoo's own thresholds.
_DEFAULTS: Final = {"levenshtein": 5, "bleu": 0.5, "rouge-n": 0.75, "similar": 0.75}


def _graded(written: Written) -> Assertion:
    kind, threshold = written.kind.partition(":")[0], written.raw.get("threshold")
    threshold = _DEFAULTS[kind] if threshold is None else threshold
    return {"type": kind, "value": written.text, "threshold": threshold}


def _maximum(written: Written) -> Assertion:
    if written.raw.get("threshold") is None:
        raise NotTakenOverError("it has no 'threshold'")
    return {"type": written.kind, "threshold": written.raw["threshold"]}


def _word_count(written: Written) -> Assertion:
    value = written.value
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    return {"type": "word-count", "value": value}


def _judged(written: Written) -> Assertion:
    value = written.value
    if isinstance(value, list):
        value = "\n".join(f"- {each}" for each in value)
    elif isinstance(value, Mapping):
        value = orjson.dumps(value).decode()
    if value is None or not str(value).strip():
        raise NotTakenOverError("it has no 'value'")
    if "factuality" in written.kind:
        value = f"The answer does not contradict these facts: {value}"
    assertion: Assertion = {"type": "llm_judge", "criteria": as_criteria(str(value))}
    threshold = written.raw.get("threshold")
    return assertion | ({} if threshold is None else {"min_score": threshold})


_TEXTS: Final = ("contains", "icontains", "starts-with", "ends-with")
_LISTS: Final = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_JUDGED: Final = ("llm-rubric", "g-eval", "model-graded-closedqa")
WORDS: Final[Mapping[str, Callable[[Written], Assertion]]] = {
    **dict.fromkeys(_TEXTS, _plain),
    **dict.fromkeys(_LISTS, _listed),
    "equals": _equals,
    "regex": _regex,
    **dict.fromkeys(("is-json", "contains-json"), _json),
    **dict.fromkeys((*_DEFAULTS, "similar:cosine"), _graded),
    **dict.fromkeys(("latency", "cost"), _maximum),
    "word-count": _word_count,
    **dict.fromkeys((*_JUDGED, "factuality", "model-graded-factuality"), _judged),
}
"""The types with a counterpart."""

_FIRST: Final = "the first JSON object or array of the output counts, in promptfoo any object"
_EMBEDDINGS: Final = (
    "embeddings are of the model text-embedding-3-small, unless the suite names another"
)
DIFFERENCES: Final[Mapping[str, str]] = {
    "bleu": "texts that are short or share few words have other scores than in promptfoo",
    "contains-json": _FIRST,
    "rouge-n": "words are compared in lower case and without punctuation, unlike in promptfoo",
    "similar": _EMBEDDINGS,
    "similar:cosine": _EMBEDDINGS,
}
"""What a type means here that it does not in promptfoo."""


# Members of a composite are read by the rules of test files (trimmed texts, ECMAScript's patterns)
# where those have the type and no path is written.
_TEST_FILE_WORDS: Final = frozenset(
    f"{fold}contains{many}" for fold in ("", "i") for many in ("", "-any", "-all")
) | {"equals", "starts-with", "ends-with", "regex", "is-json", "similar"}


def as_member(assertion: Assertion) -> Assertion:
    """Return an assertion as a member of a composite."""
    member = {key: value for key, value in assertion.items() if key != "metric"}
    kind = str(assertion["type"]).removeprefix("not-")
    if "path" in member or kind not in (*_TEST_FILE_WORDS, "llm_judge"):
        return member
    if kind != "llm_judge":
        return {"path": PRIMARY_PATH, **member}
    grader = {"type": "llm-grader", "prompt": member["criteria"]}
    if member.get("min_score") is not None:
        grader["threshold"] = member["min_score"]
    if kind != assertion["type"]:
        grader["negate"] = True
    rest = {key: member[key] for key in ("name", "weight") if key in member}
    return grader | rest | (member.get("config") or {})


_READ_KEYS: Final = frozenset(
    ("type", "value", "threshold", "weight", "metric", "transform", "provider", "config", AT)
)
_PYTHON: Final = "python"
_TITLE_CHARACTERS: Final = 60
_SET: Final = "assert-set"
_SET_KEYS: Final = {"type", "assert", "threshold", "weight", AT}


class TestContext(NamedTuple):
    """What the assertions of a test share: its variables, its transforms and its judge."""

    variables: Mapping[str, Any]
    transforms: Sequence[str]
    judge: Any


class Assertions:
    """Turns assertions into those of a suite; notes those without a counterpart."""

    def __init__(
        self, module: ChecksModule, judges: GradingProviders, notes: Notes, folder: Path
    ) -> None:
        self._module, self._judges, self._notes, self._folder = module, judges, notes, folder

    def read_all(
        self, listed: Sequence[Mapping[str, Any]], threshold: float | None, test: TestContext
    ) -> list[Assertion]:
        """Return the assertions of a test; under a `threshold` they are one composite."""
        if threshold is not None:
            composite = self._composite(listed, threshold, test)
            return [composite] if composite else []
        assertions = []
        for raw in listed:
            if raw["type"] == _SET:
                for key in raw.keys() - _SET_KEYS:
                    self._notes.add(f"'{key}' of an assert-set is not taken over", raw[AT])
                read = self.read_all(raw.get("assert") or (), raw.get("threshold"), test)
                assertions.extend(read if len(listed) == 1 else _weighted(read, raw.get("weight")))
            elif (assertion := self._read(raw, test)) is not None:
                assertions.append(assertion)
        return assertions

    def _composite(
        self, listed: Sequence[Mapping[str, Any]], threshold: float | None, test: TestContext
    ) -> Assertion | None:
        """Return the assertions as one whose score reaches the threshold, as promptfoo counts.

        None if none of them has a counterpart.
        """
        members: list[Assertion] = []
        for raw in listed:
            if raw["type"] == _SET:
                member = self._composite(raw.get("assert") or (), None, test)
                if member is not None and raw.get("weight") is not None:
                    member["weight"] = raw["weight"]
            else:
                assertion = self._read(raw, test)
                member = assertion and as_member(assertion)
            if member is None:
                self._notes.add("under a 'threshold': the score is that of the others", raw[AT])
            else:
                members.append(member)
        if not members:
            return None
        composite: Assertion = {"type": "composite", "assertions": _named(members)}
        return composite | ({} if threshold is None else {"threshold": threshold})

    def _read(self, raw: Mapping[str, Any], test: TestContext) -> Assertion | None:
        try:
            return self._assertion(raw, test)
        except (NotTakenOverError, RenderError) as error:
            self._notes.add(f"{raw['type']}: {error}", raw[AT])
            return None

    def _assertion(self, raw: Mapping[str, Any], test: TestContext) -> Assertion:
        kind = raw["type"].removeprefix("not-")
        if raw.get("weight") == 0:
            raise NotTakenOverError("of weight 0 it only measures, and is left out")
        own = [str(raw["transform"])] if raw.get("transform") else []
        scripts, output, path = [*test.transforms, *own], "output", ""
        if any(map(python_transform, scripts)):
            output = self._module.add_transform(scripts)
        elif scripts:
            output, path = "parsed(output)", "".join(map(path_of, scripts))
        reference = raw["value"] if is_reference(raw.get("value")) else ""
        if kind == _PYTHON or python_reference(reference):
            assertion = self._python(raw, test, output)
        else:
            assertion = self._in_words(raw, kind, test)
            if any(map(python_transform, scripts)):
                assertion = self._compared(assertion, output)
        if raw["type"] != kind:
            assertion["type"] = f"not-{assertion['type']}"
        for key in ("weight", "metric"):
            if raw.get(key) not in (None, ""):
                assertion[key] = self._value(raw[key], test.variables)
        for key in raw.keys() - _READ_KEYS:
            self._notes.add(f"'{key}' of an assertion is not taken over", raw[AT])
        return assertion | ({"path": f"{PRIMARY_PATH}{path}"} if path else {})

    def _in_words(self, raw: Mapping[str, Any], kind: str, test: TestContext) -> Assertion:
        """Return an assertion of a type that suites have, too."""
        word, position = WORDS.get(kind), raw[AT]
        if word is None:
            raise NotTakenOverError(_REASONS.get(kind, _NO_COUNTERPART))
        value = self._value(raw.get("value"), test.variables)
        for mark in placeholders(value) if isinstance(value, Mapping) else ():
            self._notes.add(f"{mark} in a value that is no text is not filled in", position)
        assertion = word(Written(raw, value))
        if kind in DIFFERENCES:
            self._notes.add(f"{kind}: {DIFFERENCES[kind]}")
        if "json" in kind and b'"format":' in orjson.dumps(assertion.get("value")):
            self._notes.add("'format' in a JSON Schema is not checked", position)
        if assertion["type"] == "llm_judge":
            assertion |= self._judges.config(raw.get("provider") or test.judge, position)
        return assertion

    def _compared(self, assertion: Assertion, output: str) -> Assertion:
        """Return an assertion on what a Python transform makes of the output."""
        kind = assertion["type"]
        if kind not in (*_TEXTS, *_LISTS, "equals", "regex", "is-json") or (
            kind == "is-json" and "value" in assertion
        ):
            raise NotTakenOverError("no counterpart behind a transform that is a program")
        config = {key: assertion[key] for key in ("type", "value") if key in assertion}
        written = {"type": _PYTHON, "callable": self._module.add_comparison(output)}
        return {**written, "name": f"{kind} of the transformed output", "config": config}

    def _value(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return the value with its templates filled in and its files read."""
        if is_reference(value):
            if is_code(value):
                raise NotTakenOverError(f"{value} is a program")
            return read_value(next(iter(named_files(self._folder, value))))
        if isinstance(value, str):
            return render(value, variables)
        if isinstance(value, list):
            return [
                self._value(each, variables) if isinstance(each, str) else each for each in value
            ]
        return value

    def _python(self, raw: Mapping[str, Any], test: TestContext, output: str) -> Assertion:
        value, threshold = raw.get("value"), raw.get("threshold")
        if not isinstance(value, str) or not value.strip():
            raise NotTakenOverError("its 'value' is no text")
        reference = python_reference(value) if is_reference(value) else None
        if reference is None:
            code = render(value, test.variables)
            written = self._module.add_assertion(code, threshold, output)
        else:
            file, function = reference
            written = self._module.add_file(file, function or "get_assert", threshold, output)
        title = one_line(value.removeprefix("file://"), _TITLE_CHARACTERS)
        assertion: Assertion = {"type": _PYTHON, "callable": written, "name": title}
        return assertion | ({"config": raw["config"]} if raw.get("config") else {})


def _weighted(assertions: list[Assertion], weight: float | None) -> list[Assertion]:
    """Return the assertions of a set, which together weigh as much as the set."""
    own = [1.0 if each.get("weight") is None else float(each["weight"]) for each in assertions]
    share = (1.0 if weight is None else float(weight)) / (sum(own) or 1.0)
    return [
        {**each, "weight": round(each_weight * share, 6)}
        for each, each_weight in zip(assertions, own, strict=True)
    ]


def _named(members: list[Assertion]) -> list[Assertion]:
    """Return the members of a composite, each with a name of its own if types are repeated."""
    types = [str(member["type"]) for member in members]
    if len(set(types)) == len(types):
        return members
    return [
        {**member, "name": f"{kind}-{number}"}
        for number, (kind, member) in enumerate(zip(types, members, strict=True), 1)
    ]


_REASONS: Final = {
    "javascript": "JavaScript is not taken over; write it as `type: python`",
    "select-best": "it compares the answers of several providers: use a baseline and gates",
    "max-score": "it compares the answers of several providers: use a baseline and gates",
    "webhook": "a web service that grades is a `code-grader` that calls it",
    "human": "people are asked by the assertion `human`",
}


_NO_COUNTERPART: Final = "no counterpart; write it as `type: python` or `llm_judge`"
_WITH_THRESHOLD: Final = {
    **dict.fromkeys(("cost", "latency", "levenshtein", "rouge-n", "starts-with"), 0.75),
    "similar": 0.8,
}
_PREFIXES: Final = {
    **dict.fromkeys(("javascript:", "fn:", "eval:"), "javascript"),
    **dict.fromkeys(("grade:", "llm-rubric:"), "llm-rubric"),
    "python:": "python",
}
_NUMBER: Final = re.compile(r"^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$")
_EXPECTED: Final = re.compile(
    r"^(?P<kind>(?:not-)?[a-z]+(?:[-:][a-z\d]+)*?)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?"
    r"(?::(?P<value>.*))?$",
    re.DOTALL,
)
# Types without a counterpart. What begins with none of all types is a text to equal.
_OTHERS: Final = re.compile(
    r"(?:agent|contains|context|is|max|perplexity|search|select|similar|trace|trajectory)[-:].+"
    r"|(?:answer|conversation)-relevance|classifier|finish-reason|gleu|guardrails|human|meteor"
    r"|moderation|perplexity|pi|ruby|skill-used|tool-call-f1|webhook"
)


def test_of_row(row: Mapping[str, Any]) -> Test:
    """Return the test of a row: its variables, and what the columns `__NAME` say.

    A column `__NAME` that is none of the known ones is a key of the test, which is noted.
    """
    test: Test = {"vars": {}, "options": {}, "metadata": {}, "assert": []}
    for column, cell in row.items():
        key, text = column.strip(), str(cell or "")
        name, _, inner = key.removeprefix("__").partition(":")
        if not key.startswith("__"):
            test["vars"][key] = text
        elif name in ("prefix", "suffix"):
            test["options"][name] = text
        elif text.strip() and name == "metadata":
            test["metadata"][inner] = text
        elif text.strip() and name.startswith("expected"):
            test["assert"].append(assertion_of_text(text.strip()))
        elif text.strip():
            is_number = name == "threshold" and _NUMBER.match(text.strip())
            test[key.removeprefix("__")] = float(text) if is_number else text
    return test


def assertion_of_text(text: str) -> dict[str, Any]:
    """Return the assertion of a cell: `contains: x`, `similar(0.8): x`, else a text to equal."""
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix).strip()}
    if text.startswith("file://"):
        return {"type": "python" if ".py" in text else "javascript", "value": text}
    match = _EXPECTED.match(text)
    kind = match["kind"] if match else ""
    bare = kind.removeprefix("not-")
    if match is None or not (bare in WORDS or _OTHERS.fullmatch(bare)):
        return {"type": "equals", "value": text}
    value = match["value"]
    assertion: dict[str, Any] = {"type": kind}
    if value is not None:
        assertion["value"] = value.strip()
    if bare in _WITH_THRESHOLD:
        threshold = match["threshold"]
        assertion["threshold"] = float(threshold) if threshold else _WITH_THRESHOLD[bare]
    return assertion


def read_tests(file: ForeignFile, raw: Mapping[str, Any], notes: Notes) -> Iterator[Test]:
    """Yield each test, its defaults in it; tests that programs or others make are noted.

    Each test and each assertion has its position under the key `AT`.
    """
    folder = file.path.parent
    default: Any = raw.get("defaultTest")
    try:
        if is_reference(default):
            default = read_value(next(named_files(folder, default)))
    except NotTakenOverError as error:
        notes.add(f"defaultTest is left out: {error}")
    read = _TestReader(file, notes)
    default = read.test(default if isinstance(default, Mapping) else {}, "defaultTest")
    written = raw.get("tests")
    if written is None and not raw.get("scenarios"):
        written = [{}]
    for test in (*read.listed(written, "tests"), *read.scenarios(raw.get("scenarios") or ())):
        merged = _merged(default, test)
        try:
            variables = list(_combinations(_own_variables(merged.get("vars"), folder), folder))
        except NotTakenOverError as error:
            notes.add(f"the test is left out: {error}", merged[AT])
            continue
        for each in variables:
            yield {**merged, "vars": each}


class _TestReader:
    """Reads tests where they stand; raises `LoadError` with the mistakes of one."""

    def __init__(self, file: ForeignFile, notes: Notes) -> None:
        self._file, self._notes, self._folder = file, notes, file.path.parent

    def test(self, raw: Mapping[str, Any], position: str) -> Test:
        """Return a test with its position and those of its assertions."""
        problems = Problems(self._file.name, lambda _: None)
        problems.check_shape(raw, PromptfooTest, label=position)
        listed = self._asserts(raw, position, problems)
        problems.raise_if_any()
        return {**raw, "assert": listed, AT: position}

    def _asserts(
        self, raw: Mapping[str, Any], position: str, problems: Problems
    ) -> list[dict[str, Any]]:
        listed = raw.get("assert") or []
        if not isinstance(listed, list):
            mistake = f"expected a list, got {describe(listed)}"
            problems.add((), mistake, label=f"{position}.assert")
            return []
        positioned = [(f"{position}.assert[{index}]", each) for index, each in enumerate(listed)]
        return [
            {**each, AT: at}
            | ({"assert": self._asserts(each, at, problems)} if "assert" in each else {})
            for at, each in positioned
            if problems.check_shape(each, PromptfooAssertion, label=at)
        ]

    def listed(self, written: Any, position: str) -> Iterator[Test]:
        """Yield the tests of a list, and those of the files that it names."""
        entries = written if isinstance(written, list) else [written] if written else []
        for index, entry in enumerate(entries):
            at = f"{position}[{index}]" if isinstance(written, list) else position
            is_file = isinstance(entry, Mapping) and "path" in entry and "vars" not in entry
            if isinstance(entry, Mapping) and not is_file:
                yield self.test(entry, at)
                continue
            try:
                yield from self._of_files(entry["path"] if is_file else entry, at)
            except NotTakenOverError as error:
                self._notes.add(f"the tests are left out: {error}", at)

    def _of_files(self, entry: Any, position: str) -> Iterator[Test]:
        if not isinstance(entry, str):
            raise NotTakenOverError("they are neither a list nor a file")
        for path in named_files(self._folder, entry):
            value = read_value(path)
            for number, row in enumerate(value if isinstance(value, list) else [value], 1):
                if not isinstance(row, Mapping):
                    raise NotTakenOverError(f"{path.name} holds no tests")
                test = test_of_row(row) if path.suffix.lower() == ".csv" else row
                yield self.test(test, f"{position} ({path.name}, {number})")

    def scenarios(self, listed: Sequence[Any]) -> Iterator[Test]:
        """Yield the tests of scenarios, each with each of its configurations."""
        for index, scenario in enumerate(listed):
            position = f"scenarios[{index}]"
            if not isinstance(scenario, Mapping):
                self._notes.add("the scenario is left out: it is kept in a file", position)
                continue
            configs = list(self.listed(scenario.get("config"), f"{position}.config"))
            tests = list(self.listed(scenario.get("tests"), f"{position}.tests"))
            for config, test in itertools.product(configs, tests or [self.test({}, position)]):
                yield _merged(config, test)


def _merged(default: Test, test: Test) -> Test:
    """Return a test over its defaults: assertions are added, mappings are laid over each other."""
    merged = {**default, **test, "assert": [*default["assert"], *test["assert"]]}
    for key in ("vars", "options", "metadata"):
        parts = [part for part in (default.get(key), test.get(key)) if part]
        if all(isinstance(part, Mapping) for part in parts):
            merged[key] = {name: value for part in parts for name, value in part.items()}
    return merged


def _own_variables(written: Any, folder: Path) -> dict[str, Any]:
    """Return the variables of a test; of a file, or of several, their contents together."""
    if isinstance(written, Mapping):
        return dict(written)
    names = written if isinstance(written, list) else [written] if written else []
    values = [read_value(path) for name in names for path in named_files(folder, str(name))]
    if not all(isinstance(value, Mapping) for value in values):
        raise NotTakenOverError(f"{names[0]} holds no variables")
    return {key: each for value in values for key, each in value.items()}


def _combinations(variables: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the variables once for each combination of lists of texts in them."""
    choices = [_choices(value, folder) for value in variables.values()]
    for values in itertools.product(*choices):
        yield dict(zip(variables, values, strict=True))


def _choices(value: Any, folder: Path) -> list[Any]:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [each for member in value for each in _choices(member, folder)]
    if not is_reference(value):
        return [value.removesuffix("\n") if isinstance(value, str) else value]
    return [_content(path) for path in named_files(folder, value)]


def _content(path: Path) -> Any:
    value = read_value(path)
    return value.strip() if isinstance(value, str) else orjson.dumps(value).decode()


def convert(file: ForeignFile, _source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a configuration; raise `LoadError` if nothing is left of it."""
    check_shape(file, file.value, PromptfooConfiguration)
    raw = as_json(file.value)
    raw = resolved_refs(raw, raw)
    folder = file.path.parent
    for key in raw.keys() - {*PromptfooConfiguration.__annotations__, "$schema"}:
        notes.add(f"'{key}' is not taken over")
    if raw.get("env"):
        notes.add("'env': set these variables in the environment or in a .env file")
    module = ChecksModule(folder)
    providers = Providers(module, notes, folder)
    key = "providers" if raw.get("providers") else "targets"
    targets = providers.read_all(raw.get(key), key)
    judges = GradingProviders(providers, notes)
    assertions = Assertions(module, judges, notes, folder)
    transforms = {providers.transforms[target["name"]] for target in targets}
    if len(transforms) > 1:
        notes.add("providers with different transforms: their outputs are checked as they are")
    transform = transforms.pop() if len(transforms) == 1 else ""
    prompts = read_prompts(raw.get("prompts"), folder, notes)
    cases: dict[str, ConvertedCase] = {}
    keys = {f"prompt-{number}": prompt for number, prompt in enumerate(prompts, 1)}
    for number, test in enumerate(read_tests(file, raw, notes), 1):
        case = _case(test, number, keys, transform, assertions, notes)
        if case is not None:
            name = unique_id(case.id, cases)
            cases[name] = replace(case, id=name)
    check_cases(file.name, cases, notes)
    several = len(prompts) > 1
    if several and judges.targets:
        notes.add("a judge sees the prompts of all variants of a case, not the one that is graded")
    if several and module.text is not None:
        notes.add("Python assertions get the prompts of all variants as context['prompt']")
    return Converted(
        Format.SUITE,
        options.name,
        tuple(cases.values()),
        description=raw.get("description"),
        targets=targets,
        prompts={key: each.label or key for key, each in keys.items()} if several else {},
        judges=judges.targets,
        section=_section(raw.get("evaluateOptions") or {}),
        module=module.text,
        imported_files=tuple(module.imported_files),
    )


def _section(options: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if isinstance(options.get("repeat"), int) and options["repeat"] > 1:
        section["iterations"] = options["repeat"]
    if isinstance(options.get("maxConcurrency"), int):
        section["limits"] = {"concurrency": options["maxConcurrency"]}
    return section


def _case(
    test: Test,
    number: int,
    prompts: Mapping[str, Prompt],
    transform: str,
    assertions: Assertions,
    notes: Notes,
) -> ConvertedCase | None:
    """Return the case of a test, None (and a note) if it can be none.

    Its input is the filled prompt; of several prompts it has each, by its key. `transform` is that
    of the providers.
    """
    position, options = test[AT], test.get("options") or {}
    for key in test.keys() - {*PromptfooTest.__annotations__, "assert", AT}:
        notes.add(f"'{key}' of a test is not taken over", position)
    for key in options.keys() - PromptfooOptions.__annotations__.keys():
        notes.add(f"'options.{key}' is not taken over", position)
    variables = resolved_variables(test["vars"])
    own = options.get("transform") or options.get("postprocess")
    scripts = [each for each in (transform, own) if each]
    context = TestContext(variables, scripts, options.get("provider"))
    read = assertions.read_all(test["assert"], test.get("threshold"), context)
    if test["assert"] and not read:
        notes.add("the test is left out: nothing of it has a counterpart", position)
        return None
    try:
        name = render(str(test.get("description") or f"test-{number}"), variables)
        before, after = options.get("prefix") or "", options.get("suffix") or ""
        questions = {
            key: rendered_prompt(f"{before}{prompt.raw}{after}", variables)
            for key, prompt in prompts.items()
        }
    except RenderError as error:
        notes.add(f"the test is left out: {error}", position)
        return None
    if not questions:
        return None
    return ConvertedCase(
        name,
        questions if len(prompts) > 1 else next(iter(questions.values())),
        read,
        output=test.get("providerOutput"),
        metadata={**(test.get("metadata") or {}), "vars": dict(variables)},
    )
