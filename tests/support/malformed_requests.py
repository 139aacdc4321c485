"""Requests that no service can carry out: fuzzed bodies, headers, queries and names of files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

JSON = {b"Content-Type": b"application/json"}


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    """A request and the part of it that is wrong, None where the fuzz may have left it right."""

    method: str
    path: str
    place: str | None
    content: bytes = b""
    headers: Mapping[bytes, bytes] = field(default_factory=lambda: JSON)
    query: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """A valid request with a body."""

    method: str
    path: str
    body: dict[str, Any]


_HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 0.5, "", "x", "\0", "../../etc/passwd", "é" * 300, [], {}, [[]],
    {"": ""}, {"type": "block"}, {"kind": "exists"}, {"$ref": "#"}, ["a"] * 300, {"a": {"b": None}},
)  # fmt: skip
_HOSTILE_TEXTS = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1" * 400, b'"\\ud800"', b'"\\u0000"',
    b'"\\udfff\\ud800"', b"'x'", b"{", b"[", b"]", b'"', b"01", b"+1", b".5", b"1.", b"tru", b"nul",
    b'{"a":1,"a":2}', b"[1,]", b"{,}", b"/* c */ 1", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"",
    b'"\x01"', b'"\n"', b"\x00", b"[" * 300 + b"]" * 300, b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
)  # fmt: skip
_WRONG_TYPES = (
    "text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data",
    "multipart/form-data; boundary=x", "application/octet-stream", "application/json-seq", "x",
    "image/png", ";", "application/",
)  # fmt: skip
_QUERIES = (
    "limit=0", "limit=-1", "limit=101", "limit=x", "limit=1e9", "limit=" + "9" * 400, "limit=",
    "limit=%00", "limit=NaN", "after=x", "after=%00", "before=" + "x" * 5_000, "after=%ff%fe",
    "before=a&after=b", "after=%F0%9F%92%A9", "after='%20OR%201=1--", "before=..%2F..%2Fetc",
)  # fmt: skip
_RUN_QUERIES = (
    "from_date=x", "from_date=2026-13-01", "to_date=0001-01-01T00:00:00%2B14:00", "to_date=%00",
    "from_date=9999-12-31T23:59:59-14:00", "from_date=1e400", "to_date=99999999999999999999",
    "from_date=NaN", "status=x", "status=", "exclude_status=%00", "trigger_type=x", "eval_id=%00",
    "workflow_id=a%00b", "target_block_id=%00", "status=completed&status=x",
)  # fmt: skip
_AUTHORIZATIONS: tuple[bytes, ...] = (
    b"", b"Bearer", b"Bearer x", b"Basic eDp4", b"Bearer evc__", b"Bearer evc_a_b",
    b"Bearer evc_" + b"a" * 5_000, b"Bearer \xff\xfe", b"bearer evc_x_\xe9", b"evc_x",
    b"Bearer evc_a",
    b"Bearer evc_" + b"a" * 22 + b"_" + b"b" * 43, b"Token x",
)  # fmt: skip
_FILE_NAMES = ("", "..", ".", "/", "a/", "\\", "../..", "%2e%2e", "a\\..\\..")


def malformed_requests(
    operations: list[Operation], lists: list[str], run_lists: list[str], seed: int
) -> Iterator[MalformedRequest]:
    """Yield requests without end; the same for the same seed."""
    random = Random(seed)
    kinds: list[Callable[[], MalformedRequest]] = [
        lambda: _with_unknown_key(random, random.choice(operations)),
        lambda: _without_key(random, random.choice(operations)),
        lambda: _with_hostile_value(random, random.choice(operations)),
        lambda: _with_hostile_text(random, random.choice(operations)),
        lambda: _with_hostile_text(random, random.choice(operations)),
        lambda: _with_broken_bytes(random, random.choice(operations)),
        lambda: _with_a_key_twice(random, random.choice(operations)),
        lambda: _with_wrong_type(random, random.choice(operations)),
        lambda: _with_query(random, lists, run_lists),
        lambda: _with_authorization(random, random.choice(operations)),
        lambda: _with_wrong_path(random),
        lambda: _with_file_name(random),
        lambda: _with_idempotency_key(random, operations),
    ]
    while True:
        yield random.choice(kinds)()


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of all values that are written by the rules of the service."""
    yield place
    free = {"data", "definition", "inputs", "expected"}
    if isinstance(value, dict):
        for key, member in value.items():
            if key not in free:
                yield from _places(member, (*place, key))


