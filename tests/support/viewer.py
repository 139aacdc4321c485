"""The viewer in this process, over stores that small runs were made in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from evalcore.storage.address import open_store
from evalcore.viewer.app import create_viewer
from evalcore.viewer.site import Site
from tests.support.shell import evalcore


def run_suite(folder: Path, document: dict[str, Any], *flags: str) -> str:
    """Run a suite into `folder/store` and return the run's id."""
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(document))
    import orjson

    ended = evalcore("run", "suite.yaml", "--json", *flags, store=folder / "store", cwd=folder)
    return str(orjson.loads(ended.out)["run"]["id"])


@contextmanager
def viewer(store: Path, prefix: str = "") -> Iterator[TestClient]:
    """Give a client of the viewer's application."""
    application = create_viewer(Site(open_store(str(store)), prefix))
    with pages_with_history(), TestClient(application, base_url="http://127.0.0.1") as client:
        yield client


@contextmanager
def pages_with_history() -> Iterator[None]:
    """Let the pages of this process wait for the history, however busy the machine is.

    After ten seconds they would show what the history has by then.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalcore.viewer.sync._PATIENCE_S", 120.0)
        yield


def own_page(client: TestClient) -> None:
    """Let the client's requests come from a page of the viewer."""
    client.headers["origin"] = "http://127.0.0.1"
