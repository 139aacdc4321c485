from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalcore.errors import NotAllowedError, UsageError
from evalcore.trust.imports import ImportPolicy


@pytest.fixture(autouse=True)
def unchanged_interpreter() -> Iterator[None]:
    modules, hooks, path = dict(sys.modules), list(sys.meta_path), list(sys.path)
    yield
    sys.meta_path[:], sys.path[:] = hooks, path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.modules.update(modules)


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        file = root / (name.replace("__init__", "\0").replace("__", "/").replace("\0", "__init__"))
        file = file.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def returning(value: str) -> str:
    return f"def answer():\n    return {value!r}\n"


def test_function_beside_the_suite_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, mine=returning("hello"))
    assert ImportPolicy(roots=(tmp_path,)).load("mine:answer")() == "hello"


def test_module_in_a_package_without_init_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, bare__deep__mine=returning("deep"))
    assert ImportPolicy(roots=(tmp_path,)).load("bare.deep.mine:answer")() == "deep"


def test_equal_module_names_in_two_folders_stay_two_modules(tmp_path: Path) -> None:
    text = "import aid\ndef answer():\n    return aid.WORD\n"
    one = write(tmp_path / "one", twin=text, aid="WORD = 'one'\n")
    two = write(tmp_path / "two", twin=text, aid="WORD = 'two'\n")
    first = ImportPolicy(roots=(one,)).load("twin:answer")
    second = ImportPolicy(roots=(two,)).load("twin:answer")
    assert (first(), second()) == ("one", "two")


def test_helper_of_another_suite_is_out_of_sight(tmp_path: Path) -> None:
    one = write(tmp_path / "one", first="import lone\ndef answer(): ...\n", lone="")
    two = write(tmp_path / "two", second="import lone\ndef answer(): ...\n")
    ImportPolicy(roots=(one,)).load("first:answer")
    with pytest.raises(UsageError, match="No module named 'lone'"):
        ImportPolicy(roots=(two,)).load("second:answer")


def test_a_file_named_flows_is_found_beside_the_suite_while_prefect_executes(
    tmp_path: Path,
) -> None:
    importlib.import_module("evalcore.prefect.flows")
    text = "from flows import WORD\ndef answer():\n    return WORD\n"
    suite = write(tmp_path, mine=text, flows="WORD = 'suite'\n")
    assert ImportPolicy(roots=(suite,)).load("mine:answer")() == "suite"


def test_import_inside_a_function_finds_its_neighbour(tmp_path: Path) -> None:
    write(
        tmp_path,
        lazy="def answer():\n    import late_aid\n    return late_aid.WORD\n",
        late_aid="WORD = 'late'\n",
    )
    assert ImportPolicy(roots=(tmp_path,)).load("lazy:answer")() == "late"


def test_module_that_python_has_loaded_from_that_file_is_the_same_one() -> None:
    root = Path(inspect.getfile(ImportPolicy)).parents[2]
    assert ImportPolicy(roots=(root,)).load("evalcore.trust.imports:ImportPolicy") is ImportPolicy


@pytest.mark.parametrize("loaded_before", [False, True])
def test_package_installed_from_the_current_folder_is_the_same_for_everybody(
    tmp_path: Path, loaded_before: bool
) -> None:
    project = write(tmp_path / "project", ours____init__="", ours__kinds="class Kind: ...\n")
    text = "from ours.kinds import Kind\ndef answer(): return Kind\n"
    suite = write(project / "suites", mine=text)
    other = write(tmp_path / "other", hers=text)
    sys.path.insert(0, str(project))  # as an editable installation does
    if loaded_before:
        importlib.import_module("ours")

    kinds = {
        ImportPolicy(roots=(suite, project)).load("mine:answer")(),
        ImportPolicy(roots=(other, project)).load("hers:answer")(),
        importlib.import_module("ours.kinds").Kind,
    }
    assert len(kinds) == 1


@pytest.mark.parametrize(
    "reference", ["os:system", "subprocess:run", "pydantic.main:create_model", "evalcore.errors:x"]
)
def test_what_lies_outside_the_roots_is_refused(tmp_path: Path, reference: str) -> None:
    with pytest.raises(NotAllowedError, match=f"--allow-import {reference.partition(':')[0]}"):
        ImportPolicy(roots=(tmp_path,)).load(reference)


