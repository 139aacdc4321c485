"""Files of other programs: reading them, and the shapes that they have."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Required

import zstandard
from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.errors import UsageError
from evalcore.formats.documents import (
    MAX_FILE_BYTES,
    decode,
    parse_document,
    raise_problem,
    read_bytes,
)
from evalcore.formats.rows import CsvRows
from evalcore.formats.section import OPEN
from evalcore.jsonvalues import parse_storable
from evalcore.problems import Problems
from evalcore.shapes import Measure
from evalcore.wording import Loc, Locate, shown_path

_ZSTD: Final = 93  # the method of zip archives that Python 3.11's zipfile lacks
_LOCAL_HEADER: Final = 30
_YAML: Final = (".yaml", ".yml")
_LISTED: Final = 12


def _no_line(_loc: Loc) -> int | None:
    return None


def _row_line(loc: Loc) -> int | None:
    return loc[0] + 1 if loc and isinstance(loc[0], int) else None


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file that was read: `value` is its document, or the list of its rows.

    `locate` finds the line of a path into it, in YAML and in files of rows.
    """

    path: Path
    value: Any
    locate: Locate = _no_line

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return shown_path(self.path)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows that are mappings: of a file of rows, or of a document that is a list."""
        rows = self.value if isinstance(self.value, list) else []
        return [row for row in rows if isinstance(row, Mapping)]

    @property
    def columns(self) -> Sequence[str]:
        """The names of what the rows hold, in their order."""
        return [str(name) for name in dict.fromkeys(name for row in self.rows for name in row)]

    def with_columns(self, names: Mapping[str, str]) -> ForeignFile:
        """Return the file with columns renamed; raise `UsageError` for one that no row has."""
        columns = self.columns
        for name in names:
            if name not in columns:
                listed = f"its rows have {', '.join(columns[:_LISTED])}" if columns else "no rows"
                raise UsageError(f"--column: {self.name} has no '{name}': {listed}")
        rows = [{names.get(name, name): value for name, value in row.items()} for row in self.rows]
        return replace(self, value=rows) if names else self


def read_foreign_file(path: Path) -> ForeignFile:
    """Return what a file holds; raise `LoadError` with the line of what cannot be read.

    YAML, JSON, JSON lines, CSV, and Inspect AI's `.eval` archives. An archive's value is its
    `header.json` with the list `samples`.
    """
    name, suffix = shown_path(path), path.suffix.lower()
    if suffix == ".csv":
        return ForeignFile(path, read_csv(path))
    data = read_bytes(path, name)
    if suffix == ".eval" or data.startswith(b"PK\x03\x04"):
        return ForeignFile(path, _read_archive(path, name))
    if suffix == ".jsonl":
        rows = list(json_lines(data, name))
        return ForeignFile(path, rows, locate=_row_line)
    if suffix == ".json":
        # Python's JSON rather than strict JSON: logs hold NaN where a score is not a number.
        return ForeignFile(path, parse_json(data, name))
    if suffix not in _YAML:
        suffixes = ".yaml, .yml, .json, .jsonl, .csv and .eval"
        raise_problem(name, None, f"is none of {suffixes}, which can be imported")
    document = parse_document(data, name)
    return ForeignFile(path, document.value, locate=document.locate)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file, an empty cell as None; raise `LoadError`."""
    name = shown_path(path)
    rows = CsvRows(path, name)
    problems = Problems(name, lambda _: rows.line)
    read = list(rows.read(problems))
    problems.raise_if_any()
    return read


def json_lines(data: bytes, name: str) -> Iterator[Any]:
    """Yield the value of each line that is not blank; raise `LoadError` with the line.

    A line ends with a line feed alone: JSON texts may hold other separators.
    """
    for number, line in enumerate(decode(data, name).split("\n"), 1):
        if line.strip():
            yield parse_json(line.encode(), name, number)


def parse_json(data: bytes, name: str, line: int | None = None) -> Any:
    """Return a JSON value as it can be stored; raise `LoadError` with the line."""
    try:
        return parse_storable(data)
    except (ValueError, RecursionError) as error:
        position = line or getattr(error, "lineno", None)
        raise_problem(name, position, f"not valid JSON: {getattr(error, 'msg', error)}")


