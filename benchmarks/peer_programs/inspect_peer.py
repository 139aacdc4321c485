"""Inspect AI on the work of benchmarks.peers; runs in an environment of its own.

python inspect_peer.py KIND CASES_JSONL BASE_URL CONCURRENCY
"""

import json
import re
import sys

from inspect_ai import Task, eval, task  # noqa: A004
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import accuracy, scorer
from inspect_ai.scorer._metric import Score
from inspect_ai.solver import generate, solver

KIND, PATH, URL, CONCURRENCY = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
CHECKS = {
    "contains": lambda out, value: value in out,
    "icontains": lambda out, value: value.lower() in out.lower(),
    "regex": lambda out, value: re.search(value, out) is not None,
    "starts-with": lambda out, value: out.startswith(value),
}


def check(kind, value, output):
    if kind == "is-json":
        try:
            json.loads(output)
        except ValueError:
            return False
        return True
    return CHECKS[kind](output, value)


@solver
def fixed_output():
    async def solve(state, generate):
        state.output.completion = state.metadata["output"]
        return state

    return solve


def scorer_of(index, kind):
    @scorer(metrics=[accuracy()], name=f"check{index}")
    def check_scorer():
        async def score(state, target):
            value = state.metadata["assertions"][index].get("value")
            return Score(value=1 if check(kind, value, state.output.completion) else 0)

        return score

    return check_scorer()


@task
def peer(cases):
    kinds = [assertion["type"] for assertion in cases[0]["assertions"]]
    samples = [
        Sample(
            input=case["input"],
            id=case["id"],
            metadata={
                "output": case.get("fixtures", {}).get("output"),
                "assertions": case["assertions"],
            },
        )
        for case in cases
    ]
    return Task(
        dataset=MemoryDataset(samples),
        solver=fixed_output() if KIND == "fixtures" else generate(),
        scorer=[scorer_of(index, kind) for index, kind in enumerate(kinds)],
    )


if __name__ == "__main__":
    with open(PATH) as file:
        cases = [json.loads(line) for line in file]
    model = {"model": "mockllm/model"}
    if KIND == "model":
        model = {"model": "openai/m", "model_base_url": URL, "model_args": {"responses_api": False}}
    (log,) = eval(
        peer(cases),
        **model,
        display="none",
        max_samples=CONCURRENCY,
        max_connections=CONCURRENCY,
        log_dir=f"{PATH}.inspect",
        log_realtime=False,
        log_samples=True,
        log_buffer=1000,
        score_display=False,
    )
    scores = log.results.scores if log.results else []
    passed = min((s.metrics["accuracy"].value for s in scores), default=0)
    print(json.dumps({"passed": round(passed * len(cases))}))
