"""From addresses to stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import UsageError
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.s3 import S3Settings, S3Store


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("evals", "evals"),
        ("./evals/", "evals"),
        ("{here}/a b%20c", "a b%20c"),
        ("file://{here}/a%20b", "a b"),
        ("file://localhost{here}/a", "a"),
    ],
)
def test_a_folder_opens_a_local_store(
    address: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(address.format(here=tmp_path))
    assert isinstance(store, LocalStore)
    assert store.url == (tmp_path / folder).as_uri()
    assert list(tmp_path.iterdir()) == []


def test_a_store_does_not_move_with_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("evals")
    monkeypatch.chdir("/")
    store.put("a", b"")
    assert (tmp_path / "evals" / "a").exists()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a", "s3://bucket/a"),
    ],
)
def test_an_s3_address_opens_an_s3_store(address: str, url: str) -> None:
    store = open_store(address, s3=S3Settings(endpoint_url="http://127.0.0.1:1"))
    assert isinstance(store, S3Store)
    assert store.url == url


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "a\0b",
        "s3://",
        "s3:///prefix",
        "s3:bucket/prefix",
        "s3:/bucket",
        "s3://bucket/a?endpoint=x",
        "s3://bucket/../a",
        "file:/data",
        "file://otherhost/data",
        "file://",
        "gs://bucket/prefix",
        "https://host/bucket",
        "{file}",
    ],
)
def test_an_address_of_another_form_says_which_forms_there_are(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=r"(s3://bucket/prefix|file:///folder)"):
        open_store(address.format(file=file), s3=S3Settings())


@pytest.mark.parametrize("address", ["s3://key:geheim@bucket/a", "ftp://me:geheim@host/a"])
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(address)
    assert "geheim" not in str(caught.value)
