"""A run as rows of the history, made by DuckDB from its result parts and written as Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.analytics.integrity import check_counts, whole_parts
from evalcore.analytics.named import fill_table, query_text, run_query
from evalcore.analytics.spread import Measures, read_measures, read_samples
from evalcore.analytics.summary import reduction_of
from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError
from evalcore.gates.builtin import CustomGate
from evalcore.gates.gate import Gate
from evalcore.gates.registry import GATES as GATES_BY_NAME
from evalcore.history.columns import ASSERTIONS, CASES, GATES, REVISION, RUNS, HistoryTable
from evalcore.history.files import FILE_OPTIONS, quoted
from evalcore.history.fingerprints import run_fingerprints
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest, State
from evalcore.model.sample import NO_SAMPLE
from evalcore.model.summary import Counts
from evalcore.sql.connection import BoundedConnection, literal_path
from evalcore.statistics.intervals import Estimate, estimate_mean, estimate_rate, estimate_total
from evalcore.storage.runs import StoredRun, partial_reasons

_CASES_BEGIN: Final = b'"cases":['
_ENDED: Final = ("completed", "error", "skipped")
_NO_ITEMS: Final[Mapping[str, Any]] = dict.fromkeys(
    (*_ENDED, "cancelled", "passed", "failed", "blocked", "cases", "passed_cases"), 0
)


def is_ended(manifest: Manifest) -> bool:
    """Whether the run has come to an end: completed, stopped, or given up."""
    ended = manifest.state in {State.COMPLETED, State.CANCELLED, State.ERROR}
    return ended and manifest.is_planned and manifest.ended_at is not None


def write_run_rows(
    run: StoredRun, manifest: Manifest, revision: str, folder: Path
) -> dict[str, Path]:
    """Write the rows of a run that has ended to Parquet files in `folder`; return them by table.

    Raises `DamagedRunError` if the rows do not add up to what the manifest says.
    """
    with whole_parts(run, manifest) as files:
        tables = _RunTables(run, manifest, folder)
        try:
            return tables.write(list(files.values()), revision)
        finally:
            tables.connection.close()


class _RunTables:
    """The tables of one run in a connection, and what they say of it."""

    def __init__(self, run: StoredRun, manifest: Manifest, folder: Path) -> None:
        self._run, self._manifest, self._folder = run, manifest, folder
        self._definition = run.definition
        self._single = "_single" if manifest.plan.iterations == 1 else ""
        self.connection = BoundedConnection(manifest.plan.items)

    def write(self, parts: Sequence[Path], revision: str) -> dict[str, Path]:
        """Write all tables; raise `DamagedRunError` if the counts are not those of the manifest."""
        variants: dict[int, dict[str, Any]] = {}
        if parts:
            self._load(parts, revision)
            variants = self._variants()
        shared = {"run_id": self._run.run_id, REVISION.name: revision}
        runs = self._run_rows(variants)
        self._check_counts(variants)
        files = {
            RUNS.name: self._write_values(RUNS, shared, runs),
            GATES.name: self._write_values(GATES, shared, self._gate_rows()),
        }
        for table, query in (
            (CASES, f"history_cases{self._single}"),
            (ASSERTIONS, "history_assertions"),
        ):
            files[table.name] = (
                self._copy(table, query_text(query))
                if parts
                else self._write_values(table, shared, [])
            )
        return files

    def _load(self, parts: Sequence[Path], revision: str) -> None:
        plan, policy = self._manifest.plan, self._definition.policy
        cluster = policy.cluster
        facts = {
            "run_id": self._run.run_id,
            REVISION.name: revision,
            "variants": plan.variants,
            "iterations": plan.iterations,
            "cluster": cluster or "",
            "cluster_path": "" if cluster is None else f"$.{orjson.dumps(cluster).decode()}",
            "quarantined": list(quarantine_of(self._manifest.settings).case_ids) or [""],
        }
        files = [literal_path(part) for part in parts]
        self.connection.execute("SET VARIABLE files = $1", [files])
        self.connection.execute("SET VARIABLE run = $1", [facts])
        run_query(self.connection, "case_rules")
        run_query(self.connection, "history_rules")
        run_query(
            self.connection,
            "items",
            variants=plan.variants,
            iterations=plan.iterations,
            errors=str(policy.errors),
        )
        run_query(self.connection, f"cases{self._single}", **reduction_of(policy))

    def _variants(self) -> dict[int, dict[str, Any]]:
        """Return the aggregates of each variant that has items, by its place in the plan."""
        result = run_query(self.connection, "history_variants")
        names = [column[0] for column in result.description]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        variants = {int(row.pop("variant_number")): row for row in rows}
        cluster, plan = self._definition.policy.cluster, self._manifest.plan
        samples = read_samples(self.connection, plan, cluster).variants
        measures = read_measures(
            self.connection, plan, clustered=cluster is not None, by_variant=True
        )
        for number, row in variants.items():
            score, passes = samples.get(number, (NO_SAMPLE, NO_SAMPLE))
            # Groups leave the score without an interval.
            row["score_low"], row["score_high"] = (
                estimate_mean(score)[:2] if row.pop("groups") == 1 else (None, None)
            )
            row["pass_rate_low"], row["pass_rate_high"], *_ = estimate_rate(passes)
            row.update(_measure_ends(row, measures.get(number, Measures())))
        return variants

    def _run_rows(self, variants: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        manifest, definition, plan = self._manifest, self._definition, self._manifest.plan
        git = manifest.settings.get("git") or {}
        shared = {
            "format": str(manifest.format),
            "mode": manifest.mode,
            "state": str(manifest.state),
            "decision": manifest.decision,
            "started_at": manifest.started_at or manifest.created_at,
            "ended_at": manifest.ended_at,
            "planned": plan.cases * plan.iterations,
            "git_branch": git.get("branch"),
            "flow_run_id": manifest.execution.get("flow_run_id"),
            "tags": list(definition.tags),
            "part": "; ".join(partial_reasons(manifest)) or None,
        }
        fingerprints = run_fingerprints(self._run)
        rows = []
        for number, variant in enumerate(definition.variants):
            measured = dict(variants.get(number) or _NO_ITEMS)
            if manifest.state is not State.COMPLETED:
                # What was not committed when the run was stopped has no row.
                ended = sum(measured[name] for name in _ENDED)
                measured["cancelled"] = shared["planned"] - ended
            cases = measured["cases"]
            identity = {
                "variant": variant.id,
                "is_baseline": variant.id == definition.baseline,
                "pass_rate": measured["passed_cases"] / cases if cases else None,
            }
            rows.append(shared | fingerprints[variant.id]._asdict() | identity | measured)
        return rows

    def _check_counts(self, variants: Mapping[int, Mapping[str, Any]]) -> None:
        """Raise `DamagedRunError` unless the rows of a completed run are what it counted."""
        if self._manifest.state is State.COMPLETED:
            names = [name for name in asdict(Counts()) if name != "planned"]
            counted = {name: sum(row[name] for row in variants.values()) for name in names}
            check_counts(self._manifest, counted)

    def _gate_rows(self) -> list[dict[str, Any]]:
        if self._manifest.state is not State.COMPLETED:
            return []
        return [
            {"gate": gate["name"], "outcome": gate["outcome"], "message": gate["message"]}
            | _gate_figures(gate)
            for gate in _stored_gates(self._run)
        ]

    def _write_values(
        self, table: HistoryTable, shared: dict[str, Any], rows: Sequence[dict[str, Any]]
    ) -> Path:
        columns = _file_columns(table)
        values = ({name: (shared | row).get(name) for name in columns} for row in rows)
        fill_table(self.connection, "history_values", columns, values)
        return self._copy(table, "FROM history_values")

    def _copy(self, table: HistoryTable, query: str) -> Path:
        path = self._folder / f"{table.name}.parquet"
        self.connection.execute(f"COPY ({query}) TO {quoted(str(path))} ({FILE_OPTIONS})")
        return path


def _file_columns(table: HistoryTable) -> dict[str, str]:
    """Return the types of a file's columns by name: `suite` stands in its folder."""
    columns = (*table.columns, REVISION)
    return {column.name: str(column.type) for column in columns if column.name != "suite"}


