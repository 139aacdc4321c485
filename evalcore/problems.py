"""All mistakes of a document, each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evalcore.errors import LoadError, Problem
from evalcore.redaction.redactor import PROCESS
from evalcore.wording import Loc, Locate, counted, path_text

if TYPE_CHECKING:
    from pydantic import ValidationError


MAX_PROBLEMS = 100


class Problems:
    """Collects the mistakes of one load; at most `MAX_PROBLEMS` are kept, all are counted.

    `replaced` says what of the row that is being read could not be stored (`jsonvalues`).
    """

    def __init__(self, file: str, locate: Locate, *, cheap: bool = False) -> None:
        """Take the function that finds lines; `cheap` says that calling it costs nothing."""
        self.file = file
        self.locate = locate
        self.cheap = cheap
        self.noted: list[Problem] = []
        self.count = 0
        self.replaced: tuple[str, ...] = ()

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake at a path of the document; `label` is put before the message."""
        self.count += 1
        if self.count <= MAX_PROBLEMS:
            # A message may quote a line of the file.
            text = PROCESS.message(f"{label}: {message}" if label else message)
            self.noted.append(Problem(self.file, self.locate(loc), path_text(loc), text))

    def add_invalid(
        self, error: ValidationError, value: Any, shape: Any, prefix: Loc = (), *, label: str = ""
    ) -> list[Loc]:
        """Note every mistake of pydantic's `error` in `value`, of `shape`, which is at `prefix`.

        Returns the paths into `value` of what is wrong.
        """
        from evalcore.shapes import explain

        wrong = list(explain(error, value, shape))
        for loc, message in wrong:
            self.add((*prefix, *loc), message, label=label)
        return [loc for loc, _ in wrong]

    def check_shape(self, value: Any, shape: Any, loc: Loc = (), *, label: str = "") -> bool:
        """Note every mistake in `value`, which stands at `loc`; return whether it has the shape."""
        return self.wrong_paths(value, shape, loc, label=label) is None

    def wrong_paths(
        self, value: Any, shape: Any, loc: Loc = (), *, label: str = ""
    ) -> list[Loc] | None:
        """Note every mistake in `value`; return their paths into it, None if it has the shape."""
        from pydantic import ValidationError

        from evalcore.shapes import adapter

        try:
            adapter(shape).validate_python(value)
        except ValidationError as error:
            return self.add_invalid(error, value, shape, loc, label=label)
        return None

    def sound_part(self, value: Any, shape: Any, loc: Loc = ()) -> Any:
        """Note every mistake in a mapping of `shape`; return the mapping without what is wrong."""
        from evalcore.shapes import sound_part

        wrong = self.wrong_paths(value, shape, loc)
        if wrong is None:
            return value
        return sound_part(value, wrong) if isinstance(value, dict) else {}

    def include(self, problems: Iterable[Problem]) -> None:
        """Note mistakes of another file, which this one names, each once."""
        for problem in problems:
            if problem not in self.noted:
                self.count += 1
                self.noted.append(problem)

    def position(self, problem: Problem) -> tuple[bool, int]:
        """Return what sorts mistakes: by line, those of other files last in their own order."""
        other = problem.file != self.file
        return other, 0 if other else problem.line or 0

    def raise_if_any(self) -> None:
        """Raise `LoadError` with every mistake, in the order of the file's lines."""
        raise_all((self,))


def raise_all(collectors: Sequence[Problems]) -> None:
    """Raise `LoadError` with the mistakes of several files, at most `MAX_PROBLEMS` of them."""
    problems = [
        problem
        for collector in collectors
        for problem in sorted(collector.noted, key=collector.position)
    ]
    if not problems:
        return
    count = sum(collector.count for collector in collectors)
    listed = problems[:MAX_PROBLEMS]
    if count > len(listed):
        more = f"and {counted(count - len(listed), 'more mistake')}"
        listed.append(Problem(collectors[0].file, None, "", more))
    raise LoadError(tuple(listed))
