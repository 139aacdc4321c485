"""One assertion on its own, in the words of a format: what `evalcore assert` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalcore.errors import LoadError, UsageError
from evalcore.formats.graders import Graders
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Format
from evalcore.problems import Problems

FORMATS = (Format.WORKFLOW_HARNESS, Format.TEST_FILE, Format.SUITE, Format.WORKFLOW_EVALS)


def read_single(format_: str, raw: Any, folder: Path) -> Assertion:
    """Return the assertion; raise `LoadError` where the format's loader would refuse it."""
    problems = Problems("assertion", lambda _: None)
    if format_ == Format.WORKFLOW_HARNESS:
        from evalcore.formats.workflow_harness.assertions import read_assertion

        assertion = read_assertion(raw, (), problems, block=None, folder=folder)
    elif format_ == Format.TEST_FILE:
        from evalcore.formats.assertion_files import program_assertions
        from evalcore.formats.test_file.assertions import AssertionReader

        reader = AssertionReader(Graders(folder), program_assertions(folder))
        assertion = reader.read(raw, (), problems)
    elif format_ == Format.SUITE:
        from evalcore.formats.documents import Renames
        from evalcore.formats.suite_file.assertions import SuiteAssertions

        assertion = SuiteAssertions(Graders(folder), Renames()).read(raw, (), problems)
    elif format_ == Format.WORKFLOW_EVALS:
        from evalcore.formats.workflow_evals.assertions import read_assertion as read_condition

        assertion = read_condition(raw, (), problems)
    else:
        names = ", ".join(FORMATS)
        raise UsageError(f"no single assertions of format '{format_}'; formats: {names}")
    problems.raise_if_any()
    if assertion is None:
        raise LoadError(())
    return assertion
