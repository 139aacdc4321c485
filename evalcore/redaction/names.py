"""Which names and values are secret: variables, headers, fields, and what a value looks like."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

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
_HINTS: Final = (
    *("sk-", "sk_", "rk-", "rk_", "pk-", "pk_", "earer", "asic"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_"),
    *("AKIA", "ASIA", "AIza", "xox", "eyJ", "PRIVATE KEY"),
)


def is_key(text: str) -> bool:
    """Whether a text is a key of one of the forms, and nothing else."""
    return any(pattern.fullmatch(text) for pattern in KEYS)


def may_hold_key(text: str) -> bool:
    """Whether a text, also in JSON, may hold a key of one of the forms; hardly any does."""
    return any(hint in text for hint in _HINTS)


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


SECRET_HEADER: Final = re.compile(
    r"auth(?!ors?\b)|cookie|api[-_]?key|(?:^|[-_])key(?:$|[-_])|token(?!s)|secret|passw|credential|signature"
    r"|session",
    re.IGNORECASE,
)
SECRET_FIELD: Final = re.compile(
    r"(?:x-amz-|x-goog-)?(?:token|key|pwd|signature|sig|credentials?|(?:proxy-)?authorization|auth)"
    r"|[\w-]*(?:(?:access|auth|refresh|security|session|id|bearer|api|app|bot|user)[-_]?token"
    r"|(?:api|access|private|secret|subscription|account|app|function|master|signing)[-_]?key"
    r"|secret|passw(?:or)?d|passphrase|access[-_]?key[-_]?id)",
    re.IGNORECASE,
)
# Fields that say who asks, and never what is asked.
AUTHORISING_FIELD: Final = re.compile(
    r"(?:x-amz-|x-goog-)?(?:api[-_]?key|(?:(?:access|auth|refresh|security|session|bearer)[-_]?)?token"
    r"|client[-_]?secret|secret|passw(?:or)?d|signature|credential|authorization)",
    re.IGNORECASE,
)
_SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:[A-Z]*KEY|[A-Z]*TOKEN|[A-Z]*SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PAT|DSN"
    r"|CREDENTIALS?|CREDS|AUTH|AUTHORIZATION|BEARER|COOKIE|SIGNATURE|SIG)(?:_|\d|$)",
    re.IGNORECASE,
)
# What such a variable holds is a setting that outputs and reports may name.
_SETTING: Final = re.compile(
    r"(?:^|_)(?:URL|URI|HOST|HOSTNAME|PORT|PATH|FILE|DIR|FOLDER|SOCK|MODEL|MODELS|PROVIDER|REGION"
    r"|MODE|ENV|ENVIRONMENT|STAGE|LANG|LANGUAGE|LOCALE|VERSION|LEVEL|FORMAT|TIMEOUT|TZ|DATE|NAME"
    r"|STORE|BUCKET|ENDPOINT|ADDRESS|TITLE|GREETING|PROMPT|INPUT|OUTPUT|ANSWER|QUESTION|TEXT"
    r"|EXPECTED|SUITE|BRANCH|COMMIT|SHA|LIMIT|LIMITS|PREFIX|SUFFIX|USER|USERNAME|EMAIL)$",
    re.IGNORECASE,
)
# Values that are settings under any variable's name: a model, a date, a version, a host or
# a file, a language, a number.
_PLAIN: Final = re.compile(
    r"(?:gpt|claude|gemini|gemma|llama|mistral|mixtral|qwen|deepseek|phi|grok|command|text-embedding"
    r"|o\d)[\w.:/@-]*|\d{4}-\d\d(?:-\d\d(?:[T_].*)?)?|v?\d+(?:\.\d+)+[\w.+-]*|[a-z]{2}[-_][A-Z]{2}"
    r"|(?:[a-z][a-z-]*\d{0,3}\.)+[a-z]{2,5}(?::\d+)?|localhost:\d+|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
)
ALWAYS_READABLE: Final = "EVAL_"
_SHORTEST: Final = 6
_SHORTEST_WORD: Final = 16
_SHORTEST_READABLE: Final = 8
_SHORTEST_SETTING: Final = 20
_SHORTEST_IN_PATH: Final = 20


def is_telling(value: str) -> bool:
    """Whether to cover a value hides a secret, and not an ordinary word or number.

    At least 6 characters; at least 16 if they are only letters or only digits.
    """
    if len(value) >= _SHORTEST_WORD:
        return True
    return len(value) >= _SHORTEST and not value.isalpha() and not value.isdigit()


def is_secret_variable(name: str) -> bool:
    """Whether a variable's name says that its value is secret, such as `API_TOKEN`."""
    return _SECRET_VARIABLE.search(name) is not None and _SETTING.search(name) is None


def secrets_of_environment(
    variables: Mapping[str, str], readable: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield name and secret of each variable that holds one; a suite may read those in `readable`.

    Secret is what a secret's name stands for, what does not look like a setting in a variable that
    a suite may read (`EVAL_*` too), and what a URL holds: user and password, keys in its query.
    """
    for name, value in variables.items():
        text = value.strip()
        if is_secret_variable(name):
            if is_telling(text):
                yield name, text
        elif (name in readable or name.startswith(ALWAYS_READABLE)) and looks_secret(name, text):
            yield name, text
        if "://" in text:
            yield from ((name, part) for part in secrets_of_url(text))


def looks_secret(name: str, value: str) -> bool:
    """Whether a readable variable, whose name says nothing, holds what looks like a key.

    At least 8 characters (20 where the name is a setting's, such as `EVAL_MODEL`) without white
    space; no address, path, model, date, version or number.
    """
    named = _SETTING.search(name) is not None
    if len(value) < (_SHORTEST_SETTING if named else _SHORTEST_READABLE) or not is_telling(value):
        return False
    if any(map(str.isspace, value)) or "://" in value or value.startswith(("/", "./", "../", "~")):
        return False
    if named and not (any(map(str.isalpha, value)) and any(map(str.isdigit, value))):
        return False
    return _PLAIN.fullmatch(value) is None


def secrets_of_url(url: str) -> Iterator[str]:
    """Yield what is secret in a URL: user and password, keys in its query and in a webhook's path.

    A URL without these is an address, and addresses may be shown.
    """
    try:
        parts = urlsplit(url)
        user, password = parts.username or "", parts.password or ""
        query = parse_qsl(parts.query)
    except ValueError:
        return
    if password:
        yield from (text for text in {password, unquote(password)} if is_telling(text))
        yield f"{user}:{password}"
    elif is_telling(user):
        yield user
    yield from (
        value for name, value in query if SECRET_FIELD.fullmatch(name) and is_telling(value)
    )
    if parts.scheme in {"http", "https"}:  # the path of a webhook is its key; a folder is none
        yield from filter(_is_random, parts.path.split("/"))


def _is_random(segment: str) -> bool:
    """Whether a part of a path looks like a key: long, with digits, capitals and small letters."""
    if len(segment) < _SHORTEST_IN_PATH:
        return False
    return all(any(map(kind, segment)) for kind in (str.isdigit, str.isupper, str.islower))
