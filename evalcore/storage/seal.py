"""What is frozen of a run when it is planned, and what is stored of it that does not fit any more.

A seal lists the frozen fields of the manifest and the digest of every part of the plan. Its
signature (evalcore.pipeline.plan) says who planned the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from evalcore.errors import Damage, DamagedRunError
from evalcore.model.run import Manifest, Plan
from evalcore.planning.shards import settle

_FROZEN = ("schema", "id", "suite", "format", "mode", "created_at", "source", "plan")
# Measured by the pilot of a plan that is not settled.
_LATENCY = "latency_s"


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
        try:
            planned = Plan(**frozen.pop("plan"))
        except TypeError:
            self._refuse("manifest.json", "was planned by another version")
        settings, now = dict(frozen.pop("settings")), current.pop("settings")
        current.pop("plan")
        reasons = [_changed(name, value, current.get(name)) for name, value in frozen.items()]
        if not planned.settled:
            settings.pop(_LATENCY, None)
            now.pop(_LATENCY, None)
        reasons.append(_changed("settings", settings, now))
        if not _is_settled_from(planned, manifest.plan):
            reasons.append("plan is not what was planned")
        wrong = "; ".join(reason for reason in reasons if reason)
        if wrong:
            self._refuse("manifest.json", f"is not what was signed: {wrong}")

    def check_names(self, names: Iterable[str]) -> None:
        """Raise `DamagedRunError` unless these are the parts of the plan."""
        stored = set(names)
        for name in sorted(set(self.parts) - stored):
            self._refuse(f"plan/{name}", "is missing")
        for name in sorted(stored - set(self.parts)):
            self._refuse(f"plan/{name}", "was not there when the plan was signed")

    def check_part(self, name: str, data: bytes) -> None:
        """Raise `DamagedRunError` unless this is what the part was when it was planned."""
        if self.parts.get(name) != digest_of(data):
            self._refuse(f"plan/{name}", "is not what was signed")

    def _refuse(self, part: str, reason: str) -> NoReturn:
        raise DamagedRunError(self.run_id, (Damage(part, reason),))


def _changed(name: str, signed: Any, stored: Any) -> str:
    return (
        "" if signed == stored else f"{name} is {_excerpt(stored)}, signed was {_excerpt(signed)}"
    )


def _excerpt(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"


def _is_settled_from(planned: Plan, now: Plan) -> bool:
    if now == planned:
        return True
    sound = not planned.settled and 1 <= now.shard_size <= planned.items
    return sound and now == settle(planned, now.shard_size)
