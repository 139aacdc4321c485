"""Tell people of decisions from flows: each suite's, and one message for a night."""

from __future__ import annotations

from typing import Any

from prefect import get_run_logger, runtime
from prefect.client.schemas.objects import State

from evalcore.model.notification import NotifyPolicy
from evalcore.pipeline.finish import RunView
from evalcore.pipeline.notify import configured_receivers, notify_decision, send
from evalcore.prefect.publish import best_effort, is_listened_to, logged
from evalcore.prefect.states import named
from evalcore.report.message import MARKDOWN, PLAIN, Notice, plain
from evalcore.settings import Settings


def flow_links() -> tuple[tuple[str, str], ...]:
    """Return the link to this flow run; nothing where Prefect has no pages."""
    address = runtime.flow_run.ui_url
    return (("flow run", str(address)),) if address else ()


def tell_decision(view: RunView, settings: Settings) -> None:
    """Tell of a run's decision; in a night the configuration's receivers get one message for all.

    What cannot be sent is a warning in the flow run's log.
    """
    with best_effort("tell of the decision"):
        configured = not is_listened_to()
        for warning in notify_decision(view, settings, links=flow_links(), configured=configured):
            get_run_logger().warning("%s", logged(warning))


def tell_refusal(suite: str, state: State[Any], settings: Settings) -> None:
    """Tell the configuration's receivers of a suite that came to no decision, unless a night does.

    Each kind of `on` is due: a suite that does not load is a failure, and a change.
    """
    policy = settings.notify
    if is_listened_to() or policy is None or not policy.to:
        return
    with best_effort("tell of the suite without a decision"):
        for warning in send(refusal_message(suite, state), configured_receivers(policy)):
            get_run_logger().warning("%s", logged(warning))


def refusal_message(suite: str, state: State[Any]) -> Notice:
    """Return the message of a suite without a decision: why, and the flow run."""
    title = plain(f"{suite}: {named(state)}")
    body, text = (
        "\n".join([form.safe(state.message or ""), *(form.link(*link) for link in flow_links())])
        for form in (MARKDOWN, PLAIN)
    )
    return Notice(title, body, text)


def tell_night(message: Notice, policy: NotifyPolicy) -> None:
    """Send the message of a night to the receivers of the configuration."""
    with best_effort("tell of the night"):
        for warning in send(message, configured_receivers(policy)):
            get_run_logger().warning("%s", logged(warning))
