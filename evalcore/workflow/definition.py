"""A workflow as the engine runs it, made of the mapping that a file (or Python) gives.

The shapes of files are checked by their loader; `read_definition` is for what has passed, and says
what it cannot use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING
from evalcore.workflow.conditions import Condition, Group

MODEL_TYPES: Final = frozenset({"llm", "linear", "gate", "synthesize", "dispatch"})
DEFAULT_TIMEOUT_S: Final = 300.0
DEFAULT_ROUNDS: Final = 5
_SOUL_FIELDS: Final = ("id", "kind", "name", "role", "system_prompt", "provider", "model_name")
# For people: they change nothing that a block does.
_SHOWN_ONLY: Final = {"souls": {"kind", "name", "role", "avatar_color"}, "blocks": {"description"}}
_KEPT: Final = ("id", "blocks", "souls", "workflow", "limits", "interface", "primary_output")


class InputRef(NamedTuple):
    """Where a block's input comes from; `default` counts where nothing stands there."""

    path: str
    default: Any = None
    has_default: bool = False


class Branch(NamedTuple):
    """One way on: its decision's name, its conditions, its target.

    Without conditions it is the default, or (`is_verdict`) what a gate's verdict chooses.
    """

    decision: str | None
    when: Group | None
    goto: str | None
    is_verdict: bool = False


class ExitRule(NamedTuple):
    """The exit handle of an output that contains a text, matches a pattern or meets conditions."""

    handle: str
    contains: str | None = None
    regex: str | None = None
    when: Group | None = None


class Retry(NamedTuple):
    """How often a block is tried, and how long is waited (seconds) in between."""

    attempts: int = 1
    exponential: bool = False
    base_s: float = 1.0
    never: tuple[str, ...] = ()


ONCE: Final = Retry()


class Caps(NamedTuple):
    """Bounds of a block or a workflow; `warn`: say so and go on."""

    duration_s: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    warn: bool = False


class Exit(NamedTuple):
    """One of the exits of a block; a dispatch asks `soul_ref` to do `task` for each."""

    id: str
    soul_ref: str | None = None
    task: str = ""


class Carry(NamedTuple):
    """What a loop carries from round to round, and under which name."""

    all_rounds: bool = False
    blocks: tuple[str, ...] = ()
    name: str = "previous_round_context"


@dataclass(frozen=True, slots=True)
class Soul:
    """Who answers: system prompt, provider, model, and its parameters in OpenAI's names."""

    id: str
    system_prompt: str | None = None
    provider: str | None = None
    model: str | None = None
    parameters: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class Block:
    """One step. `fields` is what was written, for what only its type knows."""

    id: str
    type: str
    fields: Mapping[str, Any]
    inputs: Mapping[str, InputRef] | None = None
    soul_ref: str | None = None
    error_route: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    retry: Retry = ONCE
    caps: Caps | None = None
    branches: tuple[Branch, ...] = ()
    exit_rules: tuple[ExitRule, ...] = ()
    exits: tuple[Exit, ...] = ()
    checks: tuple[Assertion, ...] = ()

    def text(self, name: str, default: str = "") -> str:
        """Return a field that is text."""
        value = self.fields.get(name)
        return default if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Definition:
    """A whole workflow. `plain` and `conditional` are its transitions, None as target its end."""

    entry: str
    blocks: Mapping[str, Block]
    souls: Mapping[str, Soul] = field(default_factory=dict)
    plain: Mapping[str, str | None] = field(default_factory=dict)
    conditional: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    caps: Caps | None = None
    primary_output: str | None = None
    interface: Mapping[str, Any] = NOTHING
    name: str = "workflow"


Checks = Mapping[str, tuple[Assertion, ...]]


