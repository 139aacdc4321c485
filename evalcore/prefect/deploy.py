"""`evalcore deploy`: everything that a Prefect server has to know, registered with one command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore.errors import UsageError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from evalcore.prefect.changes import Registration
    from evalcore.prefect.definitions import Definition, NightChoice
    from evalcore.settings import Settings

POOL_TYPES = ("process", "docker", "kubernetes")
_TYPE_HELP = "Kind of work pool; repeatable, flow runs go to the first one. Default: process."
_NIGHT = "0 2 * * *"
_KEEP_HELP = "--suites, --cron and --timezone count only for a nightly that is not there yet."
_RESET_HELP = "Overwrite parameters, schedules and variables that are there."
_ENV_HELP = "A variable of flow runs; no secrets, Prefect shows it. Repeatable."


@click.command()
@click.option("--pool", default="evalcore", show_default=True, help="Name of the work pool.")
@click.option("--type", "types", multiple=True, type=click.Choice(POOL_TYPES), help=_TYPE_HELP)
@click.option("--image", metavar="IMAGE", help="Image of flow runs in docker and kubernetes.")
@click.option("--folder", metavar="DIR", help="Folder that workers run in (default: this one).")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help=_ENV_HELP)
@click.option("--suites", multiple=True, metavar="PATTERN", help="Nightly suites; repeatable.")
@click.option("--cron", metavar="CRON", help="When the nightly runs (default: 0 2 * * *).")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron (default: UTC).")
@click.option(
    "--webhook",
    metavar="URL",
    envvar="EVALCORE_WEBHOOK_URL",
    help="Called when a gate fails or a flow run crashes.",
)
@click.option("--reset", is_flag=True, help=_RESET_HELP)
@click.option("--keep", is_flag=True, help=_KEEP_HELP)
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be done; do nothing.")
def deploy(**options: Any) -> int:
    """Register work pools, deployments, rate limits and automations.

    With the Prefect server that PREFECT_API_URL names. What is there already and as it should be
    is left alone, so it can be run again at any time. Parameters, schedules and variables of
    deployments that were changed stay, and are shown. Rate limits come from the providers of
    evalcore.toml.
    """
    from prefect.client.orchestration import get_client

    from evalcore.prefect.definitions import NightChoice, read_definitions
    from evalcore.settings import read_settings

    settings = read_settings(os.environ, Path.cwd())
    choice = NightChoice(options["suites"], options["cron"], options["timezone"])
    # Another machine's folder, or an image's, cannot be looked into.
    folder = None if options["image"] is not None else Path(_folder(options))
    definitions = read_definitions()
    if folder is not None and folder.is_dir():
        if options["keep"]:  # a job: no person corrects it
            choice = _without_missing(choice, folder)
        definitions = _with_present_suites(definitions, choice, folder)
    if options["keep"] and options["reset"]:
        raise UsageError("--keep and --reset contradict each other: give one of them")
    url = require_server()
    with get_client(sync_client=True) as client:
        changes = _register(client, definitions, choice, settings, options)
        chosen = () if options["keep"] else choice.suites
        night = chosen or _registered_suites(client, definitions)
    for change in changes:
        click.echo(str(change))
    done = sum(change.did != "unchanged" for change in changes)
    would = "would be " if options["dry"] else ""
    summary = (
        f"{done} of {len(changes)} {would}registered or changed" if done else "nothing to change"
    )
    click.echo(f"{url}: {summary}")
    if folder is not None and folder.is_dir():
        _warn_of_night(night, folder)
    return 0


def _folder(options: dict[str, Any]) -> str:
    return str(options["folder"] or Path.cwd())


def require_server() -> str:
    """Return the address of Prefect's server; raise `UsageError` if none is named or answers."""
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url is None:
        message = (
            "no Prefect server is named: start one with `evalcore dev` or `prefect server start`, "
            "then `export PREFECT_API_URL=http://127.0.0.1:4200/api`"
        )
        raise UsageError(message)
    try:
        with get_client(sync_client=True) as client:
            failure = client.api_healthcheck()
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error
    if failure is not None:
        raise UsageError(
            f"Prefect's server at {url} does not answer ({type(failure).__name__}: {failure}); "
            "start it with `evalcore dev` or `prefect server start`, or correct PREFECT_API_URL"
        )
    return url


