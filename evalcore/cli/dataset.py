"""`evalcore dataset`: cases from files and from real usage, in immutable versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.output import one_line
from evalcore.errors import EvalError, UsageError
from evalcore.jsonvalues import json_reason
from evalcore.report.document import on_one_line
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.datasets.catalogue import Cluster, PendingPage
    from evalcore.datasets.pending import Acceptance, PendingCapture, Promoted
    from evalcore.datasets.store import DatasetVersion


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


_LONGEST_TEXT: Final = 100
_LISTED: Final = 20


@click.group()
def dataset() -> None:
    """Cases from files and from real usage, in immutable versions that suites name."""


dataset.add_command(promote_command)


@dataset.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", required=True, metavar="NAME", help="The dataset.")
@click.option(
    "--redact/--no-redact",
    default=None,
    help="Cover keys and personal data.  [default: in traces only]",
)
@click.option("--expect-output", is_flag=True, help="Traces: the answer is expected, and given.")
@store_option
@json_option
def import_command(
    file: Path,
    name: str,
    redact: bool | None,
    expect_output: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Add the cases of FILE: OpenTelemetry traces as JSON, JSON lines, CSV, Parquet.

    A case whose id the dataset has replaces it; importing a file again changes nothing. With a
    mistake in the file nothing is written.
    """
    from evalcore.datasets.store import DatasetChange, commit
    from evalcore.formats.traces import read_cases

    _check_name(name)
    opened = chosen_store(store)
    imported = read_cases(file, redact=redact, expect_output=expect_output)
    change = DatasetChange(f"import {file.name}", imported.lines, unchanging=imported.derived)
    done = commit(opened, name, lambda _: change)
    if as_json:
        version = None if done.version is None else done.version.version
        row = {"name": name, "version": version, "added": done.added, "replaced": done.replaced}
        row |= {"unchanged": done.unchanged, "repeated": imported.repeated}
        click.echo(on_one_line(orjson.dumps(row).decode()))
        return
    counts = f"{done.added} added, {done.replaced} replaced, {done.unchanged} unchanged"
    if done.version is None:
        click.echo(one_line(f"{name}: nothing new ({counts})"))
    else:
        click.echo(
            one_line(f"{done.version.reference}: {counted(done.version.cases, 'case')} ({counts})")
        )


@dataset.command("list")
@store_option
@json_option
def list_command(store: str | None, as_json: bool) -> None:
    """List the datasets: the latest version, its cases, and captures that wait."""
    from evalcore.datasets.catalogue import DatasetCatalogue

    opened = chosen_store(store)
    summaries = DatasetCatalogue(opened).datasets()
    if as_json:
        rows = [summary._asdict() for summary in summaries]
        click.echo(on_one_line(orjson.dumps(rows).decode()))
        return
    if not summaries:
        click.echo(one_line(f"no dataset in {opened.url}"))
    for each in summaries:
        version = "no version" if each.version is None else f"@{each.version}"
        cases = counted(each.cases, "case")
        click.echo(one_line(f"{each.name}  {version}  {cases}  {each.pending} pending"))


@dataset.command("show")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--pending", is_flag=True, help="The captures that wait, in clusters.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Begin after so many.")
@click.option("--limit", type=click.IntRange(min=1), default=_LISTED, help="So many.  [20]")
@store_option
@json_option
def show_command(
    reference: str, pending: bool, offset: int, limit: int, store: str | None, as_json: bool
) -> None:
    """Show the cases of a version, or the captures that wait."""
    from evalcore.datasets.catalogue import DatasetCatalogue
    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.store import find_version, read_dataset, version_cases

    parsed = parse_reference(reference)
    opened = chosen_store(store)
    if pending:
        page = DatasetCatalogue(opened).pending(parsed.name, offset=offset, limit=limit)
        _show_pending(parsed.name, page, as_json)
        return
    shown = find_version(opened, parsed)
    cases = list(version_cases(opened, shown, offset=offset, limit=limit))
    versions = read_dataset(opened, parsed.name).versions[::-1]
    if as_json:
        row = _version_row(shown) | {
            "versions": [_version_row(version) for version in versions],
            "items": cases,
        }
        click.echo(on_one_line(orjson.dumps(row).decode()))
        return
    for version in versions:
        mark = "*" if version.version == shown.version else " "
        click.echo(
            one_line(
                f"{mark} {version.reference}  {counted(version.cases, 'case')}  "
                f"{version.created_at}  {version.origin}  {version.sha256[:12]}"
            )
        )
    for case in cases:
        checks = counted(len(case.get("assertions") or ()), "assertion")
        click.echo(one_line(f"  {case['id']}  {_excerpt(case['input'])}  {checks}"))
    last = offset + len(cases)
    if last < shown.cases:
        click.echo(f"  … {shown.cases - last} more: --offset {last}")


