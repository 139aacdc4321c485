"""Keys and personal data in captured texts: none of a table of 60 forms is left."""

from __future__ import annotations

import pytest

from evalcore.redaction.personal import (
    PersonalRedactor,
    RedactionError,
    mask_personal,
)
from evalcore.redaction.redactor import PROCESS, REDACTED, Redactor

# What stands between the bars must not be left, in part or whole, in the redacted text.
LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
FORMS = {
    "e-mail": "write to |jane.doe@example.com| please",
    "e-mail with plus": "|jane+news@mail.example.co.uk|",
    "e-mail of umlauts": "|jürgen.müller@exämple.de|",
    "e-mail in brackets": "<|o'neil_77@example.org|>",
    "e-mail spelled out": "|jane (at) example (dot) com|",
    "e-mail in a link": "mailto:|jane%40example.com|",
    "e-mail of a subdomain": "|a.b@x.y.z.example.io|, and so on",
    "phone of Germany": "call |+49 151 2345 6789| now",
    "phone with brackets": "|+1 (555) 123-4567|",
    "phone without plus": "|555-123-4567|",
    "phone in dots": "|555.123.4567|",
    "phone with area code": "|(555) 123-4567|",
    "phone with 00": "|0049 30 1234567|",
    "phone national": "|030 / 12345678|",
    "phone mobile": "|0151-23456789|",
    "phone of France": "|01 23 45 67 89|",
    "phone of Britain": "|020 7946 0958|",
    "phone of India": "|98765 43210|",
    "phone in digits": "my number is |5551234567|",
    "phone after a word": "tel: |123 4567|",
    "phone with no-break spaces": "|+33\u00a01\u00a023\u00a045\u00a067\u00a089|",
    "card visa": "|4111 1111 1111 1111|",
    "card with dashes": "|5500-0000-0000-0004|",
    "card in digits": "card |378282246310005| exp 12/27",
    "card of 13 digits": "|4222222222222|",
    "iban": "|DE89 3704 0044 0532 0130 00|",
    "iban in one": "|GB29NWBK60161331926819|",
    "social security number": "|078-05-1120|",
    "password": "my password is |correcthorse|",
    "password after a colon": "Password: |hunter2|",
    "password in German": "Passwort ist |geheimnis|",
    "pin": "PIN: |4711|",
    "security code": "cvv |= 123|".replace("|= 123|", "= |123|"),
    "openai": f"|sk-{LETTERS}|",
    "openai project": f"|sk-proj-{LETTERS}-{LETTERS}|",
    "anthropic": f"|sk-ant-api03-{LETTERS}|",
    "aws id": "|AKIAIOSFODNN7EXAMPLE|",
    "aws secret": "|wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYa1|",
    "google": f"|AIza{LETTERS}abc|",
    "google oauth": f"|ya29.{LETTERS}|",
    "google client": f"|GOCSPX-{LETTERS[:28]}|",
    "github": f"|ghp_{LETTERS}abcd|",
    "github fine": f"|github_pat_{LETTERS}|",
    "gitlab": f"|glpat-{LETTERS[:20]}|",
    "slack": "|xoxb-123456789012-abcdefGHIJKL|",
    "slack webhook": "|https://hooks.slack.com/services/T01/B02/XyZ0123456789abcdefGHIJK|",
    "stripe": f"|sk_live_{LETTERS}|",
    "stripe webhook": f"|whsec_{LETTERS}|",
    "hugging face": f"|hf_{LETTERS}|",
    "groq": f"|gsk_{LETTERS}|",
    "npm": f"|npm_{LETTERS}abcd|",
    "pypi": f"|pypi-{LETTERS}{LETTERS}|",
    "sendgrid": f"|SG.{LETTERS[:22]}.{LETTERS}|",
    "twilio": "|AC0123456789abcdef0123456789abcdef|",
    "telegram": f"|123456789:{LETTERS}abc|",
    "databricks": "|dapi0123456789abcdef0123456789abcdef|",
    "vault": f"|hvs.{LETTERS}|",
    "digital ocean": f"|dop_v1_{LETTERS}|",
    "shopify": f"|shpat_{LETTERS}|",
    "token": "|eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz|",
    "bearer": f"Authorization: Bearer |{LETTERS}|",
    "basic": "Authorization: Basic |dXNlcjpwYXNzd29yZDE=|",
    "password in a url": "postgres://app:|s3cr3tpw|@db.internal/x",
    "key in a query": f"https://x.example/?api_key=|{LETTERS}|",
    "azure storage": f"AccountKey=|{LETTERS}{LETTERS}==|",
    "azure key": "|0123456789abcdef0123456789abcdef|",
    "private key": "|-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----|",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_personal_data_is_left_in_no_text(form: str) -> None:
    written = FORMS[form]
    before, personal, after = written.split("|")
    covered = PersonalRedactor(PROCESS).text(f"Hello, {before}{personal}{after}")
    assert REDACTED in covered
    assert covered.startswith("Hello, ")
    parts = personal.split() if len(personal.split()) > 1 else [personal]
    assert not [part for part in parts if len(part) > 2 and part in covered], covered


@pytest.mark.parametrize(
    "text",
    [
        "I ordered 3 shirts on 2026-05-18 at 10:30, for 59.90 EUR, and 2 are missing.",
        "Order 4711-A, from 01.02.2026 to 03.02.2026, version 1.20.3",
        "HTTP 404 at line 1234 of 99999; the token of a parser, and what a secret is.",
        "Die Passworthilfe ist im Keller; bearer of good news",
        "Flight LH 1234 at 18:45, gate B12, room 1408, 100 000 people",
    ],
)
def test_ordinary_numbers_and_words_stay(text: str) -> None:
    assert mask_personal(text) == text


def test_members_whose_names_say_it_are_covered_whole() -> None:
    redactor = PersonalRedactor(Redactor())
    value = {"phone": 1234567, "password": "x y", "card_number": "4", "count": 1234567, "ok": True}
    assert redactor.value(value) == {
        "phone": REDACTED,
        "password": REDACTED,
        "card_number": REDACTED,
        "count": 1234567,
        "ok": True,
    }
    assert redactor.value([4111111111111111, {"jane@example.com": 1}]) == [REDACTED, {REDACTED: 1}]


def test_long_texts_are_covered_piece_by_piece() -> None:
    filler = "An ordinary sentence about the weather in the north. " * 30
    text = f"{filler}write to jane.doe@example.com or +49 151 2345 6789. {filler}"
    covered = PersonalRedactor(Redactor()).text(text)
    assert covered == f"{filler}write to {REDACTED} or {REDACTED}. {filler}"
    assert PersonalRedactor(Redactor()).text("a" * 5_000).strip() == REDACTED
    letters = "質問です。" * 1_000
    assert PersonalRedactor(Redactor()).text(letters) == letters


def test_own_redactions_come_first_and_their_failure_is_told() -> None:
    own = PersonalRedactor(Redactor(), [lambda text: text.replace("Jane", "?")])
    assert own.text("Jane, jane@example.com") == f"?, {REDACTED}"

    def fails(text: str) -> str:
        raise KeyError(text)

    with pytest.raises(RedactionError):
        PersonalRedactor(Redactor(), [fails]).text("x")
    with pytest.raises(RedactionError):
        PersonalRedactor(Redactor(), [lambda _: None]).text("x")  # type: ignore[list-item,return-value]
