"""Valid suite files, and what somebody's slip of the hand may make of them."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, Final

import yaml
from hypothesis import strategies as st

WORKFLOW: Final[dict[str, Any]] = {
    "version": "1.0",
    "blocks": {
        "analyze": {"type": "llm", "soul_ref": "analyst", "prompt_template": "Analyze: {task}"},
        "route": {"type": "dispatch", "exits": [{"id": "yes"}, {"id": "no"}]},
    },
    "souls": {"analyst": {"system_prompt": "You analyse.", "temperature": 0.5}},
    "workflow": {"name": "research", "entry": "analyze", "transitions": [{"from": "analyze"}]},
    "eval": {
        "threshold": 0.8,
        "cases": [
            {
                "id": "basic",
                "description": "plain",
                "inputs": {"task": "Research LLMs", "depth": 2},
                "fixtures": {
                    "analyze": "An analysis of 42 trends.",
                    "route.yes": {"output": '{"a": [1]}', "metrics": {"latency_ms": 3.5}},
                },
                "expected": {
                    "analyze": [
                        {"type": "contains", "value": "analysis", "weight": 2},
                        {"type": "not-contains-any", "value": ["x", "y"]},
                        {"type": "regex", "value": r"\d+", "config": {"flags": "i"}},
                        {"type": "word-count", "value": {"min": 1, "max": 9}},
                        {"type": "levenshtein", "value": "An analysis", "threshold": 30},
                    ],
                    "route.yes": [
                        {"type": "is-json", "value": {"type": "object"}},
                        {"type": "equals", "value": "[1]", "transform": "json_path:$.a"},
                        {"type": "equals", "value": {"a": [1]}, "config": {"mode": "json"}},
                        {"type": "latency", "threshold": 9.5, "metric": "speed"},
                    ],
                },
            },
            {
                "id": "second",
                "fixtures": {"analyze": ""},
                "expected": {"analyze": [{"type": "bleu", "value": "a b c"}]},
            },
        ],
    },
    "evalcore": {
        "name": "research-evals",
        "iterations": 2,
        "reducer": "at_least_k",
        "k": 1,
        "gates": ["required_assertions", {"gate": "pass_rate", "threshold": 0.5}],
        "variants": [{"id": "base"}, {"id": "other", "config": {"model": "m"}, "tags": ["t"]}],
        "baseline": "base",
        "errors": "exclude",
        "max_error_share": 0.5,
        "limits": {"concurrency": 2, "timeout_s": 5},
        "tags": ["nightly"],
    },
}

TEST_FILE: Final[dict[str, Any]] = {
    "name": "support",
    "description": "Support answers",
    "version": 1,
    "tags": ["support"],
    "input": [{"role": "system", "content": "Be brief."}],
    "assertions": [{"type": "latency", "threshold": 5000}],
    "targets": [
        {"name": "default", "provider": "mock", "response": "Yes: ${{ EVAL_WORD:-refund }}"},
        {"name": "echo", "provider": "echo"},
    ],
    "execution": {
        "target": "default",
        "threshold": 0.5,
        "workers": 2,
        "trials": {"count": 2, "strategy": "at_least_k", "k": 1},
    },
    "evalcore": {"gates": [{"gate": "score_at_least", "threshold": 0.2}], "errors": "zero"},
    "tests": [
        {
            "id": "refund",
            "criteria": "Promises a refund",
            "input": "Can I have my money back?",
            "expected_output": {"answer": "yes"},
            "fixtures": {"output": "Yes, a refund.", "metrics": {"latency_ms": 12.5}},
            "metadata": {"n": 1, "deep": {"list": [1, None, "x"]}},
            "tags": ["money"],
            "assertions": [
                {"type": "contains", "value": "refund", "required": True, "name": "word"},
                {"type": "icontains-any", "value": ["yes", "sure"], "weight": 0.5},
                {"type": "regex", "value": "^yes", "flags": "i", "negate": False},
                {"type": "is_json", "min_score": 0.1},
            ],
        },
        {
            "id": "delivery",
            "input": [{"role": "user", "content": [{"type": "text", "value": "When?"}]}],
            "execution": {"target": "echo", "threshold": 0.1, "skip_defaults": True},
            "assertions": [{"type": "starts-with", "value": "W"}],
        },
        {"id": "third", "input": {"q": 1}, "assert": [{"type": "equals", "value": "x"}]},
    ],
}

TARGETS: Final[dict[str, Any]] = {
    "targets": [
        {"name": "default", "provider": "mock", "response": "${{ EVAL_X:-y }}", "latency_ms": 0.5},
        {"name": "program", "provider": "command", "command": ["cat"], "timeout": 5, "env": {}},
        {"name": "unused", "provider": "openai", "model": "m", "api_key": "${{ HOME }}"},
    ]
}
MANIFEST: Final[dict[str, Any]] = {
    "version": "1.0",
    "id": "tone",
    "kind": "assertion",
    "name": "Tone",
    "returns": "grading_result",
    "source": "tone.py",
    "params": {"type": "object", "properties": {"kind": {"type": "boolean"}}},
}
REFERRING_TESTS: Final[dict[str, Any]] = {
    "execution": {"targets": ["default", "program"]},
    "tests": [{"id": "a", "input": "b", "assertions": [{"type": "is-json"}]}],
}
REFERRING_EVALS: Final[dict[str, Any]] = {
    "eval": {
        "cases": [
            {
                "id": "a",
                "fixtures": {"x": "y"},
                "expected": {"x": [{"type": "custom:tone", "config": {"kind": True}}]},
            }
        ]
    }
}

JSONL: Final = "\n".join(
    json.dumps(test)
    for test in (
        {"id": "a", "input": "Can I?", "output": "Yes", "assertions": []},
        {"id": "b", "input": "Can I?", "output": "Yes", "criteria": "Says yes"},
        *TEST_FILE["tests"][:1],
    )
)
CSV: Final = (
    "id,input,output,contains,contains-any,threshold,tags,metadata,note\n"
    'a,"Can I?\nPlease",Yes,Yes,yes|Yes,0.5,"x,y","{""n"": 1}",\n'
    "b,Can I?,,No,,,,,text\n"
)

_words = st.sampled_from(
    (
        *("", " ", "id", "type", "value", "tests", "eval", "contains", "target", "assertions"),
        *("output", "analyze", "${{ EVAL_X }}", "${{ HOME }}", "yes", "null", "1e5", "\x00"),
        *("ü\u2028", "\ufeff", "../../x", "custom:x", "json_path:$[", "(", "pass_rate", "default"),
        "x" * 70_000,
    )
)
_numbers = st.sampled_from(
    [0, 1, -1, 2, 0.5, -0.0, 1e308, 2**53, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30, 0.1 + 0.2]
)
scalars = st.none() | st.booleans() | _numbers | _words | st.text(max_size=8)
keys = _words | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)
snippets = st.sampled_from(
    (
        *("\t", "\n", ": ", "- ", '"', "'", "[", "]", "{", "}", "&a ", "*a", "!!set ", "!x "),
        *("| ", "#", "<<: ", "---\n", "...\n", "? ", "%", "@", ",", "\x00", "\ud7ff", "\u2028"),
        *("\r", "\ufeff", "!!python/name:os.system ", "!!timestamp ", "!!int ", "1e999", ".nan"),
        *("0x1F", "NaN", "\\"),
    )
)


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in the value."""
    members: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        members = [(node, key) for key in node]
    elif isinstance(node, list):
        members = [(node, index) for index in range(len(node))]
    return members + [place for box, key in members for place in _places(box[key])]


