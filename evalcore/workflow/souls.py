"""Souls: personas with a system prompt, a model and the tools that it may call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from evalcore.declared.types import Listed, Text
from evalcore.workflow.part import WorkflowPart

DEFAULT_TURNS: Final = 5
_MOST_TURNS: Final = 100


class Soul(WorkflowPart):
    """A persona: system prompt, model, tools.

    What a variant or a stored plan adds are parameters of the model in OpenAI's names. `assertions`
    and `exits` are those of older files; they have no effect.
    """

    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType({"model": "model_name"})

    id: str = ""
    kind: str | None = Field(default=None, exclude=True)
    name: str | None = Field(default=None, exclude=True)
    role: str | None = Field(default=None, exclude=True)
    version: str | float | int | None = Field(default=None, exclude=True)
    description: str | None = Field(default=None, exclude=True)
    system_prompt: str | None = None
    provider: str | None = None
    model_name: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    tools: Listed[Text] | None = None
    required_tool_calls: Listed[Text] | None = None
    max_tool_iterations: Annotated[int, Field(ge=0, le=_MOST_TURNS)] = DEFAULT_TURNS
    avatar_color: str | None = Field(default=None, exclude=True)
    modified_at: str | None = Field(default=None, exclude=True)
    assertions: Any = Field(default=None, exclude=True)
    exits: Any = Field(default=None, exclude=True)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of its model."""
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        parameters = {**own, **(self.model_extra or {})}
        return {name: value for name, value in parameters.items() if value is not None}
