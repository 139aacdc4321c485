"""The table of formats, and how a file's format is recognised (docs/reference/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.documents import NOTE, SCHEMA_KEY, Document, read_document, without_notes
from evalcore.formats.includes import ScriptDocument, read_script_document
from evalcore.formats.options import LoadOptions, check_file_name
from evalcore.formats.quarantine import load_quarantined
from evalcore.formats.rows import ROW_SUFFIXES, TESTS_KEYS
from evalcore.model.suite import Format, Suite
from evalcore.wording import describe, did_you_mean, path_text

_ROW_KEYS = frozenset(
    {"target", "expected", "retrieval_context", "actual_output", "outputs"}
)  # fmt: skip
_FOREIGN = (
    "is a file of another program, such as promptfoo, Inspect AI or DeepEval; "
    "`evalcore import FILE` writes a suite of it"
)


def is_foreign(value: Any) -> bool:
    """Whether a document is a file of a program whose files are imported."""
    if isinstance(value, Mapping):
        run = value.get("eval")
        return (
            ("prompts" in value and not {"providers", "targets"}.isdisjoint(value))
            or not {"testCases", "testRunData"}.isdisjoint(value)
            or (isinstance(run, Mapping) and {"task", "model"} <= run.keys())
            or ("flow" not in value and "inputs" in _first(value.get("cases")))
        )
    first = _first(value)
    return not {"input", "inputs"}.isdisjoint(first) and not _ROW_KEYS.isdisjoint(first)


def _first(value: Any) -> Mapping[str, Any]:
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, Mapping) else {}


_PROGRAMS = frozenset({".cjs", ".cts", ".js", ".mjs", ".mts", ".ts"})
_PROGRAM = (
    "is a program, as AgentV and promptfoo execute them; write the suite that it makes as YAML or "
    "JSON and name that file"
)


class FormatRow(NamedTuple):
    """A format: its module, the name in those of its two functions, the title of its schema.

    `load_NAME` loads a document, `NAME_schema` makes the JSON Schema. `recognises` says whether a
    file's mapping is of it.
    """

    module: str
    name: str
    title: str
    recognises: Callable[[Mapping[str, Any]], bool]

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the format's module, `{}` in its name standing for the row's."""
        module = import_module(f"evalcore.formats.{self.module}")
        found: Callable[..., Any] = getattr(module, name.format(self.name))
        return found


