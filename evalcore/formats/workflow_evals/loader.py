"""Load files of saved evals: each eval is a case that replays one block of the workflow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from evalcore.checks.conditions import Condition
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.documents import Document, read_document
from evalcore.formats.faults import examine_condition
from evalcore.formats.graders import Graders
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.section import (
    SectionReader,
    UniqueIds,
    check_required_cases,
    only_read,
    own_questions,
    read_question,
    suite_name,
    without_section,
)
from evalcore.formats.test_file.input_messages import InputOrigin, read_workflow_texts
from evalcore.formats.warnings import CaseWarnings
from evalcore.formats.workflow_evals.assertions import condition_check
from evalcore.formats.workflow_evals.shapes import (
    EvalsSection,
    FileEval,
    OwnSection,
    WorkflowEvalsFile,
)
from evalcore.formats.workflow_harness.executed_workflow import ExecutedWorkflow
from evalcore.formats.workflow_harness.providers import judges_of
from evalcore.gates.builtin import PassRate
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Case, Format, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems, raise_all
from evalcore.shapes import adapter
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc, describe, shown_path, suggest
from evalcore.workflow.handles import unknown_handles


def eval_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted."""
    questions = []
    for index, each in enumerate(written):
        judged = {"handle": dict(each["target"])} if "target" in each else {}
        questions.append(read_question(each, (*loc, index), problems, judged))
    return only_read(questions)


TARGET: Final = "block"


def load_workflow_evals(
    document: Document, path: Path, options: LoadOptions, *, may_be_empty: bool = False
) -> Suite:
    """Return the suite of a file of saved evals; raise `LoadError` with every mistake in it."""
    problems = Problems(document.file, document.locate)
    raw: Any = document.value
    section = _checked_file(raw, problems, may_be_empty=may_be_empty)
    settings = SectionReader(section, options, problems)
    graders = judges_of(path.parent, options, problems)
    graders.use_suites({}, section, problems)
    workflow, source, workflow_problems = _workflow(raw, path, problems)
    executed = ExecutedWorkflow(workflow, source, workflow_problems, options, graders)
    target_options = executed.options(frozenset()) if workflow else {}
    blocks = _of_type(workflow.get("blocks"), dict)
    selection = Selection(options)
    ids = UniqueIds("two evals are called '{}'", key="name")
    spool = CaseSpool()
    conditions: list[Condition] = []
    certain = CaseWarnings(strict=options.strict)
    common = eval_questions(section.get("human", ()), ("evalcore", "human"), problems)
    for index, written in enumerate(_of_type(raw.get("evals"), list)):
        loc: Loc = ("evals", index)
        identity, key = _identity(written, index)
        ids.note(identity, loc, problems, key=key)
        own = own_questions(written, OwnSection, loc, problems, eval_questions)
        saved = _read_eval(without_section(written), loc, problems, blocks)
        if saved is None:
            continue
        conditions.append(saved.assertion.condition)
        examine_condition(saved.assertion.condition, loc, problems, certain)
        case = eval_case(saved, identity, (*common, *own))
        if selection.keeps(case.id, case.tags):
            spool.append(case)
    use_graders(conditions, graders, problems)
    policy = settings.policy(ScoreRule.BLOCKS, (PassRate(threshold=1.0).spec,), None)
    check_required_cases(policy, ids.names, problems)
    file_problems = [] if workflow_problems is problems else [workflow_problems]
    raise_all((problems, *file_problems, *executed.file_problems, *graders.file_problems))
    if options.target not in {None, TARGET}:
        raise UsageError(f"{document.file}: saved evals have only the target '{TARGET}'")
    variants = settings.variants()
    definition = SuiteDefinition(
        name=suite_name(path, section.get("name"), (workflow.get("workflow") or {}).get("name")),
        format=Format.WORKFLOW_EVALS,
        source=Source(document.file, str(path.resolve().parent), document.sha256),
        policy=policy,
        targets={**graders.used, TARGET: Target(TARGET, "block", target_options)},
        default_target=TARGET,
        variants=variants,
        baseline=settings.baseline([variant.id for variant in variants]),
        limits=settings.limits(),
        judge=graders.default,
        require_calibrated=bool(section.get("require_calibrated")),
        evidence=settings.evidence(),
        tags=tuple(section.get("tags", ())),
        file_rules=options.file_rules,
    )
    warnings = [*certain.texts, *selection.finish(document.file)]
    return Suite(choose_variants(definition, options), spool, tuple(warnings))


def use_graders(conditions: Collection[Condition], graders: Graders, problems: Problems) -> None:
    """Take the targets that conditions ask: the judge, and the one that embeds."""
    if any(condition.asks_judge for condition in conditions):
        graders.use(None, ("evals",), problems)
    if any(condition.asks_embeddings for condition in conditions):
        graders.embedding({}, ("evals",), problems)


