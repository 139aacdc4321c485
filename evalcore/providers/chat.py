"""A configured chat model, and the requests that ask it.

Targets, judges and the souls of workflows are all made of these options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from evalcore.model.evidence import NOTHING
from evalcore.model.exchange import ADDED_PARAMETERS, Endpoint, Reply, Request, split_reasoning
from evalcore.trust.network import is_local

DEFAULT_TIMEOUT_S: Final = 300.0
BASE_URLS: Final[Mapping[str, str]] = MappingProxyType(
    {"anthropic": "https://api.anthropic.com/v1", "openai": "https://api.openai.com/v1"}
)
_PARAMETERS: Final = ("temperature", "max_tokens", "top_p", "seed", "stop", "tool_choice")
PROTOCOLS: Final = ("openai", "anthropic")
_REFERENCE: Final = "${{"


def checked_web_address(url: str) -> str:
    """Return the URL; raise `ValueError` that says what is wrong with it."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1)
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("is no web address, such as https://host/v1 or http://localhost:8000/v1")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or password; give them as `api_key` or in `headers`")
    return url


def _written_address(url: str) -> str:
    # With a variable it is checked when that one's value is known (targets.build_context).
    return url if _REFERENCE in url else checked_web_address(url)


WebAddress = Annotated[str, AfterValidator(_written_address)]
Headers = Annotated[
    dict[str, str],
    Field(description="Headers; values that hold `${{ NAME }}` are secret and never stored."),
]
AttemptSeconds = Annotated[
    float, Field(gt=0, allow_inf_nan=False, description="Seconds for one attempt of a call.")
]
RequestsPerMinute = Annotated[
    float | None, Field(gt=0, description="Most calls a minute, all workers together.")
]


class ChatOptions(BaseModel):
    """Options of a target of kind `openai` or `anthropic`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=()
    )

    model: Annotated[str, Field(min_length=1)] = Field(description="The model's name.")
    base_url: WebAddress | None = Field(
        default=None,
        description="Where the provider listens, up to `/v1`. Default: OPENAI_BASE_URL or "
        "ANTHROPIC_BASE_URL of the environment, else the provider itself.",
    )
    api_key: str | None = Field(
        default=None,
        description="The key, as `${{ NAME }}`; it is never stored. Default: OPENAI_API_KEY or "
        "ANTHROPIC_API_KEY of the environment, unless `base_url` names another machine.",
    )
    headers: Headers = Field(default_factory=dict)
    system_prompt: str | None = Field(
        default=None, description="A system message before those of the case."
    )
    prompt_template: str | None = Field(
        default=None,
        description="What is asked in place of the last user message, with `{prompt}` (that "
        "message), `{input}`, `{input.x}` and `{id}`.",
    )
    temperature: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Sampling temperature."
    )
    max_tokens: int | None = Field(default=None, gt=0, description="Most tokens of an answer.")
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="Share of probability that is sampled from."
    )
    seed: int | None = Field(default=None, description="Seed of sampling, where offered.")
    stop: str | list[str] | None = Field(default=None, description="Where the answer ends.")
    stream: bool = Field(
        default=False, description="Ask for the answer in pieces: the first one's time is measured."
    )
    tools: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Tools that the model may call: `{name, description, parameters}` or in the "
        "provider's own form. They are not run; the calls stand in the evidence.",
    )
    tool_choice: str | dict[str, Any] | None = Field(
        default=None, description="auto, none, required, or one tool in OpenAI's form."
    )
    response_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema that the answer has to fit."
    )
    response_format: dict[str, Any] | None = Field(
        default=None, description="As in OpenAI's API, such as `{type: json_object}`."
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Any further parameters, sent to the provider as they are.",
    )
    timeout: AttemptSeconds = DEFAULT_TIMEOUT_S
    requests_per_minute: RequestsPerMinute = None
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Most tokens a minute, all workers together."
    )


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model with everything that is the same in each of its requests."""

    endpoint: Endpoint
    model: str
    parameters: Mapping[str, Any] = NOTHING
    system_prompt: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None
    stream: bool = False
    attempt_timeout_s: float | None = None
    strips_reasoning: bool = False

    def read(self, reply: Reply) -> Reply:
        """Return a reply of the model, without the reasoning before it if the model strips that."""
        if not self.strips_reasoning:
            return reply
        return replace(reply, text=split_reasoning(reply.text)[1])

    def request(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        parameters: Mapping[str, Any] = NOTHING,
        response_schema: Mapping[str, Any] | None = None,
        tools: tuple[Mapping[str, Any], ...] = (),
    ) -> Request:
        """Return the request with these messages; `parameters` are laid over the model's own.

        `tools` stand in place of the model's own, if there are any.
        """
        system = self.system_prompt
        first = [{"role": "system", "content": system}] if system else []
        return Request(
            endpoint=self.endpoint,
            model=self.model,
            messages=(*first, *messages),
            parameters={**self.parameters, **parameters},
            tools=tools or self.tools,
            response_schema=self.response_schema if response_schema is None else response_schema,
            stream=self.stream,
            attempt_timeout_s=self.attempt_timeout_s,
        )


def chat_model(
    protocol: str,
    name: str,
    options: ChatOptions,
    environment: Mapping[str, str],
    secret_headers: frozenset[str] | None = None,
    address_values: Mapping[str, str] = NOTHING,
) -> ChatModel:
    """Return the model that options, with their secrets in them, describe.

    `name` is the target's; limits, prices and reports call the provider that. `environment` has
    the defaults of `base_url` and `api_key`. `secret_headers` are those whose values are secret
    (None: all); the others belong to the question. `address_values` stand for the references in
    `base_url`.
    """
    prefix = protocol.upper()
    from_environment = environment.get(f"{prefix}_BASE_URL")
    own_address = BASE_URLS[protocol]
    base_url = options.base_url or from_environment or own_address
    key = (options.api_key or "").strip() or None
    address = Endpoint(protocol, name, base_url, values=address_values).address
    # A key is sent only to the provider that it is for.
    host, owners = _host(address), filter(None, (own_address, from_environment))
    if key is None and (is_local(host) or host in map(_host, owners)):
        key = environment.get(f"{prefix}_API_KEY") or None
    headers = options.headers
    secret = {
        header: value
        for header, value in headers.items()
        if secret_headers is None or header in secret_headers
    }
    public = {header: value for header, value in headers.items() if header not in secret}
    return ChatModel(
        endpoint=Endpoint(protocol, name, base_url, key, secret, address_values),
        model=options.model,
        parameters=_parameters(options, public),
        system_prompt=options.system_prompt,
        tools=tuple(options.tools),
        response_schema=options.response_schema,
        stream=options.stream,
        attempt_timeout_s=options.timeout,
    )


def _parameters(options: ChatOptions, public_headers: Mapping[str, str]) -> dict[str, Any]:
    named = {name: getattr(options, name) for name in (*_PARAMETERS, "response_format")}
    # A null that the author wrote keeps evalcore from adding its own.
    written = options.model_fields_set
    if "response_schema" in written:
        written = written | {"response_format"}
    null = written.intersection(ADDED_PARAMETERS)
    parameters = {n: value for n, value in named.items() if value is not None or n in null}
    if public_headers:
        parameters["extra_headers"] = dict(public_headers)
    return {**parameters, **options.parameters}


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
