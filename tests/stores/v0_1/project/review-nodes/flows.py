"""The flow of this example: nodes that write a summary, check it from two sides, and decide."""

from __future__ import annotations

from typing import Any


class Writer:
    """Summarises a ticket; a real one would call `await context.chat(messages=…)`."""

    type = "writer"

    def run(self, input: dict[str, Any], *, context: Any) -> dict[str, Any]:  # noqa: A002
        """Return the first words of the ticket, more or fewer of them by variant."""
        words = str(input["ticket"]).split()
        length = int(context.config.get("words", 4))
        return {"text": " ".join(words[:length]), "words": min(length, len(words))}


def count_facts(input: str) -> int:  # noqa: A002
    """Return how many numbers a text names."""
    return sum(word.strip("#.,").isdigit() for word in input.split())


def tone(input: str) -> str:  # noqa: A002
    """Return how a text sounds."""
    return "angry" if "!" in input else "calm"


def review(case_input: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes: `facts` and `tone` run side by side, `escalate` for angry tickets only."""

    def register(registry: Any, mode: str) -> None:  # noqa: ARG001
        registry.register(Writer())
        registry.register("facts", count_facts)
        registry.register("tone", tone)
        registry.register("text", lambda text: text)

    return {
        "flow": {
            "name": "review",
            "nodes": [
                {"id": "summary", "type": "writer", "input": case_input},
                {"id": "facts", "type": "facts", "input": "{summary.text}"},
                {"id": "tone", "type": "tone", "input": case_input["ticket"]},
                {"id": "escalate", "type": "text", "input": "{summary.text} (to a person)"},
                {
                    "id": "reply",
                    "type": "text",
                    "input": "{facts} facts, {tone}: {summary.text}",
                },
            ],
            "edges": [
                {"from": "summary", "to": "facts"},
                {"from": "summary", "to": "tone"},
                {
                    "from": "tone",
                    "to": "escalate",
                    "when": {"equals": {"var": "tone", "value": "angry"}},
                },
                {"from": "facts", "to": "reply"},
                {"from": "tone", "to": "reply"},
            ],
        },
        "register": register,
        "primaryOutputNodeId": "reply",
    }
