"""The target `http`: a web service answers."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import AfterValidator, Field, model_validator

from evalcore.errors import TargetError
from evalcore.jsonvalues import compile_json_path, parse, storable
from evalcore.model.evidence import Evidence, with_warnings
from evalcore.model.exchange import Endpoint, Request
from evalcore.providers.chat import AttemptSeconds, Headers, RequestsPerMinute
from evalcore.targets.answers import evidence_of
from evalcore.targets.options import BuildContext, check_address
from evalcore.targets.templates import (
    PLACEHOLDER,
    filled,
    filled_value,
    value_of,
    with_template,
)
from evalcore.targets.work import Answering, TargetOptions, Work, json_text, with_attachments
from evalcore.trust.secrets import MARK, substituted

_KIND: Final = "http"


def _web_address(url: str) -> str:
    if MARK not in url:
        check_address(url)
    return url


def _json_path(text: str) -> str:
    import jsonpath

    try:
        compile_json_path(text)
    except jsonpath.JSONPathError as error:
        raise ValueError(f"is no JSONPath: {str(error).splitlines()[0]}") from None
    return text


class HttpOptions(TargetOptions):
    """Options of a target of kind `http`."""

    url: Annotated[str, AfterValidator(_web_address)] = Field(
        description="The address; `{prompt}`, `{input}`, `{input.x}` and `{id}` are replaced, and "
        "escaped for a URL. What stands for `${{ NAME }}` is never stored."
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] | None = Field(
        default=None, description="Default: POST with a body, else GET."
    )
    headers: Headers = Field(default_factory=dict)
    body: Any = Field(
        default=None,
        description="Text, or JSON values, with the placeholders of `url`. A text among JSON "
        "values that is one placeholder and nothing else becomes the value itself.",
    )
    response_path: Annotated[str, AfterValidator(_json_path)] | None = Field(
        default=None,
        description="JSONPath into the JSON answer, such as `$.reply.text`; the first match is the "
        "answer. Default: the whole body.",
    )
    prompt_template: str | None = Field(
        default=None, description="As of models: what `{prompt}` stands for."
    )
    timeout: AttemptSeconds = 60
    requests_per_minute: RequestsPerMinute = None
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Accepted as for models; without effect here."
    )

    @model_validator(mode="after")
    def _get_has_no_body(self) -> HttpOptions:
        if self.method == "GET" and self.body is not None:
            raise ValueError("a GET request has no body; give 'method: POST'")
        return self


class HttpTarget(Answering):
    """Makes one request per item; the answer is the body, or what `response_path` finds in it."""

    def __init__(self, options: HttpOptions, context: BuildContext) -> None:
        self._options = options
        secret = context.secret_headers()
        headers = options.headers
        self._public = {name: value for name, value in headers.items() if name not in secret}
        self._endpoint = Endpoint(
            protocol="http",
            provider=context.name,
            base_url=options.url,
            headers={name: value for name, value in headers.items() if name in secret},
            values=context.address_values,
        )
        self._context = context

    async def answer(self, work: Work) -> Evidence:
        """Return the service's answer.

        Raise `ProviderError` after the last retry (a status of 300 or more is an error),
        `TargetError` for an answer in which `response_path` finds nothing.
        """
        # An address has no room for the text of files.
        work = work if self._options.body is None else with_attachments(work)
        work = with_template(work, self._options.prompt_template)
        self._context.check(work.mode)
        request = self._request(work)
        reply = await work.complete(request)
        text, notes = self._answer_in(reply.text)
        return with_warnings(evidence_of(reply, request, text), notes)

    def _request(self, work: Work) -> Request:
        options = self._options
        body = options.body
        parameters: dict[str, Any] = {
            "method": options.method or ("GET" if body is None else "POST"),
            "url": _filled_url(options.url, work),
            "headers": {name: filled(value, work) for name, value in self._public.items()},
            "body": filled(body, work) if isinstance(body, str) else filled_value(body, work),
        }
        return Request(self._endpoint, parameters=parameters, attempt_timeout_s=options.timeout)

    @cached_property
    def _path(self) -> Any:
        return compile_json_path(self._options.response_path or "$")

    def _answer_in(self, body: str) -> tuple[str, tuple[str, ...]]:
        """Return the answer in a body, and notes of what was replaced in it."""
        path = self._options.response_path
        if path is None:
            return body, ()
        try:
            document = parse(body)
        except ValueError as error:
            start = " ".join(body[:200].split())
            message = f"response_path {path}: the answer is not JSON; it begins: {start}"
            raise TargetError(_KIND, message) from error
        match = self._path.match(document)
        if match is None:
            start = " ".join(body[:200].split())
            raise TargetError(_KIND, f"response_path {path} finds nothing in the answer: {start}")
        value, notes = storable(match.obj)
        return value if isinstance(value, str) else json_text(value), notes


def _filled_url(url: str, work: Work) -> str:
    """Return the URL with the placeholders filled and the references as they are."""

    def escaped(match: re.Match[str]) -> str:
        value = value_of(match[1], work)
        text = value if isinstance(value, str) else json_text(value)
        return quote(text, safe="")

    return substituted(url, lambda match: match[0], lambda text: PLACEHOLDER.sub(escaped, text))
