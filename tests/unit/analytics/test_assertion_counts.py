"""How often assertions pass and fail, and how often judges agree with people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evalcore.analytics.assertions import AssertionCounts, run_assertion_counts
from evalcore.sql.connection import open_database

Result = tuple[int, str, str, str, str | None]


def counted(folder: Path, results: Sequence[Result]) -> dict[str | None, AssertionCounts]:
    """Return the counts of results (item, name, type, outcome, judge) by name, in order."""
    part = folder / "part.parquet"
    with open_database() as connection:
        connection.execute(
            "CREATE TABLE results (item BIGINT, name VARCHAR, type VARCHAR, outcome VARCHAR, "
            "judge VARCHAR)"
        )
        connection.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?)", results)
        details = "CASE WHEN judge IS NOT NULL THEN json_object('judges', [judge])::VARCHAR END"
        connection.execute(
            f"COPY (SELECT item, list({{name: name, type: type, block: NULL::VARCHAR, "
            f"outcome: outcome, score: 0.5, details: {details}}}) AS assertions "
            f"FROM results GROUP BY item) TO '{part}'"
        )
        connection.execute("SET VARIABLE files = $1", [[str(part)]])
        return {each.name: each for each in run_assertion_counts(connection)}


def test_those_that_fail_most_come_first(tmp_path: Path) -> None:
    outcomes = {"never": "passed", "always": "failed", "in-error": "error", "blocked": "blocked"}
    counts = counted(
        tmp_path,
        [(item, name, "contains", outcomes[name], None) for item in (1, 2) for name in outcomes]
        + [(3, "always", "contains", "passed", None)],
    )
    assert list(counts) == ["in-error", "always", "blocked", "never"]
    assert [name for name, each in counts.items() if each.always_passes] == ["never"]
    assert (counts["always"].failed, counts["always"].errors) == (2, 0)
    assert counts["always"].results == 3
    assert (counts["in-error"].errors, counts["blocked"].blocked) == (2, 2)


def test_a_judge_is_compared_with_people_on_the_same_item(tmp_path: Path) -> None:
    rows: list[Result] = []
    for item, judged, asked in (
        (1, "passed", "passed"),
        (2, "passed", "failed"),
        (3, "failed", "blocked"),
        (4, "failed", "passed"),
        (5, "error", "passed"),
    ):
        rows.append((item, "polite", "llm", judged, "m1"))
        rows.append((item, "people", "human", asked, None))
        rows.append((item, "short", "regex", "failed", None))
    counts = counted(tmp_path, rows)
    polite = counts["polite"]
    assert (polite.compared, polite.disagreed, polite.judges) == (3, 2, "m1")
    assert counts["short"].disagreement is None


def test_names_that_each_case_has_for_itself_are_one_row(tmp_path: Path) -> None:
    rows: list[Result] = [
        (number, f"contains-{number}", "contains", "passed", None) for number in range(1_500)
    ]
    counts = counted(tmp_path, [*rows, (1, "short", "regex", "failed", None)])
    assert list(counts) == ["short", None]
    assert counts[None].results == 1_500
