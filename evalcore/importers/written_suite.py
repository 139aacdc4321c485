"""Write a converted suite: the file, and the Python module beside it if there is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evalcore.formats.documents import yaml_text
from evalcore.importers.converted import (
    DEFAULT_TARGET,
    MODULE,
    Converted,
    ConvertedCase,
    VariableText,
    unique_id,
)
from evalcore.importers.promptfoo_providers import with_prompt
from evalcore.model.suite import Format
from evalcore.trust.secrets import escaped

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
    return _question(case) | _present(
        {
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
    content["variants"] = _variants(suite, targets, names)
    content |= _present({"evalcore": dict(suite.section)})
    return content | {"cases": [_case(case) for case in suite.cases]}


def _variants(
    suite: Converted, targets: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a variant for each target, or for each prompt of each target."""
    if not suite.prompts:
        return [{"id": name, "target": name} for name in names]
    own = {each["name"]: each for each in targets}
    ids: dict[str, None] = {}
    variants = []
    for name, (key, label) in itertools.product(names, suite.prompts.items()):
        identity = unique_id(label if len(names) == 1 else f"{name} ({label})", ids)
        ids[identity] = None
        target = own.get(name)
        variants.append({"id": identity, "target": name, "config": with_prompt(target, key)})
    return variants


def _case(case: ConvertedCase) -> dict[str, Any]:
    return _question(case) | _present(
        {
            "fixtures": _fixtures(case),
            "assertions": [dict(each) for each in case.assertions],
            "metadata": dict(case.metadata),
            "tags": list(case.tags),
        }
    )


def _question(case: ConvertedCase) -> dict[str, Any]:
    """Return what is asked and what is expected; an expected `[]`, `{}` or "" is a value."""
    expected = {} if case.expected_output is None else {"expected_output": case.expected_output}
    return {"id": case.id, "input": case.input} | expected


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
