"""The suites of a Python file: which they are, how their functions are named, its mistakes."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from evalcore.errors import LoadError
from evalcore.formats.options import LoadOptions
from evalcore.model.suite import Suite
from evalcore.suites.run import load_module_suites
from evalcore.trust.imports import ImportPolicy

HEAD = """\
from evalcore import define_suite
def answer(case_input): return case_input
def define(name, flow=answer, **more):
    return define_suite(name, flow, [{"id": "a", "input": "x"}], ["v"], **more)
"""


def load(folder: Path, text: str, *, portable: bool = False, file: str = "evals.py") -> list[Suite]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_module_suites(
        path, LoadOptions(), ImportPolicy((path.parent, folder)), portable=portable
    )


def mistakes(folder: Path, text: str, *, portable: bool = False, file: str = "evals.py") -> str:
    with pytest.raises(LoadError) as raised:
        load(folder, text, portable=portable, file=file)
    return str(raised.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("b = define('b')\na = define('a')\n", ["b", "a"]),
        ("a = define('a')\nsame = a\n_hidden = define('b')\n", ["a"]),
        ("suites = [define('a'), define('b')]\n", ["a", "b"]),
        ("def suites():\n    yield define('a')\n    yield define('b')\n", ["a", "b"]),
        ("def suites(): return define('a')\n", ["a"]),
        ("if __name__ == '__main__':\n    raise SystemExit\na = define('a')\n", ["a"]),
    ],
    ids=["public names", "each once", "a list", "a generator", "a function", "main is not called"],
)
def test_the_suites_of_a_file_come_in_the_order_of_its_names(
    text: str, names: list[str], tmp_path: Path
) -> None:
    assert [suite.definition.name for suite in load(tmp_path, HEAD + text)] == names


def test_functions_are_named_by_the_module_that_defines_them(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("class Tone:\n    def score(self, a): ...\n")
    text = """\
from parts import Tone
tone = Tone()
a = define("a", scorers=[tone, {"callable": Tone, "name": "mood"}])
"""
    (suite,) = load(tmp_path, HEAD + text, portable=True)
    (target,) = suite.definition.targets.values()
    assert target.options["callable"] == "evals:answer"
    assert [scorer.params["callable"] for scorer in suite.definition.scorers] == [
        "evals:tone",
        "parts:Tone",
    ]
    assert not suite.objects


def test_a_file_in_a_package_is_imported_as_its_module(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").touch()
    (tmp_path / "pack/parts.py").write_text("def reply(case_input): return case_input\n")
    text = "from .parts import reply\na = define('a', reply)\nb = define('b')\n"
    for suite, name in zip(
        load(tmp_path, HEAD + text, file="pack/evals.py"),
        ("pack.parts:reply", "pack.evals:answer"),
        strict=True,
    ):
        (target,) = suite.definition.targets.values()
        assert target.options["callable"] == name


def test_a_lambda_stays_in_its_process_and_is_refused_for_others(tmp_path: Path) -> None:
    text = HEAD + "a = define('a', lambda case_input: case_input)\n"
    (suite,) = load(tmp_path, text)
    assert list(suite.objects) == ["local:lambda"]
    message = mistakes(tmp_path, text, portable=True)
    assert message.startswith("evals.py:4: suite 'a': other processes cannot import lambda;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nimport sys\nsys.exit(0)\n", "evals.py:3: ends the process when it is imported"),
        ("\n1 / 0\n", "evals.py:2: importing it failed: ZeroDivisionError: division by zero"),
        ("x = 1\nx =\n", "evals.py:2: importing it failed: SyntaxError: invalid syntax"),
        ("import absent_module\n", "evals.py:1: importing it failed: ModuleNotFoundError"),
        ("def suites():\n    return [1]\n", "evals.py: `suites` has int where a suite"),
        ("suites = None\n", "evals.py: importing it failed: TypeError: 'NoneType' object is"),
        ("def suites():\n    raise KeyError('k')\n", "evals.py:2: importing it failed: KeyError"),
        ("x = 1\n", "evals.py: has no suite: write `suite = define_suite(…)`"),
    ],
)
def test_a_mistake_has_the_line_of_the_file(text: str, message: str, tmp_path: Path) -> None:
    assert mistakes(tmp_path, text).startswith(message)


def test_all_mistakes_of_a_definition_stand_at_its_line(tmp_path: Path) -> None:
    text = """\
    from evalcore import define_suite

    suite = define_suite(
        name="n",
        flow="missing:f",
        cases=[{"id": "a", "input": 1, "assertions": [{"type": "contain"}]}],
        variants=["v"],
        baseline="w",
    )
    """
    lines = mistakes(tmp_path, dedent(text)).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["evals.py:3:"] * len(lines)
    assert "Did you mean 'contains'?" in "".join(lines)
    assert "no variant is called 'w'" in "".join(lines)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("my-evals.py", "for example to my_evals.py"),
        ("json.py", "Python's standard library has a module json"),
    ],
)
def test_a_file_that_cannot_be_imported_by_its_name_is_refused(
    file: str, message: str, tmp_path: Path
) -> None:
    assert message in mistakes(tmp_path, HEAD, file=file)
