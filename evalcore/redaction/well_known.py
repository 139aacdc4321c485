"""Keys of well-known forms, and literals that stand where a key belongs."""

from __future__ import annotations

import re
from typing import Final

# Each has a digit somewhere where prose could look like it otherwise ("Bearer authentication").
KEYS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b[srp]k-(?=[A-Za-z_-]{0,200}\d)[A-Za-z0-9_-]{6,}",
        r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{8,}",
        r"\b[Bb]earer\s+(?=\S*\d)[A-Za-z0-9._~+/=-]{6,}",
        r"\b[Bb]asic\s+(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}",
        r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_)[A-Za-z0-9_-]{16,}",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bAIza[0-9A-Za-z_-]{30,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{5,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    )
)

# No key is shorter, and each holds one of these: a text without them is not searched ten times.
SHORTEST_KEY: Final = 9
_HINT: Final = re.compile(
    r"[srp]k[-_]|(?:earer|asic)\s|gh[pousr]_|github_pat_|glpat-|hf_|A(?:KIA|SIA|Iza)|xox|eyJ"
    r"|PRIVATE KEY"
)
# The same in JSON, where a tab or the end of a line is written with a backslash.
_HINT_IN_JSON: Final = re.compile(_HINT.pattern.replace(r"\s", r"[\s\\]"))
# What the pattern finds holds one of these: each is looked for in a tenth of the pattern's time.
_HINT_LITERALS: Final = (
    *("sk-", "sk_", "rk-", "rk_", "pk-", "pk_", "earer", "asic"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_"),
    *("AKIA", "ASIA", "AIza", "xox", "eyJ", "PRIVATE KEY"),
)


def is_key(text: str) -> bool:
    """Whether a text is a key of one of the forms, and nothing else."""
    return any(pattern.fullmatch(text) for pattern in KEYS)


def may_hold_key(text: str, *, is_json: bool = False) -> bool:
    """Whether a text, or a text in JSON, may hold a key of one of the forms; hardly any does."""
    for literal in _HINT_LITERALS:
        if literal in text:
            return (_HINT_IN_JSON if is_json else _HINT).search(text) is not None
    return False


_VALUE: Final = r"(?!\$|\{|\[redacted\])(?=[^\s\"'<>&,;]*\d)[^\s\"'<>&,;]{6,}"
# Each puts what stands before the key into its first group.
LITERALS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # user:password@host
        r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@\"']*:)(?!\[redacted\]@|\$)[^\s/@\"']+(?=@)",
        # ?token=…
        r"([?&;](?:[\w-]*(?:token|secret|signature|password|credential)|api[-_]?key|key|sig|auth"
        rf"|access[-_]?key)=){_VALUE}",
        # Authorization: Bearer …, X-Auth-Token: …, Cookie: …, "api_key": "…", password=…
        r"((?<![\w-])[\"']?(?:(?:proxy-)?authorization|x-auth-[\w-]+|[\w-]*api[-_]?key"
        r"|(?:set-)?cookie|[\w-]*(?:secret|password|passwd|passphrase)|[\w-]*[-_]token|token"
        r"|access[-_]?key)[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)"
        rf"{_VALUE}",
    )
)
