from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalcore.checks.registry import CHECKS, load_check
from evalcore.formats.single_assertions import read_single

# How plans store each type of assertion. Identities of gradings are digests of these, so a line is
# never changed: most are from the version before the checks were classes. A new check adds its own.
# `"stored": null` in a new line makes the test print what it is.
LINES = Path(__file__).with_name("stored_forms.jsonl").read_text("utf-8").splitlines()
FORMS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def test_assertions_are_stored_as_before_and_read() -> None:
    for number, form in enumerate(FORMS, 1):
        assertion = read_single(form["format"], form["assertion"], Path())
        stored = json.loads(json.dumps(assertion))
        same = json.dumps(stored, sort_keys=True) == json.dumps(form["stored"], sort_keys=True)
        assert same, f"line {number}: it is stored as {json.dumps(stored)}"
        _, check, _, params, *_ = form["stored"]
        expected = load_check(check, params).expected_text()
        assert expected is None or isinstance(expected, str), number


def test_every_check_that_a_file_can_write_has_a_stored_form() -> None:
    written = {name for name, row in CHECKS.items() if row.words}
    missing = written - {form["stored"][1] for form in FORMS if form["stored"]}
    assert not missing, "add lines to stored_forms.jsonl (CONTRIBUTING.md, A check)"
