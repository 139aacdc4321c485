"""The report as JUnit XML: a `testsuite` per variant, a `testcase` per case, iterations folded.

The attributes are those that the readers of Jenkins and GitLab know. What did not reach its checks
is a `failure`, what gave no output an `error`, what was never executed `skipped`. JUnit has no way
to say that a time was not measured: it counts as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalcore.model.summary import cut_mark
from evalcore.report.document import Report
from evalcore.report.escape import escape_xml, escape_xml_attribute
from evalcore.report.view import ListedCase, ReportView, compared_values, item_reasons, missed
from evalcore.wording import one_line, shorten

_MAX_TEXT = 20_000
_MAX_MESSAGE = 500


@dataclass
class _Suite:
    """The test cases of one variant as XML, and their counts."""

    cases: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    time_s: float = 0.0

    def add(self, case: ListedCase, class_name: str) -> None:
        """Write a case and count it."""
        record = case.record
        time_s = sum(item["metrics"]["latency_ms"] or 0.0 for item in record["items"]) / 1000
        kind, lines = _verdict(record)
        if kind is not None and record.get("quarantined"):
            # A failure of it would make a build fail that the gates let pass.
            kind, lines = "skipped", [f"quarantined; {line}" for line in lines[:1]] + lines[1:]
        self.time_s += time_s
        head = _attributes(name=record["id"], classname=class_name, time=f"{time_s:.3f}")
        content = ""
        if kind is not None:
            self.counts[kind] += 1
            content = _problem(kind, lines, record) + _conversation(case)
        self.cases.append(f"    <testcase{head}>{content}</testcase>\n")


def render(view: ReportView) -> Iterator[str]:
    """Yield the XML; any text is valid in it, controls are spelled as `\\x1b`."""
    report = view.report
    suites = {variant.variant: _Suite() for variant in report.summary.variants}
    several = len(suites) > 1
    for case in view.listed():
        variant = case.record["variant"]
        suite = suites.setdefault(variant, _Suite())
        parts = [report.suite, case.record["group"], variant if several else None]
        suite.add(case, ".".join(part for part in parts if part))
    listed = sum(len(suite.cases) for suite in suites.values())
    head = _attributes(
        name=report.suite,
        tests=listed if report.cases_complete else report.summary.cases,
        failures=sum(suite.counts["failure"] for suite in suites.values()),
        errors=sum(suite.counts["error"] for suite in suites.values()),
        time=f"{report.run.duration_s:.3f}",
    )
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{head}>\n'
    for number, (variant, suite) in enumerate(suites.items()):
        yield _suite_head(report, variant, suite, number, several=several)
        yield from suite.cases
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _suite_head(report: Report, variant: str, suite: _Suite, number: int, *, several: bool) -> str:
    summary = next((each for each in report.summary.variants if each.variant == variant), None)
    head = _attributes(
        name=f"{report.suite} [{variant}]" if several else report.suite,
        tests=len(suite.cases) if report.cases_complete or summary is None else summary.cases,
        failures=suite.counts["failure"],
        errors=suite.counts["error"],
        skipped=suite.counts["skipped"],
        time=f"{suite.time_s:.3f}",
        timestamp=report.run.started_at[:19],
        id=number,
    )
    properties: dict[str, Any] = {
        "run": report.run.id,
        "format": report.format,
        "mode": report.run.mode,
        "variant": variant,
        "decision": report.decision,
        "score": None if summary is None else summary.score,
        "run.score": report.summary.score,
        "run.pass_rate": report.summary.pass_rate,
        "threshold": report.threshold,
        "cut_answers": sum(report.summary.cut.values()) or None,
        **{f"gate.{gate.name}": f"{gate.outcome}: {gate.message}" for gate in report.gates},
    }
    if not report.cases_complete:
        properties["cases"] = "not all: only those that did not pass are listed"
    lines = [
        f"      <property{_attributes(name=name, value=value)}/>\n"
        for name, value in properties.items()
        if value is not None
    ]
    return f"  <testsuite{head}>\n    <properties>\n{''.join(lines)}    </properties>\n"


def _verdict(record: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """Return the element that says why a case did not pass (None if it did), and its lines."""
    items = record["items"]
    if record["passed"]:
        return None, []
    statuses = {item["status"] for item in items}
    kind = "failure" if "completed" in statuses else "skipped"
    kind = "error" if "error" in statuses else kind
    return kind, [line for item in items for line in _item_lines(item, several=len(items) > 1)]


def _item_lines(item: Mapping[str, Any], *, several: bool) -> Iterator[str]:
    if item["outcome"] == "passed":
        return
    before = f"iteration {item['iteration']}: " if several else ""
    if item["status"] != "completed":
        kind = (item["error"] or {}).get("kind")
        yield f"{before}{f'{kind}: ' if kind else ''}{item_reasons(item)[0]}"
        return
    if not missed(item):
        yield before + (item["reason"] or f"{item['outcome']}, score {item['score']}")
    for assertion in missed(item):
        block = f"{assertion['block']}: " if assertion["block"] else ""
        kind = f"{one_line(assertion['name'])} ({assertion['type']}, {assertion['outcome']})"
        lines = [f"{before}{block}{kind}: {assertion['message'] or assertion['outcome']}"]
        lines += [f"  {name + ':':<9} {text}" for name, text in compared_values(assertion)]
        yield "\n".join(lines)


def _problem(kind: str, lines: Sequence[str], record: Mapping[str, Any]) -> str:
    first = lines[0].partition("\n")[0] if lines else "did not pass"
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    message = shorten(first, _MAX_MESSAGE) + more
    if kind == "skipped":
        return f"\n      <skipped{_attributes(message=message)}/>"
    item = next(item for item in record["items"] if item["outcome"] != "passed")
    type_ = (item["error"] or {}).get("kind") or item["outcome"] or item["status"]
    text = escape_xml(shorten("\n".join(lines), _MAX_TEXT))
    return f"\n      <{kind}{_attributes(message=message, type=type_)}>{text}</{kind}>"


def _conversation(case: ListedCase) -> str:
    """Return what was asked and answered, which readers show beside a failure."""
    parts = [] if case.facts.input is None else [f"input:\n{case.facts.input}"]
    for item in case.record["items"]:
        if mark := cut_mark(item.get("finish_reason")):
            parts.append(mark.removeprefix(", "))
        if item["output"] is not None and item["outcome"] != "passed":
            parts.append(f"output:\n{item['output']}")
    if not parts:
        return "\n    "
    text = escape_xml(shorten("\n\n".join(parts), _MAX_TEXT))
    return f"\n      <system-out>{text}</system-out>\n    "


def _attributes(**values: Any) -> str:
    return "".join(
        f' {name}="{escape_xml_attribute(str(value))}"' for name, value in values.items()
    )