def eval_case(saved: FileEval, identity: str, questions: tuple[Assertion, ...] = ()) -> Case:
    """Return the case of a saved eval: its frozen inputs, its assertion and questions as checks."""
    return Case(
        id=identity,
        input={
            "block_id": saved.target.block_id,
            "handle_inputs": saved.source.model_dump(mode="json")["handle_inputs"],
        },
        assertions=(condition_check(saved.assertion), *questions),
    )


def _identity(written: Any, index: int) -> tuple[str, str]:
    """Return the id of an eval's case, its name, else its id, else its number; and its key."""
    fields = _of_type(written, dict)
    texts = ((fields.get(key), key) for key in ("name", "id"))
    named = ((text, key) for text, key in texts if text and isinstance(text, str))
    return next(named, (f"eval-{index + 1}", "name"))


def _of_type(value: Any, type_: type) -> Any:
    """Return a value of the type, else the empty one."""
    return value if isinstance(value, type_) else type_()


def _checked_file(raw: Any, problems: Problems, *, may_be_empty: bool) -> EvalsSection:
    """Return the section `evalcore:`; raise `LoadError` if the file is no mapping.

    A file without evals has nothing to run; one that is imported has its workflow.
    """
    problems.check_shape(raw, WorkflowEvalsFile)
    if not isinstance(raw, dict):
        problems.raise_if_any()
    for key in ("workflow", "evals"):
        if key not in raw:
            problems.add((key,), "is required")
    if raw.get("evals") == [] and not may_be_empty:
        problems.add(("evals",), "must not be empty")
    try:
        section: EvalsSection = adapter(EvalsSection).validate_python(raw.get("evalcore", {}))
    except ValidationError:  # its mistakes are noted with those of the file
        return EvalsSection()
    return section


def _workflow(
    raw: Mapping[str, Any], path: Path, problems: Problems
) -> tuple[Mapping[str, Any], Path, Problems]:
    """Return the workflow, the file it stands in, and the collector of its mistakes."""
    written = raw.get("workflow")
    if not isinstance(written, dict | str):
        return {}, path, problems
    if isinstance(written, dict):
        return _with_blocks(written, path, _Below(problems, ("workflow",)))
    try:
        file = resolve_inside(repository_root(path.resolve().parent), path.parent, written)
        document = read_document(file, shown_path(file))
    except LoadError as error:
        problems.include(error.problems)
        return {}, path, problems
    except EvalError as error:
        problems.add(("workflow",), str(error))
        return {}, path, problems
    if not isinstance(document.value, dict):
        problems.add(("workflow",), f"{document.file} is no mapping")
        return {}, path, problems
    return _with_blocks(document.value, file, Problems(document.file, document.locate))


def _with_blocks(
    workflow: Mapping[str, Any], path: Path, problems: Problems
) -> tuple[Mapping[str, Any], Path, Problems]:
    """Return the workflow; an empty one, with the mistake noted, if it has no mapping of blocks."""
    if isinstance(workflow.get("blocks"), dict):
        origin = InputOrigin(path.resolve().parent, (), problems)
        return read_workflow_texts(workflow, origin), path, problems
    description = f", got {describe(workflow['blocks'])}" if "blocks" in workflow else ""
    problems.add(("blocks",), f"expected a mapping of ids to blocks{description}")
    return {}, path, problems


class _Below(Problems):
    """Notes mistakes of a part of the document at their place in the whole."""

    def __init__(self, outer: Problems, prefix: Loc) -> None:
        super().__init__(outer.file, outer.locate)
        self._prefix = prefix

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake at a path of the part."""
        super().add((*self._prefix, *loc), message, label=label)


def _read_eval(
    written: Any, loc: Loc, problems: Problems, blocks: Mapping[str, Any]
) -> FileEval | None:
    before = problems.count
    try:
        saved: FileEval = adapter(FileEval).validate_python(written)
    except ValidationError as error:
        problems.add_invalid(error, written, FileEval, loc)
        return None
    block = saved.target.block_id
    if blocks and block not in blocks:
        message = f"the workflow has no block '{block}'.{suggest(block, blocks)}"
        problems.add((*loc, "target", "block_id"), message)
    elif isinstance(blocks.get(block), dict):
        unknown = unknown_handles(blocks[block], saved.source.handle_inputs)
        for name, message in unknown.items():
            problems.add((*loc, "source", "handle_inputs", name), message)
    for message in saved.assertion.condition.mistakes():
        problems.add((*loc, "assertion", "condition"), message)
    return saved if problems.count == before else None
