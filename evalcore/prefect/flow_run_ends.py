"""How flow runs end, asked of Prefect's server: also those that were cancelled or killed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_ANSWER_S = 5.0
_MOST = 100


class EndedFlowRuns:
    """The flow runs that end from now on, each time that one does."""

    def __init__(self, api: str) -> None:
        self._url = f"{api}/flow_runs/filter"
        self._since = datetime.now(UTC).isoformat()
        self._reported: set[tuple[str, int, str]] = set()

    def new_lines(self) -> Iterator[str]:
        """Yield a line for each flow run that has ended since the last call, in their order.

        Raises `OSError` if the server does not answer.
        """
        query = {
            "flow_runs": {"end_time": {"after_": self._since}},
            "sort": "END_TIME_DESC",
            "limit": _MOST,
        }
        request = urllib.request.Request(  # noqa: S310  (our own server)
            self._url, data=json.dumps(query).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            flow_runs = json.load(answer)
        for flow_run in reversed(flow_runs):
            # A flow run that is retried ends again; one that is cancelled is told so by its process
            # and by its worker.
            end = flow_run["id"], flow_run["run_count"], flow_run["state"]["name"]
            if end not in self._reported:
                self._reported.add(end)
                yield ending(flow_run)


def ending(flow_run: Mapping[str, Any]) -> str:
    """Return in one line how a flow run of the server's answer has ended."""
    state = flow_run["state"]
    message = f": {state['message']}" if state.get("message") else ""
    return f"{flow_run['name']} - Finished in state {state['name']}{message}"
