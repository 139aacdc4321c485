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
    """A program that is told of the workspace on its standard input.

    `reset` takes the workspace back to what `before_all` left, before the program starts.
    """

    command: Command
    reset: Literal["none", "fast", "strict"]
    timeout_ms: Annotated[float, Field(gt=0)]
    cwd: Text


@with_config(STRICT)
class TargetHookShape(TypedDict, total=False):
    """A program that prepares the workspace for one target, or cleans up after it."""

    command: Required[Command]
    timeout_ms: Annotated[float, Field(gt=0)]
    cwd: Text


@with_config(STRICT)
class TargetHooksShape(TypedDict, total=False):
    """What runs inside the workspace's own hooks when a target works there."""

    before_all: TargetHookShape
    before_each: TargetHookShape
    after_each: TargetHookShape
    after_all: TargetHookShape


@with_config(STRICT)
class ReuseShape(TypedDict, total=False):
    """What AgentV does with a workspace of an earlier run; here each run makes its own."""

    reset: Literal["none", "fast", "strict"]


@with_config(STRICT)
class HooksShape(TypedDict, total=False):
    """What runs before and after; null takes back what the suite says, `enabled: false` all."""

    enabled: bool
    on_reuse: ReuseShape | None
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
    """Which commit: `ref` is a commit, a tag or a branch; `ancestor` counts back from it.

    `resolve` says in AgentV where `ref` is looked up; here the source is always asked.
    """

    ref: Text
    base_commit: Text
    ancestor: Annotated[int, Field(ge=0)]
    resolve: Literal["remote", "local"]


@with_config(STRICT)
class RepositoryClone(TypedDict, total=False):
    """How much is fetched: the last `depth` commits; `sparse` are the folders that are written.

    `filter` is git's; what it leaves out is fetched here.
    """

    depth: Annotated[int, Field(ge=1)]
    filter: Text
    sparse: Annotated[list[Text], Field(min_length=1)]


@with_config(STRICT)
class RepositoryShape(TypedDict, total=False):
    """A git repository in the workspace; `repo` is an address, or `owner/name` on GitHub."""

    path: Required[Text]
    repo: Text
    commit: Text
    base_commit: Text
    ancestor: Annotated[int, Field(ge=0)]
    sparse: Annotated[list[Text], Field(min_length=1)]
    clone: RepositoryClone
    source: Annotated[
        Annotated[Text, Tag("<text>")] | Annotated[RepositorySource, Tag("<mapping>")],
        Discriminator(text_or_mapping),
    ]
    checkout: Annotated[
        Annotated[Text, Tag("<text>")] | Annotated[RepositoryCheckout, Tag("<mapping>")],
        Discriminator(text_or_mapping),
    ]


@with_config(STRICT)
class WorkspaceShape(TypedDict, total=False):
    """The folder that targets work in."""

    template: Text | None
    mode: Literal["pooled", "temp", "static"]
    isolation: Literal["shared", "per_test", "per-test"]
    path: Text | None
    repos: list[RepositoryShape] | None
    hooks: HooksShape | None


WorkspaceValue = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[WorkspaceShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]
