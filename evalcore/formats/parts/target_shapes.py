"""The foreign text of targets: entries of `targets:` and of a `targets.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal, Required

from pydantic import Discriminator, Tag, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Count, Text
from evalcore.formats.parts.shared_shapes import OPEN, STRICT


@with_config(OPEN)
class ProviderTarget(TypedDict, total=False):
    """A named target: the provider says its kind, the rest are that kind's options."""

    name: Required[Text]
    provider: Required[Text]


@with_config(OPEN)
class DerivedTarget(TypedDict, total=False):
    """A named target with the kind and the options of another, its own laid over them."""

    name: Required[Text]
    use_target: Required[Text]


def _kind_of_target(value: object) -> str:
    uses = isinstance(value, dict) and "use_target" in value
    return "<use_target>" if uses else "<provider>"


TargetShape = Annotated[
    Annotated[ProviderTarget, Tag("<provider>")] | Annotated[DerivedTarget, Tag("<use_target>")],
    Discriminator(_kind_of_target),
]


@with_config(STRICT)
class TargetCommon(TypedDict, total=False):
    """Options of a target of any kind (`COMMON_OPTIONS`)."""

    grader_target: Text
    fallback_targets: list[Text]
    reasoning: Literal["strip", "keep"]
    workers: Count
