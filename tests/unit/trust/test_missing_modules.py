"""Which modules importing a suite's code fails for; nothing is imported to know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import UsageError
from evalcore.trust.imports import ImportPolicy


def check(folder: Path, text: str, reference: str = "mine:answer") -> None:
    (folder / "mine.py").write_text(f"{text}\ndef answer(case): ...\n")
    ImportPolicy((folder,), ("absent_package",)).check_modules(reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "import no_such_module.part", "mine.py:1 imports 'no_such_module'", id="import"
        ),
        pytest.param("from no_such_module import x", "mine.py:1 imports 'no_such", id="from"),
        pytest.param("import helper", "helper.py:2 imports 'no_such_module'", id="through a file"),
        pytest.param(
            "from .helper import x",
            "mine.py:1 imports '.helper', but 'mine' is in no package; write the import without",
            id="relative, in no package",
        ),
    ],
)
def test_a_module_that_is_not_installed_is_named_with_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "helper.py").write_text("import mine\nimport no_such_module\n")
    with pytest.raises(UsageError, match=message):
        check(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import json, pytest", id="installed"),
        pytest.param("try:\n    import no_such_module\nexcept ImportError: ...", id="in a try"),
        pytest.param("def later():\n    import no_such_module", id="in a function"),
        pytest.param("import sys\nsys.path.append('x')\nimport no_such_module", id="other paths"),
    ],
)
def test_what_may_be_imported_is_no_mistake(tmp_path: Path, text: str) -> None:
    check(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "from .absent import x", "answer.py:1 imports '.absent', and there", id="name"
        ),
        pytest.param("from ..above import x", "which is above 'package'", id="above the package"),
        pytest.param(
            "from .part import x", "part.py:1 imports 'no_such_module'", id="through a file"
        ),
        pytest.param("from . import part", None, id="of the package"),
        pytest.param("from .built import x", None, id="a compiled module"),
    ],
)
def test_relative_imports_are_followed_in_their_package(
    tmp_path: Path, text: str, message: str | None
) -> None:
    package = tmp_path / "folder" / "package"
    package.mkdir(parents=True)
    (package / "answer.py").write_text(f"{text}\ndef answer(case): ...\n")
    (package / "part.py").write_text("import no_such_module\n")
    (package / "built.cpython-311-x86_64-linux-gnu.so").touch()
    # The file is below both roots, and the name decides of which package it is.
    policy = ImportPolicy((package, package.parent))
    if message is None:
        policy.check_modules("package.answer:answer")
        return
    with pytest.raises(UsageError, match=message):
        policy.check_modules("package.answer:answer")


def test_an_allowed_module_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no module 'absent_package'; install it"):
        check(tmp_path, "", "absent_package:answer")