def _read_archive(path: Path, name: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if sum(member.file_size for member in members.values()) > MAX_FILE_BYTES:
                limit = MAX_FILE_BYTES // 2**20
                raise_problem(name, None, f"holds more than {limit} MiB; log fewer samples a file")
            if "header.json" not in members:
                raise_problem(name, None, "has no header.json: not a log of Inspect AI that ended")
            header = parse_json(_member(path, archive, members["header.json"]), name)
            samples = [
                parse_json(_member(path, archive, member), f"{name}/{filename}")
                for filename, member in members.items()
                if filename.startswith("samples/") and filename.endswith(".json")
            ]
    except (zipfile.BadZipFile, zstandard.ZstdError, OSError, EOFError) as error:
        raise_problem(name, None, f"is no archive that can be read: {error}")
    if not isinstance(header, dict):
        raise_problem(name, None, "header.json is no mapping")
    return {**header, "samples": samples}


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type != _ZSTD:
        return archive.read(member)
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        lengths = header[26:28], header[28:30]  # of the name and of the extra field
        file.seek(sum(int.from_bytes(length, "little") for length in lengths), 1)
        compressed = file.read(member.compress_size)
    with zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True) as reader:
        data = reader.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename} has not the size that the archive says")
    return data


def check_shape(file: ForeignFile, value: Any, shape: Any, loc: Loc = ()) -> None:
    """Raise `LoadError` with every mistake of `value`, which stands at `loc` of the file."""
    problems = Problems(file.name, file.locate)
    problems.check_shape(value, shape, loc)
    problems.raise_if_any()


@with_config(OPEN)
class PydanticCase(TypedDict, total=False):
    """A case of pydantic-evals."""

    name: str | None
    inputs: Required[Any]
    evaluators: list[str | dict[str, Any]] | None


@with_config(OPEN)
class PydanticDataset(TypedDict, total=False):
    """A dataset of pydantic-evals."""

    name: str | None
    cases: Required[list[PydanticCase]]
    evaluators: list[str | dict[str, Any]] | None


@with_config(OPEN)
class InspectChoice(TypedDict, total=False):
    """One answer of a model."""

    message: dict[str, Any] | None


@with_config(OPEN)
class InspectOutput(TypedDict, total=False):
    """The output of a sample."""

    choices: list[InspectChoice] | None


@with_config(OPEN)
class InspectUsage(TypedDict, total=False):
    """Tokens of a model."""

    input_tokens: Measure | None
    output_tokens: Measure | None


@with_config(OPEN)
class InspectSample(TypedDict, total=False):
    """A sample of a log of Inspect AI."""

    id: Required[str | int]
    epoch: int
    input: Required[str | list[dict[str, Any]]]
    target: Any
    messages: list[dict[str, Any]] | None
    output: InspectOutput | None
    scores: dict[str, Any] | None
    metadata: dict[str, Any] | None
    attachments: dict[str, str] | None
    model_usage: dict[str, InspectUsage | None] | None
    total_time: Measure | None


@with_config(OPEN)
class InspectTask(TypedDict, total=False):
    """What a log says of its task."""

    task: str
    model: str | None
    model_roles: dict[str, Any] | None
    scorers: list[Any] | None


@with_config(OPEN)
class InspectLog(TypedDict, total=False):
    """A log of Inspect AI."""

    eval: Required[InspectTask]
    samples: list[InspectSample] | None


@with_config(OPEN)
class PromptfooAssertion(TypedDict, total=False):
    """An assertion of promptfoo."""

    type: Required[str]
    threshold: float | None
    weight: float | None
    metric: str | None
    transform: str | None
    config: dict[str, Any] | None


@with_config(OPEN)
class PromptfooOptions(TypedDict, total=False):
    """Options of a test."""

    prefix: str | None
    suffix: str | None
    transform: str | None
    postprocess: str | None
    provider: Any


@with_config(OPEN)
class PromptfooTest(TypedDict, total=False):
    """A test of promptfoo."""

    description: str | None
    vars: dict[str, Any] | str | list[str] | None
    options: PromptfooOptions | None
    metadata: dict[str, Any] | None
    threshold: float | None
    providerOutput: Any


@with_config(OPEN)
class PromptfooConfiguration(TypedDict, total=False):
    """A configuration of promptfoo."""

    description: str | None
    prompts: Any
    providers: Any
    targets: Any
    env: Any
    defaultTest: Any
    assertionTemplates: Any
    tests: Any
    scenarios: list[Any] | None
    evaluateOptions: dict[str, Any] | None
