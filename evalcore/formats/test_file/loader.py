"""Load test files: `tests:` in YAML or JSON, JSONL, tables (docs/reference/test-files.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evalcore.checks.registry import Dialect, assertion_schema
from evalcore.formats.assertions import AssertionReader
from evalcore.formats.documents import Document
from evalcore.formats.graders import AssertionTemplates, Graders, program_assertions
from evalcore.formats.messages import (
    InputOrigin,
    as_messages,
    check_file,
    check_messages,
    read_named_texts,
    with_plain_messages,
)
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.rows import ROW_SUFFIXES, TESTS_KEYS, jsonl_tests
from evalcore.formats.section import (
    EvalcoreSection,
    SectionReader,
    check_required_cases,
    in_evalcore,
    threshold_of,
)
from evalcore.formats.sources import (
    NamedFiles,
    RowRules,
    declared_types,
    defaults_beside,
    digest_of,
    file_tests,
    spool_rows,
    suite_tests,
)
from evalcore.formats.targets import Targets
from evalcore.formats.test_file.cases import (
    SuiteDefaults,
    SuiteExecution,
    TestFile,
    TestReader,
    TestSuite,
)
from evalcore.formats.variables import Variables, interpolate, variables_for
from evalcore.formats.warnings import CaseWarnings
from evalcore.formats.workspaces import WorkspaceReader
from evalcore.gates.builtin import PassRate
from evalcore.model.suite import (
    DatasetSource,
    Format,
    Limits,
    ScoreRule,
    Source,
    Suite,
)
from evalcore.model.target import DEFAULT_VARIANT, Variant
from evalcore.planning.row_ranges import (
    READ_RANGE,
    LineRange,
    Readers,
    ReadRange,
    RowRanges,
    line_ranges,
)
from evalcore.problems import Problems, raise_all
from evalcore.shapes import adapter
from evalcore.trust.processes import usable_cores
from evalcore.wording import Loc, path_text

DEFAULT_THRESHOLD = 0.8
DEFAULT_TARGET = "default"
_LISTS = ("assertions", "assert", "evaluators")


def load_test_file(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a YAML or JSON test file; raise `LoadError` with every mistake."""
    raw, sha256 = document.value, document.sha256
    problems = Problems(document.file, document.locate)
    if not isinstance(raw, dict):
        problems.add((), "a test file is a mapping with 'tests'")
        problems.raise_if_any()
    keys = [key for key in TESTS_KEYS if key in raw]
    if not keys:
        problems.add((), "has no 'tests'")
        problems.raise_if_any()
    for key in keys[1:]:
        problems.add((key,), f"is another name of '{keys[0]}'; keep one of them")
    suite_level = {key: value for key, value in raw.items() if key not in TESTS_KEYS}
    return _load(suite_level, raw[keys[0]], keys[0], problems, path, sha256, options)


def load_test_rows(
    path: Path, name: str, options: LoadOptions, chosen: LineRange | None = None
) -> Suite:
    """Return the suite of a JSONL file or a table, with the defaults of the YAML file beside it."""
    raw: Any = {}
    problems = Problems(name, lambda _: None)
    document = defaults_beside(path)
    if document is not None:
        raw = {key: value for key, value in document.value.items() if key not in TESTS_KEYS}
        problems = Problems(document.file, document.locate)
    digest = digest_of(path, name) if chosen is None else ""
    return _load(raw, name, "tests", problems, path, digest, options, chosen)


def _readers(path: Path, name: str, options: LoadOptions, count: int) -> Readers:
    from evalcore.isolation.pool import Job, Launch, WorkerPool

    pool = WorkerPool(count, Launch(preload=(__name__,), is_engine=True))
    source = path, name, replace(options, environment=dict(options.environment))

    async def read(chosen: LineRange) -> ReadRange | None:
        text = await pool.call(Job(READ_RANGE, (load_test_rows, (*source, chosen))))
        return None if text is None else ReadRange.unpacked(text)

    return lambda chosen: pool.start(read(chosen)), pool.close


