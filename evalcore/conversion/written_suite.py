"""Write a converted suite: the file, and the Python module beside it if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evalcore.conversion.converted import (
    DEFAULT_TARGET,
    MODULE,
    Converted,
    ConvertedCase,
    VariableText,
)
from evalcore.formats.text.written_yaml import yaml_text
from evalcore.model.suite import Format
from evalcore.trust.variables import escaped

_PLACEHOLDER_TARGET: Final = {"name": DEFAULT_TARGET, "provider": "echo"}


def suite_text(
    suite: Converted, *, origin: str, module: str, target: str | None, notes: Sequence[str]
) -> str:
    """Return the text of the suite file, with a comment for each line of `notes`.

    `origin` says where it comes from, `module` names the Python module beside it, and `target` is
    what answers in place of the file's own targets: a target's name or `module:function`.
    """
    if suite.form is Format.TEST_FILE:
        content = _test_file(suite, target)
    else:
        content = _suite_file(suite, target)
    comments = "".join(f"# {line}\n" for line in (f"Imported from {origin}.", *_comments(notes)))
    return comments + yaml_text(_with_module(_escaped(content), module))


def _comments(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "What differs from it, or was not taken over:"
        yield from (f"- {note}" for note in notes)


def _targets(suite: Converted, target: str | None) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the definitions of targets, and the names of those that answer."""
    if target is None:
        own = list(suite.targets) or [_PLACEHOLDER_TARGET]
        return [*own, *suite.judges], [each["name"] for each in own]
    if ":" in target:
        called = {"name": DEFAULT_TARGET, "provider": "python", "callable": target}
        return [called, *suite.judges], [DEFAULT_TARGET]
    return list(suite.judges), [target]


def _test_file(suite: Converted, target: str | None) -> dict[str, Any]:
    targets, names = _targets(suite, target)
    execution = {"target": names[0]} if len(names) == 1 else {"targets": names}
    content: dict[str, Any] = {"name": suite.name}
    content |= _present({"description": suite.description, "targets": targets})
    content |= {"execution": execution}
    content |= _present({"evalcore": dict(suite.section)})
    return content | {"tests": [_test(case) for case in suite.cases]}


def _test(case: ConvertedCase) -> dict[str, Any]:
    several = len(case.assertions) > 1
    # Each has to pass, as in the program that the file is of; the score alone is a mean.
    assertions = [dict(each) | ({"required": True} if several else {}) for each in case.assertions]
    written: dict[str, Any] = {"id": case.id, "input": case.input}
    return written | _present(
        {
            "expected_output": case.expected_output,
            "fixtures": _fixtures(case),
            "assertions": assertions,
            "metadata": dict(case.metadata),
            "tags": list(case.tags),
        }
    )


def _suite_file(suite: Converted, target: str | None) -> dict[str, Any]:
    targets, names = _targets(suite, target)
    content: dict[str, Any] = {"name": suite.name}
    content |= _present({"description": suite.description})
    content |= {"flow": names[0]}
    content |= _present({"targets": targets})
    content["variants"] = [{"id": name, "target": name} for name in names]
    content |= _present({"evalcore": dict(suite.section)})
    return content | {"cases": [_case(case) for case in suite.cases]}


def _case(case: ConvertedCase) -> dict[str, Any]:
    written: dict[str, Any] = {"id": case.id, "input": case.input}
    return written | _present(
        {
            "expected_output": case.expected_output,
            "fixtures": _fixtures(case),
            "assertions": [dict(each) for each in case.assertions],
            "metadata": dict(case.metadata),
            "tags": list(case.tags),
        }
    )


def _fixtures(case: ConvertedCase) -> dict[str, Any] | None:
    if case.output is None:
        return None
    return {"output": case.output} | _present({"metrics": dict(case.metrics)})


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are None or an empty collection."""
    return {key: value for key, value in fields.items() if value not in (None, [], {})}


def _escaped(value: Any) -> Any:
    """Return the value with texts that look like variables of the suite escaped.

    A `${{ NAME }}` that conversion writes itself is a `VariableText`.
    """
    if isinstance(value, VariableText):
        return str(value)
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        return {key: _escaped(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(member) for member in value]
    return value


def _with_module(value: Any, module: str) -> Any:
    if isinstance(value, str):
        return value.replace(MODULE, module) if value.startswith(MODULE) else value
    if isinstance(value, Mapping):
        return {key: _with_module(member, module) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_module(member, module) for member in value]
    return value
