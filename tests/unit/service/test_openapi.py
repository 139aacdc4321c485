"""What the OpenAPI document says that FastAPI does not say by itself."""

from __future__ import annotations

from pathlib import Path

from evalcore.service.app import create_application
from evalcore.service.auth import RateLimiter, Tokens
from evalcore.service.context import Parts
from evalcore.service.db import open_database
from evalcore.storage.address import open_store


def test_a_form_has_no_fields_beyond_those_of_its_shape(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/evalcore.db")
    parts = Parts(database, open_store(str(tmp_path)), Tokens(database), RateLimiter(0))
    document = create_application(parts).openapi()
    body = document["paths"]["/v1/files"]["post"]["requestBody"]
    shape = body["content"]["multipart/form-data"]["schema"]["$ref"].rpartition("/")[2]
    form = document["components"]["schemas"][shape]
    assert list(form["properties"]) == ["file"]
    assert form["additionalProperties"] is False
