"""What a request or a block says wrongly is told without repeating it: no payload, no secret."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from evalcore.redaction.redactor import PROCESS
from evalcore.service.worker import EvalWorker
from evalcore.settings import Settings
from tests.support.service import WORKFLOW, eval_body
from tests.support.service_in_process import requests_to, service_context

EVALS = "/v1/workflows/evals"
HUGE = "z" * 500_000
SECRET = "sk-secretvalue-0123456789abcdef"
MOST_BYTES = 4_000
REFUSED: tuple[tuple[str, Any], ...] = (
    ("/v1/workflows", {HUGE: 1}),
    ("/v1/workflows", {"name": HUGE, "definition": {}}),
    ("/v1/workflows", {"name": "x", "definition": {"blocks": {HUGE: {"type": HUGE}}}}),
    (EVALS, eval_body("wf_x", {"kind": HUGE})),
    (EVALS, eval_body("wf_x", {"kind": "exists", HUGE: 1})),
    (EVALS, eval_body("wf_x", {"kind": "exists"}, path=f"{HUGE}[")),
    (EVALS, eval_body("wf_x", {"kind": "length_compare", "op": HUGE, "expected": 1})),
)
RAISES = (
    "def main(data):\n"
    "    text = 'x' * 290 + data['name'] + 'y' * 1000000\n"
    "    if data['amount'] == 'raises':\n"
    "        raise ValueError(text)\n"
    "    return {'total': text, 'vendor': {'name': text}}\n"
)


def test_a_refusal_does_not_repeat_the_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context, requests_to(context) as requests:
            for path, body in REFUSED:
                answer = await requests.client.post(path, json=body)
                assert answer.status_code == 422, answer.text[:500]
                assert len(answer.content) < MOST_BYTES
            body = {f"key{number}": number for number in range(10_000)}
            answer = await requests.client.post("/v1/workflows", json=body)
            assert len(answer.json()["detail"]) == 100

    asyncio.run(scenario())


@pytest.mark.parametrize("amount", ["raises", "returns"])
@pytest.mark.parametrize("declares_outputs", [True, False])
def test_a_failure_has_neither_the_secret_nor_the_whole_value(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    amount: str,
    declares_outputs: bool,
) -> None:
    PROCESS.learn([SECRET])
    block = {**WORKFLOW["blocks"]["extract"], "code": RAISES}
    if not declares_outputs:
        del block["outputs"]
    definition = {
        "blocks": {"extract": block},
        "workflow": {"entry": "extract", "transitions": []},
    }

    async def scenario() -> None:
        async with service_context(tmp_path) as context:
            context.workers = [EvalWorker(context, Settings(), 1)]
            async with requests_to(context) as requests:
                workflow = await requests.register(definition)
                body = eval_body(workflow, {"kind": "exists"}, path="total.x", amount=amount)
                body["assertion"]["condition"] = {"kind": "equals", "expected": 3}
                body["source"]["handle_inputs"]["input-json-1"]["data"] = SECRET
                await requests.post(EVALS, body)
                run = await requests.post(f"{EVALS}/runs", {"workflow_id": workflow}, status=202)
                await requests.ended(f"{EVALS}/runs/{run['id']}")
                page = await requests.get(f"{EVALS}/results", run_id=run["id"])
                (result,) = page["data"]
                failure = str([result["lifecycle"], result["assertion_result"]])
                # A block that failed has no verdict; the one without outputs lacks the path.
                is_blocked = amount == "returns" and not declares_outputs
                assert result["verdict"] == ("blocked" if is_blocked else None)
                assert len(failure) < 2 * MOST_BYTES
                assert SECRET[:10] not in failure
                if declares_outputs and amount == "returns":
                    assert "is not of type 'number'" in result["lifecycle"]["error"]["message"]

    with caplog.at_level(logging.DEBUG, "evalcore"):
        asyncio.run(scenario())
    assert all(len(record.getMessage()) < MOST_BYTES for record in caplog.records)
    assert SECRET[:10] not in caplog.text


def test_an_error_of_the_database_has_no_values(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            service_context(tmp_path) as context,
            context.database.engine.connect() as connection,
        ):
            with pytest.raises(DBAPIError) as caught:
                await connection.execute(text("SELECT :value FROM nothing"), {"value": SECRET})
            assert SECRET not in str(caught.value)

    asyncio.run(scenario())
