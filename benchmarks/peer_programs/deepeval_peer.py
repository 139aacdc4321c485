"""DeepEval on the work of benchmarks.peers; runs in an environment of its own.

    python deepeval_peer.py KIND CASES_JSONL BASE_URL CONCURRENCY

DeepEval grades given outputs only: the model is asked before, by its own documented way (asyncio).
"""

import asyncio
import json
import re
import sys

from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

KIND, PATH, URL, CONCURRENCY = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def check(kind, value, output):
    match kind:
        case "contains":
            return value in output
        case "icontains":
            return value.lower() in output.lower()
        case "regex":
            return re.search(value, output) is not None
        case "starts-with":
            return output.startswith(value)
    try:
        json.loads(output)
    except ValueError:
        return False
    return True


class Check(BaseMetric):
    def __init__(self, index):
        self.index, self.threshold = index, 1.0
        self.async_mode = True
        self.evaluation_model = None
        self.strict_mode = False
        self.verbose_mode = False
        self.include_reason = False

    def measure(self, test_case, *args, **kwargs):
        assertion = test_case.metadata["assertions"][self.index]
        self.score = float(
            check(assertion["type"], assertion.get("value"), test_case.actual_output)
        )
        self.success = self.score >= self.threshold
        self.reason = None
        return self.score

    async def a_measure(self, test_case, *args, **kwargs):
        return self.measure(test_case)

    def is_successful(self):
        return self.success

    @property
    def __name__(self):
        return f"check{self.index}"


async def ask(raw):
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=URL, api_key="none")
    slots = asyncio.Semaphore(CONCURRENCY)

    async def ask(case):
        async with slots:
            completion = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": case["input"]}]
            )
        return completion.choices[0].message.content

    return await asyncio.gather(*map(ask, raw))


with open(PATH) as file:
    raw = [json.loads(line) for line in file]
if KIND == "fixtures":
    outputs = [case["fixtures"]["output"] for case in raw]
else:
    outputs = asyncio.run(ask(raw))
cases = [
    LLMTestCase(
        input=case["input"],
        actual_output=output,
        name=case["id"],
        metadata={"assertions": case["assertions"]},
    )
    for case, output in zip(raw, outputs, strict=True)
]
result = evaluate(
    cases,
    [Check(index) for index in range(len(raw[0]["assertions"]))],
    async_config=AsyncConfig(run_async=True, max_concurrent=CONCURRENCY),
    display_config=DisplayConfig(
        show_indicator=False, print_results=False, inspect_after_run=False
    ),
    cache_config=CacheConfig(write_cache=False, use_cache=False),
)
print(json.dumps({"passed": sum(result_of_case.success for result_of_case in result.test_results)}))
