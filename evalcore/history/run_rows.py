"""A run as rows of the history, made by DuckDB from its result parts and written as Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import _duckdb as duckdb
import orjson

from evalcore.analytics.named import query_text
from evalcore.analytics.spread import Measures, read_measures, read_samples
from evalcore.analytics.summary import reduction_of
from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError
from evalcore.gates.builtin import CustomGate
from evalcore.gates.gate import Gate
from evalcore.gates.registry import GATES as GATES_BY_NAME
from evalcore.history.columns import ASSERTIONS, CASES, GATES, MONTH, RUNS, ColumnType, HistoryTable
from evalcore.history.data_files import Partition, StagedRows
from evalcore.history.fingerprints import (
    judges_sha256,
    read_plan_digests,
    target_sha256,
    variant_model,
)
from evalcore.history.locations import partition_suite
from evalcore.history.whole_parts import check_parts, whole_parts
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest, State
from evalcore.model.sample import NO_SAMPLE, Sample
from evalcore.model.summary import Counts
from evalcore.sql.connection import BoundedConnection, literal_path
from evalcore.statistics.intervals import (
    Estimate,
    estimate_mean,
    estimate_rate,
    estimate_total,
)
from evalcore.storage.manifests import MANIFEST
from evalcore.storage.runs import StoredRun, partial_reasons

_CASES_BEGIN: Final = b'"cases":['


class RunRows(NamedTuple):
    """A run's rows by table, of the version of its manifest."""

    run_id: str
    version: int
    tables: Mapping[str, StagedRows]


def manifest_version(manifest: Manifest) -> int:
    """Return the version of an ended run's manifest: the time of its end in microseconds.

    A run that is resumed ends again, later.
    """
    ended_at = manifest.ended_at or manifest.created_at
    return round(datetime.fromisoformat(ended_at).timestamp() * 1_000_000)


def is_ended(manifest: Manifest) -> bool:
    """Whether the run has come to an end: completed, stopped, or given up."""
    ended = manifest.state in {State.COMPLETED, State.CANCELLED, State.ERROR}
    return ended and manifest.is_planned and manifest.ended_at is not None


def write_run_rows(run: StoredRun, manifest: Manifest, folder: Path) -> RunRows:
    """Write the rows of a run that has ended to Parquet files in `folder`, one for each table.

    Raises `DamagedRunError` if the rows do not add up to what the manifest says.
    """
    with whole_parts(run, manifest) as files:
        tables = _RunTables(run, manifest, folder)
        try:
            return tables.write(list(files.values()))
        except duckdb.Error as error:
            check_parts(manifest, files, thorough=True)
            reason = str(error).partition("\n")[0]
            damage = Damage("results", f"cannot be read: {reason}")
            raise DamagedRunError(run.run_id, (damage,)) from error
        finally:
            tables.close()


