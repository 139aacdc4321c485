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
from evalcore.gates.registry import GATES as GATES_BY_NAME
from evalcore.history.columns import REVISION, TABLES
from evalcore.history.files import FILE_OPTIONS, quoted
from evalcore.history.fingerprints import run_fingerprints
from evalcore.model.run import Manifest, State
from evalcore.model.suite import quarantine_of
from evalcore.model.summary import NO_SAMPLE, Counts, Sample
from evalcore.sql.connection import BoundedConnection, literal_path
from evalcore.statistics.intervals import estimate_mean, estimate_rate, estimate_total
from evalcore.storage.runs import StoredRun, partial_reasons, read_head

# What does not fit is spilled: a run of a million cases takes no longer for it.
MEMORY_LIMIT_MB: Final = 256
_ENDED: Final = ("completed", "error", "skipped")
_NO_ITEMS: Final[Mapping[str, Any]] = dict.fromkeys(
    (*_ENDED, "cancelled", "passed", "failed", "blocked", "cases", "passed_cases"), 0
)
Rows = Sequence[dict[str, Any]]


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
        connection = BoundedConnection(manifest.plan.items, MEMORY_LIMIT_MB)
        try:
            return _write(connection, run, manifest, list(files.values()), revision, folder)
        finally:
            connection.close()


def _write(
    connection: BoundedConnection,
    run: StoredRun,
    manifest: Manifest,
    parts: Sequence[Path],
    revision: str,
    folder: Path,
) -> dict[str, Path]:
    variants: dict[int, dict[str, Any]] = {}
    queries: dict[str, str] = {}
    if parts:
        _load(connection, run, manifest, parts, revision)
        variants = _variants(connection, run, manifest)
        single = "_single" if manifest.plan.iterations == 1 else ""
        queries = {"cases": f"history_cases{single}", "assertions": "history_assertions"}
    if manifest.state is State.COMPLETED:
        names = [name for name in asdict(Counts()) if name != "planned"]
        counted = {name: sum(row[name] for row in variants.values()) for name in names}
        check_counts(manifest, counted)
    values = {"runs": _run_rows(run, manifest, variants), "gates": _gate_rows(run, manifest)}
    shared = {"run_id": run.run_id, REVISION: revision}
    files = {}
    for name, table in TABLES.items():
        query = query_text(queries[name]) if name in queries else "FROM history_values"
        if name not in queries:
            # `suite` stands in the folder of the file.
            columns = {each.name: each.type for each in table.columns if each.name != "suite"}
            columns[REVISION] = "VARCHAR"
            rows = (
                {column: (shared | row).get(column) for column in columns}
                for row in values.get(name, ())
            )
            fill_table(connection, "history_values", columns, rows)
        files[name] = folder / f"{name}.parquet"
        connection.execute(f"COPY ({query}) TO {quoted(str(files[name]))} ({FILE_OPTIONS})")
    return files


def _load(
    connection: BoundedConnection,
    run: StoredRun,
    manifest: Manifest,
    parts: Sequence[Path],
    revision: str,
) -> None:
    """Fill the tables `items` and `cases`, and the variables of the queries."""
    plan, policy = manifest.plan, run.definition.policy
    cluster, shape = policy.cluster, {"variants": plan.variants, "iterations": plan.iterations}
    facts = shape | {
        "run_id": run.run_id,
        REVISION: revision,
        "cluster": cluster or "",
        "cluster_path": "" if cluster is None else f"$.{orjson.dumps(cluster).decode()}",
        "quarantined": list(quarantine_of(manifest.settings).case_ids) or [""],
    }
    connection.execute("SET VARIABLE files = $1", [[literal_path(part) for part in parts]])
    connection.execute("SET VARIABLE run = $1", [facts])
    run_query(connection, "case_rules")
    run_query(connection, "history_rules")
    run_query(connection, "items", errors=str(policy.errors), **shape)
    single = "_single" if plan.iterations == 1 else ""
    run_query(connection, f"cases{single}", **reduction_of(policy))


