"""`evalcore deploy`: everything that a Prefect server has to know, registered with one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from evalcore.errors import UsageError

_TYPES = ("process", "docker", "kubernetes")
_KEEP_HELP = "--suites, --cron and --timezone count only for a nightly that is not there yet."
_RESET_HELP = "Overwrite parameters, schedules and variables that are there."
_ENV_HELP = "A variable of flow runs; no secrets, Prefect shows it. Repeatable."
_STORE_HELP = "The block `evalcore store` that says where flow runs store, and with which keys."


@click.command()
@click.option("--pool", default="evalcore", show_default=True, help="Name of the work pool.")
@click.option("--type", default="process", type=click.Choice(_TYPES), help="Kind of work pool.")
@click.option("--image", metavar="IMAGE", help="Image of flow runs in docker and kubernetes.")
@click.option("--folder", metavar="DIR", help="Folder that workers run in (default: this one).")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help=_ENV_HELP)
@click.option("--store-block", metavar="NAME", help=_STORE_HELP)
@click.option("--suites", multiple=True, metavar="PATTERN", help="Nightly suites; repeatable.")
@click.option("--cron", metavar="CRON", help="When the nightly runs (default: 0 2 * * *).")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron (default: UTC).")
@click.option("--reset", is_flag=True, help=_RESET_HELP)
@click.option("--keep", is_flag=True, help=_KEEP_HELP)
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be done; do nothing.")
def deploy(env: tuple[str, ...], folder: str | None, **values: Any) -> int:
    """Register a work pool, deployments, rate limits and an automation.

    With the Prefect server that PREFECT_API_URL names. What is there already and as it should be
    is left alone, so it can be run again at any time. Parameters, schedules and variables of
    deployments that were changed stay, and are shown. Rate limits come from the providers of
    evalcore.toml.
    """
    if values["keep"] and values["reset"]:
        raise UsageError("--keep and --reset contradict each other: give one of them")
    in_containers = values["type"] != "process"
    if in_containers and (values["image"] is None or folder is None):
        raise UsageError(
            f"flow runs in {values['type']} need --image, and --folder: the image's folder with "
            "the suites (deployments/Dockerfile makes one with /work)"
        )
    if values["image"] is not None and not in_containers:
        raise UsageError("--image is for flow runs in containers: add --type docker")
    variables = dict(_variable(text) for text in env)

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.exceptions import PrefectHTTPStatusError
    from pydantic import ValidationError

    from evalcore.prefect.parameters import night_warnings
    from evalcore.prefect.register import Registrar
    from evalcore.prefect.server import reach_server
    from evalcore.settings import read_settings
    from evalcore.trust.text import sanitize_terminal

    settings = read_settings(os.environ, Path.cwd())
    place = Path(folder or Path.cwd())
    place = place if in_containers else place.absolute()
    given = {name: values.pop(name) for name in ("cron", "timezone")}
    times = {name: text for name, text in given.items() if text is not None}
    try:
        CronSchedule(**{"cron": "0 2 * * *", **times})
    except ValidationError as error:
        raise UsageError(f"--cron, --timezone: {error.errors()[0]['msg']}") from error
    url = reach_server(embedded=False)
    with get_client(sync_client=True) as client:
        registrar = Registrar(client, env=variables, folder=place, times=times, **values)
        try:
            registrar.register_all(settings.providers)
        except PrefectHTTPStatusError as error:
            raise UsageError(f"Prefect's server refuses: {error}") from error
    for line in registrar.lines:
        click.echo(line)
    would = "would be " if registrar.dry else ""
    counted = f"{registrar.done} of {registrar.things} {would}registered or changed"
    click.echo(f"{url}: {counted if registrar.done else 'nothing to change'}")
    if registrar.local_folder is not None:
        for warning in night_warnings(registrar.night_suites, registrar.local_folder):
            click.echo(sanitize_terminal(f"warning: {warning}"), err=True)
    return 0


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {name}: expected NAME=VALUE")
    return name, value