def _at(value: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        value = value[part]
    return value


def _request(operation: Operation, body: Any, place: str | None = "body") -> MalformedRequest:
    return MalformedRequest(operation.method, operation.path, place, json.dumps(body).encode())


def _with_unknown_key(random: Random, operation: Operation) -> MalformedRequest:
    body = copy.deepcopy(operation.body)
    objects = [
        place
        for place in _places(body)
        if isinstance(_at(body, place), dict) and place[-1:] != ("handle_inputs",)
    ]
    _at(body, random.choice(objects))[random.choice(["x", "", "ID", "é", "__proto__"])] = 1
    return _request(operation, body)


def _without_key(random: Random, operation: Operation) -> MalformedRequest:
    body = copy.deepcopy(operation.body)
    optional = {"name", "label", "scope", "path", "source", "inputs"}
    places = [
        place for place in _places(body) if place and not optional & set(place[-1:])
        and (operation.method != "PATCH" or len(place) > 1) and "input-json-0" not in place[-1:]
        and "input-json-1" not in place[-1:]
    ]  # fmt: skip
    if not places:
        return _with_unknown_key(random, operation)
    *parents, key = random.choice(places)
    del _at(body, tuple(parents))[key]
    return _request(operation, body)


def _with_hostile_value(random: Random, operation: Operation) -> MalformedRequest:
    body = copy.deepcopy(operation.body)
    place = random.choice([*_places(body)])
    value = random.choice(_HOSTILE_VALUES)
    if not place:
        return _request(operation, value, None)
    _at(body, place[:-1])[place[-1]] = value
    return _request(operation, body, None)


def _with_hostile_text(random: Random, operation: Operation) -> MalformedRequest:
    body = copy.deepcopy(operation.body)
    place = random.choice([*_places(body)])
    mark = "f8c1d2"
    if place:
        _at(body, place[:-1])[place[-1]] = mark
    text = json.dumps(body if place else mark).encode()
    hostile = random.choice(_HOSTILE_TEXTS)
    content = text.replace(f'"{mark}"'.encode(), hostile)
    return MalformedRequest(operation.method, operation.path, "body", content)


def _with_broken_bytes(random: Random, operation: Operation) -> MalformedRequest:
    text = bytearray(json.dumps(operation.body).encode())
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text))
        match random.randrange(3):
            case 0:
                del text[at]
            case 1:
                text[at] = random.randrange(256)
            case _:
                text.insert(at, random.randrange(256))
    return MalformedRequest(operation.method, operation.path, None, bytes(text))


def _with_a_key_twice(random: Random, operation: Operation) -> MalformedRequest:
    text = json.dumps(operation.body)
    key = random.choice(list(operation.body))
    content = f'{{"{key}": 1, {text[1:]}'.encode()
    return MalformedRequest(operation.method, operation.path, "body", content)


def _with_wrong_type(random: Random, operation: Operation) -> MalformedRequest:
    content = json.dumps(operation.body).encode()
    headers = {b"Content-Type": random.choice(_WRONG_TYPES).encode()}
    return MalformedRequest(operation.method, operation.path, "body", content, headers)


def _with_query(random: Random, lists: list[str], run_lists: list[str]) -> MalformedRequest:
    if random.random() < 0.5:
        return MalformedRequest("GET", random.choice(lists), None, query=random.choice(_QUERIES))
    return MalformedRequest(
        "GET", random.choice(run_lists), None, query=random.choice(_RUN_QUERIES)
    )


def _with_authorization(random: Random, operation: Operation) -> MalformedRequest:
    headers = {**JSON, b"Authorization": random.choice(_AUTHORIZATIONS)}
    content = random.choice([json.dumps(operation.body).encode(), b"{", b""])
    return MalformedRequest(operation.method, operation.path, "token", content, headers)


def _with_wrong_path(random: Random) -> MalformedRequest:
    parts = ["%00", "..%2f..%2fetc", "x" * 3_000, "%ff", "a%00b", "wf_x", "%F0%9F%92%A9"]
    path = random.choice(
        [
            "/v1/workflows/{}", "/v1/workflows/evals/{}", "/v1/workflows/evals/runs/{}",
            "/v1/workflows/evals/results/{}", "/v1/files/{}", "/v1/files/{}/content",
            "/v1/workflows/runs/{}", "/v1/workflows/runs/{}/steps",
        ]
    )  # fmt: skip
    return MalformedRequest("GET", path.format(random.choice(parts)), "path")


def _with_file_name(random: Random) -> MalformedRequest:
    name = random.choice(_FILE_NAMES)
    disposition = f'form-data; name="file"; filename="{name}"'
    content = f"--x\r\nContent-Disposition: {disposition}\r\n\r\nbytes\r\n--x--\r\n".encode()
    forms = [content, content[:-9], content.replace(b"file", b"fill"), b"--x--", b""]
    headers = {b"Content-Type": b"multipart/form-data; boundary=x"}
    return MalformedRequest("POST", "/v1/files", None, random.choice(forms), headers)


def _with_idempotency_key(random: Random, operations: list[Operation]) -> MalformedRequest:
    runs = next(each for each in operations if each.path.endswith("/evals/runs"))
    key = random.choice([b"", b"x" * 256, b"x" * 60_000])
    content = json.dumps(runs.body).encode()
    headers = {**JSON, b"Idempotency-Key": key}
    return MalformedRequest(runs.method, runs.path, "header", content, headers)
