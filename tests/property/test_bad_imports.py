"""Whatever stands in a file of another program: it is imported, or the mistake is told.

`EVALCORE_FUZZ=N uv run pytest tests/property/test_bad_imports.py` tries N times as many examples.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from evalcore.errors import EvalError
from evalcore.importers.converted import Notes, suite_text
from evalcore.importers.files import read_foreign_file
from evalcore.importers.registry import ImportOptions, convert, recognise_source
from tests.support.conversions import FILES
from tests.support.examples import FUZZ, examples
from tests.support.suite_mutations import dump, mutated

NAMES = sorted(
    path
    for path in FILES.glob("*/*")
    if path.suffix in (".yaml", ".json", ".jsonl", ".csv") and path.name != "results.json"
)
VALUES = {path: read_foreign_file(path).value for path in NAMES}


def damaged(path: Path) -> st.SearchStrategy[str]:
    return mutated(VALUES[path]).map(lambda value: dump(value, as_json=True))


@pytest.mark.parametrize("check", [None, "judge"])
@given(text=st.sampled_from(NAMES).flatmap(damaged))
@examples(40, derandomize=not FUZZ, database=None, suppress_health_check=list(HealthCheck))
def test_a_damaged_file_is_imported_or_refused(
    check: str | None, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(text, "utf-8", "surrogatepass")
    notes = Notes()
    with warnings.catch_warnings(), contextlib.suppress(EvalError):
        warnings.simplefilter("error", FutureWarning)
        file = read_foreign_file(path)
        suite = convert(file, recognise_source(file), ImportOptions("damaged", check), notes)
        written = suite_text(suite, origin="x", module="m", target=None, notes=notes.lines)
        assert suite.cases
        assert all("\n" not in line for line in notes.lines)
        assert "cases:" in written or "tests:" in written
