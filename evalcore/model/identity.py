"""What makes two executions, or two gradings, the same work, and the code they name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import turn_number
from evalcore.model.suite import Case, ScorerSpec, SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant

PYTHON: Final = "python "
COMMAND: Final = "command "
FILE: Final = "file "
# Checks that are code, and those that hold other checks.
CODE_CHECKS: Final = frozenset(
    {"at-path-later", "code-grader", "composite", "custom", "llm-grader", "python"}
)
# What a program of this process defined; its digest stands beside it.
_LOCAL: Final = "local:"
_WITHIN: Final = (dict, list, tuple)


def code_names(value: Any) -> Iterator[str]:
    """Yield the names of the code in options, parameters or statements, as they are written."""
    if isinstance(value, Mapping):
        yield from _named_here(value)
        for member in value.values():
            if isinstance(member, _WITHIN):
                yield from code_names(member)
    elif isinstance(value, list | tuple):
        for member in value:
            if isinstance(member, _WITHIN):
                yield from code_names(member)


def _named_here(value: Mapping[str, Any]) -> Iterator[str]:
    function, tool = value.get("callable"), value.get("import_tool")
    if isinstance(function, str) and not function.startswith(_LOCAL):
        yield f"{PYTHON}{function.partition(':')[0]}"
    if isinstance(tool, str) and tool and "/" not in tool:
        module = tool.partition(":")[0] if ":" in tool else tool.rpartition(".")[0] or tool
        yield f"{PYTHON}{module}"
    command, more = value.get("command"), value.get("args")
    if isinstance(command, str | list | tuple) and command:
        words = [command] if isinstance(command, str) else list(command)
        words += more if isinstance(more, list | tuple) else ()
        named: dict[str, Any] = {"words": list(map(str, words))}
        if isinstance(value.get("cwd"), str):
            named["cwd"] = value["cwd"]
        yield COMMAND + orjson.dumps(named, option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(value.get("source"), str) and "returns" in value:
        yield f"{FILE}{value['source']}"
    if isinstance(value.get("fixtures"), str) and "source_target" in value:
        yield f"{FILE}{value['fixtures']}"


def attached_names(messages: Any) -> Iterator[str]:
    """Yield the names of the files and images in a list of messages."""
    if not isinstance(messages, list | tuple):
        return
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") in {"file", "image"}:
                yield f"{FILE}{part.get('value')}"


def code_identity(names: Iterable[str], code: Mapping[str, str]) -> bytes:
    """Return the digest of what the names stand for; nothing where none of them is known."""
    digests = sorted({(name, code[name]) for name in names if name in code})
    return hashlib.sha256(orjson.dumps(digests)).digest() if digests else b""


_NO_BEHAVIOUR = frozenset(
    {
        "apiKey",
        "api_key",
        "grader_target",
        "imports",
        "instant",
        "isolation",
        "requests_per_minute",
        "script",
        "tokens_per_minute",
        "workers",
    }
)
# Checks that ask a judge, or that make others which may.
JUDGED = frozenset({"at-path-later", "composite", "llm-grader", "rubrics", "similar"})
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def _canonical(value: Any) -> bytes:
    """Return the bytes of a JSON value with sorted keys."""
    return orjson.dumps(value, option=_OPTIONS)


def target_identity(
    target: Target | None, variant: Variant, code: Mapping[str, str] = NOTHING
) -> bytes:
    """Return the digest of a target's definition after the variant, and of the code it names.

    Keys to providers, how fast they may be asked and who grades are no part of it.
    """
    definition = None if target is None else (target.kind, _behaviour(target.options))
    changes = [definition, _behaviour(variant.config)]
    digest = hashlib.sha256(_canonical(changes))
    if code:
        digest.update(code_identity(target_code(target, variant), code))
    return digest.digest()


def target_code(target: Target | None, variant: Variant) -> Iterator[str]:
    """Yield the names of the code that a target is made of after the variant."""
    if target is not None:
        yield from code_names(_behaviour(target.options))
    yield from code_names(variant.config)


def _behaviour(options: Mapping[str, Any]) -> dict[str, Any]:
    behaviour = {name: value for name, value in options.items() if name not in _NO_BEHAVIOUR}
    fallbacks = behaviour.get("fallback_targets")
    if isinstance(fallbacks, list | tuple):
        behaviour["fallback_targets"] = [
            {**entry, "options": _behaviour(entry["options"])} if isinstance(entry, dict) else entry
            for entry in fallbacks
        ]
    return behaviour


# Targets that ask with a case's input alone.
_WITHOUT_METADATA = frozenset({"anthropic", "cli", "command", "echo", "http", "mock", "openai"})
METADATA_APART_SINCE: Final = 4  # of `model.suite.FILE_RULES`


def sees_metadata(case: Case, target: Target | None) -> bool:
    """Whether an execution can see the case's metadata."""
    if not case.metadata or case.fixture is not None or target is None:
        return False
    fallbacks = target.options.get("fallback_targets") or ()
    kinds = {target.kind, *(entry["kind"] for entry in fallbacks if isinstance(entry, Mapping))}
    return case.workspace is not None or not kinds <= _WITHOUT_METADATA


def metadata_identity(metadata: Mapping[str, Any] | None) -> bytes:
    """Return the bytes of metadata that only what grades can see; none where there is none."""
    return _canonical(metadata) if metadata else b""


