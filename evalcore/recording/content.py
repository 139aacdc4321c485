"""What a recording holds: as a value, as bytes, as a file; which is nearest to a question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalcore.errors import EvalError, ExitCode
from evalcore.model.evidence import LARGEST
from evalcore.model.exchange import (
    ProviderError,
    Reply,
    Request,
    StreamEvent,
    Usage,
    request_digest,
)
from evalcore.planning.spool import ZstdFrameError, compress_frame, decompress_frame
from evalcore.recording.redaction import Redaction, named_identity
from evalcore.redaction.redactor import REDACTED

SCHEMA: Final = 1


class RecordingError(EvalError):
    """A recording cannot be written or read; the message says which one and why."""

    exit_code = ExitCode.ERRORS


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for: a request's named identity, the iteration, the how-manieth time."""

    identity: Mapping[str, Any]
    iteration: int
    invocation: int

    @classmethod
    def of(cls, request: Request, *, iteration: int, invocation: int) -> Question:
        """Return the question that a request asks."""
        return cls(named_identity(request), iteration, invocation)

    def of_asker(self, asker: str) -> Question:
        """Return the question as this asker's own: its answer is beside that of another one."""
        return Question({**self.identity, "asker": asker}, self.iteration, self.invocation)

    @property
    def digest(self) -> str:
        """The digest that names its recording; `RecordingError` if JSON cannot hold the request."""
        try:
            return request_digest(
                self.identity, iteration=self.iteration, invocation=self.invocation
            )
        except (TypeError, ValueError) as error:
            raise RecordingError(f"the request cannot be recorded: {error}") from None


@dataclass(frozen=True, slots=True)
class Origin:
    """Who recorded it: the run, if it was one, and the recorder (a new one after each restart).

    `asker` is the digest of the case and the variant that asked.
    """

    recorded_at: str
    run: str | None = None
    recorder: str | None = None
    asker: str | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange: the question, free of secrets, and the reply or the failure."""

    digest: str
    question: Question
    origin: Origin
    outcome: Reply | ProviderError


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


_Number = Annotated[float, Field(ge=0, le=LARGEST)]
_Count = Annotated[int, Field(ge=0, le=LARGEST)]


class _Usage(_Shape):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None
    cache_write_1h_tokens: _Count | None = None
    input_audio_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None
    output_audio_tokens: _Count | None = None
    tier: str | None = None


class _Reply(_Shape):
    text: str
    model: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    usage: _Usage = _Usage()
    cost_usd: _Number | None = None
    latency_ms: _Number = 0.0
    ttft_ms: _Number | None = None
    finish_reason: str | None = None
    status: int = 200
    # What a 32-bit column holds, over the calls of an item.
    attempts: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    events: tuple[StreamEvent, ...] = ()
    notes: tuple[str, ...] = ()

    def value(self) -> Reply:
        usage = Usage(**self.usage.model_dump())
        return Reply(**{**dict(self), "usage": usage}, recorded=True)


class _Error(_Shape):
    kind: str
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    attempts: int = 1

    def value(self) -> ProviderError:
        return ProviderError(**self.model_dump())


class _RecordingShape(_Shape):
    """A recording as it stands in the store and in exported files."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    identity: dict[str, Any]
    iteration: Annotated[int, Field(ge=0)]
    invocation: Annotated[int, Field(ge=0)]
    recorded_at: str
    run: str | None = None
    recorder: str | None = None
    asker: str | None = None
    reply: _Reply | None = None
    error: _Error | None = None
    # Recordings of version 0.1 have one.
    sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None


def encode(recording: Recording, redaction: Redaction) -> bytes:
    """Return the bytes of a recording, free of secrets; raise `RecordingError` if JSON cannot."""
    try:
        text = orjson.dumps(_document(recording, redaction), option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError) as error:
        raise RecordingError(f"the answer cannot be recorded: {error}") from None
    return stored(text)


def decode(data: bytes) -> Recording:
    """Return the recording that these bytes hold; raise `RecordingError`."""
    return parse(_decompressed(data))


def readable(data: bytes) -> bytes:
    """Return a stored recording as a text file: JSON of stable form."""
    document = orjson.loads(_decompressed(data))
    document.pop("sha256", None)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def stored(text: bytes) -> bytes:
    """Return the bytes for the store of a readable recording, which `parse` accepts."""
    return compress_frame(orjson.dumps(orjson.loads(text)), level=3, checksum=True)


def parse(text: bytes) -> Recording:
    """Return the recording that a JSON text holds; raise `RecordingError` with what is wrong."""
    try:
        shape = _RecordingShape.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field}: {first['msg']}" if field else first["msg"]
        raise RecordingError(f"not a recording that this version reads: {reason}") from None
    outcome = shape.reply or shape.error
    if outcome is None or (shape.reply and shape.error):
        raise RecordingError("not a recording: it needs either `reply` or `error`")
    return Recording(
        shape.key,
        Question(shape.identity, shape.iteration, shape.invocation),
        Origin(shape.recorded_at, shape.run, shape.recorder, shape.asker),
        outcome.value(),
    )


def check_key(recording: Recording) -> None:
    """Raise `RecordingError` if the identity does not have the digest that the recording says.

    Where something secret was taken out of the identity, its digest cannot be checked any more.
    """
    digest = recording.question.digest
    hidden = REDACTED.encode() in orjson.dumps(recording.question.identity)
    if digest != recording.digest and not hidden:
        raise RecordingError(
            "its request was changed: nothing would ask for it under the key it has "
            f"(the request's own is {digest})"
        )


