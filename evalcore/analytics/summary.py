"""The aggregates of one run, computed in SQL over its Parquet parts; the scores of scripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from evalcore.analytics.compare import Comparer, ComparisonPlan
from evalcore.analytics.gate_tables import PastTables, open_past, sequential_values
from evalcore.analytics.named import first_value, query_text, read_rows, run_query
from evalcore.analytics.spread import Samples, read_samples
from evalcore.gates.builtin import CostUnder, RequiredCases
from evalcore.gates.gate import DIFFERENCES, CaseValue, SequentialRule, gates_of
from evalcore.gates.over_time import PastGate
from evalcore.gates.registry import restore_gate
from evalcore.gates.sequential import RoundItem, SeenValue
from evalcore.model.annotation import AwaitedLabels, QuestionAgreement
from evalcore.model.exchange import cut_of
from evalcore.model.past import past_runs_of
from evalcore.model.run import Plan
from evalcore.model.scoring import (
    GroupScore,
    ModelTokens,
    Note,
    ScriptScores,
    TestDetail,
    TestScore,
)
from evalcore.model.suite import Policy, Reducer, ScoreRule
from evalcore.model.summary import (
    NO_SAMPLE,
    Counts,
    Extreme,
    Failure,
    RequiredCase,
    RequiredFailure,
    Summary,
    VariantSummary,
)
from evalcore.sql.connection import BoundedConnection, connect, literal_path

COMPLETE_REPORT_ITEMS = 20_000
MAX_LISTED_CASES = 1_000
# A report of more does not repeat an output in each assertion that passed.
REPEATED_TEXT_ITEMS = 1_000
OUTPUT_CHARACTERS = 2_000
# Each file that DuckDB reads into a table takes 0.4 MB until it has read all, however few its rows.
FILES_AT_ONCE = 500
_CREATE_ITEMS = "CREATE OR REPLACE TEMP TABLE items AS"


class Aggregates(AbstractContextManager["Aggregates"]):
    """The tables of one run in a connection of its own; close it, or use it as a context.

    With `comparison` the summary holds a comparison; without, nothing of it is computed. `past` are
    the earlier runs that gates over time look back on. The cases `left_out` are in no table: what
    is computed is computed without them. Items that lack labels of people count in the
    `best_variants` (by number) as if the labels were those that are expected.
    """

    def __init__(
        self,
        parts: Sequence[Path],
        plan: Plan,
        policy: Policy,
        comparison: ComparisonPlan | None = None,
        past: PastTables | None = None,
        *,
        left_out: Sequence[str] = (),
        best_variants: Sequence[int] = (),
    ) -> None:
        self._plan = plan
        self._left_out = tuple(left_out)
        self._gates = tuple(map(restore_gate, policy.gates))
        self._policy = policy
        earlier = None if comparison is None else comparison.earlier
        rows = plan.items + (earlier.plan.items if earlier is not None else 0)
        self.connection = BoundedConnection(rows)
        self._reduction = reduction_of(policy)
        self._run("case_rules")
        self.connection.execute("SET VARIABLE best_variants = []::BIGINT[]")
        self._comparer = (
            None if comparison is None else Comparer(self.connection, comparison, self._reduction)
        )
        if self._comparer is not None and earlier is not None:
            # By this run's policy: only what is reduced by the same rule can be compared.
            self._load(earlier.parts, earlier.plan)
            self._comparer.keep_baseline(earlier.plan)
        numbers = list(best_variants)
        self.connection.execute("SET VARIABLE best_variants = $1::BIGINT[]", [numbers])
        self._load(parts, plan)
        self._quarantined: list[str] = []
        self._past = past
        if past is None and any(isinstance(gate, PastGate) for gate in self._gates):
            self._past = PastTables(past_runs_of(None))
        if self._past is not None:
            open_past(self.connection, self._past, self._left_out)

    def _load(self, parts: Sequence[Path], plan: Plan) -> None:
        """Fill the tables `items` and `cases`."""
        files = [literal_path(part) for part in parts]
        query = query_text("items")
        if len(files) > FILES_AT_ONCE:
            # Sorted, rows of many files share the blocks of the table; else each file has its own.
            query += "\nORDER BY item"
        parameters = {
            "variants": plan.variants,
            "iterations": plan.iterations,
            "errors": str(self._policy.errors),
        }
        for first in range(0, max(1, len(files)), FILES_AT_ONCE):
            batch = files[first : first + FILES_AT_ONCE]
            self.connection.execute("SET VARIABLE files = $1", [batch])
            self.connection.execute(query, parameters)
            query = query.replace(_CREATE_ITEMS, "INSERT INTO items")
        self.connection.execute("SET VARIABLE files = $1", [files])
        if self._left_out:
            self._run("leave_out", ids=list(self._left_out))
        reduce = "cases_single" if plan.iterations == 1 else "cases"
        self._run(reduce, **self._reduction)

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _run(self, query: str, **parameters: Any) -> Any:
        return run_query(self.connection, query, **parameters)

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return read_rows(self.connection, query, **parameters)

    def summary(self) -> Summary:
        """Return the aggregates that gates and reports need."""
        result = self._run("counts", items=self._plan.items)
        names = [column[0] for column in result.description]
        row = dict(zip(names, result.fetchone(), strict=True))
        counts = Counts(**row.pop("counts"))
        if not self._left_out:
            counts = replace(counts, planned=self._plan.items)
        row["each_item_once"] |= bool(self._left_out)
        samples = read_samples(self.connection, self._plan, self._policy.cluster)
        variants = self._variants(samples)
        required = self._rows("required") if row.pop("missed") else []
        slowest = self._run("slowest").fetchone() if row.pop("measured_latency") else None
        awaiting = self._run("awaiting").fetchone() if row.pop("awaiting_items") else None
        tokens, unpriced = row.pop("tokens"), row.pop("unpriced")
        finish_reasons = row.pop("finish_reasons") or {}
        costliest, with_judges = self._costliest()
        return Summary(
            counts=counts,
            cases=sum(variant.cases for variant in variants),
            passed_cases=sum(variant.passed for variant in variants),
            score=self._run("score").fetchone()[0],
            variants=variants,
            slowest=Extreme(*slowest) if slowest else None,
            quarantined=self._left_out,
            awaiting=AwaitedLabels(awaiting[0] or 0, awaiting[1]) if awaiting else None,
            tokens={name: count for name, count in tokens.items() if count is not None},
            unpriced=tuple(unpriced or ()),
            cut={
                reason: count
                for reason, count in finish_reasons.items()
                if cut_of(reason) is not None
            },
            required_failures=required[0][5] if required else 0,
            required_examples=tuple(RequiredFailure(*row[:5]) for row in required),
            costliest=costliest,
            costliest_with_judges=with_judges,
            required_cases=self._required_cases(),
            comparison=self._comparer.compare(self._plan) if self._comparer else None,
            past=None if self._past is None else self._past.frozen,
            gate_rows=self._gate_rows(),
            score_sample=samples.score,
            pass_sample=samples.passes,
            latency_sample=samples.measures.latency,
            cost_sample=samples.measures.cost,
            token_sample=samples.measures.tokens,
            p50_latency_ends_ms=samples.measures.p50,
            p95_latency_ends_ms=samples.measures.p95,
            **row,
        )

    def _variants(self, samples: Samples) -> tuple[VariantSummary, ...]:
        """Return the variants in the order of the plan."""
        self._run("variant_figures")
        unknown = (NO_SAMPLE, NO_SAMPLE)
        return tuple(
            VariantSummary(
                *(name, cases, passed, score),
                *samples.variants.get(number, unknown),
                *(latency, cost, is_planned),
            )
            for number, name, cases, passed, score, latency, cost, is_planned in self._rows(
                "variants"
            )
        )

    def agreement(self) -> tuple[QuestionAgreement, ...]:
        """Return how well annotators agree, by question."""
        from evalcore.annotations.queue import LabelledContent, question_agreements

        rows = self._rows("votes")
        return question_agreements(
            LabelledContent(question, numeric, orjson.loads(votes))
            for question, numeric, votes in rows
        )

    def _costliest(self) -> tuple[Extreme | None, Extreme | None]:
        """Return the most expensive work item, by its target and with its judges."""
        if not gates_of(self._policy, CostUnder):
            return None, None
        rows = [self._run("costliest", judges=judges).fetchone() for judges in (False, True)]
        alone, together = (Extreme(*row) if row else None for row in rows)
        return alone, together

    def _required_cases(self) -> tuple[RequiredCase, ...]:
        gates = gates_of(self._policy, RequiredCases)
        named = [name for gate in gates for name in gate.case_ids if name not in self._left_out]
        ids = list(dict.fromkeys(named))
        if not ids:
            return ()
        return tuple(RequiredCase(*row) for row in self._rows("required_cases", ids=ids))

    def _gate_rows(self) -> dict[str, tuple[Any, ...]]:
        """Return the rows of the gates' own queries."""
        rows = {}
        for gate in self._gates:
            if gate.query:
                query = f"gate_{gate.gate}"
                text = query_text(query)
                used = {key: value for key, value in gate.params.items() if f"${key}" in text}
                rows[gate.key] = tuple(self._rows(query, **used))
        return rows

    def case_ids(self, among: Collection[str]) -> frozenset[str]:
        """Return those of the cases that the tables have."""
        if not among:
            return frozenset()
        query = "SELECT DISTINCT case_id FROM items WHERE case_id IN (SELECT unnest($1::VARCHAR[]))"
        rows = self.connection.execute(query, [list(among)]).fetchall()
        return frozenset(case for (case,) in rows)

    def awaits_labels(self) -> bool:
        """Whether labels of people are missing."""
        return bool(first_value(self.connection, "SELECT bool_or(awaiting) FROM items"))

    def stopped_items(self) -> int:
        """Return how many items were skipped since the gates were decided before."""
        return int(first_value(self.connection, "SELECT count(*) FROM items WHERE stopped"))

    def compared_variants(self) -> list[str]:
        """Compare, and return the compared variants; their cases are in the table `pairs`."""
        if self._comparer is None:
            return []
        return [each.variant for each in self._comparer.compare(self._plan).variants]

    def read_round(
        self, rules: Mapping[int, SequentialRule], iterations: int, iteration: int
    ) -> tuple[list[RoundItem], list[SeenValue]]:
        """Return the items of a round in the order of the plan, and the differences of each case.

        The tables have this round and those before it; the differences are those of all of them.
        """
        numbers = {"iterations": iterations, "round": iteration}
        rows = read_rows(self.connection, "round_values", **numbers)
        items = [RoundItem(*row) for row in rows]
        if self.awaits_labels():
            return items, []
        compared: list[str] = []
        kinds = [rule for rule in rules.values() if rule.value in DIFFERENCES]
        if any(rule.value is CaseValue.DIFFERENCE for rule in kinds):
            compared = self.compared_variants()
            if not compared:
                kinds = [rule for rule in kinds if rule.value is not CaseValue.DIFFERENCE]
        if not kinds:
            return items, []
        return items, [*chain.from_iterable(sequential_values(self.connection, kinds, compared))]

    def mark(self, case_ids: Sequence[str]) -> None:
        """Mark these cases as quarantined where the report lists them."""
        self._quarantined = list(case_ids)

    def report_cases(self, *, passed_outputs: bool = False) -> Iterator[list[str]]:
        """Yield the report's cases as JSON texts: all of them, or the first that did not pass.

        In batches, which cost less than single texts. `report.json` leaves out the outputs of
        items that passed, and of more than `REPEATED_TEXT_ITEMS` items also the beginning of the
        output in each assertion that passed.
        """
        self._describe_items(passed_outputs=passed_outputs)
        if self.complete and self._plan.iterations == 1:
            result = self._run("report_single_items", variants=self._plan.variants)
        else:
            most = self._plan.items if self.complete else MAX_LISTED_CASES
            iterations = self._plan.iterations
            result = self._run("report_cases", all=self.complete, most=most, iterations=iterations)
        while batch := result.fetchmany(1_000):
            yield [text for (text,) in batch]

    def _describe_items(self, *, passed_outputs: bool) -> None:
        """Make the view `report_items`."""
        passed_texts = passed_outputs or self._plan.items <= REPEATED_TEXT_ITEMS
        self.connection.execute(f"SET VARIABLE output_characters = {OUTPUT_CHARACTERS}")
        self.connection.execute(f"SET VARIABLE passed_outputs = {passed_outputs}")
        self.connection.execute(f"SET VARIABLE passed_texts = {passed_texts}")
        self.connection.execute("SET VARIABLE quarantined = $1::VARCHAR[]", [self._quarantined])
        for rules in ("block_text", "beginning", "report_items"):
            self._run(rules)

    @property
    def complete(self) -> bool:
        """Whether the report lists every case."""
        return self._plan.items <= COMPLETE_REPORT_ITEMS

    def reasons(self) -> list[tuple[str, int]]:
        """Return why items were skipped, and how many for each reason; the most frequent first."""
        return [(reason, count) for reason, count in self._rows("reasons")]

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first work items that did not pass: errors, failed, blocked, the rest."""
        rows = self._rows("failures", most=most)
        if not rows:
            return ()
        self._describe_items(passed_outputs=False)
        numbers = ", ".join(str(item) for item, *_ in rows)
        query = f"SELECT item, text FROM report_items WHERE item IN ({numbers})"  # noqa: S608 - numbers
        texts = dict(self.connection.execute(query).fetchall())
        return tuple(
            Failure(case, variant, orjson.loads(texts[item])) for item, case, variant in rows
        )

    def not_passed(self) -> tuple[str, ...]:
        """Return the ids of the cases that did not pass in some variant, in the plan's order."""
        return tuple(case for (case,) in self._rows("not_passed"))

    def script_scores(self, *, detail: bool) -> ScriptScores:
        """Return the scores of a script suite's run, suite by suite and test by test.

        With `detail` also those of each iteration.
        """
        details = None
        if detail:
            rows = self._rows("script_details", iterations=self._plan.iterations)
            details = tuple(TestDetail._make((*map(tuple, row[:3]), row[3])) for row in rows)
        return ScriptScores(
            finals=tuple((variant, score) for variant, score in self._rows("script_finals")),
            groups=tuple(GroupScore(*row) for row in self._rows("script_groups")),
            tests=tuple(TestScore(*row) for row in self._rows("script_tests")),
            details=details,
            tokens=tuple(ModelTokens(*row) for row in self._rows("script_tokens")),
        )

    def script_notes(self) -> tuple[Note, ...]:
        """Return the errors and warnings of a script suite's tests, each once per test."""
        return tuple(
            Note(is_error, variant, case, message, tuple(iterations))
            for is_error, variant, case, message, iterations in self._rows("script_notes")
        )


def reduction_of(policy: Policy) -> dict[str, Any]:
    """Return the parameters by which iterations are reduced to cases."""
    by_score = policy.score_rule is ScoreRule.WEIGHTED and policy.reducer in {
        Reducer.MEAN,
        Reducer.MEDIAN,
        Reducer.CONFIDENCE_INTERVAL,
    }
    return {"reducer": str(policy.reducer), "k": policy.k, "by_score": by_score}


def median_item_s(part: Path) -> float:
    """Return the median time (seconds) that the items of one shard took."""
    value = first_value(connect(), query_text("pilot"), {"file": literal_path(part)})
    return float(value or 0.0)
