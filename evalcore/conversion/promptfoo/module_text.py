"""The texts that the Python module beside a suite of promptfoo is made of."""

from __future__ import annotations

from typing import Final

PROMPT_KEY: Final = "prompt_key"
"""Names, in the configuration of a Python target, which prompt of the input it answers."""

HEAD: Final = '''"""The Python of the promptfoo configuration beside this file."""

import json
import re
'''

PROVIDER_HEAD: Final = '''"""The Python of the promptfoo configuration beside this file."""

import asyncio
import inspect
import json
import re

from evalcore import Evidence, Metrics
'''

CHECKS: Final = '''

def context_of(context):
    """Return the context of an assertion as promptfoo calls its parts."""
    variables = (context["metadata"] or {}).get("vars", {})
    return {**context, "vars": variables, "prompt": context["input"]}


def parsed(output):
    """Return the JSON value of an output, the output itself if it is none."""
    try:
        return json.loads(output)
    except ValueError:
        return output


def called(function, output, context, threshold):
    """Return what a function of promptfoo says, as evalcore reads it."""
    answer = function(output, context_of(context))
    if hasattr(answer, "__dict__"):
        answer = vars(answer)
    if isinstance(answer, str) and answer.lower() in ("true", "false"):
        answer = answer.lower() == "true"
    elif isinstance(answer, str):
        answer = json.loads(answer)
    if isinstance(answer, bool):
        return answer
    if isinstance(answer, dict):
        score = float(answer.get("score", 1 if passes(answer) else 0))
        enough = threshold is None or score >= threshold
        passed, reason = passes(answer) and enough, str(answer.get("reason") or "")
        return {"passed": passed, "score": min(max(score, 0.0), 1.0), "reason": reason}
    passed = answer > 0 if threshold is None else answer >= threshold
    return {"passed": passed, "score": min(max(float(answer), 0.0), 1.0), "reason": str(answer)}


def passes(answer):
    """Return whether a grading result says that the output passes."""
    return bool(answer.get("pass", answer.get("pass_", False)))
'''

COMPARED: Final = '''

def step_into(output, *steps):
    """Return what stands at a path in an output, which may be the text of JSON."""
    output = parsed(output) if isinstance(output, str) else output
    for step in steps:
        output = output[step]
    return output


def compared(output, config):
    """Whether a transformed output passes the assertion that `config` names."""
    word, value = config["word"], config.get("value")
    text = output if isinstance(output, str) else json.dumps(output, separators=(",", ":"))
    if word == "is-json":
        return is_json(text)
    if word == "equals":
        return parsed(text) == value if isinstance(value, (dict, list)) else text == value
    if word == "regex":
        return re.search(value, text) is not None
    if word.startswith("icontains"):
        text = text.lower()
        value = [each.lower() for each in value] if isinstance(value, list) else value.lower()
    if word.endswith(("-any", "-all")):
        decide = any if word.endswith("-any") else all
        return decide(each in text for each in value)
    if word in ("starts-with", "ends-with"):
        return text.startswith(value) if word == "starts-with" else text.endswith(value)
    return value in text


def is_json(text):
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
'''

ANSWERED: Final = '''

def answered(answer):
    """Return the evidence of a provider's answer: output, cost and tokens; raise its error."""
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    if not isinstance(answer, dict):
        raise TypeError(f"returned {type(answer).__name__}; expected {{'output': ...}}")
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    if answer.get("output") is None:
        raise ValueError("returned neither 'output' nor 'error'")
    output, tokens = answer["output"], answer.get("tokenUsage") or {}
    metrics = Metrics(
        latency_ms=answer.get("latencyMs"),
        cost_usd=answer.get("cost"),
        input_tokens=tokens.get("prompt"),
        output_tokens=tokens.get("completion"),
    )
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return Evidence(text, metrics=metrics)
'''

PROVIDER: Final = '''

def {name}(input, *, context):
    """Answer as promptfoo's provider {file} does."""
    from {module} import {function}

    variables = (context.metadata or {{}}).get("vars", {{}})
    config = dict(context.config)
    asked_for = config.pop("prompt_key", None)
    input = input if asked_for is None else input[asked_for]
    prompt = input if isinstance(input, str) else json.dumps(input)
    options = {{"id": {identity!r}, "config": config}}
    asked = {{"vars": variables, "prompt": {{"raw": prompt, "label": prompt}}}}
    return answered({function}(prompt, options, asked))
'''
