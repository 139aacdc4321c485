"""Where the key that signs plans comes from, and who else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from evalcore.errors import SettingsError
from evalcore.trust.plan_keys import key_file, key_id, read_plan_keys

RUN = "20260518T100000Z-0a1b2c"
OTHER = "20260518T100000Z-ffffff"
KEY = "a key of sixteen characters or more"


def own(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder)}


def test_the_users_own_key_is_made_once_and_read_by_nobody_else(tmp_path: Path) -> None:
    first, second = read_plan_keys(own(tmp_path)), read_plan_keys(own(tmp_path))
    path = tmp_path / "evalcore" / "plan.key"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.key"]
    assert first.of_run(RUN) == second.of_run(RUN) is not None
    assert (first.required, first.of_user) == (False, True)
    assert path.read_text().strip() not in repr(first)


def test_it_stands_in_the_state_folder(tmp_path: Path) -> None:
    assert key_file({"HOME": "/home/me"}) == Path("/home/me/.local/state/evalcore/plan.key")
    assert key_file(own(tmp_path)) == tmp_path / "evalcore/plan.key"
    assert key_file({"HOME": "/home/me", "XDG_STATE_HOME": "relative"}) == key_file(
        {"HOME": "/home/me"}
    )
    assert key_file({}) is None


@pytest.mark.parametrize("spoiled", ["mode", "link", "empty", "no folder", "no digits"])
def test_a_key_that_others_may_know_is_not_used(tmp_path: Path, spoiled: str) -> None:
    trusted = read_plan_keys(own(tmp_path)).of_run(RUN)
    path = tmp_path / "evalcore" / "plan.key"
    if spoiled == "mode":
        path.chmod(0o640)
    elif spoiled == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif spoiled == "empty":
        path.write_text("")
    elif spoiled == "no digits":
        path.write_text("z" * 64)
    else:
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("a file")
    keys = read_plan_keys(own(tmp_path))

    # This process has one that ends with it.
    assert keys.of_run(RUN) not in (trusted, None)
    assert keys.of_run(RUN) == read_plan_keys({}).of_run(RUN)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_makes_nothing_in_the_home_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    keys = read_plan_keys({"HOME": str(tmp_path)})

    assert list(tmp_path.iterdir()) == []
    assert keys.of_run(RUN) == read_plan_keys({}).of_run(RUN)


def test_a_key_of_the_environment_comes_first_and_is_required(tmp_path: Path) -> None:
    keys = read_plan_keys({**own(tmp_path), "EVALCORE_PLAN_KEY": KEY})

    assert (keys.required, keys.of_user) == (True, False)
    assert keys.of_run(RUN) == read_plan_keys({"EVALCORE_PLAN_KEY": f" {KEY}\n"}).of_run(RUN)
    assert not (tmp_path / "evalcore").exists()
    assert KEY not in repr(keys)


@pytest.mark.parametrize("text", ["abc", "123456789012345"])
def test_a_short_key_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="EVALCORE_PLAN_KEY is too short") as raised:
        read_plan_keys({"EVALCORE_PLAN_KEY": text})
    assert text not in str(raised.value)


def test_each_run_has_a_key_of_its_own() -> None:
    keys = read_plan_keys({"EVALCORE_PLAN_KEY": KEY})
    one, other = keys.of_run(RUN), keys.of_run(OTHER)
    assert one is not None
    assert other is not None
    assert one != other
    assert key_id(one) != key_id(other)


def test_a_worker_process_has_the_key_of_its_run_only() -> None:
    keys = read_plan_keys({"EVALCORE_PLAN_KEY": KEY})
    of_worker = read_plan_keys({"EVALCORE_RUN_KEY": keys.for_worker(RUN)})

    assert of_worker.required
    assert of_worker.of_run(RUN) == keys.of_run(RUN)
    assert of_worker.of_run(OTHER) is None
    assert of_worker.for_worker(RUN) == keys.for_worker(RUN)
