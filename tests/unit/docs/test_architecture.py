"""docs/architecture.md names modules and packages that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
MODULES = sorted(set(re.findall(r"`([\w/]+\.(?:py|sql|toml)|[\w/]+/)`", PAGE)))


def test_the_modules_that_the_page_names_exist() -> None:
    folders = (ROOT, ROOT / "evalcore")
    missing = {name for name in MODULES if not any((each / name).exists() for each in folders)}
    assert missing == set()


def test_the_layers_are_those_of_the_import_contract() -> None:
    block = r"^```\n(__main__ > prefect \| cli > .*?)^```$"
    (shown,) = re.findall(block, PAGE, re.MULTILINE | re.DOTALL)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (inner,) = [one for one in contracts["contracts"] if one["type"] == "layers"]
    assert " ".join(shown.split()) == " > ".join(inner["layers"])
    assert inner["exhaustive"]


def test_every_package_has_a_row_or_a_layer() -> None:
    packages = {path.parent.name for path in (ROOT / "evalcore").glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\b{name}\b", PAGE)} == set()


def test_every_word_of_the_glossary_stands_once_and_in_order() -> None:
    text = (ROOT / "docs/glossary.md").read_text("utf-8")
    words = [word.lower() for word in re.findall(r"^\| `?([\w ]+)`? \|", text, re.MULTILINE)][1:]
    assert words == sorted(set(words))