@dataset.command("diff")
@click.argument("earlier", metavar="NAME@VERSION")
@click.argument("later", metavar="NAME@VERSION")
@store_option
@json_option
def diff_command(earlier: str, later: str, store: str | None, as_json: bool) -> None:
    """Show which cases were added, removed, changed from one version to another."""
    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.store import compare_versions, find_version

    opened = chosen_store(store)
    before, after = (find_version(opened, parse_reference(each)) for each in (earlier, later))
    difference = compare_versions(opened, before, after)
    if as_json:
        click.echo(on_one_line(orjson.dumps(difference._asdict()).decode()))
        return
    for sign, ids in zip("+-~", difference, strict=True):
        for identity in ids:
            click.echo(one_line(f"{sign} {identity}"))
    added, removed, changed = map(len, difference)
    click.echo(f"{added} added, {removed} removed, {changed} changed")


@dataset.command("drop")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--yes", is_flag=True, help="Drop it; without it is only said what would go.")
@store_option
def drop_command(reference: str, yes: bool, store: str | None) -> None:
    """Drop a version, or the dataset with all versions and pending captures."""
    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.store import drop, find_version, read_dataset

    opened = chosen_store(store)
    parsed = parse_reference(reference)
    whole = "@" not in reference
    number = None if whole else parsed.version
    if not whole and number is None:
        raise UsageError(f"'{reference}': name the version to drop, such as {parsed.name}@3")
    if not yes:
        if whole:
            versions = len(read_dataset(opened, parsed.name).versions)
            going = f"{parsed.name} with {counted(versions, 'version')} and its pending captures"
        else:
            going = str(find_version(opened, parsed).reference)
        click.echo(one_line(f"would drop {going}; do it with --yes"))
        return
    numbers = drop(opened, parsed.name, number)
    dropped = ", ".join(map(str, numbers)) or "no version that was left"
    click.echo(one_line(f"{parsed.name}: dropped {dropped}"))


@dataset.command("pin")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--release", is_flag=True, help="'latest' is the newest version again.")
@store_option
def pin_command(reference: str, release: bool, store: str | None) -> None:
    """Let `latest` mean a version, however many follow; it cannot be dropped meanwhile."""
    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.store import find_version, pin

    opened = chosen_store(store)
    parsed = parse_reference(reference)
    if not release and parsed.version is None:
        raise UsageError(f"'{reference}': name the version to pin, such as {parsed.name}@3")
    version = find_version(opened, parsed) if not release else None
    pin(opened, parsed.name, None if version is None else version.version)
    meaning = "is the newest version" if version is None else f"is {version.reference}"
    click.echo(one_line(f"{parsed.name}@latest {meaning}"))


def _check_name(name: str) -> None:
    if not name.strip() or "@" in name or name.startswith("dataset:"):
        raise UsageError(f"--as: '{name}' is no name of a dataset: write a name such as support")


def _version_row(version: DatasetVersion) -> dict[str, Any]:
    return {
        "name": version.dataset,
        "version": version.version,
        "sha256": version.sha256,
        "cases": version.cases,
        "created_at": version.created_at,
        "origin": version.origin,
    }


def _show_pending(name: str, page: PendingPage, as_json: bool) -> None:
    if as_json:
        clusters = [
            {"times": each.times, "captures": [dict(capture.record) for capture in each.captures]}
            for each in page.clusters
        ]
        row = {"name": name, "pending": page.total_captures, "clusters": clusters}
        click.echo(on_one_line(orjson.dumps(row).decode()))
        return
    click.echo(
        one_line(
            f"{name}: {page.total_captures} pending in {counted(page.total_clusters, 'cluster')}"
        )
    )
    for cluster in page.clusters:
        first = cluster.captures[0]
        more = len(cluster.captures) - 1
        repeats = f"  and {more} like it" if more else ""
        line = f"  {first.id[:12]}  {cluster.times}×  {_excerpt(first.input)}{repeats}"
        click.echo(one_line(line))


def _excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
