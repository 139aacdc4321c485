"""The page of the service names every operation and every setting, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from evalcore.cli.main import cli
from evalcore.service.app import create_application
from evalcore.service.auth import RateLimiter, Tokens
from evalcore.service.context import Context
from evalcore.service.db import open_database
from evalcore.storage.address import open_store

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/service.md").read_text("utf-8")
MODULES = (
    *(ROOT / "evalcore/service").rglob("*.py"),
    *(ROOT / "evalcore/client").rglob("*.py"),
    ROOT / "evalcore/cli/serve.py",
)


@pytest.fixture
def openapi(tmp_path: Path) -> dict[str, Any]:
    database = open_database(f"sqlite:///{tmp_path}/evalcore.db")
    store = open_store(str(tmp_path / "store"))
    context = Context(database, store, Tokens(database), RateLimiter(0))
    return create_application(context).openapi()


def test_the_page_names_the_operations_of_the_openapi_document(openapi: dict[str, Any]) -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, methods in openapi["paths"].items()
        for method in methods
    }
    named = re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) [^` ]+)` \|", PAGE, re.MULTILINE)
    assert set(named) == operations
    assert len(named) == len(operations)


def test_the_page_names_every_status_of_a_refusal(openapi: dict[str, Any]) -> None:
    statuses = {
        status
        for methods in openapi["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
        if status >= "4"
    }
    (sentence,) = re.findall(r"^Errors are .*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"\b[45]\d\d\b", sentence.partition(". ")[0])) == statuses


def test_the_page_names_every_flag_of_the_service() -> None:
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    flags = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    assert {flag for flag in flags - {"--help"} if f"`{flag}`" not in PAGE} == set()


def test_the_page_names_every_variable_that_the_service_and_its_clients_read() -> None:
    named = {
        name
        for path in MODULES
        for name in re.findall(r"\bEVALCORE_[A-Z_]*[A-Z]\b", path.read_text("utf-8"))
    }
    assert {name for name in named if f"`{name}`" not in PAGE} == set()
    assert "`PREFECT_API_URL`" in PAGE