def _measure_ends(row: Mapping[str, Any], measures: Measures) -> dict[str, float | None]:
    """Return the ends of the 95 % intervals of latency's percentiles, of cost and of tokens."""
    p50, p95 = measures.p50 or (None, None), measures.p95 or (None, None)
    counted = [row[name] for name in ("input_tokens", "output_tokens") if row[name] is not None]
    cost = tokens = Estimate()
    if row["cost_usd"] is not None:
        cost = estimate_total(measures.cost, row["cost_usd"])
    if counted:
        tokens = estimate_total(measures.tokens, sum(counted))
    return {
        "p50_latency_low_ms": p50[0],
        "p50_latency_high_ms": p50[1],
        "p95_latency_low_ms": p95[0],
        "p95_latency_high_ms": p95[1],
        "cost_low_usd": cost.low,
        "cost_high_usd": cost.high,
        "tokens_low": tokens.low,
        "tokens_high": tokens.high,
    }


def _stored_gates(run: StoredRun) -> list[dict[str, Any]]:
    """Return the gates as the stored report has them; raise `DamagedRunError`."""
    try:
        data = run.store.get(run.keys.report).data
        head, begin, _ = data.partition(b"\n")[0].rpartition(_CASES_BEGIN)
        document = orjson.loads(head + begin + b"]}") if begin else orjson.loads(data)
        gates: list[dict[str, Any]] = document["gates"]
        return gates
    except (ObjectNotFoundError, ValueError, LookupError, TypeError) as error:
        damage = Damage("report.json", f"does not tell what the gates said: {error}")
        raise DamagedRunError(run.run_id, (damage,)) from error


def _gate_figures(gate: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the number that a stored gate looked at, and its bound; None where it is not one."""
    kind: type[Gate] = GATES_BY_NAME.get(gate["name"], CustomGate)
    details = gate.get("details") or {}
    return {
        "value": _number(details.get(kind.value_key)),
        "threshold": _number(details.get(kind.threshold_key)),
    }


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            return float(value)
    return None
