"""Load script suites: `suites` or `tests` of statements, and the script that they belong to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.expressions.engine import ExpressionSyntaxError
from evalcore.formats.documents import as_json, collector_paused
from evalcore.formats.includes import (
    ScriptDocument,
    ScriptProblems,
    find_script,
    read_script_document,
)
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.questions import QuestionKeys, read_question, split_section
from evalcore.formats.section import (
    STRICT,
    EvalcoreSection,
    SectionReader,
    check_required_cases,
    in_evalcore,
    threshold_of,
)
from evalcore.formats.variables import variables_for
from evalcore.gates.builtin import PassRate
from evalcore.model.annotation import JUDGED_VALUES
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.suite import (
    Case,
    Format,
    Limits,
    Policy,
    ProviderLimits,
    ScoreRule,
    Suite,
)
from evalcore.model.target import Target, Variant
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems, raise_all
from evalcore.scripts.mcp import EXTRA, check_servers
from evalcore.scripts.models import VARIANT_KEYS, model_entry, read_models
from evalcore.scripts.program import (
    Layer,
    Level,
    LevelReader,
    LevelShape,
    ScriptTest,
    compile_judged,
    read_levels,
)
from evalcore.scripts.statements import (
    STATEMENTS,
    Compiled,
    Matcher,
    ScriptPart,
    is_text,
    read_shape,
)
from evalcore.scripts.tools import ToolReader, ToolShape
from evalcore.shapes import Declared, Repetitions, Text, adapter
from evalcore.trust.secrets import literals_of_script
from evalcore.wording import Loc, describe, suggest


@with_config(STRICT)
class ScriptQuestion(QuestionKeys, total=False):
    """A question for people; `of` is the variable or expression that they judge."""

    of: Text


@with_config(STRICT)
class ScriptSection(EvalcoreSection, total=False):
    """The section `evalcore:` of a script suite; `human` is asked about each test."""

    human: list[ScriptQuestion]


@with_config(STRICT)
class ScriptTestSection(TypedDict, total=False):
    """The section `evalcore:` of one test."""

    human: list[ScriptQuestion]


class TestGroup(LevelShape):
    """A suite within the file: tests, with data and tools of their own."""

    tests: Annotated[Any, Compiled("tests")] = None


class _SuiteFile(ScriptPart):
    shared: Annotated[Any, Compiled("level")] = None
    iterations: Repetitions = 1
    evalcore: Annotated[Any, Compiled("evalcore")] = None


class GroupedFile(_SuiteFile, json_schema_extra={"required": ["suites"]}):
    """A suite file whose tests stand in suites."""

    suites: Annotated[Any, Compiled("suites")] = None


class FlatFile(_SuiteFile, json_schema_extra={"required": ["tests"]}):
    """A suite file of tests alone."""

    tests: Annotated[Any, Compiled("tests")] = None


class ScriptVariable(ScriptPart):
    """A variable of the environment that the script reads; a `secret` one is never shown."""

    description: Any = None
    persistent: Any = None
    secret: Any = None


class ScriptChat(ScriptPart):
    """The chat of a script in a terminal; an evaluation does not use it."""

    model_ref: Any = None
    system_message: Any = None
    tools: Any = None
    default_prompt: Any = None
    user_banner: Any = None


class ScriptCommand(ScriptPart):
    """The command line of a script; an evaluation does not use it."""

    process_input: Any = None
    tools: Any = None
    json_output: Any = None
    do: Any = None


class ScriptShape(ScriptPart):
    """A script: models, variables, servers, data and tools."""

    models: Any = None
    env: dict[str, ScriptVariable | None] | None = None
    shared: LevelShape | None = None
    tools: Any = None
    mcp: Any = None
    chat: ScriptChat | None = None
    cli: ScriptCommand | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """What a script says; `problems` collects its mistakes, None where there is no script.

    `models` is None where any name is a model's: the environment's provider answers then.
    """

    name: str | None = None
    problems: ScriptProblems | None = None
    models: Mapping[str, Mapping[str, Any]] | None = None
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = (Layer((), None, chain=False),)

    @property
    def warnings(self) -> list[str]:
        """What is accepted and has no effect."""
        if self.problems is None:
            return []
        return [f"{self.problems.file}: {warning}" for warning in self.problems.warnings]


def read_script(name: str | None, suite: Path, options: LoadOptions) -> Script:
    """Return the script of that name; raise `LoadError` if it cannot be read at all."""
    if name is None:
        return Script()
    source = read_script_document(find_script(name), name)
    problems = ScriptProblems(source, strict=options.strict)
    raw = source.document.value
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        keys = ", ".join(ScriptShape.model_fields)
        problems.add((), f"a script is a mapping of {keys}; got {describe(raw)}")
        problems.raise_if_any()
    read_shape(ScriptShape, raw, (), problems)
    refuse_literals(raw, problems)
    shared, env = raw.get("shared"), raw.get("env")
    env = env if isinstance(env, Mapping) else {}
    _check_env(env, suite.parent, options, problems)
    layers = [Layer(("shared",), _own_level(shared), chain=False)]
    if raw.get("tools") is not None:
        layers.append(Layer((), {"tools": raw["tools"]}, chain=True))
    secrets = (key for key, each in env.items() if isinstance(each, Mapping) and each.get("secret"))
    return Script(
        name=name,
        problems=problems,
        models=read_models(raw["models"], ("models",), problems) if raw.get("models") else None,
        servers=check_servers(raw.get("mcp"), ("mcp",), problems),
        env=tuple(map(str, env)),
        secrets=tuple(map(str, secrets)),
        layers=tuple(layers),
    )


def _own_level(raw: Any) -> dict[str, Any] | None:
    """Return the data and tools of a part of a file."""
    if not isinstance(raw, Mapping):
        return None
    return {key: raw[key] for key in LevelShape.model_fields if key in raw}


def refuse_literals(raw: Mapping[str, Any], problems: ScriptProblems) -> None:
    """Note secrets in addresses, headers, calls and the configuration of tools."""
    for literal in dict.fromkeys(literals_of_script(raw)):
        problems.add(literal.path, literal.message("${env.NAME}"))


def _check_env(
    env: Mapping[Any, Any], folder: Path, options: LoadOptions, problems: ScriptProblems
) -> None:
    """Note the variables that a script names and no suite may read; warn of those not set."""
    variables = variables_for(folder, options) if env else None
    for name in env:
        if variables is None or not isinstance(name, str):
            continue
        if not variables.may_read(name):
            message = f"may not read the environment variable {name}; name it in a .env file"
            problems.add(("env", name), f"{message}, or in `readable_names` of evalcore.toml")
        elif variables.value(name) is None:
            problems.warn(("env", name), f"the environment variable {name} is not set")


def script_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted.

    The score of a test is what its statements give, so a question has no weight and is required
    unless it says otherwise.
    """
    questions = []
    for index, each in enumerate(written):
        judged = {"of": each["of"]} if "of" in each else {}
        try:
            compile_judged(each.get("of", "None"))
        except ExpressionSyntaxError as error:
            problems.add((*loc, index, "of"), str(error))
        at = (*loc, index)
        questions.append(read_question(each, at, problems, judged, weight=0.0, required=True))
    return tuple(filter(None, questions))


