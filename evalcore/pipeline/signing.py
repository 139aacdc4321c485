"""Sign a plan, and recognise one that was signed with a key of this process."""

from __future__ import annotations

import hmac
from typing import Any, NoReturn

import orjson

from evalcore.errors import Damage, DamagedRunError, NotAllowedError, ObjectNotFoundError
from evalcore.model.run import Manifest
from evalcore.storage.runs import StoredRun
from evalcore.storage.seal import Seal
from evalcore.trust.plan_keys import PLAN_KEY, PlanKeys, key_id, signature_of

_SCHEMA = 1
_SIGNATURE = "plan/signature.json"
_REMEDY = f"give this process the {PLAN_KEY} of the one that planned it, or run the suite again"


def sign_plan(run: StoredRun, seal: Seal, keys: PlanKeys) -> None:
    """Store the seal of a plan that has just been written, signed with the run's own key."""
    key = keys.of_run(run.run_id)
    if key is None:
        return
    signed = {
        "schema": _SCHEMA,
        "algorithm": "hmac-sha256",
        "key": key_id(key),
        "signature": signature_of(key, seal.canonical()),
        "manifest": seal.manifest,
        "parts": seal.parts,
    }
    data = orjson.dumps(signed, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    run.store.put_if_absent(run.keys.plan_signature, data)


def read_seal(run: StoredRun, keys: PlanKeys, manifest: Manifest) -> Seal | None:
    """Return the seal that one of this process's keys has signed; None if there is none.

    Raises `NotAllowedError` if there is none and `keys` require it, `DamagedRunError` if the
    plan is not what was signed.
    """
    key = keys.of_run(run.run_id)
    signed = _read_signed(run)
    if signed is None or key is None:
        _refuse_unsigned(run, keys, "is not signed")
        return None
    seal = Seal(signed["manifest"], signed["parts"])
    if seal.manifest.get("id") != run.run_id:
        _refuse(run, "is the signature of another run")
    if signed["key"] != key_id(key):
        _refuse_unsigned(run, keys, "is signed with another key")
        return None
    if not hmac.compare_digest(signed["signature"], signature_of(key, seal.canonical())):
        _refuse(run, "does not hold: what it lists is not what was signed")
    seal.check_manifest(manifest)
    prefix = run.keys.plan_prefix
    names = {info.key.removeprefix(prefix) for info in run.store.list(prefix)}
    seal.check_names(names - {run.keys.plan_signature.removeprefix(prefix)})
    return seal


def _read_signed(run: StoredRun) -> dict[str, Any] | None:
    try:
        data = run.store.get(run.keys.plan_signature).data
    except ObjectNotFoundError:
        return None
    try:
        signed = orjson.loads(data)
        sound = (
            signed["schema"] == _SCHEMA
            and isinstance(signed["manifest"], dict)
            and isinstance(signed["parts"], dict)
            and signed["signature"].isascii()
            and isinstance(signed["key"], str)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        _refuse(run, "is no signature that this version reads")
    result: dict[str, Any] = signed
    return result


def _refuse_unsigned(run: StoredRun, keys: PlanKeys, how: str) -> None:
    if keys.required:
        raise NotAllowedError(f"the plan of run {run.run_id} {how}: {_REMEDY}")


def _refuse(run: StoredRun, reason: str) -> NoReturn:
    raise DamagedRunError(run.run_id, (Damage(_SIGNATURE, reason),))
