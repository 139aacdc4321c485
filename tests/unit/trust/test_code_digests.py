"""Which files count as the code of a module or a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.code_names import code_names
from evalcore.suites.local_names import LocalNames
from evalcore.trust.code_digests import CodeDigests
from evalcore.trust.imported_names import imported_names
from evalcore.trust.local_objects import Behaviours


def digest(folder: Path, named: dict[str, Any]) -> str | None:
    (name,) = code_names(named)
    return CodeDigests(folder, folder).digest(name)


def write(folder: Path, name: str, text: str = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "package", "expected"),
    [
        ("import a.b, c", "", {"a.b", "c"}),
        ("from a import b", "", {"a", "a.b"}),
        ("from . import b", "p.q", {"p.q", "p.q.b"}),
        ("from .x import y", "p", {"p.x", "p.x.y"}),
        ("from .. import z", "p.q", {"p", "p.z"}),
        ("from ... import z", "p", {"z"}),
        ("def f():\n    import inner", "", {"inner"}),
        ("import importlib\nimportlib.import_module('a.b')", "", {"importlib", "a.b"}),
        ("from importlib import import_module as m", "", {"importlib", "importlib.import_module"}),
        ("__import__('a')", "", {"a"}),
        ("import_module('.x', __package__)", "p", {"p.x"}),
        ("import_module(name)", "p", set()),
        ("from p import *", "", {"p"}),
        ("__all__ = ['x']", "p", {"p.x"}),
        ("no python at all", "", set()),
        ("\0", "", set()),
    ],
)
def test_imports_are_read_from_the_text(text: str, package: str, expected: set[str]) -> None:
    assert imported_names(text.encode(), package) == expected


MODULES = {
    "own.py": "import helper\nfrom pkg.sub import deep\nimport yaml, json\n",
    "helper.py": "def f():\n    import lazy\n",
    "lazy.py": "import own\n",  # a circle
    "pkg/__init__.py": "from .base import thing\n",
    "pkg/base.py": "thing = 1\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "from .. import late\n",
    "pkg/late.py": "",
    "pkg/alone.py": "",
    "unrelated.py": "",
}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_counts_with_all_that_it_imports_below_the_root(tmp_path: Path, name: str) -> None:
    for each, text in MODULES.items():
        write(tmp_path, each, text)
    before = digest(tmp_path, {"callable": "own:run"})
    write(tmp_path, name, MODULES[name] + "# changed\n")
    after = digest(tmp_path, {"callable": "own:run"})
    assert (after == before) is (name in {"pkg/alone.py", "unrelated.py"})


@pytest.mark.parametrize(
    "text",
    [
        "sys.path.insert(0, 'lib')",
        "sys.path.append(str(Path(__file__).parent / 'lib'))",
        "sys.path[:0] = []\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))",
    ],
)
def test_a_folder_that_a_module_puts_on_the_path_is_looked_into(tmp_path: Path, text: str) -> None:
    write(tmp_path, "own.py", f"import os, sys\n{text}\nimport deep\n")
    write(tmp_path, "lib/deep.py", "import deeper\n")
    write(tmp_path, "lib/deeper.py", "x = 1\n")
    before = digest(tmp_path, {"callable": "own:run"})
    write(tmp_path, "lib/deeper.py", "x = 2\n")
    assert digest(tmp_path, {"callable": "own:run"}) != before


def test_what_is_installed_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, ".venv/lib/python3/site-packages/other.py", "x = 1")
    assert digest(tmp_path, {"callable": "other:run"}) is None
    assert digest(tmp_path, {"callable": "json:loads"}) is None
    assert digest(tmp_path, {"callable": "evalcore.version:run"}) is None


def test_what_is_installed_in_place_from_below_the_root_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "src/in_place/__init__.py", "from in_place import inner\n")
    write(tmp_path, "src/in_place/inner.py", "x = 1\n")
    assert digest(tmp_path, {"callable": "in_place:run"}) is None
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    before = digest(tmp_path, {"callable": "in_place:run"})
    write(tmp_path, "src/in_place/inner.py", "x = 2\n")
    assert before != digest(tmp_path, {"callable": "in_place:run"}) is not None


def test_a_module_that_leads_out_of_the_root_does_not_count(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outside = write(tmp_path, "outside.py", "x = 1")
    root.mkdir()
    (root / "linked.py").symlink_to(outside)
    assert digest(root, {"callable": "linked:run"}) is None


def test_the_place_of_a_checkout_does_not_count(tmp_path: Path) -> None:
    digests = set()
    for place in ("one", "two"):
        for each, text in MODULES.items():
            write(tmp_path / place, each, text)
        digests.add(digest(tmp_path / place, {"callable": "own:run"}))
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "grader.py"], {"grader.py", "words.py"}),
        ("python grader.py --flag", {"grader.py", "words.py"}),
        ("./run.sh", {"run.sh", "grader.py", "words.py"}),
        ("bash -c 'python grader.py | tee out'", {"grader.py", "words.py"}),
        ("cd inner && python tool.py", {"inner/tool.py", "inner/near.py"}),
        (["bash", "-c", "cd inner; exec python 'tool.py'"], {"inner/tool.py", "inner/near.py"}),
        (["python", "-m", "package.run"], {"package/__init__.py", "package/run.py"}),
        (["python", "-m", "package"], {"package/__init__.py", "package/__main__.py"}),
        (["python", "-c", "import words; print(1)"], {"words.py"}),
        (["python", "{prompt}", "--config=settings.json"], {"settings.json"}),
        (["pytest", "grader.py::test_it"], {"grader.py", "words.py"}),
        (["with space.py"], {"with space.py", "words.py"}),
        (["bun", "run", "grade.ts"], {"grade.ts", "lib/score.ts"}),
        (["./program"], {"program", "words.py"}),
        ("cat grader.py > unnamed.py", {"grader.py", "words.py"}),
        ("./program 2>>unnamed.py >'settings.json' | tee -a unnamed.py", {"program", "words.py"}),
        (["sh", "-c", "echo call >> unnamed.py; cat words.py 2>&1"], {"words.py"}),
        ("sort settings.json > words.py && cat words.py", {"settings.json", "words.py"}),
        ("python grader.py '->' settings.json", {"grader.py", "words.py", "settings.json"}),
        (["echo", "hello"], set()),
        (["cat", "/etc/passwd"], set()),
        ("echo 'an open quote", set()),
    ],
    ids=lambda value: str(value) if isinstance(value, str | list) else "files",
)
def test_a_command_counts_with_the_files_that_it_names(
    tmp_path: Path, command: Any, named: set[str]
) -> None:
    files = {
        "grader.py": "import words",
        "words.py": "",
        "run.sh": "#!/bin/sh\npython grader.py\n",
        "inner/tool.py": "import near",
        "inner/near.py": "",
        "package/__init__.py": "",
        "package/run.py": "",
        "package/__main__.py": "",
        "settings.json": "{}",
        "with space.py": "import words",
        "grade.ts": 'import { score } from "./lib/score"\n',
        "lib/score.ts": "",
        "program": "#!/usr/bin/env python3\nimport words\n",
        "unnamed.py": "",
    }
    for name, text in files.items():
        write(tmp_path, name, text)
    before = digest(tmp_path, {"command": command})
    counted = set()
    for name, text in files.items():
        write(tmp_path, name, f"{text}\n")
        if digest(tmp_path, {"command": command}) != before:
            counted.add(name)
        write(tmp_path, name, text)
    assert counted == named


def test_a_command_is_looked_for_in_its_own_folder_too(tmp_path: Path) -> None:
    write(tmp_path, "there/run.py", "x = 1")
    before = digest(tmp_path, {"command": ["python", "run.py"], "cwd": "there"})
    assert before is not None
    assert digest(tmp_path, {"command": ["python", "run.py"]}) is None


def test_arguments_of_a_server_are_words_of_its_command(tmp_path: Path) -> None:
    write(tmp_path, "server.py")
    assert digest(tmp_path, {"command": "python", "args": ["server.py"]}) is not None


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each, text in MODULES.items():
        write(tmp_path, each, text)
    read: list[Path] = []
    plain = Path.read_bytes

    def counted(path: Path) -> bytes:
        read.append(path)
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    digests = CodeDigests(tmp_path, tmp_path)
    digests.digests(f"python {name}" for name in ("own", "helper", "pkg.alone"))
    assert len(read) == len(set(read)) > 5


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


def test_closures_count_and_addresses_do_not() -> None:
    class Held:
        def __init__(self, value: Any) -> None:
            self.value = value

    def made(value: Any) -> Any:
        return lambda output: value in output

    behaviours = Behaviours()
    for value, other in [(1, 2), ({"a"}, {"b"}), (b"a", b"b"), (Held(1), Held(2))]:
        assert behaviours.of(made(value)) != behaviours.of(made(other))
    assert behaviours.of(made(Held(object()))) == behaviours.of(made(Held(object())))


def test_two_processes_agree_on_the_digest_of_code(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from evalcore.trust.local_objects import Behaviours\n"
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