def _register(
    client: SyncPrefectClient,
    definitions: tuple[Definition, ...],
    choice: NightChoice,
    settings: Settings,
    options: dict[str, Any],
) -> list[Registration]:
    from prefect.exceptions import PrefectHTTPStatusError

    from evalcore.prefect import automations, register

    dry = options["dry"]
    types = tuple(dict.fromkeys(options["types"])) or (POOL_TYPES[0],)
    environment = register.WorkerEnvironment(
        pool=register.pool_name(options["pool"], types[0]),
        type=types[0],
        folder=Path(_folder(options)).absolute()
        if types[0] == "process"
        else Path(_folder(options)),
        image=_image(types[0], options),
        environment=_variables(options["variables"]),
    )
    # A mistake is told before anything is registered.
    register.cron_schedule(choice.cron or _NIGHT, choice.timezone or "UTC")
    changes: list[Registration] = []
    try:
        for kind in types:
            name = register.pool_name(options["pool"], kind)
            changes.append(register.register_pool(client, name, kind, dry=dry))
        for definition in definitions:
            change = register.register_deployment(
                client,
                definition,
                environment,
                choice=choice,
                reset=options["reset"],
                keep=options["keep"],
                dry=dry,
            )
            changes.append(change)
        for name, per_s in register.wanted_limits(settings.providers).items():
            changes.append(register.register_limit(client, name, per_s, dry=dry))
        block, webhook_change = automations.register_webhook(client, options["webhook"], dry=dry)
        changes += [] if webhook_change is None else [webhook_change]
        for automation in automations.wanted_automations(block):
            changes.append(automations.register_automation(client, automation, dry=dry))
    except PrefectHTTPStatusError as error:
        raise UsageError(f"Prefect's server refuses: {error}") from error
    return changes


def _image(pool_type: str, options: dict[str, Any]) -> str | None:
    image: str | None = options["image"]
    if pool_type == "process":
        if image is not None:
            raise UsageError("--image is for flow runs in containers: add --type docker")
        return None
    if image is None or options["folder"] is None:
        message = (
            f"flow runs in {pool_type} need --image, and --folder: the image's folder with the "
            "suites (deployments/Dockerfile makes one with /work)"
        )
        raise UsageError(message)
    return image


def _variables(assignments: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--env {name}: expected NAME=VALUE")
        variables[name] = value
    return variables


def _with_present_suites(
    definitions: tuple[Definition, ...], choice: NightChoice, folder: Path
) -> tuple[Definition, ...]:
    """Return the definitions without suites that are not there; raise `UsageError` for chosen ones.

    With --suites those of the definition do not count.
    """
    from evalcore.prefect.definitions import without_missing_suites
    from evalcore.prefect.suites import missing_suites

    if absent := missing_suites(choice.suites, folder):
        raise UsageError(f"--suites {absent[0]}: no file below {folder} matches")
    if choice.suites:
        return definitions
    return tuple(
        without_missing_suites(
            definition, missing_suites(definition.parameters.get("suites", ()), folder)
        )
        for definition in definitions
    )


def _without_missing(choice: NightChoice, folder: Path) -> NightChoice:
    from evalcore.prefect.suites import missing_suites

    absent = missing_suites(choice.suites, folder)
    return replace(choice, suites=tuple(each for each in choice.suites if each not in absent))


def _registered_suites(
    client: SyncPrefectClient, definitions: tuple[Definition, ...]
) -> tuple[str, ...]:
    """Return the suites of the nightly deployment; those that it would have if it is not there."""
    from prefect.exceptions import ObjectNotFound

    from evalcore.prefect.definitions import NIGHTLY

    try:
        registered = client.read_deployment_by_name(f"{NIGHTLY}/{NIGHTLY}")
    except ObjectNotFound:
        nights = (each for each in definitions if each.name == NIGHTLY)
        return tuple(suite for night in nights for suite in night.parameters.get("suites", ()))
    return tuple((registered.parameters or {}).get("suites", ()))


def _warn_of_night(suites: Sequence[str], folder: Path) -> None:
    """Say which suites of the night are not there or refused, and how it gets some."""
    from evalcore.prefect.suites import (
        USUAL_PATTERNS,
        missing_suites,
        present_suites,
        refused_suites,
    )

    usual = [pattern for pattern in USUAL_PATTERNS if present_suites([pattern], folder)]
    hint = f"`evalcore deploy --suites '{usual[0]}'` names some" if usual else "name some: --suites"
    if not suites:
        _warn(f"the nightly has no suites and does not run by itself; {hint}")
    for name in missing_suites(suites, folder):
        _warn(f"nightly: no file {name} in {folder}; {hint}")
    for name, reason in refused_suites(present_suites(suites, folder), folder).items():
        _warn(f"nightly: a worker with this environment refuses {name}: {reason}")


def _warn(text: str) -> None:
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(f"warning: {text}"), err=True)
