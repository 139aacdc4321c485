"""The columns of `results/*.parquet`, each declared once: a contract with everybody who reads them.

The file's schema and the table of docs/reference/store.md are made from these rows. A column is
never removed, renamed or given another type; new ones come at the end.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ResultColumn(NamedTuple):
    """One column: name, type in DuckDB, unit (empty where it has none), meaning in one sentence."""

    name: str
    type: str
    unit: str
    meaning: str


TIMESTAMP: Final = "TIMESTAMP"
_SCORES: Final = "STRUCT(name VARCHAR, value DOUBLE, raw JSON, error VARCHAR)[]"
_ASSERTIONS: Final = (
    "STRUCT(name VARCHAR, type VARCHAR, block VARCHAR, outcome VARCHAR, score DOUBLE, "
    "weight DOUBLE, required DOUBLE, actual VARCHAR, expected VARCHAR, message VARCHAR, "
    "latency_ms DOUBLE, cost_usd DOUBLE, details JSON)[]"
)
RESULT_COLUMNS: Final = (
    ResultColumn("item", "BIGINT", "", "Number of the work item in the plan, from 0."),
    ResultColumn("case_id", "VARCHAR", "", "The case."),
    ResultColumn("case_group", "VARCHAR", "", "Group of the case; null if it has none."),
    ResultColumn("variant", "VARCHAR", "", "The variant."),
    ResultColumn("target", "VARCHAR", "", "Target that was evaluated; null for a fixture."),
    ResultColumn("iteration", "INTEGER", "", "Iteration, from 0."),
    ResultColumn(
        "exec_key", "VARCHAR", "", "[Identity](engine.md#identities) of the execution, in hex."
    ),
    ResultColumn(
        "grade_key", "VARCHAR", "", "[Identity](engine.md#identities) of the grading, in hex."
    ),
    ResultColumn("status", "VARCHAR", "", "[State](engine.md#states) in which the item ended."),
    ResultColumn("reason", "VARCHAR", "", "Why the item was skipped; null if it was not."),
    ResultColumn("outcome", "VARCHAR", "", "passed, failed or blocked; null without an output."),
    ResultColumn("score", "DOUBLE", "0–1", "Score of the item; null if it has none."),
    ResultColumn("threshold", "DOUBLE", "0–1", "Score from which the item passes."),
    ResultColumn(
        "error",
        "STRUCT(kind VARCHAR, message VARCHAR)",
        "",
        "Kind and message of what ended an item in error; null for others.",
    ),
    ResultColumn("output", "VARCHAR", "", "The answer; a larger one is cut, and whole in a blob."),
    ResultColumn("output_ref", "VARCHAR", "", "SHA-256 that names the answer's blob; else null."),
    ResultColumn(
        "evidence", "VARCHAR", "", "The rest of the evidence as JSON; null if it is in a blob."
    ),
    ResultColumn("evidence_ref", "VARCHAR", "", "SHA-256 that names the evidence's blob."),
    ResultColumn("latency_ms", "DOUBLE", "ms", "Latency over the calls; null if not measured."),
    ResultColumn("ttft_ms", "DOUBLE", "ms", "Time to the first token; null if not measured."),
    ResultColumn("cost_usd", "DOUBLE", "USD", "Cost over the calls; null if not measured."),
    ResultColumn("input_tokens", "BIGINT", "tokens", "Tokens sent; null if not measured."),
    ResultColumn("output_tokens", "BIGINT", "tokens", "Tokens answered; null if not measured."),
    ResultColumn("attempts", "INTEGER", "", "Attempts; 0 for evidence of an earlier run."),
    ResultColumn("started_at", TIMESTAMP, "UTC", "Time at which the item began."),
    ResultColumn("ended_at", TIMESTAMP, "UTC", "Time at which the item ended."),
    ResultColumn("tags", "VARCHAR[]", "", "Tags of the case."),
    ResultColumn("metadata", "JSON", "", "Metadata of the case."),
    ResultColumn("scores", _SCORES, "", "What the scorers measured; their units are their own."),
    ResultColumn("assertions", _ASSERTIONS, "", "Results of the assertions; scores 0–1."),
    ResultColumn("cached_tokens", "BIGINT", "tokens", "Input tokens that were read from a cache."),
    ResultColumn("cache_write_tokens", "BIGINT", "tokens", "Input tokens written to a cache."),
    ResultColumn(
        "cache_write_1h_tokens", "BIGINT", "tokens", "Of those the ones that are kept for an hour."
    ),
    ResultColumn("input_audio_tokens", "BIGINT", "tokens", "Input tokens that were audio."),
    ResultColumn("reasoning_tokens", "BIGINT", "tokens", "Output tokens that were reasoning."),
    ResultColumn("output_audio_tokens", "BIGINT", "tokens", "Output tokens that were audio."),
    ResultColumn("batch_tokens", "BIGINT", "tokens", "Tokens that were billed as a batch."),
    ResultColumn("unpriced_models", "VARCHAR[]", "", "Models asked whose price is not known."),
    ResultColumn(
        "finish_reason",
        "VARCHAR",
        "",
        "Why the answer ended, in the provider's words; of several "
        "the first that was cut, else the last.",
    ),
)
FIRST_COLUMNS: Final = RESULT_COLUMNS[:30]
"""Files of every version have these; those of earlier ones have no more."""


def row_schema() -> str:
    """Return the columns of rows on their way, as `read_json` takes them.

    Times are microseconds since the epoch: DuckDB parses integers faster than ISO texts.
    """
    types = (
        f"{column.name}: '{'BIGINT' if column.type == TIMESTAMP else column.type}'"
        for column in RESULT_COLUMNS
    )
    return f"{{{', '.join(types)}}}"


def result_rows_macro() -> str:
    """Return the statement that makes `result_rows(files)`: rows with all columns, NULL if new."""
    later = RESULT_COLUMNS[len(FIRST_COLUMNS) :]
    empty = ", ".join(f"NULL::{column.type} AS {column.name}" for column in later)
    return (
        f"CREATE OR REPLACE MACRO result_rows(files) AS TABLE (SELECT {empty} WHERE false "  # noqa: S608
        "UNION ALL BY NAME SELECT * FROM "
        "read_parquet(files, hive_partitioning = false, union_by_name = true))"
    )
