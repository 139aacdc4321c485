"""The foreign text of workspaces (docs/reference/workspaces.md)."""

from __future__ import annotations

from typing import Annotated, Literal, Required

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Text, text_or_mapping
from evalcore.formats.parts.shared_shapes import STRICT


def _text_or_list(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<text>"


Command = Annotated[
    Annotated[Text, Tag("<text>")]
    | Annotated[Annotated[list[Text], Field(min_length=1)], Tag("<list>")],
    Discriminator(_text_or_list),
]


@with_config(STRICT)
class HookShape(TypedDict, total=False):
    """A program that is told of the workspace on its standard input."""

    command: Required[Command]
    timeout_ms: Annotated[float, Field(gt=0)]
    cwd: Text


@with_config(STRICT)
class HooksShape(TypedDict, total=False):
    """What runs before and after; null takes back what the suite says."""

    before_all: HookShape | None
    before_each: HookShape | None
    after_each: HookShape | None
    after_all: HookShape | None


@with_config(STRICT)
class RepositorySource(TypedDict, total=False):
    """Where a repository comes from: `url` of a server, or `path` of a folder."""

    type: Literal["git", "local"]
    url: Text
    path: Text


@with_config(STRICT)
class RepositoryCheckout(TypedDict, total=False):
    """Which commit: `ref` is a commit, a tag or a branch; `ancestor` counts back from it."""

    ref: Text
    ancestor: Annotated[int, Field(ge=0)]


@with_config(STRICT)
class RepositoryShape(TypedDict, total=False):
    """A git repository in the workspace."""

    path: Required[Text]
    source: Required[
        Annotated[
            Annotated[Text, Tag("<text>")] | Annotated[RepositorySource, Tag("<mapping>")],
            Discriminator(text_or_mapping),
        ]
    ]
    checkout: Annotated[
        Annotated[Text, Tag("<text>")] | Annotated[RepositoryCheckout, Tag("<mapping>")],
        Discriminator(text_or_mapping),
    ]


@with_config(STRICT)
class WorkspaceShape(TypedDict, total=False):
    """The folder that targets work in."""

    template: Text | None
    isolation: Literal["shared", "per_test", "per-test"]
    path: Text | None
    repos: list[RepositoryShape] | None
    hooks: HooksShape | None


WorkspaceValue = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[WorkspaceShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]
