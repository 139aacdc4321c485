"""Decisions are told by real Apprise to an HTTP receiver on the loopback address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evalcore.cli.main import cli
from evalcore.errors import LoadError, SettingsError
from evalcore.model.run import Decision, NotifyOn, NotifyPolicy
from evalcore.pipeline.finish import view_run
from evalcore.pipeline.notify import send
from evalcore.report.message import DecisionContext, Notice, decision_message
from evalcore.settings import read_settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import find_run, list_runs
from tests.support.message_receiver import Receiver

_HOSTILE = "<b>x</b> *bold* [link](http://e.test) <!channel> @everyone"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.server.shutdown()
    server.server.server_close()


def _suite(folder: Path, notify: str, expected: str, case: str = "a") -> str:
    path = folder / "s.eval.yaml"
    test = {
        "id": case,
        "input": "x",
        "fixtures": {"output": "one"},
        "assertions": [{"type": "contains", "value": expected}],
    }
    path.write_text(f"evalcore: {{notify: {notify}}}\ntests:\n  - {json.dumps(test)}\n")
    return str(path)


def _run(folder: Path, suite: str, **environment: str) -> Result:
    store = str(folder / "store")
    return CliRunner().invoke(
        cli, ["run", suite, "--store", store], env=environment, standalone_mode=False
    )


def test_a_change_of_the_decision_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    for expected in ("one", "two", "two", "one", "one"):
        suite = _suite(tmp_path, "{to: [EVAL_TEAM]}", expected)
        done = _run(tmp_path, suite, EVAL_TEAM=receiver.address)
        assert "notify:" not in done.output
    assert [message["title"] for message in receiver.messages] == [
        "s: fail (was pass)",
        "s: pass (was fail)",
    ]
    text = receiver.messages[0]["message"]
    assert "pass_rate (fail)" in text.replace("\\", "")
    assert "does not contain" in text
    assert "cases" in text.partition("Changed since")[2]


@pytest.mark.parametrize(
    ("on", "decision", "before", "told"),
    [
        (NotifyOn.CHANGE, Decision.PASS, None, False),
        (NotifyOn.CHANGE, Decision.FAIL, None, True),
        (NotifyOn.CHANGE, Decision.FAIL, "fail", False),
        (NotifyOn.CHANGE, Decision.INCONCLUSIVE, "fail", True),
        (NotifyOn.CHANGE, Decision.PASS, "error", True),
        (NotifyOn.FAILURE, Decision.FAIL, "fail", True),
        (NotifyOn.FAILURE, Decision.ERROR, None, True),
        (NotifyOn.FAILURE, Decision.PASS, "fail", False),
        (NotifyOn.ALWAYS, Decision.PASS, "pass", True),
    ],
)
def test_when_a_decision_is_told(
    on: NotifyOn, decision: Decision, before: str | None, told: bool
) -> None:
    assert NotifyPolicy(("X",), on).is_due(decision, before) is told


def test_a_receiver_of_plain_text_has_texts_of_cases_as_they_are(
    tmp_path: Path, receiver: Receiver
) -> None:
    suite = _suite(tmp_path, "{to: [EVAL_TEAM], on: always}", _HOSTILE, case=_HOSTILE)
    _run(tmp_path, suite, EVAL_TEAM=receiver.address)
    assert "- <b>x</b> *bold* [link](http://e.test)" in receiver.messages[0]["message"]


def test_texts_of_cases_are_no_markup_in_html(tmp_path: Path, receiver: Receiver) -> None:
    suite = _suite(tmp_path, "{to: [EVAL_TEAM], on: always}", _HOSTILE, case=_HOSTILE)
    _run(tmp_path, suite, EVAL_TEAM=f"{receiver.address}?format=html")
    text = receiver.messages[0]["message"]
    for markup in ("<b>", "<!", "<a ", "<strong>bold", "<em>"):
        assert markup not in text


def test_texts_of_cases_are_no_markup_in_markdown(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    _run(tmp_path, _suite(tmp_path, "{to: [EVAL_TEAM]}", _HOSTILE, case=_HOSTILE))
    with view_run(find_run(store, next(iter(list_runs(store))).id)) as view:
        message = decision_message(view.report, view.failures(10), DecisionContext())
    for markup in ("<", " *bold*", " [link]", "@", "http://"):
        assert markup not in message.body


def test_secrets_are_not_sent(tmp_path: Path, receiver: Receiver) -> None:
    suite = _suite(tmp_path, "{to: [EVAL_TEAM], on: always}", "tok-5up3r-s3cr3t-value")
    environment = {"EVAL_TEAM": receiver.address, "MY_API_KEY": "tok-5up3r-s3cr3t-value"}
    _run(tmp_path, suite, **environment)
    assert "5up3r" not in json.dumps(receiver.messages)


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({}, "EVAL_TEAM is not set"),
        ({"EVAL_TEAM": "nothing of an address"}, "EVAL_TEAM holds no address"),
        ({"EVAL_TEAM": "json://127.0.0.1:1/s3cret-path-x"}, "EVAL_TEAM did not take the message"),
    ],
)
def test_what_cannot_be_sent_is_a_warning(
    tmp_path: Path, environment: dict[str, str], warning: str
) -> None:
    done = _run(tmp_path, _suite(tmp_path, "{to: [EVAL_TEAM], on: always}", "one"), **environment)
    assert done.return_value == 0
    assert warning in done.output
    assert "s3cret-path-x" not in done.output


def test_a_suite_reads_no_variable_that_is_not_meant_for_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    suite = _suite(tmp_path, "{to: [OTHER_TEAM], on: always}", "one")
    done = _run(tmp_path, suite, OTHER_TEAM=receiver.address)
    assert "OTHER_TEAM is not set, or the suite may not read it" in done.output
    assert not receiver.messages


def test_a_receiver_that_does_not_answer_is_waited_for_so_long_and_no_longer(
    receiver: Receiver,
) -> None:
    receiver.answers.clear()
    warnings = send(Notice("t", "b"), {"SLOW": receiver.address}, timeout_s=0.5)
    receiver.answers.set()
    assert warnings == ("notify: SLOW did not answer within 0.5 s",)


def test_of_two_receivers_one_that_fails_does_not_keep_the_other(receiver: Receiver) -> None:
    both = {"GOOD": receiver.address, "BAD": "json://127.0.0.1:1/x"}
    assert [warning.split()[1] for warning in send(Notice("t", "b"), both)] == ["BAD"]
    assert len(receiver.messages) == 1


@pytest.mark.parametrize(
    "literal", ["slack://a/b/c", "json://user:hunter22@h", "${X}", "${{ EVAL_TEAM }}", "a b"]
)
def test_a_literal_address_is_a_load_error_that_does_not_repeat_it(
    tmp_path: Path, literal: str
) -> None:
    suite = _suite(tmp_path, json.dumps({"to": [literal]}), "one")
    done = _run(tmp_path, suite, EVAL_TEAM="json://user:hunter22@h")
    assert isinstance(done.exception, LoadError)
    assert "s.eval.yaml:1: evalcore.notify.to[0]: is no name of an environment" in str(
        done.exception
    )
    assert "hunter22" not in str(done.exception)


def test_the_configuration_names_receivers(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evalcore.toml").write_text('[notify]\nto = ["OPS"]\non = "always"\n')
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "s.eval.yaml"
    _suite(tmp_path, "{to: [X]}", "one")
    suite.write_text("tests:" + suite.read_text().partition("tests:")[2])
    done = _run(tmp_path, str(suite), OPS=receiver.address)
    assert done.return_value == 0
    assert [message["title"] for message in receiver.messages] == ["s: pass"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('to = ["json://h"]', "notify.to[0]: is no name"),
        (
            'to = ["A"]\non = "never"',
            "notify.on: unknown value 'never'. Known: always, change, failure",
        ),
        ('to = ["A"]\nwhen = "x"', "notify.when: unknown key 'when'"),
    ],
)
def test_a_mistake_in_the_configuration_names_the_key(
    tmp_path: Path, text: str, mistake: str
) -> None:
    (tmp_path / "evalcore.toml").write_text(f"[notify]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings({}, tmp_path)
    assert mistake in str(caught.value)
