"""Completion in bash, zsh and fish, by click's protocol.

Values of commands come from tables, by their words: the module of a command is only imported for
the names of its flags. What goes wrong offers nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from evalcore.cli import completion_values as values
from evalcore.cli.examples import EXAMPLES


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
    files = list(values.suite_files(start))
    # A folder that is deeper down: the shell leads there.
    return _plain(iter(files)) if files else iter([CompletionItem(start, type="file")])


def _runs(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    names = values.run_names(words.flags.get("--store"))
    return (CompletionItem(name, help=about or None) for name, about in names)


def _suite_names(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(values.suite_names(words.flags.get("--store")))


def _cases(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(values.case_ids(words.files))


def _tags(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(values.case_tags(words.files))


def _variants(words: CommandWords, _: str) -> Iterator[CompletionItem]:
    return _plain(values.variant_ids(words.files))


def _baselines(words: CommandWords, start: str) -> Iterator[CompletionItem]:
    yield from _variants(words, start)
    yield from _runs(words, start)


def _gates(_: CommandWords, __: str) -> Iterator[CompletionItem]:
    from evalcore.gates.registry import option_forms

    return _plain(form.partition("=")[0] for form in option_forms().split(", "))


def _stores(_: CommandWords, start: str) -> Iterator[CompletionItem]:
    yield from _plain(values.stores())
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
