from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.registry import CHECKS, load_check
from evalcore.formats.single_assertion import read_single

# How plans store each type of assertion. Identities of gradings are digests of these, so a line is
# never changed: most are from the version before the checks were classes. A new check adds its own.
# `"stored": null` in a new line makes the test print what it is.
LINES = Path(__file__).with_name("stored_forms.jsonl").read_text("utf-8").splitlines()
FORMS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
IDS = [f"{number}-{form['assertion']['type']}" for number, form in enumerate(FORMS)]


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_an_assertion_is_stored_as_before(form: dict[str, Any]) -> None:
    assertion = read_single(form["format"], form["assertion"], Path())
    stored = json.loads(json.dumps(assertion))
    same = json.dumps(stored, sort_keys=True) == json.dumps(form["stored"], sort_keys=True)
    assert same, f"it is stored as {json.dumps(stored)}"


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_a_stored_check_is_read(form: dict[str, Any]) -> None:
    assert form["stored"], "test_an_assertion_is_stored_as_before prints what is stored"
    _, check, _, params, *_ = form["stored"]
    expected = load_check(check, params).expected_text()
    assert expected is None or isinstance(expected, str)


def test_every_check_that_a_file_can_write_has_a_stored_form() -> None:
    written = {name for name, row in CHECKS.items() if row.words}
    missing = written - {form["stored"][1] for form in FORMS if form["stored"]}
    assert not missing, "add lines to stored_forms.jsonl (CONTRIBUTING.md, A check)"