def behaviour_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the workflow does: no evals, nothing that is there for people only."""
    kept: dict[str, Any] = {key: raw[key] for key in _KEPT if raw.get(key) is not None}
    for section, shown in _SHOWN_ONLY.items():
        members = kept.get(section)
        if isinstance(members, Mapping):
            kept[section] = {
                name: {k: v for k, v in member.items() if k not in shown}
                if isinstance(member, Mapping)
                else member
                for name, member in members.items()
            }
    return kept


def read_definition(raw: Mapping[str, Any], checks: Checks = NOTHING) -> Definition:
    """Return the definition; `checks` are the blocks' own assertions, already read.

    Raise `ValueError` (or `KeyError`, `TypeError`) where the mapping is no sound workflow.
    """
    workflow = raw.get("workflow") or {}
    blocks = {
        name: read_block(name, member, tuple(checks.get(name, ())))
        for name, member in (raw.get("blocks") or {}).items()
    }
    if not blocks:
        raise ValueError("a workflow needs 'blocks'")
    souls = {name: read_soul(name, member) for name, member in (raw.get("souls") or {}).items()}
    entry = workflow.get("entry")
    limits = raw.get("limits")
    return Definition(
        entry=entry if entry is not None else next(iter(blocks)),
        blocks=blocks,
        souls=souls,
        plain=_plain(workflow, blocks),
        conditional=_conditional(workflow),
        caps=_caps(limits) if limits else None,
        primary_output=raw.get("primary_output"),
        interface=raw.get("interface") or NOTHING,
        name=str(workflow.get("name") or raw.get("id") or "workflow"),
    )


def read_soul(name: str, raw: Mapping[str, Any]) -> Soul:
    """Return the soul; whatever else it has is a parameter of its model."""
    parameters = {
        key: value
        for key, value in raw.items()
        if key not in {*_SOUL_FIELDS, "description", "avatar_color"} and value is not None
    }
    return Soul(
        name, raw.get("system_prompt"), raw.get("provider"), raw.get("model_name"), parameters
    )


def read_block(name: str, raw: Mapping[str, Any], checks: tuple[Assertion, ...] = ()) -> Block:
    """Return one block."""
    inputs = raw.get("inputs")
    limits = raw.get("limits")
    return Block(
        id=name,
        type=raw["type"],
        fields=raw,
        inputs=None if inputs is None else {key: input_ref(value) for key, value in inputs.items()},
        soul_ref=raw.get("soul_ref"),
        error_route=raw.get("error_route"),
        timeout_s=float(raw.get("timeout_seconds") or DEFAULT_TIMEOUT_S),
        retry=_retry(raw.get("retry_config")),
        caps=_caps(limits) if limits else None,
        branches=(*_gate_branches(raw), *map(_branch, _branches_of(raw))),
        exit_rules=tuple(map(_exit_rule, raw.get("exit_conditions") or ())),
        exits=tuple(
            Exit(item["id"], item.get("soul_ref"), item.get("task") or "")
            for item in raw.get("exits") or ()
        ),
        checks=checks,
    )


def input_ref(raw: Any) -> InputRef:
    """Return where an input comes from: `{from, default}`, or the path alone."""
    if isinstance(raw, str):
        return InputRef(raw)
    return InputRef(raw["from"], raw.get("default"), "default" in raw)


def condition_group(raw: Any) -> Group | None:
    """Return the conditions in `{combinator, conditions}`, one condition, or a list of them."""
    if not raw:
        return None
    if isinstance(raw, list):
        return Group(tuple(map(_condition, raw)))
    if "conditions" in raw:
        return Group(tuple(map(_condition, raw["conditions"])), raw.get("combinator") or "and")
    return Group((_condition(raw),))


def carry_of(raw: Any, inner: tuple[str, ...]) -> Carry | None:
    """Return what a loop carries; None if nothing."""
    if not raw or (isinstance(raw, Mapping) and raw.get("enabled") is False):
        return None
    written: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    blocks = tuple(written.get("source_blocks") or inner)
    return Carry(written.get("mode") == "all", blocks, written.get("inject_as") or Carry().name)


def _condition(raw: Mapping[str, Any]) -> Condition:
    return Condition(raw.get("eval_key"), raw["operator"], raw.get("value"))


def _gate_branches(raw: Mapping[str, Any]) -> list[Branch]:
    if raw["type"] != "gate":
        return []
    return [Branch(name, None, raw[name], True) for name in ("pass", "fail") if raw.get(name)]


def _branches_of(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(raw.get("routes") or ()), *(raw.get("output_conditions") or ())]


def _branch(raw: Mapping[str, Any]) -> Branch:
    when = None if raw.get("default") is True else _when(raw)
    return Branch(raw.get("case") or raw.get("case_id"), when, raw.get("goto"))


def _when(raw: Mapping[str, Any]) -> Group | None:
    if "when" in raw or "condition_group" in raw:
        return condition_group(raw.get("when") or raw.get("condition_group"))
    return condition_group(raw) if "conditions" in raw or "operator" in raw else None


def _exit_rule(raw: Mapping[str, Any]) -> ExitRule:
    return ExitRule(raw["exit_handle"], raw.get("contains"), raw.get("regex"), _when(raw))


def _retry(raw: Mapping[str, Any] | None) -> Retry:
    if raw is None:
        return Retry()
    base_s = raw.get("backoff_base_seconds")
    return Retry(
        attempts=int(raw.get("max_attempts") or 3),
        exponential=raw.get("backoff") == "exponential",
        base_s=1.0 if base_s is None else float(base_s),
        never=tuple(raw.get("non_retryable_errors") or ()),
    )


def _caps(raw: Mapping[str, Any]) -> Caps:
    return Caps(
        raw.get("max_duration_seconds"),
        raw.get("cost_cap_usd"),
        raw.get("token_cap"),
        raw.get("on_exceed") == "warn",
    )


def _plain(workflow: Mapping[str, Any], blocks: Mapping[str, Block]) -> dict[str, str | None]:
    """Return the plain transitions: those written, and those that `depends` stands for."""
    plain = {item["from"]: item.get("to") for item in workflow.get("transitions") or ()}
    for before, followers in followers_of({name: b.fields for name, b in blocks.items()}).items():
        plain.setdefault(before, followers[0])
    return plain


def followers_of(blocks: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, by block, those that come next because they depend on it.

    One that also depends, directly or not, on another of them comes after that one instead.
    """
    needs = {name: depends_of(raw) for name, raw in blocks.items()}

    def reaches(name: str, before: str, seen: frozenset[str]) -> bool:
        return any(
            need == before or (need not in seen and reaches(need, before, seen | {need}))
            for need in needs.get(name, ())
        )

    found: dict[str, list[str]] = {}
    for name, before in needs.items():
        for need in before:
            found.setdefault(need, []).append(name)
    return {
        before: [
            name
            for name in names
            if not any(other != name and reaches(name, other, frozenset()) for other in names)
        ]
        or names[:1]
        for before, names in found.items()
    }


def depends_of(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids in `depends`, which is one id or a list of them."""
    depends = raw.get("depends") or ()
    return (depends,) if isinstance(depends, str) else tuple(depends)


def _conditional(workflow: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for item in workflow.get("conditional_transitions") or ():
        edges = {key: to for key, to in item.items() if key != "from"}
        found.setdefault(item["from"], {}).update(edges)
    return found
