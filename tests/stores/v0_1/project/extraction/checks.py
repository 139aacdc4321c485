"""A check in plain Python, named by the suite as `checks:iban_is_valid`."""

import json


def iban_is_valid(output: str, context: dict) -> bool:  # noqa: ARG001  (evalcore gives both)
    """Return whether the invoice's IBAN has the right check digits (ISO 7064, mod 97-10)."""
    iban = (json.loads(output).get("iban") or "").replace(" ", "")
    if not iban.isalnum() or len(iban) < 15:
        return False
    rotated = iban[4:] + iban[:4]
    return int("".join(str(int(letter, 36)) for letter in rotated)) % 97 == 1