def _variants(
    connection: BoundedConnection, run: StoredRun, manifest: Manifest
) -> dict[int, dict[str, Any]]:
    """Return the aggregates of each variant that has items, by its place in the plan."""
    result = run_query(connection, "history_variants")
    names = [column[0] for column in result.description]
    rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    variants = {int(row.pop("variant_number")): row for row in rows}
    cluster, plan = run.definition.policy.cluster, manifest.plan
    samples = read_samples(connection, plan, cluster).variants
    measures = read_measures(connection, plan, clustered=cluster is not None, by_variant=True)
    for number, row in variants.items():
        score, passes = samples.get(number, (NO_SAMPLE, NO_SAMPLE))
        # Groups leave the score without an interval.
        has_interval = row.pop("groups") == 1
        tokens = [row[name] for name in ("input_tokens", "output_tokens") if row[name] is not None]
        measured = measures.get(number, Measures())
        for low, high, ends in (
            ("score_low", "score_high", estimate_mean(score) if has_interval else None),
            ("pass_rate_low", "pass_rate_high", estimate_rate(passes)),
            ("p50_latency_low_ms", "p50_latency_high_ms", measured.p50),
            ("p95_latency_low_ms", "p95_latency_high_ms", measured.p95),
            ("cost_low_usd", "cost_high_usd", _of_total(measured.cost, row["cost_usd"])),
            (
                "tokens_low",
                "tokens_high",
                _of_total(measured.tokens, sum(tokens) if tokens else None),
            ),
        ):
            row[low], row[high] = ends[:2] if ends else (None, None)
    return variants


def _of_total(sample: Sample, total: float | None) -> tuple[Any, ...] | None:
    return None if total is None else estimate_total(sample, total)


def _run_rows(
    run: StoredRun, manifest: Manifest, variants: Mapping[int, Mapping[str, Any]]
) -> Rows:
    definition, plan = run.definition, manifest.plan
    shared = {
        "format": str(manifest.format),
        "mode": manifest.mode,
        "state": str(manifest.state),
        "decision": manifest.decision,
        "started_at": manifest.started_at or manifest.created_at,
        "ended_at": manifest.ended_at,
        "planned": plan.cases * plan.iterations,
        "git_branch": (manifest.settings.get("git") or {}).get("branch"),
        "flow_run_id": manifest.execution.get("flow_run_id"),
        "tags": list(definition.tags),
        "part": "; ".join(partial_reasons(manifest)) or None,
    }
    fingerprints = run_fingerprints(run)
    rows = []
    for number, variant in enumerate(definition.variants):
        measured = dict(variants.get(number) or _NO_ITEMS)
        if manifest.state is not State.COMPLETED:
            # What was not committed when the run was stopped has no row.
            measured["cancelled"] = shared["planned"] - sum(measured[name] for name in _ENDED)
        cases = measured["cases"]
        identity = {
            "variant": variant.id,
            "is_baseline": variant.id == definition.baseline,
            "pass_rate": measured["passed_cases"] / cases if cases else None,
        }
        rows.append(shared | fingerprints[variant.id]._asdict() | identity | measured)
    return rows


def _gate_rows(run: StoredRun, manifest: Manifest) -> Rows:
    """Return the gates as the stored report has them; raise `DamagedRunError`."""
    if manifest.state is not State.COMPLETED:
        return []
    try:
        return [_gate_row(gate) for gate in read_head(run)["gates"]]
    except (ObjectNotFoundError, ValueError, LookupError, TypeError) as error:
        damage = Damage("report.json", f"does not tell what the gates said: {error}")
        raise DamagedRunError(run.run_id, (damage,)) from error


def _gate_row(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored gate with the number that it looked at, and its bound; None for none."""
    kind = GATES_BY_NAME.get(gate["name"], CustomGate)
    details = gate.get("details") or {}
    row = {"gate": gate["name"], "outcome": gate["outcome"], "message": gate["message"]}
    for column, key in (("value", kind.value_key), ("threshold", kind.threshold_key)):
        number = details.get(key)
        if isinstance(number, int | float) and not isinstance(number, bool):
            with suppress(OverflowError):
                row[column] = float(number)
    return row