def _document(recording: Recording, redaction: Redaction) -> dict[str, Any]:
    origin, question, outcome = recording.origin, recording.question, recording.outcome
    document = {
        "schema": SCHEMA,
        "key": recording.digest,
        "identity": redaction.identity(question.identity),
        "iteration": question.iteration,
        "invocation": question.invocation,
        **asdict(origin),
    }
    if origin.asker is None:
        del document["asker"]
    if isinstance(outcome, ProviderError):
        message = redaction.text(outcome.message)
        fields = ("status", "retry_after_s", "attempts")
        more = {name: getattr(outcome, name) for name in fields}
        return {**document, "error": {"kind": str(outcome.kind), "message": message, **more}}
    reply = {name: getattr(outcome, name) for name in _Reply.model_fields}
    if not outcome.notes:
        del reply["notes"]
    return {
        **document,
        "reply": {**reply, "usage": _usage(outcome.usage), **redaction.reply(outcome)},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """Return what was counted; recordings of earlier versions have nothing but the first two."""
    both = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return both | {name: value for name, value in asdict(usage).items() if value is not None}


def _decompressed(data: bytes) -> bytes:
    try:
        return decompress_frame(data)
    except ZstdFrameError as error:
        raise RecordingError(f"damaged: it {error}") from None


_COMPARED_CHARACTERS: Final = 1_000
_SHOWN_CHARACTERS: Final = 40
_SHOWN_BEFORE: Final = 10
_MOST_DIFFERENCES: Final = 3
_ABSENT: Final = object()
# Fences of judges (`judging.fences`): their codes change with every text between them.
_FENCE_CODE: Final = re.compile(r"(?<= )[0-9a-f]{24}(?=>>\n|>>$)")
_FENCE: Final = re.compile(r"<<(END )?([^<>\n]+) …>>")


def nearest(question: Question, recordings: Sequence[Recording]) -> Recording | None:
    """Return the recording of the most similar request, free of secrets as the question is.

    The last message counts most. The same recordings in another order give the same answer.
    """
    from rapidfuzz.distance import Indel
    from rapidfuzz.process import extractOne

    if not recordings:
        return None
    ordered = sorted(recordings, key=lambda recording: recording.digest)
    texts = [_compared(recording.question) for recording in ordered]
    _, _, position = extractOne(_compared(question), texts, scorer=Indel.normalized_similarity)
    return ordered[position]


def _compared(question: Question) -> str:
    identity = question.identity
    messages = identity.get("messages") or [identity.get("parameters")]
    rest = {**identity, "messages": messages[:-1]}
    return "\n".join(_json(part).decode()[:_COMPARED_CHARACTERS] for part in (messages[-1], rest))


def differences(recorded: Question, question: Question) -> str:
    """Say what differs, `recorded → asked`: the first three places, in the order of a request."""
    lines = list(_between(_flat(recorded), _flat(question), ""))
    listed = "; ".join(lines[:_MOST_DIFFERENCES])
    more = len(lines) - _MOST_DIFFERENCES
    return f"{listed}; and {more} more" if more > 0 else listed


def _flat(question: Question) -> dict[str, Any]:
    return {
        **question.identity,
        "iteration": question.iteration,
        "invocation": question.invocation,
    }


def _between(recorded: Any, current: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        for name in dict.fromkeys([*recorded, *current]):
            inner = f"{path}.{name}" if path else str(name)
            yield from _between(recorded.get(name, _ABSENT), current.get(name, _ABSENT), inner)
    elif _is_list(recorded) and _is_list(current):
        for number, (before, after) in enumerate(zip_longest(recorded, current, fillvalue=_ABSENT)):
            yield from _between(before, after, f"{path}[{number}]")
    elif isinstance(recorded, str) and isinstance(current, str):
        if recorded != current:
            yield _text_difference(recorded, current, path)
    elif _json(recorded) != _json(current):
        yield f"{path} {_excerpt(recorded)} → {_excerpt(current)}"


def _text_difference(recorded: str, current: str, path: str) -> str:
    if max(len(recorded), len(current)) <= _SHOWN_CHARACTERS and not path.startswith("messages"):
        return f"{path} {_excerpt(recorded)} → {_excerpt(current)}"
    texts = [_FENCE_CODE.sub("…", text) for text in (recorded, current)]
    if texts[0] == texts[1]:
        texts = [recorded, current]
    pairs = enumerate(zip(*texts, strict=False))
    at = next((at for at, (before, after) in pairs if before != after), min(map(len, texts)))
    fences = _FENCE.findall(texts[1][:at])
    inside = f" in {fences[-1][1]}" if fences and not fences[-1][0] else ""
    start = max(0, at - _SHOWN_BEFORE)
    parts = (text[start : start + _SHOWN_CHARACTERS] for text in texts)
    excerpts = " → ".join(f"{'…' if start else ''}{_excerpt(part)}" for part in parts)
    return f"{path}{inside} at character {at + 1} ({excerpts})"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _excerpt(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = _json(value).decode()
    return text if len(text) <= 2 * _SHOWN_CHARACTERS else f"{text[: 2 * _SHOWN_CHARACTERS]}…"


def _json(value: Any) -> bytes:
    if value is _ABSENT:
        return b""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
