"""`evalcore dataset promote`: captures become cases, by flags or one by one in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import EvalError, UsageError
from evalcore.jsonvalues import json_reason
from evalcore.report.document import on_one_line
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.datasets.catalogue import Cluster
    from evalcore.datasets.pending import Acceptance, PendingCapture, Promoted

_KEYS = "a accept, e edit, + assertion, m mask, r refuse, n next, q quit"


@click.command("promote")
@click.argument("name")
@click.option("--all", "every", is_flag=True, help="Every pending capture.")
@click.option(
    "--ids", multiple=True, metavar="ID,ID", help="These captures (beginnings will do); repeatable."
)
@click.option("--assert", "assertions", type=click.Path(path_type=Path), metavar="FILE",
              help="Assertions of the cases: a list in YAML or JSON.")  # fmt: skip
@click.option("--expect-output", is_flag=True, help="The captured output is given and expected.")
@click.option("--reference-output", is_flag=True, help="The captured output is expected only.")
@click.option(
    "--mask", "personal", multiple=True, metavar="TEXT", help="Mask this text; repeatable."
)
@click.option("--tag", "tags", multiple=True, help="A tag of the cases; repeatable.")
@click.option("--refuse", "refused", is_flag=True, help="Refuse them instead.")
@store_option
@json_option
def promote_command(
    name: str,
    every: bool,
    ids: tuple[str, ...],
    store: str | None,
    as_json: bool,
    refused: bool,
    **flags: Any,
) -> None:
    """Make cases of the pending captures of NAME, in a new version.

    Without --all or --ids each capture is shown, and a key says what becomes of it: accept, edit
    the input, add an assertion, mask personal data, refuse.
    """
    from evalcore.datasets.pending import Acceptance, PendingReader, promote, refuse
    from evalcore.datasets.store import read_dataset

    opened = chosen_store(store)
    written = [part for text in ids for part in text.split(",") if part.strip()]
    if every and written:
        raise UsageError("--all and --ids: give one of them")
    template = Acceptance("", **_template(flags))
    reader = PendingReader(opened)
    pending = reader.read(read_dataset(opened, name))
    if not pending:
        raise UsageError(f"no capture of '{name}' waits; `evalcore dataset list` shows all")
    if not every and not written:
        _review_pending(opened, name, pending, template, reader)
        return
    chosen = [capture.id for capture in pending] if every else written
    if refused:
        count = refuse(opened, name, chosen, reader=reader)
        click.echo(on_one_line(orjson.dumps({"name": name, "refused": count}).decode())
                   if as_json else one_line(f"{name}: {count} refused"))  # fmt: skip
        return
    acceptances = [replace(template, capture=identity) for identity in chosen]
    _report(name, promote(opened, name, acceptances, reader=reader), as_json)


def _template(flags: dict[str, Any]) -> dict[str, Any]:
    """Return what the flags say of every accepted capture."""
    if flags["expect_output"] and flags["reference_output"]:
        raise UsageError("--expect-output and --reference-output: give one of them")
    path = flags.pop("assertions")
    if path is None:
        return flags
    from evalcore.formats.single_assertions import read_assertions

    return {**flags, "assertions": read_assertions(path)}


def _report(name: str, promoted: Promoted, as_json: bool) -> None:
    version = promoted.committed.version
    number = None if version is None else version.version
    if as_json:
        row = {"name": name, "version": number, "cases": [case["id"] for case in promoted.cases]}
        row["skipped"] = list(promoted.skipped)
        click.echo(on_one_line(orjson.dumps(row).decode()))
        return
    skipped = f", {len(promoted.skipped)} decided elsewhere" if promoted.skipped else ""
    outcome = "nothing new" if version is None else f"in {version.reference}"
    click.echo(one_line(f"{name}: {len(promoted.cases)} promoted {outcome}{skipped}"))


def _review_pending(
    store: Any, name: str, pending: Sequence[PendingCapture], template: Acceptance, reader: Any
) -> None:
    """Ask about each capture; what was decided is written also if the review is broken off."""
    import sys

    from evalcore.datasets.catalogue import cluster_captures
    from evalcore.datasets.pending import promote, refuse

    if not sys.stdin.isatty():
        raise UsageError(
            f"no terminal to ask in: --all or --ids ID says which captures of '{name}' to promote"
        )
    accepted: list[Acceptance] = []
    refused: list[str] = []
    try:
        review(cluster_captures(pending), template, accepted, refused)
    except (click.Abort, KeyboardInterrupt):
        click.echo("")
    if refused:
        click.echo(one_line(f"{name}: {refuse(store, name, refused, reader=reader)} refused"))
    if accepted:
        _report(name, promote(store, name, accepted, reader=reader), False)
    if not accepted and not refused:
        click.echo(one_line(f"{name}: nothing was decided"))


def review(
    clusters: Sequence[Cluster],
    template: Acceptance,
    accepted: list[Acceptance],
    refused: list[str],
    *,
    edit: Callable[[str], str | None] = click.edit,
) -> None:
    """Ask about each capture, cluster by cluster; add what is decided to the two lists.

    `edit` returns an edited text, or None if it was not changed.
    """
    total = sum(len(cluster.captures) for cluster in clusters)
    number = 0
    for position, cluster in enumerate(clusters, start=1):
        for capture in cluster.captures:
            number += 1
            click.echo(f"\n{number}/{total}, cluster {position}/{len(clusters)}")
            decision = _decide(capture, replace(template, capture=capture.id), edit)
            if decision is None:
                return
            if decision == "refuse":
                refused.append(capture.id)
            elif decision != "next":
                accepted.append(decision)  # type: ignore[arg-type]  # an acceptance


def _decide(
    capture: PendingCapture, acceptance: Acceptance, edit: Callable[[str], str | None]
) -> Acceptance | str | None:
    """Return the acceptance, `refuse` or `next`; None to end the review."""
    from evalcore.datasets.pending import case_of

    _show(capture)
    while True:
        key = click.prompt(f"[{_KEYS}]", default="n", show_default=False).strip().lower()[:1]
        try:
            if key == "a":
                case_of(capture, acceptance)
                return acceptance
            if key == "r":
                return "refuse"
            if key == "n":
                return "next"
            if key == "q":
                return None
            if key == "e":
                acceptance = _edited(capture, acceptance, edit)
            elif key == "+":
                acceptance = _with_assertion(acceptance)
            elif key == "m":
                text = click.prompt("text to mask")
                acceptance = replace(acceptance, personal=(*acceptance.personal, text))
        except EvalError as error:
            click.echo(sanitize_terminal(str(error)))
            continue
        case = case_of(capture, replace(acceptance, expect_output=False, reference_output=False))
        _show_case(case)


def _show(capture: PendingCapture) -> None:
    click.echo(one_line(f"{capture.id[:12]}  {capture.times}×  {capture.at}"))
    click.echo(f"input:\n{_pretty(capture.input)}")
    if capture.error is not None:
        message = f"{capture.error.get('kind')}: {capture.error.get('message')}"
        click.echo(one_line(f"error: {message}"))
    else:
        click.echo(f"output:\n{_pretty(capture.output)}")


def _show_case(case: dict[str, Any]) -> None:
    click.echo(_pretty({key: case[key] for key in ("input", "assertions") if key in case}))


def _edited(
    capture: PendingCapture, acceptance: Acceptance, edit: Callable[[str], str | None]
) -> Acceptance:
    from evalcore.datasets.pending import case_of

    plain = replace(acceptance, expect_output=False, reference_output=False)
    before = case_of(capture, plain)["input"]
    is_text = isinstance(before, str)
    text = edit(before if is_text else _pretty(before))
    if text is None:
        return acceptance
    if is_text:
        return replace(acceptance, input=text.removesuffix("\n"))
    try:
        return replace(acceptance, input=orjson.loads(text))
    except orjson.JSONDecodeError as error:
        reason = json_reason(error)
        raise UsageError(f"the edited input is not JSON: {reason}; it stays as it was") from None


def _with_assertion(acceptance: Acceptance) -> Acceptance:
    """Ask for an assertion as `type: value`, or as JSON."""
    from evalcore.formats.single_assertions import check_assertion
    from evalcore.problems import Problems

    text = click.prompt("assertion, such as contains: refund").strip()
    if text.startswith("{"):
        try:
            assertion: Any = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise UsageError(f"not JSON: {json_reason(error)}") from None
    else:
        kind, _, value = text.partition(":")
        assertion = {"type": kind.strip()} | ({"value": value.strip()} if value.strip() else {})
    problems = Problems("assertion", lambda _: None)
    check_assertion(assertion, (), problems)
    problems.raise_if_any()
    return replace(acceptance, assertions=(*acceptance.assertions, assertion))


def _pretty(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, option=2).decode()
    return sanitize_terminal(text)
