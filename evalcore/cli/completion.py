"""Completion in bash, zsh and fish, by click's protocol.

Values of commands come from tables, by their words: the module of a command is only imported for
the names of its flags. What goes wrong offers nothing and prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from evalcore.cli.examples import EXAMPLES
from evalcore.errors import EvalError


@dataclass(frozen=True, slots=True)
class CommandWords:
    """The words before the one that is completed: the command, its arguments, its flags' values."""

    path: str
    arguments: tuple[str, ...]
    flags: Mapping[str, str]
    last_flag: str | None

    @property
    def files(self) -> list[Path]:
        """The suite files among the arguments."""
        return [path for path in map(Path, self.arguments) if path.is_file()]


Values = Callable[[CommandWords, str], Iterator[CompletionItem]]


def _plain(texts: Iterator[str]) -> Iterator[CompletionItem]:
    return (CompletionItem(text) for text in dict.fromkeys(texts))


def _suites(_: CommandWords, start: str) -> Iterator[CompletionItem]:
    files = list(suite_files(start))
    # A folder that is deeper down: the shell leads there.
    return _plain(iter(files)) if files else iter([CompletionItem(start, type="file")])


def _runs(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    names = run_names(words.flags.get("--store"))
    return (CompletionItem(name, help=about or None) for name, about in names)


def _suite_names(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(suite_names(words.flags.get("--store")))


def _cases(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(case_ids(words.files))


def _tags(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(case_tags(words.files))


def _variants(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(variant_ids(words.files))


def _baselines(words: CommandWords, start: str) -> Iterator[CompletionItem]:
    yield from _variants(words, start)
    yield from _runs(words, start)


def _gates(_: CommandWords, __: str) -> Iterator[CompletionItem]:
    from evalcore.gates.registry import option_forms

    return _plain(form.partition("=")[0] for form in option_forms().split(", "))


def _stores(_: CommandWords, start: str) -> Iterator[CompletionItem]:
    yield from _plain(stores())
    yield CompletionItem(start, type="dir")


def _formats(_: CommandWords, __: str) -> Iterator[CompletionItem]:
    from evalcore.model.suite import Format

    return _plain(iter(Format))


# The last one stands for all arguments after it.
_ARGUMENTS: Final[Mapping[str, tuple[Values, ...]]] = {
    **dict.fromkeys(("run", "record", "validate", "plan"), (_suites,)),
    **dict.fromkeys(("report", "compare", "annotate", "annotations export"), (_runs,)),
    **dict.fromkeys(
        tuple(f"runs {name}" for name in ("cancel", "delete", "show", "verify", "watch")), (_runs,)
    ),
    "regrade": (_runs, _suites),
    "baseline set": (_suite_names, _runs),
    **dict.fromkeys(("baseline show", "baseline clear", "history show"), (_suite_names,)),
    "schema": (_formats,),
    "view": (_stores,),
}
_FLAGS: Final[Mapping[str, Values]] = {
    **dict.fromkeys(("--case", "--cases"), _cases),
    **dict.fromkeys(("--tag", "--exclude-tag"), _tags),
    **dict.fromkeys(("--resume", "--run", "--failed"), _runs),
    "--variant": _variants,
    "--baseline": _baselines,
    "--gate": _gates,
    "--store": _stores,
    "--suite": _suite_names,
}
_SUITE_COMMANDS: Final = frozenset({"run", "record", "validate", "plan", "regrade", "assert"})


def complete(arguments: Sequence[str], incomplete: str) -> list[CompletionItem] | None:
    """Return what may stand in place of `incomplete`; None leaves it to the command's own flags."""
    if incomplete.startswith("--") and "=" in incomplete:
        flag, _, incomplete = incomplete.partition("=")
        arguments = [*arguments, flag]
    elif incomplete == "=":
        incomplete = ""
    words = _parse([word for word in arguments if word != "="])
    completer = _values_of(words)
    if words.last_flag is None and incomplete.startswith("-"):
        return None
    if completer is not None:
        items = completer(words, incomplete)
        return [item for item in items if str(item.value).startswith(incomplete)]
    if words.last_flag is None and not words.arguments and (names := _members(words.path)):
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return None


def _values_of(words: CommandWords) -> Values | None:
    if words.last_flag is not None:
        if words.last_flag == "--format" and words.path in _SUITE_COMMANDS:
            return _formats
        return _FLAGS.get(words.last_flag)
    listed = _ARGUMENTS.get(words.path)
    return None if listed is None else listed[min(len(words.arguments), len(listed) - 1)]


def _members(path: str) -> list[str]:
    """Return the commands below a group, of which the examples have all words."""
    start = f"{path} " if path else ""
    below = (command.removeprefix(start) for command in EXAMPLES if command.startswith(start))
    return list(dict.fromkeys(words.split()[0] for words in below))


def _parse(words: Sequence[str]) -> CommandWords:
    path = ""
    arguments: list[str] = []
    flags: dict[str, str] = {}
    flag: str | None = None
    for word in words:
        if flag is not None:
            flags[flag], flag = word, None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                flags[name] = value
            elif name in _FLAGS or name == "--format":
                flag = name
        elif not arguments and _is_command(f"{path} {word}".strip()):
            path = f"{path} {word}".strip()
        else:
            arguments.append(word)
    return CommandWords(path, tuple(arguments), flags, flag)


def _is_command(path: str) -> bool:
    return any(command == path or command.startswith(f"{path} ") for command in EXAMPLES)


def _may_be_value(words: Sequence[str]) -> bool:
    """Whether the word after these may be the value of a flag that only its command knows."""
    return bool(words) and words[-1].startswith("-") and words[-1] not in _FLAGS


class _Quiet(ShellComplete):
    """Completes from the tables first, and offers nothing where anything fails."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what the shell offers."""
        try:
            items = complete(args, incomplete)
            if items is None or _may_be_value(args):
                return super().get_completions(args, incomplete) or items or []
            return items
        # A message in the middle of a command line would be worse than no help.
        except (Exception, SystemExit):  # noqa: BLE001
            return []


def register_shells() -> None:
    """Let click complete by these tables in all shells that it knows."""
    shells: tuple[type[Any], ...] = (BashComplete, ZshComplete, FishComplete)
    for shell in shells:
        add_completion_class(type(shell.__name__, (_Quiet, shell), {}))


RUN_NAMES: Final = ("latest", "last", "last-pass", "main")
_SUITE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_ROW_SUFFIXES: Final = (".jsonl", ".csv", ".parquet")
# A key at the top level that only suites have, or the function that makes one.
_SUITE_TEXT: Final = re.compile(
    rb"""^\s{0,4}["']?(?:tests|cases|eval|evals|suites|workflow)["']?\s*:""", re.MULTILINE
)
_PYTHON_SUITE: Final = b"define_suite"
_HEAD_BYTES: Final = 65_536
_MOST_BYTES: Final = 1 << 20
_DEEPEST, _MOST_FOLDERS, _MOST_FILES, _MOST_RUNS = 3, 200, 500, 50
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages"})


def suite_files(start: str) -> Iterator[str]:
    """Yield the suite files whose path begins so, up to three folders below it."""
    folder = start.rpartition("/")[0] + "/" if "/" in start else ""
    listed = 0
    for path in _files_below(folder):
        if path.startswith(start) and _is_suite(Path(path)):
            yield path
            listed += 1
            if listed == _MOST_FILES:
                return


def _files_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder as the user would write them, nearest first."""
    level, visited = [folder], 0
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for each in level:
            visited += 1
            if visited > _MOST_FOLDERS:
                return
            with suppress(OSError):
                for entry in sorted(os.scandir(each or "."), key=lambda entry: entry.name):
                    if entry.name.startswith(".") or entry.name in _SKIPPED:
                        continue
                    if entry.is_dir():
                        below.append(f"{each}{entry.name}/")
                    else:
                        yield f"{each}{entry.name}"
        level = below


def _is_suite(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix in _ROW_SUFFIXES:
        return True
    # JSON that is not named as a suite mostly is something else: a report, a schema.
    if suffix == ".json" and not path.name.endswith(".eval.json"):
        return False
    if suffix not in (*_SUITE_SUFFIXES, ".py"):
        return False
    with suppress(OSError), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        return _PYTHON_SUITE in head if suffix == ".py" else bool(_SUITE_TEXT.search(head))
    return False


def run_names(store: str | None) -> Iterator[tuple[str, str]]:
    """Yield names of runs with a line about each: words first, then the newest ids of a folder."""
    for name in RUN_NAMES:
        yield name, ""
    runs: list[tuple[str, str]] = []
    for suite in _folders(_runs_folder(store)):
        runs.extend((run.name, suite.name) for run in _folders(suite))
    yield from sorted(runs, reverse=True)[:_MOST_RUNS]


def suite_names(store: str | None) -> Iterator[str]:
    """Yield the names of the suites that have runs in a store that is a folder."""
    from urllib.parse import unquote

    for folder in _folders(_runs_folder(store)):
        yield unquote(folder.name)


def _runs_folder(store: str | None) -> Path | None:
    """Return the folder of runs; None for a store elsewhere, which takes too long to ask."""
    if store is None:
        from evalcore.settings import read_settings

        store = read_settings(os.environ, Path.cwd()).store
    return None if "://" in store else Path(store) / "runs"


def _folders(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []


def stores() -> Iterator[str]:
    """Yield the folders of the current one that are stores."""
    for folder in _folders(Path()):
        if (folder / "runs").is_dir():
            yield str(folder)


def case_ids(files: Iterable[Path]) -> Iterator[str]:
    """Yield the ids of the cases that stand in suite files, in their order."""
    for raw in _cases_completion_values(files):
        name = raw.get("id") or raw.get("name")
        if isinstance(name, str | int):
            yield str(name)


def case_tags(files: Iterable[Path]) -> Iterator[str]:
    """Yield the tags of the cases that stand in suite files."""
    for raw in _cases_completion_values(files):
        tags = raw.get("tags")
        yield from map(str, tags if isinstance(tags, list) else ())


def variant_ids(files: Iterable[Path]) -> Iterator[str]:
    """Yield the ids of the variants of suite files."""
    for document in map(_document, files):
        section = document.get("evalcore")
        listed = document.get("variants") or (
            section.get("variants") if isinstance(section, Mapping) else None
        )
        for variant in listed if isinstance(listed, list) else ():
            name = variant.get("id") if isinstance(variant, Mapping) else variant
            if isinstance(name, str):
                yield name


def _cases_completion_values(files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    for path in files:
        rows = _rows(path) if path.suffix.lower() == ".jsonl" else _listed(_document(path))
        yield from (row for row in rows if isinstance(row, Mapping))


def _listed(document: Mapping[str, Any]) -> Iterator[Any]:
    section = document.get("eval")
    owner = section if isinstance(section, Mapping) else document
    for key in ("tests", "cases", "evals"):
        if isinstance(owner.get(key), list):
            yield from owner[key]
    groups = document.get("suites")
    for group, suite in groups.items() if isinstance(groups, Mapping) else ():
        tests = suite.get("tests") if isinstance(suite, Mapping) else None
        yield from ({"id": f"{group}/{test}"} for test in tests or ())


def _rows(path: Path) -> Iterator[Any]:
    if _is_small(path):
        for line in path.read_bytes().splitlines():
            if line.strip():
                yield orjson.loads(line)


def _document(path: Path) -> Mapping[str, Any]:
    """Return a suite file as it is written; nothing of a large one."""
    if path.suffix.lower() not in _SUITE_SUFFIXES or not _is_small(path):
        return {}
    from evalcore.formats.includes import read_script_document

    with suppress(EvalError):
        raw = read_script_document(path, str(path)).document.value
        return raw if isinstance(raw, Mapping) else {}
    return {}


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _MOST_BYTES
