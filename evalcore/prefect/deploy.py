"""`evalcore deploy`: everything that a Prefect server has to know, registered with one command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from evalcore.errors import UsageError

_STORE_HELP = "The block `evalcore store` that says where flow runs store, and with which keys."
_SUITES_HELP = "The nightly's suites (default: **/*.eval.yaml); repeatable."


@click.command()
@click.option("--pool", default="evalcore", show_default=True, help="Name of the work pool.")
@click.option("--folder", metavar="DIR", help="Folder that workers run in (default: this one).")
@click.option("--store-block", metavar="NAME", help=_STORE_HELP)
@click.option("--suites", multiple=True, metavar="PATTERN", help=_SUITES_HELP)
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be done; do nothing.")
def deploy(
    pool: str,
    folder: str | None,
    store_block: str | None,
    suites: tuple[str, ...],
    dry: bool,
) -> int:
    """Register a work pool, deployments and an automation.

    With the Prefect server that PREFECT_API_URL names. What is there already and as it should be
    is left alone, so it can be run again at any time. Parameters, schedules and variables of
    deployments that were changed stay, and are shown. A work pool that is there may be of any type;
    a new one starts processes.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    from evalcore.prefect.parameters import find_suites
    from evalcore.prefect.register import Registrar
    from evalcore.prefect.server import reach_server

    place = Path(folder or Path.cwd()).absolute()
    found = find_suites(suites, place) if place.is_dir() else {}
    if absent := [name for name, is_there in found.items() if not is_there]:
        raise UsageError(f"--suites {absent[0]}: no file below {place} matches")
    url = reach_server(embedded=False)
    with get_client(sync_client=True) as client:
        registrar = Registrar(client, pool, place, store_block, suites, dry)
        try:
            registrar.register_all()
        except PrefectHTTPStatusError as error:
            raise UsageError(f"Prefect's server refuses: {error}") from error
    for line in registrar.lines:
        click.echo(line)
    if reason := unscheduled():
        click.echo(f"warning: {reason}", err=True)
    would = "would be " if dry else ""
    counted = f"{registrar.done} of {registrar.things} {would}registered or changed"
    click.echo(f"{url}: {counted if registrar.done else 'nothing to change'}")
    return 0


def unscheduled() -> str:
    """Return why a server with the packages of this environment makes no nights, or nothing.

    Prefect repaired in 3.9 how it inserts scheduled flow runs with SQLAlchemy 2.1.
    """
    prefect, sqlalchemy = version("prefect"), version("sqlalchemy")
    if sqlalchemy.startswith("2.0.") or not prefect.startswith("3.8."):
        return ""
    return (
        f"a server of Prefect {prefect} with SQLAlchemy {sqlalchemy} starts no flow runs of "
        "schedules: install 'prefect>=3.9' or 'sqlalchemy<2.1' where it runs"
    )