def case_identity(case: Case, *, with_metadata: bool = True) -> bytes:
    """Return the bytes of everything in a case that an execution can see."""
    metadata = case.metadata or None if with_metadata else None
    visible = [case.input, _stored_form(case.fixture), metadata, case.expected_output]
    blocks = _stored_form(case.block_fixtures)
    if case.turns is not None:
        visible.append([case.turns.total, case.turns.window])
        # The checks of a turn decide whether the next one is asked.
        if case.turns.stops:
            checks = [tuple(each) for each in case.assertions if turn_number(each.block)]
            visible.append([case.threshold, case.criteria, case.turns.expected, checks])
    if case.workspace is not None or case.conversation:
        return _canonical([*visible, blocks, case.workspace, case.conversation])
    return _canonical(visible if blocks is None else [*visible, blocks])


def case_code(case: Case, code: Mapping[str, str], *, is_script: bool) -> bytes:
    """Return the digest of the code and files that a case's execution sees; mostly nothing.

    A script's case is statements, which may name tools; any other's is data.
    """
    names = [] if case.workspace is None else list(code_names(case.workspace))
    names.extend(code_names(case.input) if is_script else attached_names(case.input))
    return code_identity(names, code) if names else b""


_FIRST_MEASURES: Final = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens")


def _measures(metrics: Metrics) -> orjson.Fragment:
    """Return measures as identities have them: later fields stand in them where they are set."""
    fields = {name: getattr(metrics, name) for name in _FIRST_MEASURES} | metrics.token_parts
    return orjson.Fragment(orjson.dumps(fields))


# Evidence of an output alone, as `_stored_form` has it: its measures, written once.
_UNMEASURED: Final = _measures(UNMEASURED)


def _stored_form(evidence: Evidence | None) -> tuple[Any, ...] | None:
    if evidence is None:
        return None
    measured = _UNMEASURED if evidence.metrics is UNMEASURED else _measures(evidence.metrics)
    outputs, details, blocks = evidence.outputs, evidence.details, evidence.block_metrics
    by_block = {block: _measures(each) for block, each in blocks.items()} if blocks else None
    return (evidence.output, outputs or None, measured, by_block, details or None)


def exec_key(case: bytes, target: bytes, iteration: int) -> str:
    """Return the SHA-256 (hex) of one execution: case and target identity, iteration."""
    return hashlib.sha256(case + target + b"%d" % iteration).hexdigest()


def assertions_identity(
    assertions: Sequence[Assertion], code: Mapping[str, str] = NOTHING
) -> bytes:
    """Return the digest of a case's assertions, in their order, and of the code they name."""
    digest = hashlib.sha256(_canonical([tuple(assertion) for assertion in assertions]))
    if code:
        own_code = [each.params for each in assertions if each.check in CODE_CHECKS]
        names = (name for params in own_code for name in code_names(params))
        digest.update(code_identity(names, code))
    return digest.digest()


def grading_identity(case: Case, assertions: bytes) -> bytes:
    """Return the bytes of everything that grades a case's evidence; its assertions' digest first.

    That is of fixed length, so that no other pair has the same bytes.
    """
    turns = () if case.turns is None else (tuple(case.turns),)
    return assertions + _canonical([case.threshold, case.criteria, *turns])


def scorers_identity(scorers: Sequence[ScorerSpec], code: Mapping[str, str] = NOTHING) -> bytes:
    """Return the digest of a suite's scorers and their code; nothing where it has none."""
    if not scorers:
        return b""
    described = [(scorer.name, scorer.kind, scorer.params) for scorer in scorers]
    digest = hashlib.sha256(_canonical(described))
    digest.update(
        code_identity((name for scorer in scorers for name in code_names(scorer.params)), code)
    )
    return digest.digest()


def judges_named(assertions: Sequence[Assertion]) -> tuple[str | None, ...]:
    """Return the judges that assertions ask, in a fixed order; None is the default one."""
    judges: set[str | None] = set()
    for assertion in assertions:
        if assertion.check in JUDGED:
            _collect_judges(assertion.params, judges)
    return tuple(sorted(judges, key=lambda name: name or ""))


def _collect_judges(value: Any, judges: set[str | None]) -> None:
    if isinstance(value, Mapping):
        if isinstance(value.get("judges"), list | tuple):
            judges.update(judge.get("name") for judge in value["judges"])
        for inner in value.values():
            _collect_judges(inner, judges)
    elif isinstance(value, list | tuple):
        for inner in value:
            _collect_judges(inner, judges)


# What a target is called that embeds texts where none is named.
EMBEDDING_TARGETS: Final = ("embeddings", "embedding")


def judge_name(name: str | None, target: Target | None, suite: SuiteDefinition) -> str | None:
    """Return the judge that is asked: the one named, the target's, else the suite's."""
    if name is None and target is not None:
        name = target.options.get("grader_target")
    return suite.judge if name is None else name


def judges_identity(
    names: Sequence[str | None], target: Target | None, suite: SuiteDefinition
) -> bytes:
    """Return the digest of the definitions of these judges, asked for what the target answered."""
    judges = [suite.targets.get(judge_name(name, target, suite) or "") for name in names]
    digest = hashlib.sha256(b"0")
    for judge in judges:
        digest.update(target_identity(judge, DEFAULT_VARIANT, suite.code))
    return digest.digest()


def grade_key(execution: str, grading: bytes) -> str:
    """Return the SHA-256 (hex) of one grading: the execution's key and what grades it."""
    return hashlib.sha256(execution.encode() + grading).hexdigest()
