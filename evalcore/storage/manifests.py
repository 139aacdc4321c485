"""What stands in `manifest.json`, as bytes and as a value: nonsense is damage, told with its place.

A manifest that was edited is caught where it contradicts itself, or the seal of its plan; what only
the plan and the rows contradict is `analytics.integrity`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError, with_config

from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError, StoreError
from evalcore.model.run import SCHEMA, Manifest, Plan, State
from evalcore.planning.shards import count_shards, settle
from evalcore.shapes import explain
from evalcore.storage.layout import RunKeys, suite_key
from evalcore.storage.store import ObjectStore

MANIFEST = "manifest.json"
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's text."""
    values = {field.name: getattr(manifest, field.name) for field in fields(Manifest)}
    return orjson.dumps(values | {"plan": manifest.plan.stored}, option=_INDENTED)


def parse_manifest(data: bytes, keys: RunKeys) -> Manifest:
    """Return the manifest of a run.

    Raises `StoreError` for the schema of another version, `DamagedRunError` for anything else that
    no version writes.
    """

    def damaged(reason: str) -> DamagedRunError:
        return DamagedRunError(keys.run_id, (Damage(MANIFEST, reason),))

    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise damaged(f"is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise damaged("holds no JSON object")
    schema = raw.get("schema")
    if type(schema) is not int:
        raise damaged("has no 'schema'")
    if schema != SCHEMA:
        raise StoreError(f"{keys.manifest} has schema {schema}; this version reads {SCHEMA}")
    try:
        manifest = _reader().validate_json(data)
    except ValidationError as error:
        where, what = next(explain(error, raw, Manifest))
        place = ".".join(map(str, where))
        raise damaged(f"has a wrong {place!r}: {what}") from error
    for reason in (*_contradictions(manifest.plan), *_nonsense(manifest, keys)):
        raise damaged(reason)
    return manifest


_reader = cache(lambda: TypeAdapter(Manifest))


def _contradictions(plan: Plan) -> Iterator[str]:
    """Yield where the numbers of a plan are not each other's."""
    items, shape = plan.items, f"{plan.cases} cases × {plan.variants} variants"
    if items != plan.cases * plan.items_per_case:
        product = plan.cases * plan.items_per_case
        yield f"plans {items} items, and {shape} × {plan.iterations} iterations are {product}"
    if plan.pilot > items:
        yield f"plans a pilot of {plan.pilot} of {items} items"
    shards = count_shards(items, plan.shard_size, plan.pilot)
    if plan.by_round:
        if plan.pilot or plan.shard_size % plan.variants:
            yield "plans rounds in shards that do not hold whole cases"
        shards = plan.iterations * plan.round_shards
    if plan.shards != shards:
        size = plan.shard_size
        yield f"plans {plan.shards} shards, and {items} items in shards of {size} are {shards}"
    if plan.parts != -(-plan.cases // plan.part_cases):
        yield f"plans {plan.parts} parts of {plan.part_cases} of {plan.cases} cases"


def _nonsense(manifest: Manifest, keys: RunKeys) -> Iterator[str]:
    """Yield what does not fit the plan, or the place where the manifest stands."""
    plan, counts, parts = manifest.plan, manifest.counts, manifest.parts
    if parts is not None and len(parts) != plan.shards:
        yield f"has {len(parts)} parts for {plan.shards} shards"
    if manifest.state is State.COMPLETED:
        planned = None if counts is None else counts.get("planned")
        if planned != plan.items:
            yield f"counts {planned} of {plan.items} planned items"
        for name in ("started_at", "ended_at", "decision", "parts"):
            if getattr(manifest, name) is None:
                yield f"is completed without {name!r}"
    if manifest.id != keys.run_id:
        yield f"is of another run ({manifest.id[:40]!r})"
    if not manifest.suite or suite_key(manifest.suite) != keys.suite:
        yield f"is of another suite ({manifest.suite[:40]!r})"


_FROZEN: Final = ("schema", "id", "suite", "format", "mode", "created_at", "source", "plan")
# Measured by the pilot of a plan that is not settled.
_LATENCY: Final = "latency_s"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of a part of a plan, in hex."""
    return hashlib.sha256(data).hexdigest()


def frozen_fields(manifest: Manifest) -> dict[str, Any]:
    """Return what no process changes in a manifest after the run is planned, as JSON holds it.

    The state, the counts, the decision and what was measured are not among it.
    """
    values = {name: getattr(manifest, name) for name in _FROZEN}
    values["plan"] = manifest.plan.stored
    values |= {"settings": dict(manifest.settings), "engine": dict(manifest.engine)}
    frozen: dict[str, Any] = orjson.loads(orjson.dumps(values))
    return frozen


@dataclass(frozen=True)
class Seal:
    """The frozen fields of a manifest, and the digests of the plan's parts by name."""

    manifest: Mapping[str, Any]
    parts: Mapping[str, str]

    @property
    def run_id(self) -> str:
        """The run that the seal belongs to."""
        return str(self.manifest["id"])

    def canonical(self) -> bytes:
        """Return the bytes that are signed: equal seals have equal ones."""
        values = {"manifest": self.manifest, "parts": self.parts}
        return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)

    def check_manifest(self, manifest: Manifest) -> None:
        """Raise `DamagedRunError` unless the manifest says what it said when it was planned.

        The size of the shards may have been settled since, if it was not settled then.
        """
        frozen, current = dict(self.manifest), frozen_fields(manifest)
        planned = Plan(**frozen.pop("plan"))
        settings, now = dict(frozen.pop("settings")), current.pop("settings")
        if not planned.settled:
            settings.pop(_LATENCY, None)
            now.pop(_LATENCY, None)
            size = manifest.plan.shard_size
            if manifest.plan.settled and size <= planned.items:
                planned = settle(planned, size)
        frozen["plan"] = planned.stored
        frozen["settings"], current["settings"] = settings, now
        wrong = [
            f"{name} is {_excerpt(current.get(name))}, signed was {_excerpt(value)}"
            for name, value in frozen.items()
            if current.get(name) != value
        ]
        if wrong:
            raise self._refusal(MANIFEST, f"is not what was signed: {'; '.join(wrong)}")

    def check_names(self, names: Iterable[str]) -> None:
        """Raise `DamagedRunError` unless these are the parts of the plan."""
        stored = set(names)
        damages = [Damage(f"plan/{name}", "is missing") for name in self.parts.keys() - stored]
        damages += [
            Damage(f"plan/{name}", "was not there when the plan was signed")
            for name in stored - self.parts.keys()
        ]
        if damages:
            raise DamagedRunError(self.run_id, tuple(sorted(damages)))

    def check_part(self, name: str, data: bytes) -> None:
        """Raise `DamagedRunError` unless this is what the part was when it was planned."""
        if self.parts.get(name) != digest_of(data):
            raise self._refusal(f"plan/{name}", "is not what was signed")

    def _refusal(self, part: str, reason: str) -> DamagedRunError:
        return DamagedRunError(self.run_id, (Damage(part, reason),))


def _excerpt(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Signature:
    """What stands in `plan/signature.json`: a seal, signed with the key that is named."""

    schema: Literal[1]
    algorithm: str
    key: str
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]*$")]
    manifest: dict[str, Any]
    parts: dict[str, str]

    @property
    def seal(self) -> Seal:
        """The seal."""
        return Seal(self.manifest, self.parts)


def read_signature(store: ObjectStore, keys: RunKeys) -> Signature | None:
    """Return the signature of a run's plan, None if there is none; raise `DamagedRunError`."""
    try:
        data = store.get(keys.plan_signature).data
    except ObjectNotFoundError:
        return None
    try:
        signature = _signatures().validate_json(data)
    except ValidationError:
        reason = "is no signature that this version reads"
    else:
        if signature.manifest.get("id") == keys.run_id:
            return signature
        reason = "is the signature of another run"
    raise DamagedRunError(keys.run_id, (signature_damage(reason),))


def signature_damage(reason: str) -> Damage:
    """Return what is wrong with a plan's signature."""
    return Damage("plan/signature.json", reason)


_signatures = cache(lambda: TypeAdapter(Signature))