def _load(
    raw: dict[str, Any],
    tests: Any,
    key: str,
    problems: Problems,
    path: Path,
    digest: str,
    options: LoadOptions,
    chosen: LineRange | None = None,
) -> Suite:
    """Read the suite level, then every test in one pass into a spool."""
    variables = variables_for(path.parent, options)
    raw = interpolate(raw, variables, (), problems)
    raw = with_plain_messages(
        read_named_texts(raw, InputOrigin(path.resolve().parent, (), problems))
    )
    before = problems.count
    suite: TestSuite = problems.sound_part(raw, TestSuite) if raw else {}  # lines have none, mostly
    sound = problems.count == before
    level = _SuiteLevel(suite, path, options, variables, problems)
    reader = TestReader(level.defaults(sound=sound), variables, strict=options.strict)
    selection = Selection(options)
    versions: list[DatasetSource] = []
    files = NamedFiles(path.parent, suite.get("columns", {}), options.store, versions)

    def accepts(read: list[ReadRange]) -> bool:
        told = problems.count or reader.warnings.texts or level.notes.texts
        if told or level.graders.reference_fields.absent(()):
            return False
        ids = [name for each in read for name in each.ids]
        return (
            len(set(ids)) == len(ids)
            and reader.ids.names.isdisjoint(ids)
            and all(each.targets <= level.targets.used.keys() for each in read)
        )

    is_table = path.suffix.lower() in ROW_SUFFIXES
    ranges = None
    if chosen is not None:
        rows = jsonl_tests(path, tests, chosen)
    elif is_table:
        rows = file_tests(path, tests, files.columns, problems)
        if not (options.filters or files.columns):
            start = partial(_readers, path, tests, options)
            ranges = RowRanges(line_ranges(path), usable_cores() - 1, start)
            rows = ranges.head(rows, accepts)
    else:
        rows = suite_tests(tests, (key,), files, problems, noun="test")
    cases, collectors, absent, unjudged = spool_rows(
        rows,
        reader.read,
        selection,
        [problems, *level.file_problems],
        noun="test",
        references=level.graders.reference_fields,
        rules=RowRules(declared_types(suite), level.programs),
    )
    while ranges is not None and ranges.rest:
        read = ranges.rest.pop(0)
        cases.extend(read.cases)
        reader.ids.add(read.ids, problems)
    check_required_cases(level.policy, reader.ids.names, problems)
    level.targets.explain(collectors)
    raise_all(collectors)
    file = tests if is_table else problems.file
    warnings = [*level.targets.warnings, *level.notes.texts, *reader.warnings.texts]
    warnings += selection.finish(file)
    source = Source(file, str(path.resolve().parent), digest)
    definition = level.settings.definition(
        Format.TEST_FILE,
        source,
        path,
        level.policy,
        targets=level.targets.used,
        default_target=level.default_target,
        variants=level.variants,
        baseline=level.baseline,
        judge=level.graders.default,
        reuse=level.execution.get("cache", False),
        limits=level.limits_of(len(cases)),
        absent_fields=absent,
        datasets=tuple(versions),
    )
    definition = choose_variants(definition, options)
    definition, own = unjudged.judged_by_themselves(definition, strict=options.strict)
    warnings += own + unjudged.warnings(definition, strict=options.strict)
    return Suite(definition, cases, tuple(warnings))


