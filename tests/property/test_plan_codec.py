"""Laws of the plan: what a worker decodes is what the loader made, and shards tile the items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.exchange import Turns
from evalcore.model.run import Plan
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Target, Variant
from evalcore.planning.expand import Expander, WorkItem, cases_of_shard, expand_shard
from evalcore.planning.shards import count_shards
from evalcore.planning.spool import (
    PART_CASES,
    CaseSpool,
    decode_part,
    part_inputs,
    spool_cases,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, width=32)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
).filter(lambda value: "Infinity" not in repr(value) and "inf" not in repr(value))
metrics = st.builds(
    Metrics, latency_ms=st.none() | st.floats(0, 1e6), cost_usd=st.none() | st.just(0.5)
)
evidence = st.builds(
    Evidence,
    output=st.none() | text,
    outputs=st.dictionaries(text, text, max_size=3),
    metrics=metrics.filter(lambda found: found != Metrics()),
    block_metrics=st.dictionaries(text, metrics, max_size=2),
    details=st.dictionaries(text, json_values, max_size=2),
)
assertions = st.builds(
    Assertion,
    type=text,
    check=text,
    name=text,
    params=st.dictionaries(text, json_values, max_size=3),
    block=st.none() | text,
    weight=st.floats(0, 10),
    required=st.none() | st.floats(0, 1),
    negate=st.booleans(),
    transform=st.none() | text,
    metric=st.none() | text,
)
turns = st.builds(
    Turns,
    total=st.integers(1, 9),
    aggregation=st.sampled_from(["mean", "min", "max"]),
    window=st.none() | st.integers(1, 9),
    expected=st.lists(text, max_size=2).map(tuple),
)
cases = st.builds(
    Case,
    id=text,
    input=json_values,
    assertions=st.lists(assertions, max_size=3).map(tuple),
    fixture=st.none() | evidence,
    group=st.none() | text,
    target=st.none() | text,
    threshold=st.none() | st.floats(0, 1),
    expected_output=json_values,
    criteria=st.none() | text,
    tags=st.lists(text, max_size=2).map(tuple),
    metadata=st.dictionaries(text, json_values, max_size=2),
    reason_not_executable=st.none() | text,
    block_fixtures=st.none() | evidence,
    workspace=st.none() | st.dictionaries(text, json_values, max_size=2),
    conversation=st.booleans(),
    turns=st.none() | turns,
    targets=st.sampled_from([(), ("t",), ("t", "u")]),
)


@given(st.lists(cases, max_size=5))
def test_a_plan_part_holds_every_case_whole(given_cases: list[Case]) -> None:
    spool = spool_cases(given_cases)
    decoded = [case for part in spool.parts() for case in decode_part(part)]
    assert decoded == given_cases
    assert list(spool) == given_cases
    assert len(spool) == len(given_cases)
    for part in spool.parts():
        cases = decode_part(part)
        assert part_inputs(part) == [case.input for case in cases]
        assert part_inputs(part, {len(cases) - 1}) == [cases[-1].input]


def definition(variants: int, iterations: int) -> SuiteDefinition:
    return SuiteDefinition(
        name="s",
        format=Format.TEST_FILE,
        source=Source("s.yaml", "/", ""),
        policy=Policy(ScoreRule.WEIGHTED, (), iterations=iterations),
        targets={"t": Target("t", "echo")},
        default_target="t",
        variants=tuple(Variant(f"v{number}") for number in range(variants)),
    )


@given(
    st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 5)
)
def test_shards_hold_each_work_item_once(
    case_count: int, variants: int, iterations: int, size: int, wanted_pilot: int
) -> None:
    made = [Case(id=f"c{number}", input=number) for number in range(case_count)]
    items = case_count * variants * iterations
    pilot = min(wanted_pilot, items - 1)
    shards = count_shards(items, size, pilot)
    plan = Plan(items, case_count, variants, iterations, shards, size, 1, 2000, pilot)
    expander = Expander(definition(variants, iterations))
    expanded: list[WorkItem] = []
    for shard in range(plan.shards):
        wanted = cases_of_shard(plan, shard)
        expanded.extend(expand_shard(expander, plan, shard, made[wanted.start : wanted.stop]))
    assert [item.number for item in expanded] == list(range(items))
    identities = {(item.case.id, item.variant.id, item.iteration) for item in expanded}
    assert len(identities) == items
    # Variants without any configuration are the same work: only case and iteration tell apart.
    assert len({item.exec_key for item in expanded}) == case_count * iterations


def test_a_spool_of_several_blocks_keeps_the_order() -> None:
    spool = CaseSpool()
    for number in range(2 * PART_CASES + 1):
        spool.append(Case(id=str(number)))
    assert [case.id for case in spool] == [str(number) for number in range(2 * PART_CASES + 1)]
    assert len(list(spool.parts())) == 3
