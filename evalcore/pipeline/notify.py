"""Tell people of decisions through Apprise. What cannot be sent is a warning, never an error.

Apprise is imported only if there is something to send.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final, TypeAlias

from evalcore.formats.options import LoadOptions
from evalcore.formats.variables import variables_for
from evalcore.model.run import Manifest, NotifyOn, NotifyPolicy, State
from evalcore.pipeline.finish import RunView
from evalcore.redaction.redactor import PROCESS
from evalcore.report.message import (
    LISTED_CASES,
    DecisionContext,
    Notice,
    decision_message,
    plain,
    without_marks,
)
from evalcore.settings import Settings
from evalcore.storage.runs import FILTERS, list_runs, open_run
from evalcore.storage.store import ObjectStore

SEND_TIMEOUT_S: Final = 20.0
_LINK_S: Final = 7 * 24 * 3600  # S3 signs for no longer
_LOOKED_AT: Final = 50
# These show plain text as it is. Others may take it for Markdown, also if they ask for plain text.
_PLAIN_SERVICES: Final = frozenset(
    {"json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos", "syslog"}
)


Receivers: TypeAlias = Mapping[str, str | None]
"""Variables by name with the Apprise addresses that they hold; None for those without one."""


def notify_decision(
    view: RunView,
    settings: Settings,
    *,
    links: Sequence[tuple[str, str]] = (),
    configured: bool = True,
) -> tuple[str, ...]:
    """Tell of a run's decision as its suite says, else as the configuration does.

    Returns what could not be sent, for people. Without `configured` only the suite counts.
    """
    own = view.run.definition.policy.notify
    policy = own or (settings.notify if configured else None)
    if policy is None or not policy.to:
        return ()
    if view.run.definition.part and policy.on is NotifyOn.CHANGE:
        return ()  # a part of the suite has not changed what the suite came to
    try:
        before = decided_before(view.run.store, view.report.suite, view.run.run_id)
        decision = None if before is None else before.decision
        if not policy.is_due(view.report.decision, decision):
            return ()
        reports = report_links(view, settings.viewer_url)
        context = DecisionContext(decision, _changes(view, before), (*links, *reports))
        message = decision_message(view.report, view.failures(2 * LISTED_CASES), context)
        receivers = (
            configured_receivers(policy)
            if own is None
            else _suite_receivers(policy, Path(view.run.definition.source.folder), settings)
        )
        return send(message, receivers)
    except Exception as error:  # noqa: BLE001  (a message never fails a run)
        return (plain(f"notify: could not tell of the decision: {type(error).__name__}: {error}"),)


def configured_receivers(policy: NotifyPolicy) -> Receivers:
    """Return the receivers that the configuration names."""
    return {name: os.environ.get(name) for name in policy.to}


def _suite_receivers(policy: NotifyPolicy, folder: Path, settings: Settings) -> Receivers:
    """Return the receivers that a suite names: it reads only variables that it may read."""
    names = frozenset(settings.readable_names)
    options = LoadOptions(environment=os.environ, readable_names=names, secrets_required=False)
    values = variables_for(folder, options).values
    return {name: values.get(name) for name in policy.to}


def decided_before(store: ObjectStore, suite: str, run_id: str) -> Manifest | None:
    """Return the newest decided run of a suite that was made before a run; None of none.

    Runs that the caller limited to some cases or variants decide nothing of the suite.
    """
    earlier = dropwhile(lambda manifest: manifest.id != run_id, list_runs(store, suite))
    for manifest in islice(earlier, 1, _LOOKED_AT):
        if (
            manifest.state is State.COMPLETED
            and manifest.decision
            and not manifest.settings.get(FILTERS)
        ):
            return manifest
    return None


def report_links(view: RunView, viewer_url: str | None) -> Iterator[tuple[str, str]]:
    """Yield links to the run's page in the viewer, and to the report if a browser can follow it."""
    if viewer_url is not None:
        yield "results", f"{viewer_url}/runs/{view.run.run_id}"
    link = view.run.store.presign(view.run.keys.report, expires_s=_LINK_S)
    if not link.startswith("file:"):
        yield "report.json", link


def _changes(view: RunView, before: Manifest | None) -> tuple[str, ...]:
    if before is None:
        return ()
    from evalcore.history.fingerprints import describe_changes, run_fingerprints

    earlier = run_fingerprints(open_run(view.run.store, before.suite, before.id))
    changes: dict[str, None] = {}
    for variant, after in run_fingerprints(view.run).items():
        if variant in earlier:
            changes |= dict.fromkeys(describe_changes(earlier[variant], after))
    return tuple(changes)


def send(
    message: Notice, receivers: Receivers, *, timeout_s: float = SEND_TIMEOUT_S
) -> tuple[str, ...]:
    """Send a message to all receivers at once; return why it did not reach some of them.

    Takes at most `timeout_s` seconds. No warning repeats an address.
    """
    unset = "notify: the variable {} is not set, or the suite may not read it"
    warnings = [unset.format(name) for name, address in receivers.items() if not address]
    addresses = {name: address for name, address in receivers.items() if address}
    PROCESS.learn(addresses.values())
    failures: dict[str, str | None] = {}
    threads = [
        threading.Thread(target=_send_one, args=(message, item, failures), daemon=True)
        for item in addresses.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"did not answer within {timeout_s:g} s"
    outcomes = {name: failures.get(name, late) for name in addresses}
    warnings += [f"notify: {name} {why}" for name, why in outcomes.items() if why is not None]
    return tuple(warnings)


def _send_one(message: Notice, item: tuple[str, str], failures: dict[str, str | None]) -> None:
    name, address = item
    try:
        import apprise

        # It logs addresses.
        logging.getLogger("apprise").propagate = False
        logging.getLogger("apprise").addHandler(logging.NullHandler())
        receiver = apprise.Apprise()
        if not receiver.add(address):
            failures[name] = "holds no address that Apprise knows (https://appriseit.com)"
            return
        text, form = message.body, apprise.NotifyFormat.MARKDOWN
        if address.partition(":")[0].lower() in _PLAIN_SERVICES:
            text, form = without_marks(text), apprise.NotifyFormat.TEXT
        delivered = receiver.notify(title=message.title, body=text, body_format=form)
        failures[name] = None if delivered else "did not take the message"
    except Exception as error:  # noqa: BLE001  (other people's code)
        failures[name] = f"could not be told: {type(error).__name__}"
