"""Personal data and keys in texts of real usage: e-mail, phone, cards, accounts, keys of services.

Stricter than the redactor of evidence: what may be personal is covered, at the price of some
numbers that are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from evalcore.redaction.names import SECRET_FIELD
from evalcore.redaction.redactor import REDACTED, Redactor

SERVICE_KEYS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b[srp]k[-_][A-Za-z0-9_-]{12,}",
        r"\b(?:sk|pk|rk|whsec|acct)_(?:live|test)?_?[A-Za-z0-9]{16,}",
        r"\b(?:gsk|xai|pplx|nvapi|lin_api|ntn|secret|npm|dop_v1|doo_v1|shpat|shpss|shpca|r8|fly"
        r"|pypi|dapi|hvs|hvb|sq0atp|sq0csp|EAAA|key|pat|glpat|gldt|glrt|rubygems|dckr_pat|atlasv1"
        r"|tfp|sntrys|sbp|PMAK|figd|CFPAT|phc|rdme|xapp|sl\.)[-_.]?[A-Za-z0-9_-]{0,99}\d[A-Za-z0-9_.-]{11,}",
        r"\bGOCSPX-[A-Za-z0-9_-]{10,}",
        r"\bya29\.[A-Za-z0-9_-]{10,}",
        r"\bSG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r"\b(?:AC|SK)[0-9a-f]{32}\b",
        r"\b\d{8,10}:[A-Za-z0-9_-]{30,}",
        r"\b(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{12,}\b",
        r"(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]*\d)(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*[a-z])"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
        r"\b(?:[MN][A-Za-z\d]{23,25})\.[\w-]{6}\.[\w-]{27,}",
        r"https://hooks\.[a-z]+\.com/\S+",
        r"(?i)\b(?:AccountKey|SharedAccessKey|sig)=[A-Za-z0-9+/%]{16,}={0,2}",
        r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
        r"\b(?:[0-9a-f]{32}|[0-9a-f]{64})\b",
    )
)
# Words that say that a secret follows; what follows a password is covered without a digit, too.
_SPOKEN: Final = tuple(
    re.compile(rf"(\b{words}[\"']?{link}[\"']?)(?!\[redacted\]){value}", re.IGNORECASE)
    for words, link, value in (
        (
            r"(?:pass ?(?:word|phrase|code|wd)|passwort|kennwort|contraseña|mot de passe|pwd)",
            r"(?:\s+(?:is|ist|es|est|was)\s+|\s*[:=]\s*)",
            r"[^\s\"',;]{3,}",
        ),
        (
            r"(?:pin(?: code)?|cvv2?|cvc|otp|secret|api[-_ ]?key|access[-_ ]?token|token)",
            r"(?:\s+(?:is|ist|es|est|was)\s+|\s*[:=]\s*)",
            r"(?=[^\s\"',;]*\d)[^\s\"',;]{3,}",
        ),
    )
)
_EMAIL_HINT: Final = re.compile(r"@|\uff20|%40|[(\[]at[)\]]", re.IGNORECASE)
_EMAIL: Final = re.compile(
    r"(?:\"[^\"\s]{1,64}\"|[\w.!#$%&'*+/=?^`{|}~-]{1,64})\s?(?:@|\uff20|\(at\)|\[at\]|%40)\s?"
    r"(?:[\w-]{1,63}\s?(?:\.|\(dot\)|\[dot\])\s?){1,8}[^\W\d_][\w-]{1,62}",
    re.IGNORECASE,
)
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?\b")
_DIGITS: Final = re.compile(r"(?<![\d.])\d(?:[ .-]?\d){11,18}(?!\d)")
_NO_DATE: Final = r"(?!\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b)"
PERSONAL: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)",  # social security number of the USA
        r"\+\s?\d(?:[\s().\u00a0/-]{0,3}\d){6,14}",
        r"(?<!\d)00[1-9](?:[\s().\u00a0/-]{0,3}\d){6,13}(?!\d)",
        rf"(?<![\d.-]){_NO_DATE}(?:1[\s.-])?\(?[2-9]\d{{2}}\)?[\s.\u00a0-]{{1,2}}\d{{3}}[\s.\u00a0-]\d{{4}}(?!\d)",
        r"\(\d{2,5}\)\s?\d{2,5}(?:[\s./-]?\d){2,8}",
        rf"(?<![\d.-]){_NO_DATE}0[1-9](?:[\s./\u00a0-]{{0,3}}\d){{7,12}}(?!\d)",
        r"(?<![\d.-])[6-9]\d{4}[\s-]\d{5}(?!\d)",
        r"(?<![\d.+-])\d{10,19}(?![\d.])",
        r"(?i)\b(?:tel|telefon|phone|mobile|cell|fax|whatsapp)\b\.?\s*(?:no\.?|number|is)?[:\s]*"
        r"\d(?:[\s().-]{0,2}\d){5,14}",
    )
)
_LONG_TOKEN: Final = re.compile(r"[A-Za-z0-9_.+/:=-]{12}")
_PIECE: Final = 1_000
# Where a text may be cut, the better ones first: after a line or a sentence, between words.
_BREAKS: Final = (
    re.compile(r"\n|(?<=[^\W\d]{3}[.,;!?])\s|[\u3002\u3001\uff01\uff1f]"),
    re.compile(r"(?<=[^\W\d]{2})\s(?=[^\W\d]{2})"),
)
_GAP: Final = re.compile(r"\s")
_PHONE_FIELD: Final = re.compile(r"(?i)(?:.*[_-])?(?:phone|mobile|tel|telephone|fax|cell|whatsapp)"
                                 r"(?:[_-]?(?:no|nr|number))?")  # fmt: skip
_CARD_FIELD: Final = re.compile(
    r"(?i)(?:.*[_-])?(?:card[_-]?(?:no|number)|cc[_-]?(?:no|number)|iban|ssn|cvv|cvc|pan)"
)


class RedactionError(Exception):
    """A caller's own redaction failed: what it was to redact must not be kept."""


