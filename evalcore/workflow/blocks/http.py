"""`http`: one request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import quote, urlsplit

from evalcore.declared.types import Seconds, Text
from evalcore.trust.literal_secrets import literal_secrets
from evalcore.trust.variables import MARK, REFERENCE, substituted
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.names import WorkflowMistake
from evalcore.workflow.reference_values import reference_value
from evalcore.workflow.values import has_large_integer, parsed
from evalcore.workflow.web_request import web_request

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{[^{}\s\"':,]+\}")


class HttpBlock(Block):
    """One HTTP request; the output is the body, parsed if it is a JSON mapping or list."""

    needs: ClassVar[tuple[str, ...]] = ("url",)

    type: Literal["http"]
    method: str | None = None
    url: Text
    headers: dict[str, str] | None = None
    body: Any = None
    body_template: str | None = None
    timeout: Seconds | None = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - the method of all types
        """Yield the secrets that the block holds literally."""
        bodies = {"body": self.body, "body_template": self.body_template}
        for literal in literal_secrets(self.headers, self.url, bodies):
            yield WorkflowMistake(literal.path, literal.message())

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the URL and the texts of headers and body, without references to variables."""
        key = "body" if self.body_template is None else "body_template"
        parts = {"url": self.url, "headers": self.headers, key: getattr(self, key)}
        for loc, text in _texts(parts, ()):
            yield loc, substituted(text, lambda _: " ")

    async def run(self, context: Context) -> Any:
        """Return the body of the answer: a mapping or list if it is JSON of one, else its text.

        `${{ NAME }}` in `url`, `headers` and `body` is read when the request is made, and covered
        wherever it turns up.
        """
        references = _References(context)
        url = _url(self.url, context)
        written = self.headers or {}
        headers = {
            name: references.filled(value, f"headers.{name}", secret=True)
            for name, value in written.items()
        }
        body = _body(self, references)
        request = web_request(
            self.method or ("GET" if body is None else "POST"),
            url,
            headers=headers,
            secret_headers=[name for name in headers if MARK in written[name]],
            values=references.values_in(self.url),
            body=body,
            timeout_s=self.timeout,
            public_only=context.services.of_service,
        )
        answer = await context.request(request)
        if isinstance(answer, str) and has_large_integer(answer):
            message = "the answer has an integer of more than 64 bits, which cannot be stored"
            raise BlockError("output", message)
        return parsed(answer)


def _texts(value: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, member in pairs:
            yield from _texts(member, (*loc, key))


class _References:
    """Fills texts: `${{ NAME }}` with variables that the suite may read, `{…}` with what ran."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._not_set: dict[str, str] = {}

    def filled(self, text: str, where: str, *, secret: bool = False) -> str:
        """Return the text filled; a reference is read and no template of its own."""
        return substituted(
            text,
            lambda match: self._value(match, where, secret=secret),
            lambda part: self._context.fill(part, where),
        )

    def value(self, text: str, where: str) -> Any:
        """Return a member of a body: the value itself of a text that is one placeholder."""
        if MARK in text:
            return self.filled(text, where)
        return self._context.value(text, where)

    def values_in(self, url: str) -> dict[str, str]:
        """Return what each reference of a URL stands for, and those of headers that are not set."""
        values = {
            match[0]: self._value(match, "url", secret=False) for match in REFERENCE.finditer(url)
        }
        return {**values, **self._not_set}

    def _value(self, match: re.Match[str], where: str, *, secret: bool) -> str:
        value = reference_value(match, where, self._context.services, secret=secret)
        if value == match[0]:
            self._not_set[value] = value
        return value


def _url(template: str, context: Context) -> str:
    """Return the URL; what stands for a placeholder is quoted, but for one that begins the URL.

    References to variables stay; what stands for a placeholder holds none.
    """
    begins = _PLACEHOLDER.match(template) is not None

    def filled(match: re.Match[str]) -> str:
        nonlocal begins
        text, is_first = context.fill(match[0], "url"), begins
        begins = False
        if match[0] in {"{{", "}}"}:
            return text
        return text.replace(MARK, quote(MARK)) if is_first else quote(text, safe="")

    url = substituted(template, lambda match: match[0], lambda text: _PLACEHOLDER.sub(filled, text))
    if not REFERENCE.match(url) and urlsplit(url).scheme not in {"http", "https"}:
        raise BlockError("url", f"url: '{url[:200]}' is not an http or https address")
    return url


def _body(block: HttpBlock, references: _References) -> Any:
    """Return the body: a filled template (JSON if it is JSON), or a mapping with filled texts."""
    template = block.body if block.body_template is None else block.body_template
    return _filled(template, references)


def _filled(value: Any, references: _References) -> Any:
    if isinstance(value, str):
        return parsed(references.filled(value, "body"))
    if isinstance(value, Mapping):
        return {key: _member(member, references) for key, member in value.items()}
    if isinstance(value, list):
        return [_member(member, references) for member in value]
    return value


def _member(value: Any, references: _References) -> Any:
    """Return a member of a body; a text that is one placeholder stands for the value itself."""
    if isinstance(value, str):
        return references.value(value, "body")
    return _filled(value, references)
