"""What makes two executions, or two gradings, the same work (spec/engine.md, Identities).

Keys are computed from behaviour only: descriptions, tags and the order of keys do not change them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from evalcore.model.assertion import Assertion
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def _canonical(value: Any) -> bytes:
    """Return the bytes that stand for a JSON value, whatever the order of its keys."""
    return orjson.dumps(value, option=_OPTIONS)


def target_identity(target: Target | None, variant: Variant) -> bytes:
    """Return the digest of a target's definition after the variant."""
    definition = None if target is None else (target.kind, target.options)
    return hashlib.sha256(_canonical([definition, variant.config])).digest()


def case_identity(case: Case) -> bytes:
    """Return the bytes of everything in a case that an execution can see."""
    fixture = case.fixture
    given = None
    if fixture is not None:
        given = (fixture.output, *(value or None for value in fixture[1:]))
    return _canonical([case.input, given, case.metadata or None, case.expected_output])


def exec_key(case: bytes, target: bytes, iteration: int) -> str:
    """Return the SHA-256 (hex) of one execution: case and target identity, iteration."""
    digest = hashlib.sha256(case)
    digest.update(target)
    digest.update(b"%d" % iteration)
    return digest.hexdigest()


def assertions_identity(assertions: Sequence[Assertion]) -> bytes:
    """Return the digest of a case's assertions, in their order."""
    return hashlib.sha256(_canonical([tuple(assertion) for assertion in assertions])).digest()


def grading_identity(case: Case, assertions: bytes) -> bytes:
    """Return the bytes of everything that grades a case's evidence; its assertions' digest first.

    That is of fixed length, so that no other pair has the same bytes.
    """
    return assertions + _canonical([case.threshold, case.criteria])


def grade_key(execution: str, grading: bytes) -> str:
    """Return the SHA-256 (hex) of one grading: the execution's key and what grades it."""
    digest = hashlib.sha256(execution.encode())
    digest.update(grading)
    return digest.hexdigest()
