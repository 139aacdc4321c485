"""The tables of the history and their columns, each declared once.

The files, the views, `evalcore query --schema` and docs/reference/history.md are made from these
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class ColumnType(StrEnum):
    """What a column holds: its type in DuckDB. A time is in UTC."""

    TEXT = "VARCHAR"
    INTEGER = "BIGINT"
    NUMBER = "DOUBLE"
    FLAG = "BOOLEAN"
    TIME = "TIMESTAMP"
    TEXTS = "VARCHAR[]"


class Column(NamedTuple):
    """One column: its name, type, unit (empty where it has none) and meaning in one sentence."""

    name: str
    type: ColumnType
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """One table: its name, what a row is, its columns in their order.

    A file has all of them but `suite`, which stands in its folder, and `REVISION`. New columns come
    at the end: files of earlier versions lack them.
    """

    name: str
    row: str
    columns: tuple[Column, ...]


TEXT, INTEGER, NUMBER = ColumnType.TEXT, ColumnType.INTEGER, ColumnType.NUMBER
FLAG, TIME, TEXTS = ColumnType.FLAG, ColumnType.TIME, ColumnType.TEXTS

MONTH: Final = "month"
PARTITIONS: Final = ("suite", MONTH)
REVISION: Final = Column(
    "revision", TEXT, "", "Which writing of the run's rows this is: the greatest one counts."
)

_RUN_ID: Final = Column("run_id", TEXT, "", "The run.")
_SUITE: Final = Column("suite", TEXT, "", "Name of the suite.")
_VARIANT: Final = Column("variant", TEXT, "", "The variant.")
_CASE_ID: Final = Column("case_id", TEXT, "", "The case.")

RUNS: Final = HistoryTable(
    "runs",
    "run × variant",
    (
        _RUN_ID,
        _SUITE,
        Column("format", TEXT, "", "Format of the suite."),
        _VARIANT,
        Column("is_baseline", FLAG, "", "Whether the variant is the suite's baseline."),
        Column("target", TEXT, "", "Target that the variant evaluates; null if cases name theirs."),
        Column("model", TEXT, "", "Model of the target after the variant; null if it has none."),
        Column("mode", TEXT, "", "Where providers' answers came from."),
        Column("state", TEXT, "", "State in which the run ended."),
        Column("decision", TEXT, "", "Decision of the whole run; null if it was not decided."),
        Column("started_at", TIME, "UTC", "Time at which the run started."),
        Column("ended_at", TIME, "UTC", "Time at which the run ended."),
        Column("planned", INTEGER, "items", "Work items that were planned."),
        Column("completed", INTEGER, "items", "Work items that were executed."),
        Column("error", INTEGER, "items", "Work items whose execution gave no output."),
        Column(
            "cancelled", INTEGER, "items", "Work items that had not ended when the run was stopped."
        ),
        Column("skipped", INTEGER, "items", "Work items that a limit or a filter left out."),
        Column("passed", INTEGER, "items", "Completed work items that passed."),
        Column("failed", INTEGER, "items", "Completed work items that failed."),
        Column("blocked", INTEGER, "items", "Completed work items that could not be evaluated."),
        Column("cases", INTEGER, "cases", "Cases that count under the suite's error policy."),
        Column("passed_cases", INTEGER, "cases", "Cases that passed."),
        Column("score", NUMBER, "0–1", "Mean over groups of the mean score of their cases."),
        Column("pass_rate", NUMBER, "0–1", "Share of the cases that passed; null without cases."),
        Column("score_low", NUMBER, "0–1", "Lower end of the score's 95 % interval."),
        Column("score_high", NUMBER, "0–1", "Upper end of the score's 95 % interval."),
        Column("p50_latency_ms", NUMBER, "ms", "Median latency of the work items."),
        Column("p95_latency_ms", NUMBER, "ms", "95th percentile of the work items' latency."),
        Column("cost_usd", NUMBER, "USD", "What the targets' calls cost; null if not measured."),
        Column("judge_cost_usd", NUMBER, "USD", "What the judges' calls cost."),
        Column("input_tokens", INTEGER, "tokens", "Tokens that the targets were sent."),
        Column("output_tokens", INTEGER, "tokens", "Tokens that the targets answered with."),
        Column("suite_sha256", TEXT, "", "Digest of the suite file."),
        Column("target_sha256", TEXT, "", "Digest of the target after the variant, with its code."),
        Column("cases_sha256", TEXT, "", "Digest of the planned cases with their assertions."),
        Column("judges_sha256", TEXT, "", "Digest of the judges that assertions may ask."),
        Column("engine", TEXT, "", "Version of evalcore that planned the run."),
        Column("git_commit", TEXT, "", "Commit of the suite's repository."),
        Column("git_branch", TEXT, "", "Branch of the suite's repository."),
        Column("git_dirty", FLAG, "", "Whether tracked files of the suite's folder had changes."),
        Column("flow_run_id", TEXT, "", "Prefect flow run that evaluated the suite."),
        Column("tags", TEXTS, "", "Tags of the suite."),
        Column("cached_tokens", INTEGER, "tokens", "Input tokens that caches held."),
        Column("cache_write_tokens", INTEGER, "tokens", "Input tokens written to caches."),
        Column("cache_write_1h_tokens", INTEGER, "tokens", "Of those the ones kept for an hour."),
        Column("input_audio_tokens", INTEGER, "tokens", "Input tokens that were audio."),
        Column("reasoning_tokens", INTEGER, "tokens", "Output tokens that were reasoning."),
        Column("output_audio_tokens", INTEGER, "tokens", "Output tokens that were audio."),
        Column("batch_tokens", INTEGER, "tokens", "Tokens that were billed as a batch."),
        Column("pass_rate_low", NUMBER, "0–1", "Lower end of the pass rate's 95 % interval."),
        Column("pass_rate_high", NUMBER, "0–1", "Upper end of the pass rate's 95 % interval."),
        Column("p50_latency_low_ms", NUMBER, "ms", "Lower end of the median's 95 % interval."),
        Column("p50_latency_high_ms", NUMBER, "ms", "Upper end of the median's 95 % interval."),
        Column("p95_latency_low_ms", NUMBER, "ms", "Lower end of the percentile's 95 % interval."),
        Column("p95_latency_high_ms", NUMBER, "ms", "Upper end of the percentile's 95 % interval."),
        Column("cost_low_usd", NUMBER, "USD", "Lower end of the cost's 95 % interval."),
        Column("cost_high_usd", NUMBER, "USD", "Upper end of the cost's 95 % interval."),
        Column("tokens_low", NUMBER, "tokens", "Lower end of the 95 % interval of all tokens."),
        Column("tokens_high", NUMBER, "tokens", "Upper end of the 95 % interval of all tokens."),
        Column("part", TEXT, "", "Why the run is a partial one; null for a whole run."),
    ),
)
GATES: Final = HistoryTable(
    "gates",
    "run × gate",
    (
        _RUN_ID,
        _SUITE,
        Column("gate", TEXT, "", "Name of the gate."),
        Column("outcome", TEXT, "", "pass, fail or inconclusive."),
        Column(
            "value", NUMBER, "", "Number that the gate looked at; null if it is not one number."
        ),
        Column("threshold", NUMBER, "", "Bound that the number is compared with."),
        Column("message", TEXT, "", "What the gate says."),
    ),
)
CASES: Final = HistoryTable(
    "cases",
    "run × case × variant",
    (
        _RUN_ID,
        _SUITE,
        _CASE_ID,
        Column("case_group", TEXT, "", "Group of the case; null if it has none."),
        _VARIANT,
        Column("score", NUMBER, "0–1", "Score after the iterations are reduced; null if none."),
        Column("passed", FLAG, "", "Whether the case passed."),
        Column("iterations", INTEGER, "items", "Iterations that count under the error policy."),
        Column("passed_iterations", INTEGER, "items", "Iterations that passed."),
        Column("blocked", INTEGER, "items", "Iterations that could not be evaluated."),
        Column("errors", INTEGER, "items", "Iterations whose execution gave no output."),
        Column("latency_ms", NUMBER, "ms", "Mean latency of the iterations."),
        Column("cost_usd", NUMBER, "USD", "What the iterations cost together."),
        Column("tokens", INTEGER, "tokens", "Input and output tokens of the iterations together."),
        Column("work_sha256", TEXT, "", "Digest of the execution keys: equal means equal work."),
        Column("cluster", TEXT, "", "Cluster of the case; null if the suite names no cluster."),
        Column("quarantined", FLAG, "", "Whether the case is reported and does not gate."),
    ),
)
ASSERTIONS: Final = HistoryTable(
    "assertions",
    "run × item × assertion",
    (
        _RUN_ID,
        _SUITE,
        Column("item", INTEGER, "", "Number of the work item in the plan, from 0."),
        _CASE_ID,
        _VARIANT,
        Column("iteration", INTEGER, "", "Iteration, from 0."),
        Column("name", TEXT, "", "Name of the assertion."),
        Column("type", TEXT, "", "Type of the assertion."),
        Column("block", TEXT, "", "Block whose output is checked; null for the primary output."),
        Column("outcome", TEXT, "", "passed, failed, blocked or error."),
        Column("score", NUMBER, "0–1", "Score of the assertion."),
        Column("weight", NUMBER, "", "Weight in the item's score."),
        Column(
            "required", NUMBER, "0–1", "Score below which the item fails; null if not required."
        ),
        Column(
            "judge", TEXT, "", "Judges that were asked, joined by commas; null without a judge."
        ),
    ),
)
TABLES: Final[Mapping[str, HistoryTable]] = {
    table.name: table for table in (RUNS, GATES, CASES, ASSERTIONS)
}


def columns_table(table: HistoryTable) -> str:
    """Return the columns as a table in Markdown, for the documentation."""
    rows = (
        f"| `{column.name}` | {column.type} | {column.unit or '–'} | {column.meaning} |"
        for column in table.columns
    )
    return "\n".join(("| column | type | unit | holds |", "|---|---|---|---|", *rows))