@st.composite
def mutated(draw: st.DrawFn, base: Any) -> Any:
    """Return the value with one to four parts replaced, removed, doubled or renamed."""
    value = deepcopy(base)
    for _ in range(draw(st.integers(1, 4))):
        places = _places(value)
        if not places:
            break
        box, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "remove", "double", "rename", "move"]))
        if change == "replace":
            box[key] = draw(values)
        elif change == "remove":
            del box[key]
        elif change == "move":
            other, there = draw(st.sampled_from(places))
            box[key] = deepcopy(other[there]) if _has(other, there) else None
        elif isinstance(box, list):
            box.insert(key, deepcopy(box[key]))
        elif change == "rename":
            box[draw(_words | scalars.filter(_hashable_key))] = box.pop(key)
        else:
            box[f"{key}_2"] = deepcopy(box[key])
    return value


def _has(box: Any, key: Any) -> bool:
    return key in box if isinstance(box, dict) else key < len(box)


def _hashable_key(value: Any) -> bool:
    return not isinstance(value, list | dict)


def dump(value: Any, *, as_json: bool) -> str:
    """Return the value as JSON, or as YAML in the block style that people write."""
    if as_json:
        return json.dumps(value, indent=1, skipkeys=True)
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6)


@st.composite
def scribbled(draw: st.DrawFn, text: str) -> bytes:
    """Return the text's bytes cut, flipped or with something inserted, one to three times."""
    data = text.encode()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["cut", "flip", "insert", "drop", "repeat"]))
        if change == "cut":
            data = data[:at]
        elif change == "flip":
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        elif change == "insert":
            data = data[:at] + draw(snippets).encode("utf-8", "surrogatepass") + data[at:]
        elif change == "drop":
            data = data[:at] + data[at + draw(st.integers(1, 30)) :]
        else:
            data = data[:at] + data[max(0, at - draw(st.integers(1, 40))) : at] + data[at:]
    return data
