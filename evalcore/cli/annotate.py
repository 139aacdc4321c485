"""`evalcore annotate`: answer what a run asks people, one question after another."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from evalcore.annotations.queue import AnnotationQueue, AnnotationTask, awaiting
from evalcore.cli.options import chosen_store, store_option
from evalcore.errors import UsageError
from evalcore.judging.prompts import conversation_text
from evalcore.storage.run_names import choose_run
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

_COMMANDS = {"u": "undo", "s": "skip", "q": "quit"}
_COMMENT = " # "


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--as",
    "annotator",
    metavar="NAME",
    envvar="EVALCORE_ANNOTATOR",
    help="Whose labels they are.  [default: EVALCORE_ANNOTATOR, else the user's name]",
)
@store_option
def annotate(run_id: str, annotator: str | None, store: str | None) -> None:
    """Answer what RUN asks people: input and output, without variant and other people's answers.

    An answer is a label, its number, or a step of the scale; `yes # reason` adds a comment. `s`
    skips, `u` takes back the last label, `q` quits. Answers may be piped in, one a line.
    """
    opened = chosen_store(store)
    name = annotator or getpass.getuser()
    with awaiting(opened, choose_run(opened, run_id)) as queue:
        session = _Session(queue, name)
        for damage in queue.damaged:
            _show(f"warning: {damage.key} {damage.reason}; it is asked again", err=True)
        session.run()
        left = queue.progress
    labels = counted(session.stored, "label")
    _show(f"{labels} of {name} stored; {left.missing} missing in the run")
    if not left.missing and left.tasks:
        _show(f"evalcore regrade {queue.run_id}  decides with them")


class _Session:
    """Asks one annotator; `stored` counts the labels that stand at the end."""

    def __init__(self, queue: AnnotationQueue, annotator: str) -> None:
        self._queue, self._annotator = queue, annotator
        self._is_terminal = sys.stdin.isatty()
        self._skipped: set[str] = set()
        self.stored = 0

    def run(self) -> None:
        """Ask until nothing is left, the annotator quits, or the input ends."""
        while (task := self._queue.next_task(self._annotator)) is not None:
            if task.id in self._skipped and not self._is_terminal:
                return
            for line in self._lines(task):
                click.echo(sanitize_terminal(line))
            if not self._ask(task):
                return

    def _ask(self, task: AnnotationTask) -> bool:
        """Take one answer; return whether to go on."""
        shown_at = time.monotonic()
        while True:
            click.echo("> ", nl=False)
            line = sys.stdin.readline()
            if not line:
                click.echo()
                return False
            text = line.strip()
            command = _command(task, text)
            if command == "quit":
                return False
            if command == "skip":
                self._skipped.add(task.id)
                self._queue.skip(self._annotator, task)
                return True
            if command == "undo":
                if self._queue.undo(self._annotator, at=_now()) is None:
                    _show("there is no label to take back")
                    continue
                self.stored = max(0, self.stored - 1)
                return True
            if self._store(task, text, round(time.monotonic() - shown_at, 3)):
                return True

    def _store(self, task: AnnotationTask, text: str, seconds: float) -> bool:
        answer, _, comment = text.partition(_COMMENT)
        labels, number = task.form.labels, answer.strip()
        if labels is not None and number.isdigit() and number not in labels:
            position = int(number)
            answer = labels[position - 1] if 0 < position <= len(labels) else answer
        try:
            self._queue.answer(
                task, self._annotator, answer, at=_now(), comment=comment.strip(), seconds=seconds
            )
        except UsageError as error:
            # A person can answer again; of a file the next line would answer another question.
            if not self._is_terminal:
                raise
            _show(f"{error}; or s, u, q")
            return False
        self.stored += 1
        return True

    def _lines(self, task: AnnotationTask) -> Iterator[str]:
        content, progress = self._queue.content(task), self._queue.progress
        yield f"─── {progress.complete} of {progress.tasks} complete ───"
        yield "Input:"
        yield conversation_text(content.input)
        yield "Output:"
        yield content.output
        yield ""
        yield task.question
        if task.instructions:
            yield task.instructions
        if task.form.labels is None:
            choices = f"a number, {task.form.described}"
        else:
            numbered = enumerate(task.form.labels, start=1)
            choices = ", ".join(f"{number} {label}" for number, label in numbered)
        yield f"[{choices}; s skip, u undo, q quit]"


def _command(task: AnnotationTask, text: str) -> str | None:
    """Return what a line asks for, unless it is one of the labels."""
    if task.form.labels is not None and text in task.form.labels:
        return None
    return _COMMANDS.get(text.lower()) or (text.lower() if text in _COMMANDS.values() else None)


def _show(text: str, *, err: bool = False) -> None:
    click.echo(sanitize_terminal(text), err=err)


def _now() -> str:
    # To the microsecond: `undo` takes back the last one.
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
