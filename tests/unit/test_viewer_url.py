"""The setting `viewer_url`: where people reach the viewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import SettingsError
from evalcore.settings import read_settings


@pytest.mark.parametrize("address", ["https://evals.example.org/ui/", "http://[::1]:8322"])
def test_an_address_is_taken_without_its_last_slash(tmp_path: Path, address: str) -> None:
    settings = read_settings({"EVALCORE_VIEWER_URL": address}, tmp_path)
    assert settings.viewer_url == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "evals.example.org",
        "javascript:alert(1)",
        "https://",
        "https://me:secret@x",
        "http://x/?a=1",
    ],
)
def test_what_no_page_can_be_appended_to_is_refused(tmp_path: Path, address: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "evalcore.toml").write_text(f'viewer_url = "{address}"\n')
    for environment in ({"EVALCORE_VIEWER_URL": address}, {}):
        with pytest.raises(SettingsError, match=r"https://evals\.example\.org/ui"):
            read_settings(environment, tmp_path)
