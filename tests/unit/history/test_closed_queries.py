"""A query reads the history and nothing else: every attempt at more is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.history.query import QueryError, QueryLimits, ask, parse_statement
from evalcore.history.sync import sync
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs

SECRET = "the file's secret"
WRITES = "the history can only be read, by one SELECT at a time"
FILES = "file system operations are disabled|does not exist|is refused"
REFUSED = "is refused: a query reads the views and nothing else"
LIMITS = QueryLimits(memory_mb=96, time_s=2.0, spill_mb=1)

ATTEMPTS = {
    "insert": ("INSERT INTO runs VALUES (1)", WRITES),
    "update": ("UPDATE runs SET score = 1", WRITES),
    "delete": ("DELETE FROM runs", WRITES),
    "drop": ("DROP VIEW runs", WRITES),
    "alter": ("ALTER VIEW runs RENAME TO r", WRITES),
    "create-table": ("CREATE TABLE t AS SELECT 1", WRITES),
    "create-macro": ("CREATE OR REPLACE MACRO items(run) AS TABLE SELECT 1", WRITES),
    "create-secret": ("CREATE SECRET (TYPE s3)", WRITES),
    "cte-insert": ("WITH x AS (INSERT INTO runs VALUES (1)) SELECT 1", "CTE needs a SELECT"),
    "select-into": ("SELECT 1 INTO t", "not supported"),
    "merge": ("MERGE INTO runs USING runs r ON true WHEN MATCHED THEN DELETE", WRITES),
    "vacuum": ("VACUUM", WRITES),
    "checkpoint-statement": ("CHECKPOINT", WRITES),
    "copy-out": ("COPY (SELECT 1) TO '{folder}/out.csv'", WRITES),
    "copy-over-a-part": ("COPY (SELECT 1) TO '{part}' (FORMAT parquet)", WRITES),
    "copy-in": ("COPY runs FROM '{folder}/secret.txt'", WRITES),
    "export": ("EXPORT DATABASE '{folder}/out'", WRITES),
    "import": ("IMPORT DATABASE '{folder}'", "disabled by configuration"),
    "explain-analyze-copy": ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{part}'", WRITES),
    "attach": ("ATTACH '{folder}/other.db'", WRITES),
    "attach-postgres": ("ATTACH 'host=localhost' AS p (TYPE postgres)", WRITES),
    "detach": ("DETACH memory", WRITES),
    "use": ("USE memory", WRITES),
    "file-as-a-table": ("SELECT * FROM '{folder}/secret.txt'", FILES),
    "file-by-a-short-name": ("FROM 'secret.csv'", FILES),
    "quoted-file": ('FROM "{folder}/secret.txt"', FILES),
    "read-csv": ("FROM read_csv('{folder}/secret.txt')", FILES),
    "read-csv-auto": ("FROM read_csv_auto('/etc/passwd')", FILES),
    "read-text": ("FROM read_text('{folder}/secret.txt')", FILES),
    "read-text-in-capitals": ("FROM READ_TEXT('{folder}/secret.txt')", FILES),
    "read-text-with-schema": ("FROM main.read_text('{folder}/secret.txt')", FILES),
    "read-blob": ("FROM read_blob('{folder}/*')", FILES),
    "read-json": ("FROM read_json('/proc/self/environ')", FILES),
    "read-parquet": ("FROM read_parquet('{part}')", FILES),
    "parquet-metadata": ("FROM parquet_metadata('{part}')", FILES),
    "glob": ("FROM glob('{folder}/*')", FILES),
    "sniff": ("FROM sniff_csv('{folder}/secret.txt')", FILES),
    "in-a-subquery": ("SELECT (SELECT content FROM read_text('{folder}/secret.txt'))", FILES),
    "in-a-cte": ("WITH x AS (FROM read_text('/etc/passwd')) FROM x", FILES),
    "in-exists": ("FROM runs WHERE EXISTS (FROM glob('/etc/*'))", FILES),
    "in-a-lateral-join": ("FROM runs, LATERAL (FROM read_text('/etc/passwd'))", FILES),
    "delta": ("FROM delta_scan('{folder}')", FILES),
    "http": ("FROM 'https://example.com/x.csv'", FILES),
    "http-function": ("FROM read_csv('http://127.0.0.1:9/x.csv')", FILES),
    "s3": ("FROM read_parquet('s3://bucket/key')", FILES),
    "install": ("INSTALL httpfs", WRITES),
    "force-install": ("FORCE INSTALL httpfs FROM community", WRITES),
    "load": ("LOAD httpfs", WRITES),
    "load-a-file": ("LOAD '{folder}/x.duckdb_extension'", WRITES),
    "set": ("SET memory_limit = '100GB'", WRITES),
    "set-access": ("SET enable_external_access = true", WRITES),
    "reset": ("RESET lock_configuration", WRITES),
    "set-variable": ("SET VARIABLE x = 1", WRITES),
    "pragma": ("PRAGMA memory_limit = '100GB'", WRITES),
    "pragma-as-select": ("PRAGMA version", WRITES),
    "pragma-profiling": ("PRAGMA enable_profiling", WRITES),
    "call": ("CALL enable_logging()", WRITES),
    "logging": ("FROM enable_logging('QueryLog', storage = 'file', storage_path = '{folder}/log')",
                REFUSED),
    "profiling": ("FROM enable_profiling(save_location = '{folder}/p')", REFUSED),
    "write-log": ("SELECT write_log('x')", REFUSED),
    "settings-table": ("FROM duckdb_settings()", REFUSED),
    "secrets": ("FROM duckdb_secrets()", REFUSED),
    "current-setting": ("SELECT current_setting('allowed_paths')", REFUSED),
    "getenv": ("SELECT getenv('HOME')", REFUSED),
    "serialized": ("FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
                   REFUSED),
    "query-function": ("FROM query('COPY (SELECT 1) TO ''x''')", REFUSED),
    "query-table": ("FROM query_table('/etc/passwd')", REFUSED),
    "python-variable": ("FROM LIMITS", "does not exist"),
    "checkpoint": ("FROM force_checkpoint()", REFUSED),
    "two": ("SELECT 1; SELECT 2", WRITES),
    "second-writes": ("SELECT 1; DROP VIEW runs", f"DROP.*{WRITES}"),
    "comment-hides": ("SELECT 1 /* ; */ ; -- x\nCOPY (SELECT 1) TO '{part}'", f"COPY.*{WRITES}"),
    "pivot": ("PIVOT runs ON suite USING count(*)", WRITES),
    "none": ("", "there is no statement"),
    "comment-only": ("-- nothing", "there is no statement"),
    "prepare": ("PREPARE x AS SELECT 1", WRITES),
    "execute": ("EXECUTE x", WRITES),
    "transaction": ("BEGIN", WRITES),
    "memory": ("SELECT list(repeat('x', 1000000) || i) FROM range(1000) t(i)",
               "more than 96 MB of memory"),
    "large-text": ("SELECT repeat(repeat('x', 1000000), 100000)", "memory|bytes|size|larger"),
    "spill": ("SELECT count(*) FROM (SELECT DISTINCT i::VARCHAR || repeat('x', 50) FROM "
              "range(20000000) t(i))", "memory|longer"),
    "endless-recursion": ("WITH RECURSIVE t AS (SELECT 1 i UNION ALL SELECT i + 1 FROM t) "
                          "SELECT count(*) FROM t", "longer than 2 s|memory"),
    "cross-join": ("SELECT sum(a.i * b.i + c.i) FROM range(100000) a(i), range(100000) b(i), "
                   "range(1000) c(i)", "longer than 2 s"),
    "deep-parentheses": ("SELECT " + "(" * 20_000 + "1" + ")" * 20_000, "memory exhausted|depth"),
    "deep-sum": ("SELECT " + "+".join(["1"] * 20_000), "depth"),
    "long-text": ("SELECT '" + "x" * 200_000 + "'", "more than 100,000 characters"),
    "nul": ("SELECT 1\0", "NUL character"),
    "surrogate": ("SELECT '\ud800'", "not valid Unicode"),
    "no-such-run": ("FROM items('20250101')", "no run '20250101'"),
    "computed-run": ("FROM items('la' || 'test')", "takes one run by its name as a text"),
    "run-of-a-column": ("SELECT * FROM runs, items(run_id)", "takes one run by its name"),
    "run-that-is-sql": ("FROM items('x''); DROP VIEW runs; --')", "no run"),
    "no-column": ("SELECT scor FROM runs", 'Candidate bindings: "score"'),
    "no-view": ("FROM run", "does not exist.*runs"),
    "syntax": ("SELEC 1", "syntax error"),
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    folder = tmp_path_factory.mktemp("closed")
    store = LocalStore(folder / "store")
    run_outputs(store, folder, {"a": "good", "b'); DROP VIEW runs; --": "bad"})
    sync(store)
    (folder / "secret.txt").write_text(SECRET)
    return store


def asked(store: LocalStore, sql: str, limits: QueryLimits = LIMITS) -> list[tuple[object, ...]]:
    with ask(store, sql, limits) as answer:
        return [row for batch in answer.batches() for row in batch]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_at_more_than_reading_is_refused(store: LocalStore, attempt: str) -> None:
    root = Path(store.url.removeprefix("file://"))
    (part,) = (root / "history" / "runs").rglob("*.parquet")
    sql, reason = ATTEMPTS[attempt]
    sql = sql.replace("{folder}", str(root.parent)).replace("{part}", str(part))
    before = contents(root.parent)
    with pytest.raises(Exception, match=f"(?is){reason}") as refused:
        asked(store, sql)
    assert type(refused.value).__name__ in {"QueryError", "RunNotFoundError"}
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert contents(root.parent) == before


def test_there_are_at_least_sixty_attempts() -> None:
    assert len(ATTEMPTS) >= 60


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT suite, passed, failed FROM runs", [("support", 1, 1)]),
        ("SELECT count(*) FROM cases WHERE NOT passed;", [(1,)]),
        ("FROM assertions SELECT count(*) -- of all", [(2,)]),
        ("SELECT output FROM items('latest') ORDER BY item", [("good",), ("bad",)]),
        ("SELECT count(DISTINCT run_id) FROM items('last') JOIN runs USING (run_id)", [(1,)]),
        ("SELECT case_id FROM cases WHERE NOT passed", [("b'); DROP VIEW runs; --",)]),
        ("WITH t AS (SELECT 1 AS i) FROM t, range(2) r(j), unnest([3]) u(k)",
         [(1, 0, 3), (1, 1, 3)]),
        ("VALUES (1)", [(1,)]),
    ],
)  # fmt: skip
def test_what_only_reads_is_answered(
    store: LocalStore, sql: str, rows: list[tuple[object, ...]]
) -> None:
    assert asked(store, sql) == rows


def test_a_store_without_runs_has_empty_views(tmp_path: Path) -> None:
    assert asked(LocalStore(tmp_path / "none"), "SELECT count(*) FROM runs") == [(0,)]


def test_a_parquet_answer_is_written_to_its_file_only(store: LocalStore, tmp_path: Path) -> None:
    with ask(store, "FROM runs", output=tmp_path / "runs.parquet") as answer:
        with pytest.raises(QueryError, match="disabled by configuration"):
            answer.write_parquet(tmp_path / "other.parquet")
        answer.write_parquet(tmp_path / "runs.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]


@pytest.mark.parametrize(
    "sql",
    ["SELECT " + "abs(" * 900 + "1" + ")" * 900, "SELECT 1" + " + 1" * 900],
    ids=["functions", "operators"],
)
def test_a_deeply_nested_statement_is_read(sql: str) -> None:
    assert parse_statement(sql) == ()
