"""Model calls of a program that grades: AgentV's target proxy on a loopback address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeAnswer, JudgeQuestion, Judges, JudgeSpec
from evalcore.model.exchange import SkippedError

MAX_CALLS: Final = 50
_DEFAULT: Final = "default"


class GraderAccess(NamedTuple):
    """What a program may call: so many times the judge, or the targets named here."""

    max_calls: int
    targets: tuple[str, ...] = ()


class GraderCalls:
    """The calls that one run of a program makes.

    `skipped` says that a limit of the run ended them, `unknown` are targets that it asked for and
    may not ask.
    """

    def __init__(self, access: GraderAccess, judges: Judges) -> None:
        self._access, self._judges = access, judges
        self.count = 0
        self.skipped: SkippedError | None = None
        self.unknown: dict[str, None] = {}

    @asynccontextmanager
    async def variables(self) -> AsyncIterator[dict[str, str]]:
        """Serve calls until the block ends; the environment tells the program where."""
        from evalcore.providers.http import loopback_server  # imports aiohttp

        answers = {
            "GET /info": self._info,
            "POST /invoke": self._invoke,
            "POST /invokeBatch": self._invoke_batch,
        }
        async with loopback_server(answers) as server:
            yield {
                "AGENTV_TARGET_PROXY_URL": server.url,
                "AGENTV_TARGET_PROXY_TOKEN": server.token,
            }

    async def _info(self, _path: str, _value: Any) -> tuple[int, Any]:
        return (
            200,
            {
                "targetName": _DEFAULT,
                "maxCalls": self._access.max_calls,
                "callCount": self.count,
                "availableTargets": [_DEFAULT, *self._access.targets],
            },
        )

    async def _invoke(self, _path: str, value: Any) -> tuple[int, Any]:
        problem = self._problem(value)
        if problem is not None:
            return (400, {"error": problem})
        if self.count >= self._access.max_calls:
            return (429, {"error": f"Max calls exceeded (limit: {self._access.max_calls})"})
        try:
            return (200, _reply(await self._ask(value)))
        except (TargetError, SkippedError) as error:
            return (500, {"error": str(error)})

    async def _invoke_batch(self, _path: str, value: Any) -> tuple[int, Any]:
        requests = value.get("requests") if isinstance(value, Mapping) else None
        if not isinstance(requests, list):
            return (400, {"error": "Missing required field: requests (array)"})
        limit = self._access.max_calls
        if self.count + len(requests) > limit:
            counts = f"current: {self.count}, batch: {len(requests)}, limit: {limit}"
            return (429, {"error": f"Batch would exceed max calls ({counts})"})
        responses: list[dict[str, Any]] = []
        for request in requests:
            problem = self._problem(request)
            try:
                if problem is None:
                    responses.append(_reply(await self._ask(request)))
            except (TargetError, SkippedError) as error:
                problem = str(error)
            if problem is not None:
                responses.append({"output": [], "rawText": f"Error: {problem}"})
        return (200, {"responses": responses})

    def _problem(self, request: Any) -> str | None:
        question = request.get("question") if isinstance(request, Mapping) else None
        if not isinstance(question, str) or not question:
            return "Missing required field: question"
        name = request.get("target")
        if name in (None, _DEFAULT) or name in self._access.targets:
            return None
        self.unknown[str(name)] = None
        available = ", ".join([_DEFAULT, *self._access.targets])
        return f"Unknown target '{name}'. Available: {available}"

    async def _ask(self, request: Mapping[str, Any]) -> JudgeAnswer:
        name, system = request.get("target"), request.get("systemPrompt")
        question = JudgeQuestion(
            system if isinstance(system, str) else "", str(request["question"]), {}
        )
        self.count += 1
        try:
            return await self._judges.ask(JudgeSpec(None if name == _DEFAULT else name), question)
        except SkippedError as error:
            self.skipped = error
            raise


def _reply(answer: JudgeAnswer) -> dict[str, Any]:
    metrics = answer.metrics
    reply = {
        "output": [{"role": "assistant", "content": answer.text}],
        "rawText": answer.text,
    }
    if metrics.total_tokens is None:
        return reply
    usage = {"input": metrics.input_tokens or 0, "output": metrics.output_tokens or 0}
    return {**reply, "tokenUsage": usage}
