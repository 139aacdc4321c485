"""Bring a workflow of the service to what a file of saved evals says; again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from evalcore.client.client import Client
from evalcore.errors import UsageError
from evalcore.formats.saved_evals import FileEval, SavedEvalsFile, eval_fields
from evalcore.formats.workflow_file import read_registered_workflow
from evalcore.service.models import (
    ExportedWorkflow,
)

_COMPARED = ("name", "target", "source", "assertion")


class Action(StrEnum):
    """What an import does with one resource."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class Change(NamedTuple):
    """One resource of an import; `id` is None if it would be created."""

    resource: str
    name: str
    action: Action
    id: str | None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """A file that is imported into a workflow; a dry one changes nothing."""

    client: Client
    file: SavedEvalsFile
    dry_run: bool = False

    def run(self, workflow_id: str | None = None) -> Iterator[Change]:
        """Yield the workflow and each eval, once it is as the file says.

        Without an id it is the workflow with the file's name, a new one if there is none.
        Evals that the file does not have stay. Raises `LoadError`, `UsageError` for a name that
        several workflows have, `ServiceRefusedError`.
        """
        definition = read_registered_workflow(self.file.workflow)
        workflow_id = workflow_id or self._workflow_with_name()
        if workflow_id is None:
            yield (change := self._register(definition))
            exported: Sequence[FileEval] = ()
            workflow_id = change.id
        else:
            workflow = self.client.workflows.export(workflow_id)
            yield self._replace_draft(workflow_id, workflow, definition)
            exported = workflow.evals
        for number, saved in enumerate(self.file.evals, start=1):
            name = saved.name or saved.id or f"eval-{number}"
            yield self._write_eval(workflow_id, name, saved, _existing(exported, saved, name))

    def _workflow_with_name(self) -> str | None:
        named = [
            workflow.id
            for workflow in self.client.workflows.list()
            if workflow.name == self.file.name
        ]
        if len(named) > 1:
            listed = ", ".join(named)
            message = f"several workflows are called '{self.file.name}' ({listed}): use --workflow"
            raise UsageError(message)
        return named[0] if named else None

    def _register(self, definition: dict[str, Any]) -> Change:
        workflow_id = None
        if not self.dry_run:
            created = self.client.workflows.create(name=self.file.name, definition=definition)
            workflow_id = created.id
        return Change("workflow", self.file.name, Action.CREATED, workflow_id)

    def _replace_draft(
        self, workflow_id: str, workflow: ExportedWorkflow, definition: dict[str, Any]
    ) -> Change:
        if _text(definition) == _text(workflow.workflow):
            return Change("workflow", workflow.name, Action.UNCHANGED, workflow_id)
        if not self.dry_run:
            self.client.workflows.update_draft(workflow_id, definition=definition)
        return Change("workflow", workflow.name, Action.UPDATED, workflow_id, ("definition",))

    def _write_eval(
        self, workflow_id: str | None, name: str, saved: FileEval, existing: FileEval | None
    ) -> Change:
        fields = {key: value for key, value in eval_fields(saved).items() if key != "id"}
        if existing is None:
            identifier = None
            if not self.dry_run:
                body = {**fields, "name": name, "workflow_id": workflow_id}
                identifier = self.client.evals.create(**body).id
            return Change("eval", name, Action.CREATED, identifier)
        before = eval_fields(existing)
        changed = {
            key: fields[key]
            for key in _COMPARED
            if key in fields and _text(fields[key]) != _text(before.get(key))
        }
        if not changed:
            return Change("eval", name, Action.UNCHANGED, existing.id)
        if "assertion" in changed:
            changed["assertion"] = {**changed["assertion"], "id": existing.assertion.id}
        if not self.dry_run:
            self.client.evals.update(str(existing.id), **changed)
        return Change("eval", name, Action.UPDATED, existing.id, tuple(changed))


def _existing(exported: Sequence[FileEval], saved: FileEval, name: str) -> FileEval | None:
    """Return the eval of the service with the same id, else the oldest with the name."""
    same_id = (existing for existing in exported if saved.id and existing.id == saved.id)
    same_name = (existing for existing in exported if existing.name == name)
    return next(same_id, None) or next(same_name, None)


def _text(value: Mapping[str, Any] | str | None) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
