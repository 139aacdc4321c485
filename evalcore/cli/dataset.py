"""`evalcore dataset`: cases from files and from real usage, in immutable versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.dataset_promote import promote_command
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import UsageError
from evalcore.report.document import on_one_line
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.datasets.catalogue import PendingPage
    from evalcore.datasets.store import DatasetVersion

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
