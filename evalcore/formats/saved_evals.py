"""Files of saved evals: each eval is a case that replays one block of the workflow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.checks.conditions import (
    BLOCK_ERROR,
    HANDLE_OUTPUTS,
    AssertionTarget,
    Condition,
    EvalAssertion,
    Handle,
)
from evalcore.errors import UsageError
from evalcore.formats.documents import Document, read_named
from evalcore.formats.graders import GraderReader, Graders
from evalcore.formats.messages import InputOrigin, read_named_texts
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.questions import QuestionKeys, read_question, split_section
from evalcore.formats.section import (
    STRICT,
    EvalcoreSection,
    SectionReader,
    UniqueIds,
    check_required_cases,
)
from evalcore.formats.single_assertions import condition_check
from evalcore.formats.warnings import CaseWarnings, examine_condition
from evalcore.formats.workflow_file import ExecutedWorkflow, judges_of
from evalcore.gates.builtin import PassRate
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case, Format, ScoreRule, Suite
from evalcore.model.target import Target
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems, raise_all
from evalcore.shapes import adapter
from evalcore.wording import Loc, describe, suggest
from evalcore.workflow.handles import unknown_handles


@with_config(STRICT)
class BlockOutputs(TypedDict, total=False):
    """The output handles of a block, or why it has none."""

    handle_outputs: dict[Annotated[str, Field(min_length=1)], Handle] | None
    block_error: str | None


def block_evidence(question: Mapping[str, Any]) -> Evidence:
    """Return the evidence of a question's block. Raises `LoadError` for handles of another shape.

    Keys of the question that say nothing of the block are not looked at.
    """
    keys = BlockOutputs.__optional_keys__
    written = {key: value for key, value in question.items() if key in keys}
    problems = Problems("question", lambda _: None)
    problems.check_shape(written, BlockOutputs)
    problems.raise_if_any()
    details = {
        HANDLE_OUTPUTS: written.get("handle_outputs") or {},
        BLOCK_ERROR: written.get("block_error"),
    }
    return Evidence("", details=details)


_FROZEN = ConfigDict(frozen=True, **STRICT, defer_build=True)
Name = Annotated[str, Field(min_length=1)]


class FileTarget(BaseModel):
    """The block that an eval replays."""

    model_config = _FROZEN

    type: Literal["block"]
    block_id: Name


class FileSource(BaseModel):
    """The frozen inputs of a block, by handle."""

    model_config = _FROZEN

    type: Literal["manual"]
    handle_inputs: dict[Name, Handle]


class FileEval(BaseModel):
    """One saved eval: a block, its inputs, one assertion about its output."""

    model_config = _FROZEN

    id: Name | None = None
    name: Name | None = None
    target: FileTarget
    source: FileSource
    assertion: EvalAssertion


@with_config(STRICT)
class EvalQuestion(QuestionKeys, total=False):
    """A question for people; `target` is the output handle, and the path in it, that they judge."""

    target: AssertionTarget


@with_config(STRICT)
class EvalsSection(EvalcoreSection, total=False):
    """The section `evalcore:` of the file; `human` is asked about each eval."""

    human: list[EvalQuestion]


@with_config(STRICT)
class OwnSection(TypedDict, total=False):
    """The section `evalcore:` of one eval."""

    human: list[EvalQuestion]


@with_config(STRICT)
class WorkflowEvalsFile(TypedDict, total=False):
    """A file of format `workflow-evals`; the workflow is written in it, or named by its path."""

    workflow: dict[str, Any] | Name
    evals: list[Any]
    evalcore: EvalsSection


def eval_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted."""
    questions = [
        read_question(each, (*loc, index), problems, {"handle": dict(each["target"])})
        if "target" in each
        else read_question(each, (*loc, index), problems, {})
        for index, each in enumerate(written)
    ]
    return tuple(filter(None, questions))


TARGET: Final = "block"


