from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.targets.registry import build
from evalcore.targets.work import Work, messages_of
from evalcore.trust.imports import ImportPolicy

NASTY = "a'b\"c $(touch pwned) `touch pwned`; touch pwned #\\ {id} *\nEOF\ntouch pwned"


def answer(
    folder: Path, command: str | list[str], prompt: str = "hi", timeout_s: float = 30, **more: Any
) -> Evidence:
    target = build(Target("t", "command", {"command": command, **more}))
    messages = messages_of(prompt)
    case = Case("case one", prompt)
    work = Work(case, DEFAULT_VARIANT, 0, 0, prompt, messages, folder, ImportPolicy(), timeout_s)
    assert target.waits(work.case)
    return asyncio.run(target.answer(work))


@pytest.mark.parametrize(
    "command",
    [
        ["cat"],
        "cat",
        ["printf", "%s", "{prompt}"],
        "printf %s {prompt}",
        "printf %s \"{prompt}\"",
        "printf %s '{prompt}'",
        ["cat", "{prompt_file}"],
        "cat {prompt_file}",
        ["cp", "{prompt_file}", "{output_file}"],
        "cat < {prompt_file} > '{output_file}'",
    ],
    ids=str,
)  # fmt: skip
def test_prompt_reaches_the_program_unharmed(tmp_path: Path, command: str | list[str]) -> None:
    assert answer(tmp_path, command, NASTY).output == NASTY
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "echo `echo {prompt}`",
        'echo "$(echo {prompt})"',
        "cat <<END\n{prompt}\nEND\n",
        "cat <<EOF\n{prompt}\nEOF\n",
        "cat <<'EOF'\n{prompt}\nEOF\n",
        "echo \"`echo '{prompt}'`\"",
        "echo ${x:-{prompt}}",
        "true # it's\necho {prompt}",
    ],
)
def test_prompt_is_never_read_as_shell_code(tmp_path: Path, command: str) -> None:
    answer(tmp_path, command, NASTY)
    assert not (tmp_path / "pwned").exists()


def test_id_of_the_case_is_filled_in(tmp_path: Path) -> None:
    assert answer(tmp_path, ["echo", "<{id}>", "{other} ${id}"]).output == (
        "<case one> {other} ${id}"
    )


def test_variable_of_the_shell_is_left_alone(tmp_path: Path) -> None:
    assert answer(tmp_path, "id=7; echo ${id} {id}").output == "7 case one"


def test_prompt_in_an_argument_is_not_the_input_as_well(tmp_path: Path) -> None:
    assert answer(tmp_path, "cat; echo {prompt}").output == "hi"


@pytest.mark.parametrize(
    ("written", "output"),
    [
        (r"a\n", "a"),
        (r"a\n\n", "a\n"),
        (r"a\r\n", "a"),
        (r"a\r", "a\r"),
        ("", ""),
        (r"\377a", "\ufffda"),
    ],
    ids=["newline", "two", "CRLF", "CR", "nothing", "not UTF-8"],
)
def test_answer_lacks_one_newline_at_its_end(tmp_path: Path, written: str, output: str) -> None:
    assert answer(tmp_path, f"printf '{written}'").output == output
    assert answer(tmp_path, f"printf '{written}' > {{output_file}}").output == output


def test_standard_output_is_ignored_beside_an_output_file(tmp_path: Path) -> None:
    assert answer(tmp_path, "echo noise; echo answer > {output_file}").output == "answer"


def test_private_files_are_removed(tmp_path: Path) -> None:
    output = answer(tmp_path, "echo {prompt_file} {output_file} > {output_file}").output or ""
    for file in output.split():
        assert not Path(file).parent.exists()


def test_working_directory_is_relative_to_the_suite(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert answer(tmp_path, "pwd", cwd="sub").output == str((tmp_path / "sub").resolve())


@pytest.mark.parametrize(
    ("command", "more", "kind", "message"),
    [
        ("echo first; echo bad >&2; exit 3", {}, "command", "exit code 3: bad$"),
        ("echo only; exit 3", {}, "command", "exit code 3: only$"),
        ("exit 3", {}, "command", "exit code 3$"),
        ("kill -9 $$", {}, "command", "killed by signal 9$"),
        (
            "echo slow >&2; sleep 1000",
            {"timeout": 5},
            "timeout",
            r"longer than 5 s \(.*\): slow$",
        ),
        (["no-such-program"], {}, "command", "exit code 127: .*no such program$"),
        (["true"], {"cwd": "gone"}, "command", "working directory"),
        ("true {output_file}", {}, "command", "wrote no {output_file}"),
        ("mkfifo {output_file}", {}, "command", "wrote no {output_file}"),
        ("head -c 9000000 /dev/zero", {}, "command", "longer than 8 MiB"),
        ("head -c 9000000 /dev/zero > {output_file}", {}, "command", "longer than 8 MiB"),
        ("echo key sesame! >&2; exit 1", {"env": {"K": "sesame!"}}, "command", r"key \[redacted\]"),
    ],
)
def test_what_is_no_answer_is_an_error(
    tmp_path: Path, command: str | list[str], more: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        answer(tmp_path, command, **more)
    assert caught.value.kind == kind


def test_time_limit_of_the_item_counts_when_it_is_shorter(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"longer than 0\.2 s"):
        answer(tmp_path, "sleep 1000", timeout_s=0.2)


def test_long_complaint_is_cut_to_its_end_without_baring_a_secret(tmp_path: Path) -> None:
    code = "import os,sys; sys.exit('x' * 999 + os.environ['K'] + 'y' * 290)"
    with pytest.raises(TargetError) as caught:
        answer(tmp_path, [sys.executable, "-c", code], env={"K": "open-sesame-open"})
    assert "sesame" not in str(caught.value)
    assert len(str(caught.value)) < 350
