"""Write tickets.csv: 500 support tickets of a bicycle shop and what a triage model said to each.

The same file comes out every time: python examples/tickets-csv/make_tickets.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random

TICKETS = 500
COLUMNS = ("ticket", "received", "channel", "tags", "message", "triage", "label", "mentions")

BIKES = ("Heron 3", "Heron 5", "Kite City", "Kite Cargo", "Plover Kids", "Swift E", "Swift E+")
PARTS = ("rear light", "saddle", "pump", "chain guard", "child seat", "basket", "lock", "charger")
CHANNELS = ("mail", "form", "phone", "chat")
OPENINGS = ("Hello,", "Hi there,", "Good morning,", "Dear team,", "", "", "Hey,")
CLOSINGS = (
    "Thanks!",
    "Kind regards",
    "Please call me back.",
    "This is urgent.",
    "No hurry.",
    "",
    "I'd be glad about a quick answer.",
)

# What a customer writes, what the triage notes about it, and a word that the note must mention.
SITUATIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "billing": (
        ("I was charged twice for my {bike}, on the {day} and again two days later.",
         "charged twice for a {bike}", "twice"),
        ("The invoice for order {order} shows the old price of the {part}.",
         "invoice {order} shows a wrong price", "invoice"),
        ("My bank says the instalment for the {bike} bounced, but there is money on the account.",
         "instalment for the {bike} bounced", "instalment"),
        ("You promised to refund the {part} three weeks ago and nothing has arrived.",
         "refund of a {part} is overdue", "refund"),
    ),
    "delivery": (
        ("Order {order} was to come on the {day}. The tracking page says it is in your depot.",
         "order {order} is stuck in the depot", "depot"),
        ("The box with the {bike} arrived with a hole in it and the {part} is missing.",
         "box of a {bike} arrived damaged, {part} missing", "damaged"),
        ("The courier left my {bike} with a neighbour I do not know. Which house number?",
         "{bike} was left with a neighbour", "neighbour"),
        ("Can the {part} of order {order} go to my office instead?",
         "wants another address for order {order}", "address"),
    ),
    "defect": (
        ("The brake of my {bike} squeals and hardly holds when it rains.",
         "brake of a {bike} hardly holds", "brake"),
        ("After {weeks} weeks the battery of the {bike} lasts five kilometres.",
         "battery of a {bike} is weak after {weeks} weeks", "battery"),
        ("The {part} broke on the first ride. I can send a photo.",
         "{part} broke on the first ride", "broke"),
        ("There is a crack in the frame of my {bike}, right below the saddle!",
         "crack in the frame of a {bike}", "crack"),
    ),
    "account": (
        ("I cannot log in: the reset mail for {mail} never comes.",
         "reset mail does not arrive", "reset"),
        ("Please change my name to the one on my passport; the account is {mail}.",
         "wants the name on the account changed", "name"),
        ("Please delete my account {mail} and everything in it.",
         "wants the account deleted", "delete"),
        ("I have two accounts, one for the shop and one for the workshop. Can you merge them?",
         "wants two accounts merged", "merge"),
    ),
    "praise": (
        ("The {bike} is the best bike I have had in {weeks} years. My compliments to the workshop!",
         "happy with a {bike}", "happy"),
        ("Your mechanic fixed the {part} while I waited and would not take any money.",
         "thanks for a {part} fixed for free", "thanks"),
    ),
}  # fmt: skip
NAMES = ("Ada", "Bo", "Cem", "Dora", "Emeka", "Freya", "Gil", "Hana", "Ines", "Jonas", "Kit", "Lou")
URGENT = ("hardly holds", "crack in the frame")


def tickets(random: Random) -> Iterator[dict[str, str]]:
    """Yield the rows; about one triage in sixteen is wrong, in one of three ways."""
    labels = list(SITUATIONS)
    first = date(2024, 4, 1)
    for number in range(TICKETS):
        label = random.choices(labels, weights=(24, 28, 26, 14, 8))[0]
        said, noted, mention = random.choice(SITUATIONS[label])
        details = {
            "bike": random.choice(BIKES),
            "part": random.choice(PARTS),
            "order": f"B{random.randrange(10_000, 99_999)}",
            "day": f"{random.randrange(4, 21)}th",
            "weeks": str(random.randrange(3, 19)),
            "mail": f"rider{random.randrange(100, 999)}@mail.example",
        }
        note = noted.format(**details)
        closing = random.choice(CLOSINGS)
        priority = _priority(label, note, closing)
        triage = f"{label}/{priority}: {note}"
        match random.randrange(48):
            case 0:
                other = random.choice([name for name in labels if name != label])
                triage = f"{other}/{priority}: {note}"
            case 1:
                triage = f"{label}/{priority}: customer writes about {details['bike']}"
            case 2:
                triage = f"This looks like {label} ({priority}): {note}"
        signed = f"{random.choice(NAMES)} {random.choice('ABCDEFGHKLMNPRSTW')}."
        parts = (random.choice(OPENINGS), said.format(**details), closing, signed)
        message = " ".join(part for part in parts if part)
        yield {
            "ticket": f"T-{number + 1:04}",
            "received": str(first + timedelta(days=number // 11)),
            "channel": random.choice(CHANNELS),
            "tags": label if priority != "high" else f"{label},urgent",
            "message": message,
            "triage": triage,
            "label": f"{label}/{priority}",
            "mentions": mention,
        }


def _priority(label: str, note: str, closing: str) -> str:
    if any(words in note for words in URGENT):
        return "high"
    if label == "praise" or closing == "No hurry.":
        return "low"
    return "high" if "urgent" in closing else "normal"


def main() -> None:
    """Write the file beside this one."""
    path = Path(__file__).with_name("tickets.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(tickets(Random(1907)))  # noqa: S311  (texts, no secrets)


if __name__ == "__main__":
    main()
