"""How often assertions pass and fail, and how often judges agree with people."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.analytics.assertions import AssertionCounts, suite_assertion_counts
from evalcore.sql.connection import open_database

Result = tuple[str, int, str, str, str, str | None]


def counted(results: Sequence[Result]) -> dict[str | None, AssertionCounts]:
    """Return the counts of results (run, item, name, type, outcome, judge) by name, in order."""
    with open_database() as connection:
        connection.execute(
            "CREATE TABLE assertions (run_id VARCHAR, item BIGINT, name VARCHAR, type VARCHAR, "
            "outcome VARCHAR, judge VARCHAR, suite VARCHAR DEFAULT 's', block VARCHAR, "
            "score DOUBLE DEFAULT 0.5)"
        )
        columns = "INSERT INTO assertions (run_id, item, name, type, outcome, judge) VALUES "
        connection.executemany(f"{columns} (?, ?, ?, ?, ?, ?)", results)
        return {each.name: each for each in suite_assertion_counts(connection, "s", ["a", "b"])}


def test_those_that_fail_most_come_first() -> None:
    outcomes = {"never": "passed", "always": "failed", "in-error": "error", "blocked": "blocked"}
    counts = counted(
        [
            ("a", item, name, "contains", outcomes[name], None)
            for item in (1, 2)
            for name in outcomes
        ]
        + [("a", 3, "always", "contains", "passed", None)]
    )
    assert list(counts) == ["in-error", "always", "blocked", "never"]
    assert [name for name, each in counts.items() if each.always_passes] == ["never"]
    assert (counts["always"].failed, counts["always"].errors) == (2, 0)
    assert counts["always"].results == 3
    assert (counts["in-error"].errors, counts["blocked"].blocked) == (2, 2)


def test_a_judge_is_compared_with_people_on_the_same_item_of_the_same_run() -> None:
    rows: list[Result] = []
    for run, item, judged, asked in (
        ("a", 1, "passed", "passed"),
        ("a", 2, "passed", "failed"),
        ("a", 3, "failed", "blocked"),
        ("b", 1, "failed", "passed"),
        ("b", 4, "error", "passed"),
    ):
        rows.append((run, item, "polite", "llm", judged, "m1"))
        rows.append((run, item, "people", "human", asked, None))
        rows.append((run, item, "short", "regex", "failed", None))
    counts = counted(rows)
    polite = counts["polite"]
    assert (polite.compared, polite.disagreed, polite.judges) == (3, 2, "m1")
    assert counts["short"].disagreement is None


def test_only_the_runs_that_are_asked_for_count() -> None:
    rows: list[Result] = [(run, 1, "x", "regex", "passed", None) for run in ("a", "b", "c")]
    assert counted(rows)["x"].results == 2


def test_names_that_each_case_has_for_itself_are_one_row() -> None:
    rows: list[Result] = [
        ("a", number, f"contains-{number}", "contains", "passed", None) for number in range(1_500)
    ]
    counts = counted([*rows, ("a", 1, "short", "regex", "failed", None)])
    assert list(counts) == ["short", None]
    assert counts[None].results == 1_500
