"""Identifiers on the wire: a prefix that names the kind, and 22 random letters and digits."""

from __future__ import annotations

import secrets
import string
from enum import StrEnum
from typing import Final

_ALPHABET: Final = string.ascii_letters + string.digits
_LENGTH: Final = 22
_IDS: Final = len(_ALPHABET) ** _LENGTH


class Kind(StrEnum):
    """The prefix of each resource's ids."""

    PROJECT = "proj"
    TOKEN = "tok"
    WORKFLOW = "wf"
    DRAFT = "draft"
    WORKFLOW_RUN = "wfrun"
    STEP = "step"
    FILE = "file"
    EVAL = "wfnodeeval"
    REVISION = "rev"
    ASSERTION = "assert"
    EVAL_RUN = "wfevalrun"
    RESULT = "wfresult"
    WORKER = "worker"


def new_id(kind: Kind) -> str:
    """Return an id that no other resource has (131 random bits)."""
    number, characters = secrets.randbelow(_IDS), []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return f"{kind}_" + "".join(characters)