class _SuiteLevel:
    """What the suite level says, together with what the caller lays over it."""

    def __init__(
        self,
        raw: TestSuite,
        path: Path,
        options: LoadOptions,
        variables: Variables,
        problems: Problems,
    ) -> None:
        self.raw, self.path, self.options, self.problems = raw, path, options, problems
        self.execution: SuiteExecution = self._execution()
        self._own: dict[str, Loc] = {}
        self.section = self._section()
        self.settings = SectionReader(self.section, options, problems, self._loc)
        self.targets = Targets(
            raw.get("targets"),
            path.parent,
            variables,
            problems,
            strict=options.strict,
        )
        self.workspaces = WorkspaceReader(
            raw.get("workspace"), path.resolve().parent, variables, problems, ("workspace",)
        )
        self.notes = CaseWarnings(strict=options.strict)
        self.default_target = self._default_target()
        self.graders = Graders(path.parent, self.targets, options.file_rules)
        self.programs = program_assertions(path.parent)
        self.templates = AssertionTemplates(path.parent, variables)
        self.graders.use_suites(self.section, problems, self._loc)
        self.variants = self._variants()
        self.baseline = self._baseline()
        self.threshold = threshold_of(
            options.threshold, self.section.get("threshold"), default=DEFAULT_THRESHOLD
        )
        self.policy = replace(
            self.settings.policy(ScoreRule.WEIGHTED, (PassRate(1.0).spec,), self.threshold),
            stop_on_error=self.execution.get("fail_on_error", False),
        )

    @property
    def file_problems(self) -> list[Problems]:
        """The collectors of the files that the suite level names."""
        of_targets = self.targets.file_problems
        return [*([of_targets] if of_targets else []), *self.workspaces.file_problems]

    def limits_of(self, tests: int) -> Limits:
        """Return the bounds of a run of so many tests; of several budgets the smallest one holds.

        What the trials of each test may cost bounds them all together.
        """
        limits = self.settings.limits()
        cost_usd = self.execution.get("trials", {"count": 1}).get("cost_limit_usd")
        trials_usd = None if cost_usd is None else cost_usd * tests
        budgets = [
            self.execution.get("total_budget_usd"),
            self.execution.get("budget_usd"),
            limits.max_cost_usd,
            trials_usd,
        ]
        return replace(
            limits,
            concurrency=limits.concurrency or self.execution.get("workers"),
            max_cost_usd=min((usd for usd in budgets if usd is not None), default=None),
        )

    def defaults(self, *, sound: bool) -> SuiteDefaults:
        """Return what each test inherits; `sound` says that nothing is wrong at this level."""
        raw, problems = self.raw, self.problems
        reader = AssertionReader(
            self.graders, notes=self.notes, programs=self.programs, templates=self.templates
        )
        folder = self.path.resolve().parent
        origin = InputOrigin(folder, ("input",), problems)
        check_messages(raw.get("input"), origin)
        for index, name in enumerate(raw.get("input_files", ())):
            if "{{" in name:  # a test's `vars` may fill it
                continue
            check_file(name, origin._replace(loc=("input_files", index)))
        return SuiteDefaults(
            folder=folder,
            graders=self.graders,
            assertions=tuple(reader.read_all(*self._assertions(), problems)),
            messages=tuple(as_messages(raw["input"])) if "input" in raw else (),
            input_files=tuple(raw.get("input_files", ())),
            threshold=self.threshold,
            targets=self.targets,
            # What is wrong here may be what answers the tests: one mistake, not one for each test.
            has_target=(
                self.default_target is not None
                or "targets" in self.execution
                or not (sound and self.targets.complete)
            ),
            forced_target=self.options.target is not None,
            variant_targets=tuple(
                variant.target for variant in self.variants if variant.target is not None
            ),
            workspaces=self.workspaces,
            metadata=self.raw.get("metadata", {}),
            programs=self.programs,
            templates=self.templates,
            notes=self.notes,
            skip=bool(self.execution.get("skip_defaults")),
            conversation=bool(self.execution.get("conversation")),
        )

    def _assertions(self) -> tuple[list[Any], Loc]:
        """Return the assertions of every test, and where they stand; note other places."""
        levels: tuple[tuple[Loc, Any], ...] = ((), self.raw), (("execution",), self.execution)
        written = [
            (level[name], (*loc, name)) for loc, level in levels for name in _LISTS if name in level
        ]
        for _, loc in written[1:]:
            message = f"is another name of '{path_text(written[0][1])}'; keep one of them"
            self.problems.add(loc, message)
        return written[0] if written else ([], ("assertions",))

    def _execution(self) -> SuiteExecution:
        """Return `execution`, with the target that may stand at the top of the file."""
        execution: SuiteExecution = self.raw.get("execution", {})
        if "target" not in self.raw:
            return execution
        for key in ("target", "targets"):
            if key in execution:
                self.problems.add(("target",), f"is given as 'execution.{key}' as well; keep one")
        return {**execution, "target": self.raw["target"]}

    def _section(self) -> EvalcoreSection:
        """Return `evalcore:` with what the format has in other places; note what is in both."""
        written, execution = self.raw.get("evalcore", {}), self.execution
        trials: Any = execution.get("trials") or {}
        own = {
            "threshold": ("execution.threshold", execution.get("threshold")),
            "name": ("name", self.raw.get("name")),
            "tags": ("tags", self.raw.get("tags")),
            "variants": ("execution.targets", execution.get("targets")),
            "iterations": ("execution.trials.count", trials.get("count")),
            "reducer": ("execution.trials.strategy", trials.get("strategy")),
            "k": ("execution.trials.k", trials.get("k")),
            "judge": ("execution.grader_target", execution.get("grader_target")),
        }
        SectionReader(written, self.options, self.problems).refuse_both(own)
        if execution.get("target") and execution.get("targets"):
            message = "is given beside 'target'; keep one of them"
            self.problems.add(("execution", "targets"), message)
        del own["variants"]
        self._own = {
            key: tuple(path.split("."))
            for key, (path, value) in own.items()
            if value not in (None, [])
        }
        laid: Any = {**written, **{key: own[key][1] for key in self._own}}
        section: EvalcoreSection = laid
        return section

    def _loc(self, key: str) -> Loc:
        return self._own.get(key, in_evalcore(key))

    def _default_target(self) -> str | None:
        name = self.targets.chosen(self.options, self.problems.file)
        if name is not None:
            self.targets.use(name, (), self.problems)
            return name
        name = self.execution.get("target")
        if name is None and (DEFAULT_TARGET not in self.targets or "targets" in self.execution):
            return None
        name = name or DEFAULT_TARGET
        self.targets.use(name, ("execution", "target"), self.problems)
        return str(name)

    def _variants(self) -> tuple[Variant, ...]:
        """Return the variants: `execution.targets`, or those of the `evalcore:` section."""
        if "targets" in self.execution:
            return self._listed_variants(self.execution["targets"])
        variants = self.settings.variants()
        for index, variant in enumerate(variants):
            loc = ("evalcore", "variants", index)
            if variant.target is not None:
                self.targets.use(variant.target, (*loc, "target"), self.problems)
            name = variant.target or self.default_target
            if name is not None and variant.config:
                self.targets.use_variant(name, variant, (*loc, "config"), self.problems)
        return variants

    def _listed_variants(self, names: Sequence[str]) -> tuple[Variant, ...]:
        """Return a variant for each target, called as it; of a chosen target the unchanged one."""
        if self.options.target is not None:
            return (DEFAULT_VARIANT,)
        for index, name in enumerate(names):
            loc = ("execution", "targets", index)
            if name in names[:index]:
                self.problems.add(loc, f"'{name}' is listed twice; remove one of them")
            self.targets.use(name, loc, self.problems)
        return tuple(Variant(name, name) for name in dict.fromkeys(names))

    def _baseline(self) -> str | None:
        if self.options.target and self.execution.get("targets"):
            return None  # the variants that it could name are not run
        return self.settings.baseline([variant.id for variant in self.variants])


def test_file_schema() -> dict[str, Any]:
    """Return the schema of a whole test file."""
    schema = adapter(TestFile).json_schema()
    definitions = schema["$defs"]
    definitions["Assertion"] = assertion_schema(Dialect.TEST, definitions)
    text = {"type": "string", "minLength": 1}
    include = {
        "type": "object",
        "properties": {"include": text},
        "required": ["include"],
        "additionalProperties": False,
    }
    items = {"anyOf": [{"$ref": "#/$defs/Assertion"}, text, include]}
    listed = {"type": "array", "items": items}
    parts = [
        definitions[name] for name in ("SuiteExecution", "TestShape", "TestExecution", "TurnShape")
    ]
    for shape in (schema, *parts):
        for key in {"assert", "assertions", "evaluators"} & shape["properties"].keys():
            shape["properties"][key] = listed
    return schema