class _RunTables:
    """The tables of one run in a connection, and what they say of it."""

    def __init__(self, run: StoredRun, manifest: Manifest, folder: Path) -> None:
        self._run, self._manifest, self._folder = run, manifest, folder
        self._suite = partition_suite(manifest.suite)
        self._month = manifest.created_at[: len("YYYY-MM")]
        self._definition = run.definition
        self._connection = BoundedConnection(manifest.plan.items)

    def close(self) -> None:
        self._connection.close()

    def write(self, parts: Sequence[Path]) -> RunRows:
        """Write all tables; raise `DamagedRunError` if the counts are not those of the manifest."""
        if parts:
            self._load(parts)
            variants = self._variants()
        else:
            variants = {}
        rows = self._run_rows(variants)
        self._check_counts(variants)
        files = {
            RUNS.name: self._write_values(RUNS, rows),
            GATES.name: self._write_values(GATES, self._gate_rows()),
        }
        single = "_single" if self._manifest.plan.iterations == 1 else ""
        for table, query in (
            (CASES, f"history_cases{single}"),
            (ASSERTIONS, "history_assertions"),
        ):
            files[table.name] = self._folder / f"{table.name}.parquet"
            self._copy(query_text(query) if parts else _no_rows(table), files[table.name])
        version, partition = manifest_version(self._manifest), Partition(self._suite, self._month)
        staged = {name: StagedRows(version, partition, file) for name, file in files.items()}
        return RunRows(self._run.run_id, version, staged)

    def _load(self, parts: Sequence[Path]) -> None:
        plan, policy = self._manifest.plan, self._definition.policy
        cluster = policy.cluster
        path = "" if cluster is None else f"$.{orjson.dumps(cluster).decode()}"
        facts = {
            "run_id": self._run.run_id,
            "suite": self._suite,
            "month": self._month,
            "variants": plan.variants,
            "iterations": plan.iterations,
            "cluster": cluster or "",
            "cluster_path": path,
            "quarantined": list(quarantine_of(self._manifest.settings).case_ids) or [""],
        }
        files = [literal_path(part) for part in parts]
        self._connection.execute("SET VARIABLE files = $1", [files])
        self._connection.execute("SET VARIABLE run = $1", [facts])
        self._execute("case_rules")
        self._execute("history_rules")
        self._execute(
            "items",
            variants=plan.variants,
            iterations=plan.iterations,
            errors=str(policy.errors),
        )
        reduce = "cases_single" if plan.iterations == 1 else "cases"
        self._execute(reduce, **reduction_of(policy))

    def _execute(self, query: str, **parameters: Any) -> duckdb.DuckDBPyConnection:
        return self._connection.execute(query_text(query), parameters or None)

    def _variants(self) -> dict[int, dict[str, Any]]:
        """Return the aggregates of each variant that has items, by its place in the plan."""
        result = self._execute("history_variants")
        names = [column[0] for column in result.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        variants = {int(row.pop("variant_number")): row for row in rows}
        cluster = self._definition.policy.cluster
        plan = self._manifest.plan
        samples = read_samples(self._connection, plan, cluster).variants
        measures = read_measures(
            self._connection, plan, clustered=cluster is not None, by_variant=True
        )
        for number, row in variants.items():
            row["sample"], passes = samples.get(number, (NO_SAMPLE, NO_SAMPLE))
            row["pass_rate_low"], row["pass_rate_high"], *_ = estimate_rate(passes)
            row.update(_measure_ends(row, measures.get(number, Measures())))
        return variants

    def _run_rows(self, variants: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        manifest, definition, plan = self._manifest, self._definition, self._manifest.plan
        cases_sha256, judged = read_plan_digests(self._run, plan)
        # A run that stops early has its cases in a random order: the digest is that of the suite's.
        order = self._manifest.settings.get("order") or {}
        cases_sha256 = order.get("cases_sha256", cases_sha256)
        git = manifest.settings.get("git") or {}
        shared = {
            "run_id": manifest.id,
            "suite": self._suite,
            "month": self._month,
            "format": str(manifest.format),
            "mode": manifest.mode,
            "state": str(manifest.state),
            "decision": manifest.decision,
            "started_at": _microseconds(manifest.started_at or manifest.created_at),
            "ended_at": _microseconds(manifest.ended_at),
            "planned": plan.cases * plan.iterations,
            "suite_sha256": manifest.source.get("sha256"),
            "cases_sha256": cases_sha256,
            "judges_sha256": judges_sha256(definition, judged=judged),
            "engine": manifest.engine.get("evalcore"),
            "git_commit": git.get("commit"),
            "git_branch": git.get("branch"),
            "git_dirty": git.get("dirty"),
            "flow_run_id": manifest.execution.get("flow_run_id"),
            "tags": list(definition.tags),
            "part": "; ".join(partial_reasons(self._run, manifest)) or None,
        }
        rows = []
        for number, variant in enumerate(definition.variants):
            measured = dict(variants.get(number) or _NO_ITEMS)
            if manifest.state is not State.COMPLETED:
                # What was not committed when the run was stopped has no row.
                ended = sum(measured[name] for name in ("completed", "error", "skipped"))
                measured["cancelled"] = shared["planned"] - ended
            low, high = _interval(measured.get("groups"), measured.pop("sample", NO_SAMPLE))
            cases = measured["cases"]
            rate = measured["passed_cases"] / cases if cases else None
            identity = {
                "variant": variant.id,
                "is_baseline": variant.id == definition.baseline,
                "target": variant.target or definition.default_target,
                "model": variant_model(definition, variant),
                "target_sha256": target_sha256(definition, variant),
                "pass_rate": rate,
                "score_low": low,
                "score_high": high,
            }
            rows.append({**shared, **identity, **measured})
        return rows

    def _check_counts(self, variants: Mapping[int, Mapping[str, Any]]) -> None:
        """Raise `DamagedRunError` unless the rows of a completed run are what it counted."""
        if self._manifest.state is not State.COMPLETED:
            return
        plan = self._manifest.plan
        names = [name for name in asdict(Counts()) if name != "planned"]
        counted = {name: sum(row[name] for row in variants.values()) for name in names}
        ended = sum(counted[name] for name in ("completed", "error", "cancelled", "skipped"))
        stored = {**(self._manifest.counts or {}), "planned": plan.items}
        counted["planned"] = ended
        damages = [
            Damage(MANIFEST, f"counts {stored[name]} items {name}; the rows have {count}")
            for name, count in counted.items()
            if name in stored and stored[name] != count
        ]
        if damages:
            raise DamagedRunError(self._run.run_id, tuple(damages))

    def _gate_rows(self) -> list[dict[str, Any]]:
        shared = {"run_id": self._run.run_id, "suite": self._suite, "month": self._month}
        if self._manifest.state is not State.COMPLETED:
            return []
        return [
            shared
            | {"gate": gate["name"], "outcome": gate["outcome"], "message": gate["message"]}
            | _gate_figures(gate)
            for gate in _stored_gates(self._run)
        ]

    def _write_values(self, table: HistoryTable, rows: Sequence[Mapping[str, Any]]) -> Path:
        path = self._folder / f"{table.name}.parquet"
        lines = self._folder / f"{table.name}.jsonl"
        names = [column.name for column in (*table.columns, MONTH)]
        lines.write_bytes(
            b"".join(
                orjson.dumps(
                    {name: row.get(name) for name in names}, option=orjson.OPT_APPEND_NEWLINE
                )
                for row in rows
            )
        )
        if not rows:
            self._copy(_no_rows(table), path)
            return path
        columns = ", ".join(
            f"{column.name}: '{_JSON_TYPES.get(column.type, column.type.duckdb)}'"
            for column in (*table.columns, MONTH)
        )
        times = ", ".join(
            f"make_timestamp({column.name}) AS {column.name}"
            for column in table.columns
            if column.type is ColumnType.TIME
        )
        replaced = f" REPLACE ({times})" if times else ""
        self._copy(
            f"SELECT *{replaced} FROM read_json('{_quoted(lines)}', columns = {{{columns}}}, "  # noqa: S608
            "format = 'newline_delimited', hive_partitioning = false, "
            f"maximum_object_size = {max(lines.stat().st_size + 1, 1 << 20)})",
            path,
        )
        return path

    def _copy(self, query: str, path: Path) -> None:
        self._connection.execute(
            f"COPY ({query}) TO '{_quoted(path)}' (FORMAT parquet, COMPRESSION snappy)"
        )


_JSON_TYPES: Final = {ColumnType.TIME: "BIGINT"}
_NO_ITEMS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        ("completed", "error", "cancelled", "skipped", "passed", "failed", "blocked"), 0
    ),
    **dict.fromkeys(("cases", "passed_cases"), 0),
}


def _no_rows(table: HistoryTable) -> str:
    columns = ", ".join(
        f"NULL::{column.type.duckdb} AS {column.name}" for column in (*table.columns, MONTH)
    )
    return f"SELECT {columns} WHERE false"


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


def _interval(groups: int | None, sample: Sample) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the score; None where groups or too few cases leave none."""
    if groups != 1:
        return None, None
    estimate = estimate_mean(sample)
    return estimate.low, estimate.high


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


def _microseconds(time: str | None) -> int | None:
    if time is None:
        return None
    return round(datetime.fromisoformat(time).timestamp() * 1_000_000)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
