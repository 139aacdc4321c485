"""What a workflow refers to and does not have: blocks, souls, operators, types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from evalcore.wording import suggest
from evalcore.workflow.conditions import condition_mistakes, pattern_mistakes
from evalcore.workflow.definition import (
    Block,
    Loc,
    ModelBlock,
    Names,
    OutputCondition,
    WorkflowDefinition,
    WorkflowMistake,
    followers_of,
    heads_of,
)
from evalcore.workflow.values import TYPE_NAMES, is_schema, placeholders


def find_mistakes(
    definition: WorkflowDefinition, fixtures: Collection[str] = (), *, with_souls: bool = True
) -> Iterator[WorkflowMistake]:
    """Yield what a workflow refers to and does not have.

    Blocks in `fixtures` never run, so that what they need is not checked; without a provider
    (`with_souls` False) souls are not checked. The loader resolves the workflows that
    `workflow_ref` names.
    """
    blocks, graph = definition.blocks, definition.graph
    names = Names(blocks, definition.souls if with_souls else None)
    if graph.entry is not None:
        yield from names.block(graph.entry, ("workflow", "entry"))
    elif len(blocks) > 1:
        yield WorkflowMistake(("workflow",), "needs 'entry': the block that comes first")
    yield from _transitions(definition, names)
    for name, block in blocks.items():
        for mistake in _block(block, names, runs=name not in fixtures):
            yield WorkflowMistake(("blocks", name, *mistake.loc), mistake.message)
    yield from _joined(definition)


def unknown_placeholders(
    definition: WorkflowDefinition, inputs: Collection[str], fixtures: Collection[str] = ()
) -> Iterator[WorkflowMistake]:
    """Yield the placeholders of prompts that nothing can fill.

    `inputs` are those of the cases. Known are also a block's own inputs, the blocks that may have
    run before it, and what the engine shares. A block to which no way leads is not checked.
    """
    inputs_of_run = {*inputs, *definition.inputs}
    names = Names(definition.blocks, None)
    for name, block in definition.blocks.items():
        readable = {*inputs_of_run, *(block.inputs or ())}
        before = {*definition.upstream[name], *fixtures}
        runs = name not in fixtures and definition.entry in {name, *before}
        for loc, template in block.templates() if runs else ():
            for placeholder in placeholders(template):
                if not _is_known(placeholder, readable, inputs_of_run, before, names):
                    listed = sorted({*inputs_of_run, *(block.inputs or ()), *before})
                    hint = suggest(placeholder, listed)
                    message = (
                        f"unknown placeholder {{{placeholder}}}.{hint} A literal brace is written "
                        "{{ or }}"
                    )
                    yield WorkflowMistake(("blocks", name, *loc), message)


def _is_known(
    name: str, readable: set[str], inputs_of_run: set[str], before: set[str], names: Names
) -> bool:
    """Whether a placeholder may have a value; a later block has none yet."""
    if not readable.isdisjoint(heads_of(name)):
        return True
    root, _, rest = name.partition(".")
    if root == "workflow" and rest:
        return not inputs_of_run.isdisjoint(heads_of(rest))
    block = names.owner(name)
    return not any(names.reference(name, ())) if block is None else block in before


def _transitions(definition: WorkflowDefinition, names: Names) -> Iterator[WorkflowMistake]:
    sources: set[str] = set()
    for index, edge in enumerate(definition.graph.transitions or ()):
        loc: Loc = ("workflow", "transitions", index)
        yield from names.block(edge.source, (*loc, "from"))
        if definition.end(edge.to) is not None:
            yield from names.block(edge.to, (*loc, "to"))
        if edge.source in sources:
            message = f"'{edge.source}' has a plain transition already; one block has only one"
            yield WorkflowMistake((*loc, "from"), message)
        sources.add(edge.source)
    for index, conditional in enumerate(definition.graph.conditional_transitions or ()):
        loc = ("workflow", "conditional_transitions", index)
        yield from names.block(conditional.source, (*loc, "from"))
        for decision, to in conditional.edges.items():
            if definition.end(to) is not None:
                yield from names.block(to, (*loc, decision))


def _block(block: Block, names: Names, *, runs: bool) -> Iterator[WorkflowMistake]:
    yield from _ways(block, names)
    if not runs:
        return
    suffices = block.inputs_suffice and block.inputs
    if block.needs and not suffices and not any(getattr(block, key) for key in block.needs):
        keys = " or ".join(map(repr, block.needs))
        yield WorkflowMistake((), f"a block of type '{block.type}' needs {keys}")
    for key, source in (block.sources or {}).items():
        yield from names.reference(source.path, ("inputs", key))
    if isinstance(block, ModelBlock):
        yield from names.soul(block.soul_ref, ("soul_ref",))
    yield from block.mistakes(names)
    yield from _output_types(block)


def _ways(block: Block, names: Names) -> Iterator[WorkflowMistake]:
    """Yield what is wrong with where the block leads: routes, error route, verdicts, depends."""
    if block.error_route is not None:
        yield from names.block(block.error_route, ("error_route",))
    for branch in block.branches:
        if branch.is_verdict:
            yield from names.block(branch.goto, (str(branch.decision),))
    for number, before in enumerate(block.required_blocks):
        alone = isinstance(block.depends, str)
        yield from names.block(before, ("depends",) if alone else ("depends", number))
    yield from _branches("routes", block.routes or (), names)
    yield from _branches("output_conditions", block.output_conditions or (), names)
    for number, rule in enumerate(block.exit_conditions or ()):
        loc: Loc = ("exit_conditions", number)
        yield from condition_mistakes(rule.when, (*loc, "when"))
        if rule.regex is not None:
            yield from pattern_mistakes(rule.regex, (*loc, "regex"))


def _branches(
    key: str, written: Collection[OutputCondition], names: Names
) -> Iterator[WorkflowMistake]:
    defaults = 0
    for number, route in enumerate(written):
        if route.goto is not None:
            yield from names.block(route.goto, (key, number, "goto"))
        defaults += route.default
        if route.default and defaults == 2:
            yield WorkflowMistake((key, number, "default"), "there is a default already")
        yield from condition_mistakes(route.when, (key, number, "when"))


def _output_types(block: Block) -> Iterator[WorkflowMistake]:
    if not block.outputs or not block.declares_outputs:
        return
    if is_schema(block.outputs):
        yield from _schema_mistakes(block.outputs, ("outputs",))
        return
    for name, declared in block.outputs.items():
        if isinstance(declared, str) and declared.lower() not in TYPE_NAMES:
            message = f"unknown type '{declared}'.{suggest(declared, TYPE_NAMES)}"
            yield WorkflowMistake(("outputs", name), message)
        elif isinstance(declared, Mapping):
            yield from _schema_mistakes(declared, ("outputs", name))


def _schema_mistakes(schema: Mapping[str, Any], loc: Loc) -> Iterator[WorkflowMistake]:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for

    try:
        validator_for(schema, default=Draft202012Validator).check_schema(dict(schema))
    except SchemaError as error:
        yield WorkflowMistake((*loc, *error.absolute_path), f"invalid JSON Schema: {error.message}")


def _joined(definition: WorkflowDefinition) -> Iterator[WorkflowMistake]:
    """Yield the blocks of which several depend on the same one: only one can come next."""
    written = {edge.source for edge in definition.graph.transitions or ()}
    for before, followers in followers_of(definition.blocks).items():
        if before in written:
            continue
        for name in followers[1:]:
            message = (
                f"'{before}' goes on to '{followers[0]}' already; a block has one plain way on"
            )
            yield WorkflowMistake(("blocks", name, "depends"), message)