def judged_metadata(questions: Sequence[Assertion]) -> dict[str, Any]:
    """Return the metadata of a case whose target evaluates what people judge.

    They are no part of the input, so that another question leaves labels as they are.
    """
    expressions = {each.params["of"] for each in questions if "of" in each.params}
    return {JUDGED_VALUES: sorted(expressions)} if expressions else {}


_IGNORED: Final = frozenset(name for name, info in ToolShape.model_fields.items() if info.exclude)
_TOOL_MARKS: Final = frozenset({"import_tool", "do", "call"})


def stored(value: Any) -> Any:
    """Return a value as JSON; keys that are no text become text, NaN an expression that gives it.

    Hints for a screen are left out of tools and statements: they change no result.
    """
    return as_json(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        hinted = not _TOOL_MARKS.isdisjoint(value)
        return {
            key: _plain(item) for key, item in value.items() if not (hinted and key in _IGNORED)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return f"${{float('{value}')}}"
    return value


DEFAULT_THRESHOLD: Final = 0.5
TARGET: Final = "script"
NO_TESTS: Final = "(no tests)"
_NO_SUITES: Final = "(no suites)"
_SCORE: Final = (Assertion("script-score", "script-score", "score", {}),)


def load_script_suite(
    source: ScriptDocument, path: Path, options: LoadOptions, script_name: str | None
) -> Suite:
    """Return the suite of a file, with its script if it has one; raise `LoadError`."""
    problems = ScriptProblems(source, strict=options.strict)
    raw = source.document.value
    if not isinstance(raw, dict):
        problems.add((), "a script suite is a mapping with 'suites'")
        problems.raise_if_any()
    script = read_script(script_name, path, options)
    loading = _Loading(raw, problems, script, options)
    spool = CaseSpool()
    selection = Selection(options)
    with collector_paused():
        for case in loading.cases():
            if selection.keeps(case.id, ()):
                spool.append(case)
    policy = loading.policy()
    if not selection.active:
        check_required_cases(policy, (case.id for case in spool), problems)
    variants = loading.variants()
    baseline = loading.settings.baseline([variant.id for variant in variants])
    raise_all((script.problems, problems) if script.problems is not None else (problems,))
    document = source.document
    definition = loading.settings.definition(
        Format.SCRIPT_SUITE,
        document,
        path,
        policy,
        targets=loading.targets(),
        default_target=TARGET,
        variants=variants,
        baseline=baseline,
        limits=loading.limits(),
    )
    warnings = [*script.warnings, *problems.warnings, *selection.finish(document.file)]
    return Suite(choose_variants(definition, options), spool, tuple(warnings))


class _Group(NamedTuple):
    """A suite inside of the file: its tests, and what they see; None for a flat file."""

    name: str | None
    loc: Loc
    tests: Mapping[str, Any]
    levels: tuple[Level, ...]
    target: str


class _Loading:
    """One file that is being read, together with its script."""

    def __init__(
        self, raw: Mapping[str, Any], problems: ScriptProblems, script: Script, options: LoadOptions
    ) -> None:
        self._raw, self._problems, self._script, self._options = raw, problems, script, options
        self._flat = "suites" not in raw and "tests" in raw
        refuse_literals(raw, problems)
        file = read_shape(FlatFile if self._flat else GroupedFile, raw, (), problems)
        self._iterations = None if file is None or "iterations" not in raw else file.iterations
        self.section = self._section()
        self.settings = SectionReader(self.section, options, problems)
        written = self.section.get("human", ())
        self._questions = script_questions(written, ("evalcore", "human"), problems)
        self._asks_people = bool(self._questions)
        self._tools = ToolReader(problems, script.servers, script.models)
        self._script_imports: list[tuple[str, Loc]] = []
        self._reader = LevelReader(self._tools, problems)
        self._waits = False
        self._targets: dict[str, list[Any]] = {}
        shared = Layer(("shared",), raw.get("shared"), chain=False)
        self._levels = self._script_levels()
        self._shared = self._read(shared, self._levels)
        self._layers = [
            [list(path), stored(raw), chain] for path, raw, chain in (*script.layers, shared)
        ]
        if script.servers and find_spec("mcp") is None and script.problems is not None:
            script.problems.add(("mcp",), EXTRA)

    def _section(self) -> ScriptSection:
        section: ScriptSection = {}
        if "evalcore" in self._raw:
            raw = self._raw["evalcore"]
            section = self._problems.sound_part(raw, ScriptSection, ("evalcore",))
        iterations = self._raw.get("iterations")
        reader = SectionReader(section, self._options, self._problems)
        reader.refuse_both({"iterations": ("iterations", iterations)})
        if self._iterations is not None:
            section = {**section, "iterations": self._iterations}
        return {"errors": "zero", **section}

    def _script_levels(self) -> tuple[Level, ...]:
        script = self._script
        if script.problems is None:
            return read_levels((Layer((), None, chain=False),), self._reader)
        tools = ToolReader(script.problems, script.servers, script.models)
        own = LevelReader(tools, script.problems)
        levels = read_levels(script.layers, own)
        self._script_imports = tools.imported
        return levels

    def _read(self, layer: Layer, around: tuple[Level, ...]) -> tuple[Level, ...]:
        path, raw, chain = layer
        parent = around[-1].toolbox
        return (*around, self._reader.read(raw, path, parent, chain=chain, shape=LevelShape))

    def cases(self) -> Iterator[Case]:
        """Yield the tests in the order of the file; what is wrong with one is noted."""
        for group in self._groups():
            if not group.tests:
                if group.name != _NO_SUITES:
                    name = "the file" if group.name is None else f"suite '{group.name}'"
                    self._problems.warn(group.loc, f"{name} has no tests; its score is 0.0")
                yield _empty(group.name)
            for name, raw in group.tests.items():
                case = self._case(name, raw, group)
                if case is not None:
                    yield case

    def _case(self, name: Any, raw: Any, group: _Group) -> Case | None:
        loc = (*group.loc, "tests", str(name))
        if not is_text(name, loc[:-1], self._problems):
            return None
        before = self._problems.count
        raw, listed = split_section(raw, ScriptTestSection, loc, self._problems)
        own = script_questions(listed, (*loc, "evalcore", "human"), self._problems)
        questions = (*self._questions, *own)
        self._asks_people = self._asks_people or bool(questions)
        test = self._reader.test(raw, loc, group.levels)
        if test is None or self._problems.count > before:
            return None
        self._waits = self._waits or test.waits
        return Case(
            id=case_id(group.name, name),
            input=stored({key: raw[key] for key in ScriptTest.model_fields if key in raw}),
            assertions=(*_SCORE, *questions) if questions else _SCORE,
            group=group.name,
            target=None if group.target == TARGET else group.target,
            threshold=self._threshold,
            metadata=judged_metadata(questions),
        )

    def _groups(self) -> Iterator[_Group]:
        if self._flat:
            tests = self._mapping(self._raw["tests"], ("tests",), "tests")
            yield _Group(None, (), tests, self._shared, self._target(TARGET, None))
            return
        suites = self._mapping(self._raw.get("suites"), ("suites",), "suites", required=True)
        if not suites and not self._problems.count:
            self._problems.warn(("suites",), "there are no suites; the score is 0.0")
            yield _Group(_NO_SUITES, ("suites",), {}, self._shared, self._target(TARGET, None))
        for name, raw in suites.items():
            loc: Loc = ("suites", str(name))
            if is_text(name, loc[:-1], self._problems):
                yield self._group(name, self._mapping(raw, loc, "{tests: …}"), loc)

    def _group(self, name: str, raw: Mapping[str, Any], loc: Loc) -> _Group:
        read_shape(TestGroup, raw, loc, self._problems)
        own = _own_level(raw) or {}
        layer = Layer(loc, own, chain=True)
        levels = self._read(layer, self._shared)
        tests = self._mapping(raw.get("tests"), (*loc, "tests"), "tests")
        target = f"{TARGET}:{name}" if any(own.values()) else TARGET
        return _Group(name, loc, tests, levels, self._target(target, layer))

    def _mapping(
        self, raw: Any, loc: Loc, what: str, *, required: bool = False
    ) -> Mapping[str, Any]:
        if isinstance(raw, Mapping):
            return raw
        if raw is not None or required:
            message = f"expected a mapping of {what}, got {describe(raw)}"
            self._problems.add(loc, message)
        return {}

    def _target(self, name: str, layer: Layer | None) -> str:
        own = [] if layer is None or name == TARGET else [layer]
        more = [[list(path), stored(raw), chain] for path, raw, chain in own]
        self._targets.setdefault(name, [*self._layers, *more])
        return name

    def targets(self) -> dict[str, Target]:
        """Return a target for every suite that has data or tools of its own, one for the others."""
        script = self._script
        self._target(TARGET, None)
        targets = {}
        for name, layers in self._targets.items():
            definition = {
                "layers": layers,
                "variant_layer": len(self._layers),
                "models": stored(script.models or {}),
                "mcp": stored(script.servers),
                "env": list(script.env),
                "secrets": list(script.secrets),
            }
            options = {
                "definition": definition,
                "instant": not self._waits,
                "script": script.name,
                "imports": self._imports(),
            }
            targets[name] = Target(name, TARGET, options)
        return targets

    def _imports(self) -> list[list[Any]]:
        """Return the Python that tools name, and where they do: the file, the path in it."""
        suite, script = self._problems.file, self._script.name
        imports = [[reference, suite, list(loc)] for reference, loc in self._tools.imported]
        return imports + [[reference, script, list(loc)] for reference, loc in self._script_imports]

    @property
    def _threshold(self) -> float:
        own = self.section.get("threshold")
        return threshold_of(self._options.threshold, own, default=DEFAULT_THRESHOLD)

    def policy(self) -> Policy:
        """Return the policy: an error scores 0 and there are no gates, unless the file says so.

        A file that asks people has a gate by default: without any, nothing would wait for labels.
        """
        gates = (PassRate(threshold=1.0).spec,) if self._asks_people else ()
        return self.settings.policy(ScoreRule.WEIGHTED, gates, self._threshold)

    def variants(self) -> tuple[Variant, ...]:
        """Return the variants, their models by name; note what a script takes no notice of."""
        return tuple(map(self._variant, count(), self.settings.variants()))

    def _variant(self, index: int, variant: Variant) -> Variant:
        loc: Loc = (*in_evalcore("variants"), index, "config")
        config = dict(variant.config)
        for key in config:
            if key not in VARIANT_KEYS:
                message = f"a variant of a script has no such key.{suggest(key, VARIANT_KEYS)}"
                self._problems.add((*loc, key), message)
        models = self._script.models or {}
        if config.get("models") is not None:
            at = (*loc, "models")
            config["models"] = read_models(config["models"], at, self._problems, models)
        self._mapping(config.get("data"), (*loc, "data"), "data")
        return replace(variant, config=config)

    def limits(self) -> Limits:
        """Return the bounds of the run, with the rates that models have in the script."""
        limits = self.settings.limits()
        rates = {
            name: ProviderLimits(requests_per_minute=rate)
            for name, raw in (self._script.models or {}).items()
            if (rate := model_entry(raw).requests_per_minute) is not None
        }
        return replace(limits, providers={**rates, **limits.providers})


def case_id(group: str | None, name: str) -> str:
    """Return `suite/test`; a slash in the suite's name is escaped, so that no two are the same."""
    if group is None:
        return name
    escaped = group.replace("%", "%25").replace("/", "%2F")
    return f"{escaped}/{name}"


def _empty(group: str | None) -> Case:
    """Return what stands for a suite without tests: it scores 0."""
    named = group is not None and group != _NO_SUITES
    return Case(
        id=case_id(group, NO_TESTS) if named else group or NO_TESTS,
        assertions=_SCORE,
        fixture=Evidence("", details={"score": 0.0}),
        group=group if named else None,
        threshold=DEFAULT_THRESHOLD,
        metadata={"placeholder": True},
    )


_TEXT: Final = {"type": "string", "minLength": 1}
_FORMS: Final[dict[str, dict[str, Any]]] = {
    "tree": {},
    "params": {"type": ["object", "string", "null"]},
    "pattern": _TEXT,
    "body": {"$ref": "#/$defs/Body"},
    "matchers": {"type": "array", "items": {"$ref": "#/$defs/Matcher"}},
    "data": {"type": "object"},
    "tools": {"type": "array", "items": {"$ref": "#/$defs/Tool"}},
    "level": {"$ref": "#/$defs/Level"},
    "tests": {"$ref": "#/$defs/Tests"},
    "suites": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Suite"}},
    "evalcore": {"$ref": "#/$defs/Evalcore"},
}


def script_suite_schema() -> dict[str, Any]:
    """Return the schema of a suite file, with suites or without."""
    section = adapter(ScriptSection).json_schema()
    test_section = adapter(ScriptTestSection).json_schema()
    definitions = {**test_section.pop("$defs", {}), **section.pop("$defs", {})}
    test = _schema(ScriptTest)
    test["properties"]["evalcore"] = {"$ref": "#/$defs/TestEvalcore"}
    body = [{"$ref": "#/$defs/Statement"}]
    definitions |= {
        "Evalcore": section,
        "TestEvalcore": test_section,
        "Level": _schema(LevelShape),
        "Tests": {"type": "object", "additionalProperties": test},
        "Suite": _schema(TestGroup),
        "Body": {"anyOf": [*body, {"type": "array", "items": body[0]}]},
        "Statement": {"oneOf": [_schema(statement) for statement in STATEMENTS.values()]},
        "Matcher": _schema(Matcher),
        "Tool": {"type": "object", "description": "import_tool, or name and do."},
    }
    return {"anyOf": [_schema(GroupedFile), _schema(FlatFile)], "$defs": definitions}


def _schema(shape: type[Declared]) -> dict[str, Any]:
    """Return the schema of a class, its compiled fields as their forms."""
    schema = adapter(shape).json_schema()
    for name, member in schema["properties"].items():
        if "form" in member:
            form = _FORMS[member["form"]]
            nullable = member["skips_null"] and member["form"] != "params"
            schema["properties"][name] = {"anyOf": [form, {"type": "null"}]} if nullable else form
    return schema
