"""`evalcore dataset`: cases from files and from real usage, in immutable versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.output import emit, say
from evalcore.datasets.catalogue import DatasetCatalogue
from evalcore.datasets.pending import Acceptance, PendingReader, promote, refuse
from evalcore.datasets.reference import parse_reference
from evalcore.datasets.store import (
    DatasetChange,
    commit,
    compare_versions,
    drop,
    find_version,
    pin,
    read_dataset,
    version_cases,
)
from evalcore.errors import UsageError
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.datasets.catalogue import PendingPage
    from evalcore.datasets.store import DatasetVersion

_LONGEST_TEXT: Final = 100
_LISTED: Final = 20


@click.group()
def dataset() -> None:
    """Manage cases from files and from real usage, in immutable versions that suites name."""


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
    from evalcore.formats.traces import read_cases

    if not name.strip() or "@" in name or name.startswith("dataset:"):
        raise UsageError(f"--as: invalid dataset name '{name}': write a name such as support")
    imported = read_cases(file, redact=redact, expect_output=expect_output)
    change = DatasetChange(f"import {file.name}", imported.lines, unchanging=imported.derived)
    done = commit(chosen_store(store), name, lambda _: change)
    version = done.version
    row = {"name": name, "version": version and version.version, "added": done.added}
    row |= {"replaced": done.replaced, "unchanged": done.unchanged, "repeated": imported.repeated}
    counts = f"{done.added} added, {done.replaced} replaced, {done.unchanged} unchanged"
    line = f"{name}: nothing new ({counts})"
    if version is not None:
        line = f"{version.reference}: {counted(version.cases, 'case')} ({counts})"
    emit(row, as_json, (line,))


@dataset.command("list")
@store_option
@json_option
def list_command(store: str | None, as_json: bool) -> None:
    """List the datasets: the latest version, its cases, and pending captures."""
    opened = chosen_store(store)
    rows = [summary._asdict() for summary in DatasetCatalogue(opened).datasets()]
    lines = [
        f"{row['name']}  {'no version' if row['version'] is None else '@' + str(row['version'])}  "
        f"{counted(row['cases'], 'case')}  {row['pending']} pending"
        for row in rows
    ]
    emit(rows, as_json, lines or (f"no dataset in {opened.url}",))


@dataset.command("show")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--pending", is_flag=True, help="The pending captures, in clusters.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Begin after so many.")
@click.option("--limit", type=click.IntRange(min=1), default=_LISTED, help="So many.  [20]")
@store_option
@json_option
def show_command(
    reference: str, pending: bool, offset: int, limit: int, store: str | None, as_json: bool
) -> None:
    """Show the cases of a version, or the pending captures."""
    parsed = parse_reference(reference)
    opened = chosen_store(store)
    if pending:
        page = DatasetCatalogue(opened).pending(parsed.name, offset=offset, limit=limit)
        clusters = [
            {"times": each.times, "captures": [dict(capture.record) for capture in each.captures]}
            for each in page.clusters
        ]
        row = {"name": parsed.name, "pending": page.total_captures, "clusters": clusters}
        emit(row, as_json, _pending_lines(parsed.name, page))
        return
    shown = find_version(opened, parsed)
    cases = list(version_cases(opened, shown, offset=offset, limit=limit))
    versions = read_dataset(opened, parsed.name).versions[::-1]
    lines = [
        f"{'*' if version.version == shown.version else ' '} {version.reference}  "
        f"{counted(version.cases, 'case')}  {version.created_at}  {version.origin}  "
        f"{version.sha256[:12]}"
        for version in versions
    ]
    for case in cases:
        checks = counted(len(case.get("assertions") or ()), "assertion")
        lines.append(f"  {case['id']}  {_excerpt(case['input'])}  {checks}")
    last = offset + len(cases)
    if last < shown.cases:
        lines.append(f"  … {shown.cases - last} more: --offset {last}")
    listed = {"versions": list(map(_version_row, versions)), "items": cases}
    emit(_version_row(shown) | listed, as_json, lines)


@dataset.command("diff")
@click.argument("earlier", metavar="NAME@VERSION")
@click.argument("later", metavar="NAME@VERSION")
@store_option
@json_option
def diff_command(earlier: str, later: str, store: str | None, as_json: bool) -> None:
    """Show which cases were added, removed, changed from one version to another."""
    opened = chosen_store(store)
    before, after = (find_version(opened, parse_reference(each)) for each in (earlier, later))
    difference = compare_versions(opened, before, after)
    lines = [f"{sign} {each}" for sign, ids in zip("+-~", difference, strict=True) for each in ids]
    added, removed, changed = map(len, difference)
    lines.append(f"{added} added, {removed} removed, {changed} changed")
    emit(difference._asdict(), as_json, lines)


@dataset.command("promote")
@click.argument("name")
@click.option("--all", "every", is_flag=True, help="Every pending capture.")
@click.option(
    "--ids", multiple=True, metavar="ID,ID", help="These captures (beginnings will do); repeatable."
)
@click.option(
    "--assert",
    "assertions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Assertions of the cases: a list in YAML or JSON.",
)
@click.option("--expect-output", is_flag=True, help="The captured output is given and expected.")
@click.option("--reference-output", is_flag=True, help="The captured output is expected only.")
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
    assertions: Path | None,
    **flags: Any,
) -> None:
    """Make cases of pending captures of NAME, in a new version. The viewer shows and edits them."""
    opened = chosen_store(store)
    written = [part for text in ids for part in text.split(",") if part.strip()]
    if every == bool(written):
        raise UsageError("which captures? --all, or --ids ID,ID (the viewer shows each one)")
    if flags["expect_output"] and flags["reference_output"]:
        raise UsageError("--expect-output and --reference-output: give one of them")
    if assertions is not None:
        from evalcore.formats.single_assertions import read_assertions

        flags["assertions"] = read_assertions(assertions)
    template = Acceptance("", **flags)
    reader = PendingReader(opened)
    pending = reader.read(read_dataset(opened, name))
    if not pending:
        raise UsageError(f"dataset '{name}' has no pending captures (see `evalcore dataset list`)")
    chosen = [capture.id for capture in pending] if every else written
    if refused:
        count = refuse(opened, name, chosen, reader=reader)
        emit({"name": name, "refused": count}, as_json, (f"{name}: {count} refused",))
        return
    acceptances = [replace(template, capture=identity) for identity in chosen]
    promoted = promote(opened, name, acceptances, reader=reader)
    version = promoted.committed.version
    row = {
        "name": name,
        "version": version and version.version,
        "cases": [case["id"] for case in promoted.cases],
        "skipped": list(promoted.skipped),
    }
    outcome = "nothing new" if version is None else f"in {version.reference}"
    skipped = f", {len(promoted.skipped)} decided elsewhere" if promoted.skipped else ""
    emit(row, as_json, (f"{name}: {len(promoted.cases)} promoted {outcome}{skipped}",))


@dataset.command("drop")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--yes", is_flag=True, help="Drop it; without it evalcore only says what would go.")
@store_option
def drop_command(reference: str, yes: bool, store: str | None) -> None:
    """Drop a version, or the dataset with all versions and pending captures."""
    opened = chosen_store(store)
    is_whole = "@" not in reference
    parsed = parse_reference(reference) if is_whole else _numbered(reference, "drop")
    if yes:
        numbers = drop(opened, parsed.name, None if is_whole else parsed.version)
        say(f"{parsed.name}: dropped {', '.join(map(str, numbers)) or 'no version that was left'}")
        return
    going = parsed.name
    if is_whole:
        versions = len(read_dataset(opened, parsed.name).versions)
        going += f" with {counted(versions, 'version')} and its pending captures"
    else:
        going = str(find_version(opened, parsed).reference)
    say(f"would drop {going}; do it with --yes")


@dataset.command("pin")
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--release", is_flag=True, help="'latest' is the newest version again.")
@store_option
def pin_command(reference: str, release: bool, store: str | None) -> None:
    """Let `latest` mean a version, however many follow; it cannot be dropped meanwhile."""
    opened = chosen_store(store)
    if release:
        name = parse_reference(reference).name
        pin(opened, name, None)
        say(f"{name}@latest is the newest version")
        return
    version = find_version(opened, _numbered(reference, "pin"))
    pin(opened, version.dataset, version.version)
    say(f"{version.dataset}@latest is {version.reference}")


def _numbered(reference: str, verb: str) -> Any:
    """Return a reference to one version; raise `UsageError` for `latest`."""
    parsed = parse_reference(reference)
    if parsed.version is None:
        raise UsageError(f"'{reference}': name the version to {verb}, such as {parsed.name}@3")
    return parsed


def _version_row(version: DatasetVersion) -> dict[str, Any]:
    return {
        "name": version.dataset,
        "version": version.version,
        "sha256": version.sha256,
        "cases": version.cases,
        "created_at": version.created_at,
        "origin": version.origin,
    }


def _pending_lines(name: str, page: PendingPage) -> Iterator[str]:
    yield f"{name}: {page.total_captures} pending in {counted(page.total_clusters, 'cluster')}"
    for cluster in page.clusters:
        first, more = cluster.captures[0], len(cluster.captures) - 1
        repeats = f"  and {more} like it" if more else ""
        yield f"  {first.id[:12]}  {cluster.times}×  {_excerpt(first.input)}{repeats}"


def _excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
