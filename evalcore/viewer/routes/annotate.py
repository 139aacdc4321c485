"""What people are asked: the runs that await labels, and the queue of one, an item a screen."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from evalcore.annotations.labels import LONGEST_COMMENT, check_annotator
from evalcore.annotations.queue import AnnotationTask
from evalcore.errors import RunConflictError, UsageError
from evalcore.viewer.queues import annotation_screen, is_complete
from evalcore.viewer.rendering import page_url, render
from evalcore.viewer.security import FormText
from evalcore.viewer.site import CurrentSite
from evalcore.wording import counted

router = APIRouter()
_COOKIE: Final = "evalcore-annotator"
_COOKIE_S: Final = 365 * 86_400
# A screen that stood open for longer does not say how long the answer took.
_LONGEST_SECONDS: Final = 3_600.0


class AnnotatorForm(BaseModel):
    """Whose labels come from this browser, and the run whose queue is shown next."""

    annotator: str
    run: str = ""


class LabelForm(BaseModel):
    """An answer, or the button that skips the item or takes back the last answer."""

    annotator: str
    task: str = ""
    label: str = ""
    comment: FormText = ""
    shown_at: str = ""
    skip: str = ""
    undo: str = ""


@router.get("/annotate")
def awaiting_runs(request: Request, site: CurrentSite) -> Response:
    """Show the runs that were decided without all labels, newest first."""
    return render(
        request,
        site,
        "awaiting.html.j2",
        awaiting=site.queues.awaiting(),
        annotator=_annotator(request),
    )


@router.post("/annotate")
def choose_annotator(
    request: Request, site: CurrentSite, form: Annotated[AnnotatorForm, Form()]
) -> Response:
    """Keep the annotator's name in a cookie, and go back to the queue."""
    name = check_annotator(form.annotator)
    response = _see(page_url(site, "annotate", *([form.run] if form.run else [])))
    response.set_cookie(
        _COOKIE,
        quote(name, safe=""),
        max_age=_COOKIE_S,
        path=site.prefix or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


@router.get("/annotate/{run_id}")
def annotation_queue(
    request: Request,
    site: CurrentSite,
    run_id: str,
    task: Annotated[str, Query()] = "",
    name: Annotated[str, Query()] = "",
) -> Response:
    """Show the next item of a run that this annotator has not answered, or the one of `task`."""
    annotator = _annotator(request)
    with site.queues.open(run_id) as queue:
        chosen: AnnotationTask | None = None
        if annotator is not None and not name:
            chosen = queue.find(task) if task else queue.next_task(annotator)
        screen = None if chosen is None else annotation_screen(queue, chosen)
        own = None
        if chosen is not None and annotator is not None:
            own = queue.label_of(chosen, annotator)
        # Others may have answered what was missing.
        progress = queue.progress if chosen is not None else queue.refresh()
        damaged, suite = queue.damaged, queue.suite
    return render(
        request,
        site,
        "annotate.html.j2",
        suite=suite,
        run_id=run_id,
        annotator=annotator,
        asks_name=annotator is None or bool(name),
        screen=screen,
        own=own,
        progress=progress,
        damaged=damaged,
        shown_at=f"{time.time():.3f}",
        is_complete=is_complete(progress),
        can_decide=site.regrades_runs and is_complete(progress),
        is_deciding=site.regrades.is_under_way(run_id),
        failure=site.regrades.failure(run_id),
        decided=site.queues.regraded(run_id),
    )


@router.post("/annotate/{run_id}")
def answer(site: CurrentSite, run_id: str, form: Annotated[LabelForm, Form()]) -> Response:
    """Store an answer, skip an item, or take back the last answer; go to the next item.

    The same answer twice is stored once; an answer to a page from before replaces what this
    annotator said of that content.
    """
    annotator = check_annotator(form.annotator)
    with site.queues.open(run_id) as queue:
        if form.undo:
            undone = queue.undo(annotator, at=_now())
            key = None if undone is None else undone.id
            return _see(page_url(site, "annotate", run_id, task=key))
        task = queue.find(form.task)
        if form.skip:
            queue.skip(annotator, task)
        else:
            comment = form.comment.strip()
            if len(comment) > LONGEST_COMMENT:
                raise UsageError(
                    f"the comment has {len(comment):,} characters, at most {LONGEST_COMMENT:,} are "
                    "stored; go back, your text is still there"
                )
            seconds = _seconds(form.shown_at)
            queue.answer(task, annotator, form.label, at=_now(), comment=comment, seconds=seconds)
    return _see(page_url(site, "annotate", run_id))


@router.post("/annotate/{run_id}/decide")
def decide_again(site: CurrentSite, run_id: str) -> Response:
    """Grade the run again with the labels that there are, in the background."""
    with site.queues.open(run_id) as queue:
        missing = queue.refresh().missing
    if missing:
        raise RunConflictError(
            f"run {run_id} lacks {counted(missing, 'label')}; "
            f"`evalcore regrade {run_id}` decides without them"
        )
    if not site.regrades_runs:
        raise HTTPException(403, f"Runs are decided again by `evalcore regrade {run_id}` here.")
    site.regrades.start(run_id)
    return _see(page_url(site, "annotate", run_id))


def _seconds(shown_at: str) -> float | None:
    try:
        seconds = time.time() - float(shown_at)
    except ValueError:
        return None
    is_plausible = math.isfinite(seconds) and 0 <= seconds <= _LONGEST_SECONDS
    return round(seconds, 3) if is_plausible else None


def _annotator(request: Request) -> str | None:
    """Return the name in the cookie; None without one that can be an annotator's."""
    try:
        return check_annotator(unquote(request.cookies.get(_COOKIE, "")))
    except UsageError:
        return None


def _see(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303)


def _now() -> str:
    # To the microsecond: undo takes back the last one.
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