class PersonalRedactor:
    """Covers secrets that the process knows, keys, personal data, and what own callables cover.

    Each of `own` takes a text and returns one. Raises `RedactionError` where one of them fails or
    returns something else. `after_piece` is called after each piece of about 1 000 characters, so
    that other threads may go on in between.
    """

    def __init__(
        self,
        redactor: Redactor,
        own: Iterable[Callable[[str], str]] = (),
        after_piece: Callable[[], None] = lambda: None,
    ) -> None:
        self._redactor = redactor
        self._own = tuple(own)
        self._after_piece = after_piece

    def text(self, text: str) -> str:
        """Return a text without secrets and personal data."""
        for cover in self._own:
            try:
                text = cover(text)
            except Exception as error:  # another's code
                raise RedactionError(f"{type(error).__name__}: {error}") from error
            if type(text) is not str:
                raise RedactionError(f"a redaction returned {type(text).__name__} instead of text")
        # Known values and keys of several lines first, in the whole text.
        text = self._redactor.reply(text)
        covered = []
        for piece in _pieces(text):
            covered.append(mask_personal(self._redactor.message(piece)))
            self._after_piece()
        return "".join(covered)

    def value(self, value: Any) -> Any:
        """Return a JSON value with its texts covered, names of members too.

        The value of a member whose name says that it is secret is covered as a whole.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._member(name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return REDACTED if _is_card(value) else value

    def _member(self, name: str, value: Any) -> Any:
        whole = isinstance(value, str | int | float) and not isinstance(value, bool)
        if whole and value != "" and _is_personal_field(name, value):
            return REDACTED
        return self.value(value)


def mask_personal(text: str) -> str:
    """Return a text without keys of services, e-mail addresses, phone, card and account numbers."""
    if len(text) < 4:
        return text
    for finder in _SPOKEN:
        text = finder.sub(_after_its_word, text)
    if _LONG_TOKEN.search(text):
        for finder in SERVICE_KEYS:
            text = finder.sub(REDACTED, text)
    if _EMAIL_HINT.search(text):
        text = _EMAIL.sub(REDACTED, text)
    if not any(map(str.isdigit, text)):
        return text
    text = _IBAN.sub(REDACTED, text)
    text = _DIGITS.sub(_covered_card, text)
    for finder in PERSONAL:
        text = finder.sub(REDACTED, text)
    return text


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces, which end where no number, name or key goes on.

    A search holds the interpreter's lock: of a long text it would stop the whole process. What goes
    on for longer than a piece without a space, such as an encoded file, is covered as a whole.
    """
    start = 0
    while len(text) - start > _PIECE:
        half = start + _PIECE // 2
        found = (finder.search(text, half, start + _PIECE) for finder in _BREAKS)
        match = next(filter(None, found), None) or _GAP.search(text, half)
        piece = text[start : len(text) if match is None else match.end()]
        yield f"{REDACTED} " if len(piece) > _PIECE and piece.isascii() else piece
        start += len(piece)
    yield text[start:]


def _after_its_word(match: re.Match[str]) -> str:
    return f"{match[1]}{REDACTED}"


def _covered_card(match: re.Match[str]) -> str:
    return REDACTED if passes_luhn(match[0]) else match[0]


def passes_luhn(text: str) -> bool:
    """Whether the digits of a text are a card's number: 12 to 19 of them, with its check digit."""
    digits = [int(character) for character in text if character.isdecimal()]
    if not 12 <= len(digits) <= 19:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_card(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and value >= 10**14 and passes_luhn(str(value))


def _is_personal_field(name: str, value: Any) -> bool:
    if SECRET_FIELD.fullmatch(name):
        return isinstance(value, str)
    return bool(_PHONE_FIELD.fullmatch(name) or _CARD_FIELD.fullmatch(name))
