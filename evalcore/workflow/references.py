"""What a workflow refers to and does not have: blocks, souls, operators, types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from evalcore.mistakes.wording import nearest, suggest
from evalcore.workflow.conditions import OPERATORS
from evalcore.workflow.declared import TYPE_NAMES, is_schema
from evalcore.workflow.definition import MODEL_TYPES, depends_of, followers_of
from evalcore.workflow.literal_secrets import literal_secrets
from evalcore.workflow.step import BLOCK_TYPES

Loc = tuple[str | int, ...]
_ROOTS: Final = frozenset({"workflow", "results", "outputs", "shared_memory"})
_UNARY: Final = frozenset({"is_empty", "not_empty", "exists", "not_exists"})
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "code": ("code", "callable"),
    "http": ("url",),
    "gate": ("eval_key",),
    "llm": ("prompt_template",),
    "synthesize": ("input_block_ids",),
    "dispatch": ("exits",),
    "loop": ("inner_block_refs",),
    "workflow": ("workflow_ref",),
}


class Mistake(NamedTuple):
    """Something wrong at a path into the workflow."""

    loc: Loc
    message: str


def find_mistakes(
    raw: Mapping[str, Any], given: Collection[str] = (), *, with_souls: bool = True
) -> Iterator[Mistake]:
    """Yield what a workflow of sound shape refers to and does not have.

    Blocks in `given` never run, so nothing is asked of what they need; without a provider
    (`with_souls` False) nothing is asked of souls. Whether there are the
    workflows that `workflow_ref` names is the business of whoever reads them.
    """
    blocks: Mapping[str, Any] = raw.get("blocks") or {}
    workflow: Mapping[str, Any] = raw.get("workflow") or {}
    look = _Names(blocks, (raw.get("souls") or {}) if with_souls else None)
    entry = workflow.get("entry")
    if entry is not None:
        yield from look.block(entry, ("workflow", "entry"))
    elif len(blocks) > 1:
        yield Mistake(("workflow",), "needs 'entry': the block that comes first")
    yield from _transitions(workflow, look)
    for name, raw_block in blocks.items():
        yield from _block(name, raw_block, look, given=name in given)
    yield from _joined(blocks, workflow)


class _Names:
    """What may be named."""

    def __init__(self, blocks: Mapping[str, Any], souls: Mapping[str, Any] | None) -> None:
        self.blocks, self.souls = blocks, souls
        self.shared = {"previous_round_context"}
        self.outputs = set(blocks)
        for name, raw in blocks.items():
            exits = raw.get("exits") or ()
            self.outputs.update(f"{name}.{item['id']}" for item in exits if "id" in item)
            carry = raw.get("carry_context")
            if isinstance(carry, Mapping) and carry.get("inject_as"):
                self.shared.add(carry["inject_as"])

    def block(self, name: object, loc: Loc) -> Iterator[Mistake]:
        """Yield a mistake if no block has this id."""
        if name not in self.blocks:
            yield Mistake(loc, f"unknown block '{name}'.{suggest(name, self.blocks)}")

    def soul(self, name: object, loc: Loc) -> Iterator[Mistake]:
        """Yield a mistake if no soul has this id."""
        if name is None or self.souls is None or name in self.souls:
            return
        hint = suggest(name, self.souls) or " Define it under 'souls:'."
        yield Mistake(loc, f"unknown soul '{name}'.{hint}")

    def reference(self, path: str, loc: Loc) -> Iterator[Mistake]:
        """Yield a mistake if a path begins with nothing known."""
        head = path
        if head.partition(".")[0] in _ROOTS or head.startswith("__"):
            return
        while head not in self.outputs and head not in self.shared:
            cut = max(head.rfind("."), head.rfind("["))
            if cut <= 0:
                break
            head = head[:cut]
        else:
            return
        if head.endswith("_round") and head.removesuffix("_round") in self.blocks:
            return
        hint = suggest(head, [*self.blocks, "workflow"])
        message = f"'{path}' begins with '{head}', which is neither a block nor 'workflow'.{hint}"
        yield Mistake(loc, message)


def _transitions(workflow: Mapping[str, Any], look: _Names) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for index, item in enumerate(workflow.get("transitions") or ()):
        loc: Loc = ("workflow", "transitions", index)
        yield from look.block(item["from"], (*loc, "from"))
        if item.get("to") is not None:
            yield from look.block(item["to"], (*loc, "to"))
        if item["from"] in first:
            message = f"'{item['from']}' has a plain transition already; one block has only one"
            yield Mistake((*loc, "from"), message)
        first.setdefault(item["from"], index)
    for index, item in enumerate(workflow.get("conditional_transitions") or ()):
        loc = ("workflow", "conditional_transitions", index)
        yield from look.block(item["from"], (*loc, "from"))
        for decision, to in item.items():
            if decision != "from" and to is not None:
                yield from look.block(to, (*loc, decision))


def _block(name: str, raw: Mapping[str, Any], look: _Names, *, given: bool) -> Iterator[Mistake]:
    loc: Loc = ("blocks", name)
    kind = raw["type"]
    if kind not in BLOCK_TYPES:
        yield Mistake((*loc, "type"), f"unknown type '{kind}'.{suggest(kind, BLOCK_TYPES)}")
        return
    yield from _ways(raw, loc, look)
    if given:
        return
    wanted = _SOURCES.get(kind, ())
    takes_inputs = kind in {"llm", "gate"} and raw.get("inputs")
    if wanted and not takes_inputs and not any(raw.get(key) for key in wanted):
        yield Mistake(loc, f"a block of type '{kind}' needs {' or '.join(map(repr, wanted))}")
    if kind == "code" and raw.get("code") and raw.get("callable"):
        yield Mistake((*loc, "callable"), "give 'code' or 'callable', not both")
    for key, value in (raw.get("inputs") or {}).items():
        path = value if isinstance(value, str) else value["from"]
        yield from look.reference(path, (*loc, "inputs", key))
    if kind == "http":
        for inner, message in literal_secrets(raw):
            yield Mistake((*loc, *inner), message)
    if kind in MODEL_TYPES:
        yield from look.soul(raw.get("soul_ref"), (*loc, "soul_ref"))
    yield from _by_type(kind, raw, loc, look)
    yield from _declared(raw, loc)


def _ways(raw: Mapping[str, Any], loc: Loc, look: _Names) -> Iterator[Mistake]:
    """Yield what is wrong with where the block leads: routes, error route, gates, depends."""
    for key in ("error_route", *(("pass", "fail") if raw["type"] == "gate" else ())):
        if raw.get(key) is not None:
            yield from look.block(raw[key], (*loc, key))
    for number, before in enumerate(depends_of(raw)):
        place: Loc = ("depends",) if isinstance(raw["depends"], str) else ("depends", number)
        yield from look.block(before, (*loc, *place))
    for key in ("routes", "output_conditions"):
        defaults = 0
        for number, item in enumerate(raw.get(key) or ()):
            if item.get("goto") is not None:
                yield from look.block(item["goto"], (*loc, key, number, "goto"))
            defaults += item.get("default") is True
            if defaults == 2:
                yield Mistake((*loc, key, number, "default"), "there is a default already")
            yield from _conditions(item, (*loc, key, number))
    for number, item in enumerate(raw.get("exit_conditions") or ()):
        yield from _conditions(item, (*loc, "exit_conditions", number))
        if item.get("regex") is not None:
            yield from _pattern(item["regex"], (*loc, "exit_conditions", number, "regex"))


def _conditions(raw: Any, loc: Loc) -> Iterator[Mistake]:
    """Yield what is wrong with operators and patterns anywhere below."""
    if isinstance(raw, list):
        for number, item in enumerate(raw):
            yield from _conditions(item, (*loc, number))
        return
    if not isinstance(raw, Mapping):
        return
    operator = raw.get("operator")
    if operator is not None:
        if operator not in OPERATORS:
            message = f"unknown operator '{operator}'.{suggest(operator, OPERATORS)}"
            yield Mistake((*loc, "operator"), message)
        elif operator not in _UNARY and "value" not in raw:
            yield Mistake(loc, f"the operator '{operator}' needs a 'value'")
        elif operator == "regex":
            yield from _pattern(raw["value"], (*loc, "value"))
    for key in ("when", "condition_group", "conditions"):
        yield from _conditions(raw.get(key), (*loc, key))


def _pattern(pattern: object, loc: Loc) -> Iterator[Mistake]:
    import re

    try:
        re.compile(str(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        yield Mistake(loc, f"invalid pattern: {error}")


def _by_type(kind: str, raw: Mapping[str, Any], loc: Loc, look: _Names) -> Iterator[Mistake]:
    if kind == "gate" and isinstance(raw.get("eval_key"), str):
        key = raw["eval_key"]
        # A key that is near nothing may be that of the verdict in a JSON answer.
        near = nearest(key, look.blocks)
        if key not in (raw.get("inputs") or {}) and (near or "." in key):
            yield from look.reference(key, (*loc, "eval_key"))
    elif kind == "synthesize":
        for number, name in enumerate(raw.get("input_block_ids") or ()):
            yield from look.reference(name, (*loc, "input_block_ids", number))
    elif kind == "dispatch":
        yield from _exits(raw, loc, look)
    elif kind == "loop":
        yield from _loop(raw, loc, look)


def _exits(raw: Mapping[str, Any], loc: Loc, look: _Names) -> Iterator[Mistake]:
    seen: set[str] = set()
    for number, item in enumerate(raw.get("exits") or ()):
        place: Loc = (*loc, "exits", number)
        if item["id"] in seen:
            yield Mistake((*place, "id"), f"duplicate exit '{item['id']}'")
        seen.add(item["id"])
        if not item.get("task"):
            yield Mistake(place, "an exit of a dispatch needs a 'task'")
        yield from look.soul(item.get("soul_ref"), (*place, "soul_ref"))


def _loop(raw: Mapping[str, Any], loc: Loc, look: _Names) -> Iterator[Mistake]:
    inner = raw.get("inner_block_refs") or ()
    for number, name in enumerate(inner):
        yield from look.block(name, (*loc, "inner_block_refs", number))
        if name in look.blocks and _contains(look.blocks, name, str(loc[-1]), frozenset()):
            message = f"the loop '{loc[-1]}' would run itself"
            yield Mistake((*loc, "inner_block_refs", number), message)
    yield from _conditions(raw.get("break_condition"), (*loc, "break_condition"))
    carry = raw.get("carry_context")
    sources = carry.get("source_blocks") if isinstance(carry, Mapping) else None
    for number, name in enumerate(sources or ()):
        if name not in inner:
            message = f"'{name}' is not one of 'inner_block_refs'.{suggest(name, inner)}"
            yield Mistake((*loc, "carry_context", "source_blocks", number), message)


def _contains(blocks: Mapping[str, Any], name: str, loop: str, seen: frozenset[str]) -> bool:
    if name == loop:
        return True
    inner = blocks.get(name, {}).get("inner_block_refs") or ()
    below = [other for other in inner if other not in seen]
    return any(_contains(blocks, other, loop, seen | {name}) for other in below)


def _declared(raw: Mapping[str, Any], loc: Loc) -> Iterator[Mistake]:
    declared = raw.get("outputs")
    if not declared or raw["type"] == "workflow" or is_schema(declared):
        return
    for name, wanted in declared.items():
        if isinstance(wanted, str) and wanted.lower() not in TYPE_NAMES:
            message = f"unknown type '{wanted}'.{suggest(wanted, TYPE_NAMES)}"
            yield Mistake((*loc, "outputs", name), message)


def _joined(blocks: Mapping[str, Any], workflow: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the blocks of which several depend on the same one: only one can come next."""
    written = {item["from"] for item in workflow.get("transitions") or ()}
    for before, followers in followers_of(blocks).items():
        if before in written or len(followers) < 2:
            continue
        for name in followers[1:]:
            message = (
                f"'{before}' goes on to '{followers[0]}' already; a block has one plain way on"
            )
            yield Mistake(("blocks", name, "depends"), message)
