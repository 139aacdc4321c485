"""The flow of this example: writes a route, better or worse depending on the variant."""

from __future__ import annotations

from typing import Any

ROUTES = {
    "hello": "app.get('/hello', (request, response) => response.send('Hello World'))",
    "users": "app.get('/users', listUsers); app.post('/users', requireToken, createUser)",
}


def write_route(case_input: dict[str, Any], variant: Any) -> dict[str, Any]:
    """Return the outputs of a small workflow: a plan, and the code in `main`.

    A real flow would call a model: `await context.chat(messages=...)`.
    """
    name = case_input["route"]
    code = ROUTES[name]
    if variant.config.get("style") == "short":
        code = code.split(";")[0]
    plan = f"write {name} with {variant.model}"
    # What a model call would have taken.
    metrics = {"latency_ms": 900 if variant.model == "large" else 300, "cost_usd": 0.002}
    return {"outputs": {"plan": plan, "main": {"code": code}}, "metrics": metrics}


def brevity(artifact: Any) -> dict[str, float]:
    """Score how short the code is: 1 for nothing, 0 from 200 characters on."""
    length = len(artifact.outputs["main"]["code"])
    return {"value": max(0.0, 1 - length / 200), "raw": length}