def test_module_outside_a_root_is_refused_without_being_imported(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", spring="raise SystemError('ran')\n")
    sys.path.insert(0, str(elsewhere))
    with pytest.raises(NotAllowedError, match="spring"):
        ImportPolicy(roots=(tmp_path / "root",)).load("spring:answer")
    assert "spring" not in sys.modules


@pytest.mark.parametrize("allowed", ["os.path", "os"])
def test_listed_module_and_what_lies_below_it_is_allowed(allowed: str) -> None:
    import posixpath

    policy = ImportPolicy(allowed=(allowed, "posixpath"))
    assert policy.load("os.path:join") is posixpath.join


def test_listed_name_does_not_grant_a_longer_name() -> None:
    with pytest.raises(NotAllowedError, match="'json'"):
        ImportPolicy(allowed=("js", "json.decoder")).load("json:loads")


def test_function_that_a_listed_module_imported_is_refused() -> None:
    with pytest.raises(NotAllowedError, match="'subprocess' is a module"):
        ImportPolicy(allowed=("asyncio",)).load("asyncio.subprocess:subprocess.run")
    with pytest.raises(NotAllowedError, match="--allow-import posixpath"):
        ImportPolicy(allowed=("os",)).load("os.path:join")


def test_private_machinery_cannot_be_named(tmp_path: Path) -> None:
    write(tmp_path, mine=returning("x"))
    with pytest.raises(NotAllowedError, match="__globals__"):
        ImportPolicy(roots=(tmp_path,)).load("mine:answer.__globals__.get")


def test_without_roots_only_the_list_counts() -> None:
    with pytest.raises(NotAllowedError, match="only that counts"):
        ImportPolicy().load("mine:answer")


def test_file_that_is_a_link_to_outside_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "outside", evil=returning("evil"))
    root = write(tmp_path / "root", mine="")
    (root / "evil.py").symlink_to(tmp_path / "outside" / "evil.py")
    with pytest.raises((NotAllowedError, UsageError), match="evil"):
        ImportPolicy(roots=(root,)).load("evil:answer")


def test_package_that_is_a_link_to_outside_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "outside", evil=returning("evil"))
    root = write(tmp_path / "root", mine="")
    (root / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises((NotAllowedError, UsageError), match="evil"):
        ImportPolicy(roots=(root,)).load("linked.evil:answer")


def test_link_within_the_root_is_followed(tmp_path: Path) -> None:
    root = write(tmp_path / "root", real=returning("real"))
    (root / "alias.py").symlink_to(root / "real.py")
    (tmp_path / "also").symlink_to(root)
    assert ImportPolicy(roots=(tmp_path / "also",)).load("alias:answer")() == "real"


def test_missing_module_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path, my_target=returning("x"))
    with pytest.raises(UsageError, match=r"no module 'my_targt'.*Did you mean 'my_target'"):
        ImportPolicy(roots=(tmp_path,)).load("my_targt:answer")


def test_missing_function_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path, mine=returning("x"))
    with pytest.raises(UsageError, match=r"'mine' has no 'anwser'.*Did you mean 'answer'"):
        ImportPolicy(roots=(tmp_path,)).load("mine:anwser")


def test_value_that_cannot_be_called_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, mine="answer = 42\n")
    with pytest.raises(UsageError, match="not callable but of type int"):
        ImportPolicy(roots=(tmp_path,)).load("mine:answer")


@pytest.mark.parametrize(
    "reference", ["", "mine", "mine:", ":answer", "a/b:c", "../a:b", ".a:b", "a b:c", "a:b:c"]
)
def test_reference_of_another_shape_is_a_mistake(tmp_path: Path, reference: str) -> None:
    with pytest.raises(UsageError, match="module:function"):
        ImportPolicy(roots=(tmp_path,)).load(reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no luck')\n", "ValueError: no luck"),
        ("def answer(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
    ],
    ids=["exception", "syntax", "exit", "missing import"],
)
def test_module_that_fails_to_load_is_reported(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, broken=text)
    with pytest.raises(UsageError, match=message):
        ImportPolicy(roots=(tmp_path,)).load("broken:answer")


def test_file_named_like_the_standard_library_is_explained(tmp_path: Path) -> None:
    write(tmp_path, statistics=returning("mine"))
    with pytest.raises(NotAllowedError, match="standard library"):
        ImportPolicy(roots=(tmp_path,)).load("statistics:answer")
