"""The part of a report that must not differ between two runs of the same plan."""

from __future__ import annotations

import json
from typing import Any


def stable_report(text: str) -> dict[str, Any]:
    """Return a report without what belongs to the single run: ids, times, measures."""
    report: dict[str, Any] = json.loads(text)
    del report["run"], report["summary"]
    for case in report["cases"]:
        for item in case["items"]:
            del item["metrics"]
    return report