# A file has the first format that recognises it. Script suites are loaded with their script.
FORMATS: Mapping[Format, FormatRow] = {
    Format.TEST_FILE: FormatRow(
        "test_file.loader",
        "test_file",
        "Test file",
        lambda raw: any(isinstance(raw.get(key), list | str) for key in TESTS_KEYS),
    ),
    Format.WORKFLOW_EVALS: FormatRow(
        "saved_evals",
        "workflow_evals",
        "Saved evals of a workflow",
        lambda raw: (
            "eval" not in raw
            and (isinstance(raw.get("evals"), list) or ("evals" in raw and "workflow" in raw))
        ),
    ),
    Format.WORKFLOW_HARNESS: FormatRow(
        "workflow_file",
        "workflow_file",
        "Workflow file with an eval section",
        lambda raw: "eval" in raw or "workflow" in raw,
    ),
    Format.SCRIPT_SUITE: FormatRow(
        "script_suite",
        "script_suite",
        "Script suite",
        lambda raw: "suites" in raw or isinstance(raw.get("tests"), Mapping),
    ),
    Format.SUITE: FormatRow(
        "suite_file",
        "suite_file",
        "Suite: cases × variants",
        lambda raw: "cases" in raw and "flow" in raw,
    ),
}
_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(format_: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a format."""
    row = FORMATS[Format(format_)]
    schema = row.function("{}_schema")()
    if "properties" in schema:
        schema["properties"] = {SCHEMA_KEY: {"type": "string"}, **schema["properties"]}
        schema["patternProperties"] = {f"^{NOTE}": True}
    return {"$schema": _SCHEMA_DIALECT, "title": row.title, **schema}


def load_suite(
    path: Path,
    options: LoadOptions | None = None,
    *,
    name: str | None = None,
    script: str | None = None,
    opened: ScriptDocument | None = None,
) -> Suite:
    """Return the suite in a file, its format recognised by its content.

    `name` is the file's name in messages; `script` the script that a script suite belongs to;
    `opened` the file's document, if it was read before. Raises `LoadError` with every mistake of
    the file.
    """
    file = name or str(path)
    check_file_name(path, file)

    def load() -> Suite:
        return _load_suite(path, options or LoadOptions(), file=file, script=script, opened=opened)

    return load_quarantined(load, path.parent, file)


def _load_suite(
    path: Path,
    options: LoadOptions,
    *,
    file: str,
    script: str | None,
    opened: ScriptDocument | None,
) -> Suite:
    forced = _forced(options)
    if path.suffix.lower() == ".py":
        message = "Python files are read by `evalcore run`, `validate`, `plan` and `regrade` only"
        raise LoadError((Problem(file, None, "", message),))
    if path.suffix.lower() in _PROGRAMS:
        raise LoadError((Problem(file, None, "", _PROGRAM),))
    if path.suffix.lower() in ROW_SUFFIXES:
        if forced not in {None, Format.TEST_FILE}:
            raise UsageError(f"{file}: a {path.suffix} file is a test-file, not a {forced}")
        from evalcore.formats.test_file.loader import load_test_rows

        return load_test_rows(path, file, options)
    source = opened or read_script_document(path, file)
    format_ = forced or recognise(source.document)
    if format_ is Format.SCRIPT_SUITE:
        from evalcore.formats.script_suite import load_script_suite

        return load_script_suite(source, path, options, script or options.script)
    if script is not None:
        message = f"is a {format_}, and no script belongs to one ({script})"
        raise LoadError((Problem(file, None, "", message),))
    # What only script suites may hold (included files, infinite numbers) is refused here.
    document = source.document if source.plain else read_document(path, file)
    if isinstance(document.value, dict):
        document = replace(document, value=without_notes(document.value))
    row = FORMATS[format_]
    suite: Suite = row.function("load_{}")(document, path, options)
    return suite


def is_script(document: Document) -> bool:
    """Whether a YAML file is no suite, and so a script that a script suite belongs to."""
    raw: Any = document.value
    if not isinstance(raw, Mapping):
        return raw is None
    keys = (*TESTS_KEYS, "eval", "workflow", "suites", "cases", "flow")
    return not any(key in raw for key in keys) and _recognised(raw) is None


def _forced(options: LoadOptions) -> Format | None:
    if options.format is None:
        return None
    try:
        return Format(options.format)
    except ValueError:
        formats = ", ".join(Format)
        raise UsageError(f"unknown format '{options.format}'; formats: {formats}") from None


def recognise(document: Document) -> Format:
    """Return the format of a YAML or JSON document; raise `LoadError` if it is none."""
    raw: Any = document.value
    format_ = _recognised(raw) if isinstance(raw, Mapping) else None
    if format_ is None or (format_ in _LIKE_OTHERS and is_foreign(raw)):
        raise LoadError((_not_a_suite(document),))
    return format_


def _recognised(raw: Mapping[str, Any]) -> Format | None:
    return next((format_ for format_, row in FORMATS.items() if row.recognises(raw)), None)


# What other programs' files look like: `tests` of promptfoo, `eval` of a log of Inspect AI.
_LIKE_OTHERS = (Format.TEST_FILE, Format.WORKFLOW_HARNESS)
_KEYS = (*TESTS_KEYS, "eval", "workflow")
_FORMAT_KEYS = (
    "a workflow file has 'eval', a test file 'tests' (a list or a path), a script suite 'suites'"
)


def _not_a_suite(document: Document) -> Problem:
    """Return why a document is of no format, and what would make it one."""
    raw = document.value
    if raw is None:
        return Problem(document.file, None, "", f"is empty: {_FORMAT_KEYS}")
    if is_foreign(raw):
        return Problem(document.file, None, "", _FOREIGN)
    if isinstance(raw, list):
        message = "not a suite but a list; in a test file it stands under 'tests:'"
        return Problem(document.file, None, "", message)
    if not isinstance(raw, Mapping):
        return Problem(document.file, None, "", f"not a suite but a single value: {_FORMAT_KEYS}")
    if ("cases" in raw) != ("flow" in raw):
        missing = "flow" if "cases" in raw else "cases"
        message = f"is required beside '{'cases' if missing == 'flow' else 'flow'}' in a suite"
        return Problem(document.file, None, missing, message)
    for key in raw:
        line, path = document.locate((key,)), path_text((key,))
        if key in TESTS_KEYS:
            message = f"expected a list of tests or a path, got {describe(raw[key])}"
            return Problem(document.file, line, path, message)
        hint = did_you_mean(key, _KEYS)
        if hint:
            message = f"unknown key '{path}'.{hint} Otherwise this is not a suite"
            return Problem(document.file, line, path, message)
    message = f"not a suite: {_FORMAT_KEYS}; --format NAME says so explicitly"
    return Problem(document.file, None, "", message)