def load_workflow_evals(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a file of saved evals; raise `LoadError` with every mistake in it."""
    problems = Problems(document.file, document.locate)
    raw: Any = document.value
    section = _checked_file(raw, problems)
    settings = SectionReader(section, options, problems)
    graders = judges_of(path.parent, options, problems)
    graders.use_suites(section, problems)
    workflow, source, workflow_problems = _workflow(raw, path, problems)
    executed = ExecutedWorkflow(workflow, source, workflow_problems, options, graders)
    target_options = executed.options() if workflow else {}
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
        rest, listed = split_section(written, OwnSection, loc, problems)
        own = eval_questions(listed, (*loc, "evalcore", "human"), problems)
        saved = _read_eval(rest, loc, problems, blocks)
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
    definition = settings.definition(
        Format.WORKFLOW_EVALS,
        document,
        path,
        policy,
        name=(workflow.get("workflow") or {}).get("name"),
        targets={**graders.used, TARGET: Target(TARGET, "block", target_options)},
        default_target=TARGET,
        variants=variants,
        baseline=settings.baseline([variant.id for variant in variants]),
        judge=graders.default,
    )
    warnings = [*certain.texts, *selection.finish(document.file)]
    return Suite(choose_variants(definition, options), spool, tuple(warnings))


def use_graders(conditions: Collection[Condition], graders: Graders, problems: Problems) -> None:
    """Take the targets that conditions ask: the judge, and the one that embeds."""
    asked = {condition.asks for condition in conditions}
    if "judge" in asked:
        graders.use(None, ("evals",), problems)
    if "embeddings" in asked:
        GraderReader(graders, ("evals",), problems).embedding({})


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
    for key in ("name", "id"):
        text = _of_type(written, dict).get(key)
        if text and isinstance(text, str):
            return text, key
    return f"eval-{index + 1}", "name"


def _of_type(value: Any, type_: type) -> Any:
    """Return a value of the type, else the empty one."""
    return value if isinstance(value, type_) else type_()


def _checked_file(raw: Any, problems: Problems) -> EvalsSection:
    """Return the section `evalcore:`; raise `LoadError` if the file is no mapping.

    A file without evals has nothing to run; one that is imported has its workflow.
    """
    wrong = problems.wrong_paths(raw, WorkflowEvalsFile)
    if not isinstance(raw, dict):
        problems.raise_if_any()
    for key in ("workflow", "evals"):
        if key not in raw:
            problems.add((key,), "is required")
    if raw.get("evals") == []:
        problems.add(("evals",), "must not be empty")
    is_sound = not any(loc[:1] == ("evalcore",) for loc in wrong or ())
    section: EvalsSection = raw.get("evalcore", {}) if is_sound else {}
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
    named = read_named(written, path.parent, ("workflow",), problems)
    if named is None:
        return {}, path, problems
    file, document, own = named
    if not isinstance(document.value, dict):
        problems.add(("workflow",), f"{document.file} is no mapping")
        return {}, path, problems
    return _with_blocks(document.value, file, own)


def _with_blocks(
    workflow: Mapping[str, Any], path: Path, problems: Problems
) -> tuple[Mapping[str, Any], Path, Problems]:
    """Return the workflow; an empty one, with the mistake noted, if it has no mapping of blocks."""
    if isinstance(workflow.get("blocks"), dict):
        origin = InputOrigin(path.resolve().parent, (), problems)
        return read_named_texts(workflow, origin), path, problems
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


def workflow_evals_schema() -> dict[str, Any]:
    """Return the file's schema."""
    schema = adapter(WorkflowEvalsFile).json_schema()
    saved = adapter(FileEval).json_schema(ref_template="#/$defs/{model}")
    own = adapter(OwnSection).json_schema(ref_template="#/$defs/{model}")
    saved["properties"]["evalcore"] = {"$ref": "#/$defs/OwnSection"}
    definitions = {
        **schema.get("$defs", {}),
        **saved.pop("$defs", {}),
        **own.pop("$defs", {}),
        "FileEval": saved,
        "OwnSection": own,
    }
    schema["properties"]["evals"]["items"] = {"$ref": "#/$defs/FileEval"}
    return {**schema, "required": ["workflow", "evals"], "$defs": definitions}
