"""pydantic-evals on the work of benchmarks.peers; runs in an environment of its own.

python pydantic_peer.py KIND CASES_JSONL BASE_URL CONCURRENCY
"""

import asyncio
import json
import re
import sys
from dataclasses import dataclass

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator

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


@dataclass
class Check(Evaluator):
    index: int

    def get_default_evaluation_name(self):
        return f"check{self.index}"

    def evaluate(self, ctx):
        assertion = ctx.metadata["assertions"][self.index]
        return check(assertion["type"], assertion.get("value"), ctx.output)


async def main():
    with open(PATH) as file:
        raw = [json.loads(line) for line in file]
    outputs = {case["id"]: case.get("fixtures", {}).get("output") for case in raw}
    cases = [
        Case(name=case["id"], inputs=case, metadata={"assertions": case["assertions"]})
        for case in raw
    ]
    checks = [Check(index) for index in range(len(raw[0]["assertions"]))]
    dataset = Dataset(name="peer", cases=cases, evaluators=checks)
    if KIND == "fixtures":

        async def answer(question):
            return outputs[question["id"]]

        report = await dataset.evaluate(answer, progress=False)
    else:
        from openai import AsyncOpenAI

        client = AsyncOpenAI(base_url=URL, api_key="none")

        async def answer(question):
            completion = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": question["input"]}]
            )
            return completion.choices[0].message.content

        report = await dataset.evaluate(answer, max_concurrency=CONCURRENCY, progress=False)
    passed = sum(
        all(verdict.value for verdict in case.assertions.values()) for case in report.cases
    )
    print(json.dumps({"passed": passed}))


asyncio.run(main())
