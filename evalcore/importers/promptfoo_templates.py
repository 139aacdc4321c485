"""promptfoo's templates (Nunjucks) and transforms, by Jinja and JSONPath."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from jinja2 import ChainableUndefined, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from evalcore.importers.converted import chat_messages, map_texts

_MARKS: Final = re.compile(r"\{\{|\{%|\{#")
_ROUNDS: Final = 5
_READS_ENVIRONMENT: Final = re.compile(r"\{[{%][^}]*\benv\.\w")
_TAG: Final = re.compile(r"\{[{%].*?[}%]\}", re.DOTALL)
_PAIRS: Final = re.compile(r"(for\s+\w+\s*,\s*\w+\s+in\s+)(.+?)(\s*-?%\})$", re.DOTALL)
_PLACED: Final = re.compile(r"(?<!\$)\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_VARIABLE: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def placeholders(value: Any) -> Iterator[str]:
    """Yield the placeholders and tags in every text of a value."""
    if isinstance(value, str):
        yield from _PLACED.findall(value)
    elif isinstance(value, Mapping):
        yield from (mark for member in value.values() for mark in placeholders(member))
    elif isinstance(value, list):
        yield from (mark for member in value for mark in placeholders(member))


class RenderError(Exception):
    """The template needs something that only Nunjucks has."""


def script_text(value: Any) -> Any:
    """Return a value as JavaScript writes it in a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    value = _listed(value)
    if isinstance(value, list | tuple):
        return ",".join(str(script_text(member)) for member in value)
    if isinstance(value, Mapping):
        return orjson.dumps(value).decode()
    return value


def _as_jinja(tag: re.Match[str]) -> str:
    """Return a tag of Nunjucks as Jinja writes it: its comparisons, and loops over mappings."""
    text = tag[0].replace("!==", "!=").replace("===", "==")
    return _PAIRS.sub(r"\1(\2)|pairs\3", text)


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, Mapping) else value


def _dumped(value: Any, indent: int = 0) -> str:
    """Return the JSON of a value, as JavaScript's `JSON.stringify` writes it."""
    if indent:
        import json

        return json.dumps(_listed(value), indent=indent, ensure_ascii=False)
    return orjson.dumps(_listed(value)).decode()


def _listed(value: Any) -> Any:
    """Return what a filter yields as a list; any other value as it is."""
    return list(value) if isinstance(value, Iterator) else value


# Filters that Jinja has, too, with other results.
_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "dump": _dumped,
    "pairs": _pairs,
}


class _ScriptEnvironment(SandboxedEnvironment):
    """Knows the one property of JavaScript that templates read of texts and lists."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if attribute == "length" and isinstance(obj, str | list):
            return len(obj)
        return super().getattr(obj, attribute)


def _environment() -> SandboxedEnvironment:
    environment = _ScriptEnvironment(
        undefined=ChainableUndefined, keep_trailing_newline=True, finalize=script_text
    )
    environment.filters.update(_FILTERS)
    for name in ("e", "escape", "round", "truncate"):  # their results are others in Nunjucks
        del environment.filters[name]
    return environment


_ENVIRONMENT: Final = _environment()


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text with its variables filled in; raise `RenderError`."""
    if not _MARKS.search(text):
        return text
    if _READS_ENVIRONMENT.search(text):
        raise RenderError("the template reads the environment: write the value")
    try:
        return _ENVIRONMENT.from_string(_TAG.sub(_as_jinja, text)).render(variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise RenderError(f"the template cannot be rendered: {error}") from error


def resolved_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables whose texts name other variables with those filled in."""
    resolved = dict(variables)
    for _ in range(_ROUNDS):
        changed = False
        for key, value in resolved.items():
            match = _VARIABLE.search(value) if isinstance(value, str) else None
            if match and match[1] in resolved and match[1] != key:
                text = str(script_text(resolved[match[1]]))
                resolved[key] = value.replace(match[0], text, 1)
                changed = True
        if not changed:
            break
    return resolved


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a variable filled in; one that names what is no variable stays as it is."""
    if not isinstance(value, str) or not _MARKS.search(value):
        return value
    try:
        names = meta.find_undeclared_variables(_ENVIRONMENT.parse(_TAG.sub(_as_jinja, value)))
    except TemplateError:
        names = set()
    return render(value, variables) if names <= variables.keys() else value


def rendered_prompt(raw: str, variables: Mapping[str, Any]) -> Any:
    """Return a prompt filled in: a text, or messages where it is a JSON array of them."""
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError:
        inner = {key: _filled(value, variables) for key, value in variables.items()}
        text = render(raw, inner)
        return _messages_of(text) or text
    if isinstance(parsed, list | dict):
        rendered = map_texts(parsed, lambda text: render(text, variables))
        return (
            chat_messages(rendered) or orjson.dumps(rendered, option=orjson.OPT_INDENT_2).decode()
        )
    return render(raw, variables)


def _messages_of(text: str) -> list[dict[str, Any]] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        return chat_messages(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


_STEP: Final = re.compile(
    r"""\??\.(?P<key>[A-Za-z_$][\w$]*)|\??\.?\[(?P<index>\d+)\]|\[(['"])(?P<name>[^'"\]]+)\3\]"""
)


def json_path(script: str, names: Sequence[str] = ("output",)) -> str | None:
    """Return the JSONPath of `output.a[0]` or `JSON.parse(output).a[0]`, None for other scripts.

    `$` is the output itself. `names` are what the script calls the output.
    """
    text = script.strip().rstrip(";").strip().removeprefix("return ").strip()
    for name in names:
        for start in (f"JSON.parse({name})", f"({name})", name):
            if text.startswith(start):
                rest = _steps(text.removeprefix(start))
                if rest is not None:
                    return f"${rest}"
    return None


def _steps(text: str) -> str | None:
    path, position = "", 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return None
        if match["index"] is not None:
            path += f"[{match['index']}]"
        else:
            key = match["key"] or match["name"]
            if key in ("length", "trim", "toLowerCase", "toUpperCase"):
                return None
            path += f".{key}" if match["key"] else f"['{key}']"
        position = match.end()
    return path
