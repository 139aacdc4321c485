"""What a target is built with: its options with their secrets, and the context of its provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import Mode
from evalcore.settings import read_settings
from evalcore.targets.templates import PLACEHOLDER
from evalcore.trust.secrets import (
    Variables,
    address_values,
    known_addresses,
    nearest_env_file,
    resolved,
    variables_from,
    without_secrets,
)

ENVIRONMENT: Final = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
)
"""What the address and the key of a provider default to."""
KEYLESS_MODES: Final = (Mode.REPLAY, Mode.AUTO)
"""What is recorded needs no key; for the rest the provider says that it got none."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The target's name, the suite's folder, and what the executing process knows.

    `environment` holds what a provider's address and key default to; `surroundings` are what the
    targets that this one asks are built with. `secrets` are the paths of options whose values are
    secret; `address_values` what stands for the references in the target's address. `problem` is
    why one of these could not be read: an error unless every answer is replayed.
    """

    name: str
    folder: Path
    environment: Mapping[str, str] = field(default=NOTHING, repr=False)
    surroundings: Mapping[str, str] = field(default=NOTHING, repr=False)
    secrets: frozenset[tuple[str, ...]] = frozenset()
    problem: TargetError | None = None
    address_values: Mapping[str, str] = field(default=NOTHING, repr=False)

    def check(self, mode: str) -> None:
        """Raise `TargetError` if a secret could not be read that a call may need."""
        if self.problem is not None and mode not in KEYLESS_MODES:
            raise TargetError(self.problem.kind, f"target '{self.name}': {self.problem}")

    def secret_headers(self) -> frozenset[str]:
        """Return the names of the headers whose values are secret."""
        paths = (path for path in self.secrets if path[0] == "headers" and len(path) == 2)
        return frozenset(name for _, name in paths)


def context_for(
    name: str, options: Mapping[str, Any], folder: Path, environment: Mapping[str, str]
) -> tuple[dict[str, Any], BuildContext]:
    """Return the options with their secrets in them, and the context.

    If one cannot be read, the context has the problem, and the options have no secret at all.
    """
    variables = variables_of(folder, environment)
    defaults = {key: environment.get(key) or variables.values.get(key) or "" for key in ENVIRONMENT}
    try:
        with_secrets, secrets = resolved(options, folder, variables)
        addresses = address_values(options, folder, variables)
        for option in known_addresses(options, variables):
            try:
                check_address(option.text)
            except ValueError as error:
                message = f"{option.name}, with its variables replaced, {error}"
                raise TargetError("target", message) from None
    except TargetError as error:
        context = BuildContext(name, folder, defaults, environment, problem=error)
        return without_secrets(options), context
    context = BuildContext(name, folder, defaults, environment, secrets, None, addresses)
    return with_secrets, context


def check_address(url: str) -> None:
    """Raise `ValueError` if a target's address, with its variables replaced, is none."""
    from evalcore.providers.chat import checked_web_address

    # A placeholder's braces are no characters of a host or a port.
    checked_web_address(PLACEHOLDER.sub("x", url))


def variables_of(folder: Path, environment: Mapping[str, str]) -> Variables:
    """Return the variables of the environment and of the nearest `.env` that may be read."""
    path = nearest_env_file(folder)
    readable = read_settings(environment, Path.cwd()).readable_names
    return variables_from(b"" if path is None else path.read_bytes(), environment, readable)


def provider_of(provider: str | None, model: str | None) -> str:
    """Return the provider that is named; the name of a model says which if none is."""
    return provider or ("anthropic" if (model or "").lower().startswith("claude") else "openai")
