"""Do an invoice's lines and its tax make its total?"""

import json


def get_assert(output: str, context: dict) -> dict:
    """Return how the sum of the lines and the tax compares with the total."""
    invoice = json.loads(output)
    tolerance = (context["config"] or {}).get("tolerance", 0.005)
    lines = sum(line["quantity"] * line["unit_price"] for line in invoice["lines"])
    expected = round(lines + invoice["tax"], 2)
    difference = abs(expected - invoice["total"])
    passed = difference <= tolerance
    reason = "" if passed else f"lines and tax make {expected:.2f}, not {invoice['total']:.2f}"
    return {"passed": passed, "score": 1.0 if passed else 0.0, "reason": reason}
