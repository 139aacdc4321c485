"""Whatever stands in a file: a suite loads and can be run, or the mistake is told; never a crash.

`EVALCORE_FUZZ=N uv run pytest tests/property/test_bad_input.py` tries N times as many examples, new
ones each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalcore.errors import EvalError, LoadError
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.run import Decision
from evalcore.model.suite import Suite
from evalcore.pipeline.finish import evaluate
from evalcore.storage.local import LocalStore
from tests.support.examples import FUZZ, examples
from tests.support.shell import evalcore
from tests.support.suite_mutations import (
    CSV,
    JSONL,
    MANIFEST,
    REFERRING_EVALS,
    REFERRING_TESTS,
    TARGETS,
    TEST_FILE,
    WORKFLOW,
    dump,
    mutated,
    scribbled,
)

JARGON = re.compile(r"Traceback|pydantic|Input should|Field required|Extra inputs|object at 0x")
CALLED_NOTHING = frozenset({"echo", "mock", "fixture", "workflow"})

values = st.sampled_from([WORKFLOW, TEST_FILE]).flatmap(mutated)
texts = st.sampled_from(
    [
        ("suite.yaml", dump(WORKFLOW, as_json=False)),
        ("suite.json", dump(TEST_FILE, as_json=True)),
        ("suite.eval.yaml", dump(TEST_FILE, as_json=False)),
        ("cases.jsonl", JSONL),
        ("cases.csv", CSV),
    ]
).flatmap(lambda pair: st.tuples(st.just(pair[0]), scribbled(pair[1])))
anything = st.tuples(
    st.sampled_from(["a.yaml", "b.json", "c.jsonl", "d.csv", "e.parquet", "f.txt"]),
    st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
)
options = st.builds(
    LoadOptions,
    strict=st.booleans(),
    cases=st.sampled_from([frozenset(), frozenset({"refund", "nope"})]),
    tags=st.sampled_from([frozenset(), frozenset({"money"})]),
    variants=st.sampled_from([frozenset(), frozenset({"base"})]),
    target=st.sampled_from([None, None, "echo"]),
    iterations=st.sampled_from([None, 1]),
)


def mutations(count: int) -> settings:
    return examples(
        count, derandomize=not FUZZ, database=None, suppress_health_check=list(HealthCheck)
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A repository with what suite files refer to; each example overwrites its own file."""
    with TemporaryDirectory() as name:
        path = Path(name)
        (path / ".git").mkdir()
        (path / ".env").write_text("EVAL_X=x\n")
        (path / "x").write_text("- {id: a, input: a, output: b}\n")
        yield path


def attempt(path: Path, chosen: LoadOptions) -> Suite | None:
    """Load the file; check the suite that it gives or the message of its mistakes."""
    try:
        suite = load_suite(path, chosen)
    except EvalError as error:
        check_message(error, path)
        return None
    cases = list(suite.cases)
    assert len(cases) == len(suite.cases) > 0
    assert [case.id for case in cases] == [case.id for case in suite.cases]
    assert len({case.id for case in cases}) == len(cases)
    return suite


def check_message(error: EvalError, path: Path) -> None:
    others = ("x", "targets.yaml", "custom/assertions/tone.yaml")
    files = [path.name, *(str(path.parent / name) for name in others)]
    assert any(name in str(error) for name in files)
    assert not JARGON.search(str(error)), str(error)
    if not isinstance(error, LoadError):
        return
    assert len(error.problems) == len(set(error.problems)), str(error)
    for problem in error.problems:
        assert problem.message
        assert problem.line is None or problem.line >= 1
        if problem.path and path.suffix != ".parquet":
            assert problem.line is not None, str(problem)
        if "not valid" in problem.message:
            assert problem.line is not None, str(problem)


@given(value=values, as_json=st.booleans(), chosen=options)
@mutations(80)
def test_a_changed_suite_loads_or_its_mistakes_are_told(
    folder: Path, value: Any, as_json: bool, chosen: LoadOptions
) -> None:
    path = folder / ("changed.json" if as_json else "changed.yaml")
    path.write_text(dump(value, as_json=as_json), encoding="utf-8", errors="surrogatepass")

    attempt(path, chosen)


@given(named=texts, chosen=options)
@mutations(80)
def test_a_scribbled_file_loads_or_its_mistakes_are_told(
    folder: Path, named: tuple[str, bytes], chosen: LoadOptions
) -> None:
    path = folder / named[0]
    path.write_bytes(named[1])

    attempt(path, chosen)


@given(named=anything)
@mutations(60)
def test_any_bytes_load_or_their_mistakes_are_told(folder: Path, named: tuple[str, bytes]) -> None:
    path = folder / named[0]
    path.write_bytes(named[1])

    attempt(path, LoadOptions())


@given(targets=mutated(TARGETS), manifest=mutated(MANIFEST))
@mutations(40)
def test_files_that_suites_refer_to_are_checked_too(
    folder: Path, targets: Any, manifest: Any
) -> None:
    own = folder / "referring"
    (own / "custom/assertions").mkdir(parents=True, exist_ok=True)
    (own / "custom/assertions/tone.py").write_text("")
    (own / "targets.yaml").write_text(dump(targets, as_json=False), "utf-8", "surrogatepass")
    (own / "custom/assertions/tone.yaml").write_text(
        dump(manifest, as_json=False), "utf-8", "surrogatepass"
    )
    (own / "tests.yaml").write_text(dump(REFERRING_TESTS, as_json=False))
    (own / "evals.yaml").write_text(dump(REFERRING_EVALS, as_json=False))

    attempt(own / "tests.yaml", LoadOptions())
    attempt(own / "evals.yaml", LoadOptions())


@given(value=values)
@mutations(16)
def test_whatever_loads_can_be_run(folder: Path, value: Any) -> None:
    path = folder / "run.yaml"
    path.write_text(dump(value, as_json=False), encoding="utf-8", errors="surrogatepass")
    suite = attempt(path, LoadOptions())
    if suite is None or len(suite.cases) * suite.definition.policy.iterations > 50:
        return
    if {target.kind for target in suite.definition.targets.values()} - CALLED_NOTHING:
        return

    with (
        TemporaryDirectory() as store,
        evaluate(suite, LocalStore(Path(store))) as view,
    ):
        assert view.report.decision in Decision
        assert view.report.summary.counts.add_up
        assert view.json()


@pytest.mark.multiprocess
@given(value=values, named=texts | anything, command=st.sampled_from(["run", "validate", "plan"]))
@mutations(6)
def test_the_command_line_never_shows_a_traceback(
    folder: Path, value: Any, named: tuple[str, bytes], command: str
) -> None:
    (folder / "cli.yaml").write_text(dump(value, as_json=False), "utf-8", "surrogatepass")
    (folder / named[0]).write_bytes(named[1])

    done = evalcore(command, "cli.yaml", named[0], cwd=folder)

    said = done.out + done.err
    assert done.code in range(5), said
    assert "Traceback" not in said
    assert "internal error" not in said.lower()
    assert said
