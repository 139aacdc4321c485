"""The one message of a night: which suites changed, which cases fail that passed before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prefect.client.schemas.objects import State

from evalcore.mistakes.wording import counted
from evalcore.model.notification import NotifyOn, NotifyPolicy
from evalcore.prefect import states
from evalcore.prefect.night_report import PASSED, SuiteEnd, failing_since
from evalcore.report.message import MARKDOWN, PLAIN, MessageForm, Notice, plain


def is_night_due(policy: NotifyPolicy, ends: Sequence[SuiteEnd]) -> bool:
    """Whether a night is told of: with `change` if a suite changed or came to no decision."""
    if policy.on is NotifyOn.ALWAYS:
        return True
    if policy.on is NotifyOn.FAILURE:
        return any(end.decision != PASSED for end in ends)
    return any(end.has_changed for end in ends)


def night_message(
    ends: Sequence[SuiteEnd], state: State[object], links: Sequence[tuple[str, str]]
) -> Notice:
    """Return the message: suites that changed first, then those without a decision, then cases."""
    decision = PASSED if state.is_completed() else states.named(state)
    passed = sum(end.decision == PASSED for end in ends)
    title = plain(f"Nightly: {decision}, {passed} of {counted(len(ends), 'suite')} passed")
    body, text = ("\n".join(_lines(ends, links, form)) for form in (MARKDOWN, PLAIN))
    return Notice(title, body, text)


def _lines(
    ends: Sequence[SuiteEnd], links: Sequence[tuple[str, str]], form: MessageForm
) -> Iterator[str]:
    safe = form.safe
    changed = [end for end in ends if end.report is not None and end.has_changed]
    if changed:
        yield form.heading("Suites that changed")
        for end in changed:
            before = end.history.before if end.history is not None else None
            was = f" (was {before})" if before else ""
            yield f"- {safe(end.suite)}: {end.decision}{was}"
    undecided = [end for end in ends if end.report is None and end.decision != PASSED]
    if undecided:
        yield form.heading("Suites without a decision")
        for end in undecided:
            yield f"- {safe(end.suite)}: {end.decision}: {safe(end.state.message or '')}"
    yield from _failing_cases(ends, form)
    still = [end for end in ends if end.decision != PASSED and not end.has_changed]
    if still:
        yield form.heading("Suites that still do not pass")
        for end in still:
            yield f"- {safe(end.suite)}: {end.decision}"
    for name, address in links:
        yield form.link(name, address)
    yield from _run_links(ends, form)


def _failing_cases(ends: Sequence[SuiteEnd], form: MessageForm) -> Iterator[str]:
    safe = form.safe
    failing = [
        (end, case) for end in ends if end.history is not None for case in end.history.failing
    ]
    for heading, is_new in (
        ("Cases that passed the night before", True),
        ("Cases that fail for longer", False),
    ):
        cases = [(end, case) for end, case in failing if case.is_new is is_new]
        if cases:
            yield form.heading(heading)
        for end, case in cases:
            since = "" if case.since is None else f", fails since {failing_since(case)}"
            yield f"- {safe(end.suite)}: {safe(f'{case.case} [{case.variant}]')}{safe(since)}"


def _run_links(ends: Sequence[SuiteEnd], form: MessageForm) -> Iterator[str]:
    for end in ends:
        if end.published is not None:
            run = f"{end.suite}, run {end.published.report.run.id}"
            for name, address in end.published.links:
                yield form.link(f"{run}: {name}", address)
