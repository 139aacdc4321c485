"""Which files count as the code of a module or a command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.identity import code_names
from evalcore.suites.define import Behaviours, LocalNames
from evalcore.trust.code_digests import CodeDigests


def digest(folder: Path, named: dict[str, Any]) -> str | None:
    (name,) = code_names(named)
    return CodeDigests(folder, folder).digest(name)


def write(folder: Path, name: str, text: str = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


FILES = {
    ".gitignore": "*_generated.py\n/build/\n!kept_generated.py\n",
    "own.py": "import helper\n",
    "pkg/deep/helper.py": "",
    "kept_generated.py": "",
    "pkg/build/inner.py": "",
    "pkg/.gitignore": "local.py\n",
    "local.py": "",
}
LEFT_OUT = {
    "a_generated.py": "",
    "build/out.py": "",
    "pkg/local.py": "",
    "pkg/__pycache__/own.py": "",
    ".hidden/own.py": "",
    "node_modules/own.py": "",
    "environment/pyvenv.cfg": "",
    "environment/lib/own.py": "",
    "data.json": "{}",
    "notes.pyx": "",
}


def write_all(folder: Path) -> Path:
    for name, text in {**FILES, **LEFT_OUT}.items():
        write(folder, name, text)
    return folder


def changed_by(folder: Path, named: dict[str, Any], names: Iterable[str]) -> set[str]:
    """Return the files whose change changes the digest of what is named."""
    before, changed = digest(folder, named), set()
    for name in names:
        text = (folder / name).read_text()
        write(folder, name, f"{text}# changed\n")
        if digest(folder, named) != before:
            changed.add(name)
        write(folder, name, text)
    assert digest(folder, named) == before
    return changed


def test_a_function_counts_with_all_python_below_the_root(tmp_path: Path) -> None:
    write_all(tmp_path)
    named = {"callable": "own:run"}
    python = {name for name in FILES if name.endswith(".py")}
    assert changed_by(tmp_path, named, [*python, *LEFT_OUT]) == python
    before = digest(tmp_path, named)
    (tmp_path / "pkg" / "deep" / "helper.py").rename(tmp_path / "pkg" / "helper.py")
    assert digest(tmp_path, named) != before


def test_the_root_is_that_of_the_suite_s_repository(tmp_path: Path) -> None:
    write_all(tmp_path)
    write(tmp_path, ".git/HEAD")
    suite = tmp_path / "evals"
    write(suite, "mine.py")
    before = digest(suite, {"callable": "mine:run"})
    write(tmp_path, "pkg/deep/helper.py", "x = 2\n")
    assert digest(suite, {"callable": "mine:run"}) != before


def test_a_module_below_the_current_folder_counts_with_that_folder(tmp_path: Path) -> None:
    suite, current = tmp_path / "suite", tmp_path / "current"
    write(suite, "a.py")
    write(current, "there.py")
    write(current, "beside.py")
    (name,) = code_names({"callable": "there:run"})
    before = CodeDigests(suite, current).digest(name)
    write(current, "beside.py", "x = 1\n")
    assert CodeDigests(suite, current).digest(name) != before


def test_links_that_lead_round_in_a_circle_or_out_of_the_root_are_not_followed(
    tmp_path: Path,
) -> None:
    root = write_all(tmp_path / "root")
    before = digest(root, {"callable": "own:run"})
    write(tmp_path, "outside/other.py")
    (root / "pkg" / "loop").symlink_to(root)
    (root / "outside").symlink_to(tmp_path / "outside")
    assert digest(root, {"callable": "own:run"}) == before


def test_the_place_of_a_checkout_does_not_count(tmp_path: Path) -> None:
    one, two = (write_all(tmp_path / place) for place in ("one", "two"))
    assert digest(one, {"callable": "own:run"}) == digest(two, {"callable": "own:run"})


def test_without_python_below_the_root_there_is_no_digest(tmp_path: Path) -> None:
    assert digest(tmp_path, {"callable": "json:loads"}) is None
    assert digest(tmp_path, {"command": ["python", "-c", "print(1)"]}) is None


PROGRAMS = {"grader.py": "", "words.py": "", "run.sh": "python grader.py", "settings.json": "{}"}


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "grader.py"], {"grader.py", "words.py"}),
        ("bash -c 'python grader.py | tee settings.json'", {"grader.py", "words.py"}),
        ("python grader.py 2>>run.sh", {"grader.py", "words.py"}),
        ("./run.sh", {"run.sh", "grader.py", "words.py"}),
        (["python", "-m", "grader"], {"grader.py", "words.py"}),
        (["pytest", "grader.py::test_it"], {"grader.py", "words.py"}),
        (
            ["node", "{prompt}", "--config=settings.json"],
            {"settings.json", "grader.py", "words.py"},
        ),
        (["echo", "hello"], set()),
        (["cat", "/etc/passwd"], set()),
        ("echo 'an open quote", set()),
    ],
    ids=lambda value: str(value) if isinstance(value, str | list) else "files",
)
def test_a_command_counts_with_the_files_among_its_words_and_python(
    tmp_path: Path, command: Any, named: set[str]
) -> None:
    for name, text in PROGRAMS.items():
        write(tmp_path, name, text)
    assert changed_by(tmp_path, {"command": command}, PROGRAMS) == named


def test_a_command_is_looked_for_in_its_own_folder_too(tmp_path: Path) -> None:
    write(tmp_path, "there/run.sh", "x")
    assert digest(tmp_path, {"command": ["./run.sh"], "cwd": "there"}) is not None
    assert digest(tmp_path, {"command": ["./run.sh"]}) is None


def test_a_function_counts_with_its_module(tmp_path: Path) -> None:
    path = write(tmp_path, "module_of_functions.py", "import beside_it\ndef f():\n    pass\n")
    write(tmp_path, "beside_it.py", "x = 1")

    def behaviour() -> str:
        scope: dict[str, Any] = {"__name__": "module_of_functions"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        return LocalNames().describe(scope["f"])["behaviour"]

    sys.path.insert(0, str(tmp_path))
    try:
        before = behaviour()
        assert behaviour() == before
        write(tmp_path, "beside_it.py", "x = 2")
        assert behaviour() != before
    finally:
        sys.path.remove(str(tmp_path))


def in_notebook(text: str) -> Any:
    """Return `f` of a text that no file holds."""
    scope: dict[str, Any] = {"__name__": "notebook"}
    exec(compile(text, "<cell>", "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(): return 1", "def f(): return 2"),
        ("def f(x): return x.a", "def f(x): return x.b"),
        ("def f(): return {1, 2}", "def f(): return {1, 3}"),
        ("def f(): return (lambda: 1)()", "def f(): return (lambda: 2)()"),
        ("def f(x=1): return x", "def f(x=2): return x"),
        ("n = 1\ndef f(): return n", "n = 2\ndef f(): return n"),
        ("def g(): return 1\ndef f(): return g()", "def g(): return 2\ndef f(): return g()"),
        ("s = {'a'}\ndef f(): return s", "s = {'b'}\ndef f(): return s"),
    ],
)
def test_without_a_file_the_code_itself_counts(one: str, other: str) -> None:
    behaviours = Behaviours()
    assert behaviours.of(in_notebook(one)) == behaviours.of(in_notebook(one))
    assert behaviours.of(in_notebook(one)) != behaviours.of(in_notebook(other))


def test_two_processes_agree_on_the_digest_of_code(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from evalcore.suites.define import Behaviours\n"
        "scope = {'__name__': 'notebook'}\n"
        'exec(compile(\'s = {"a", "b", "c"}\\ndef f(x): return x in {"p", "q", "r"} or s\','
        " '<cell>', 'exec'), scope)\n"
        "print(Behaviours().of(scope['f']))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
