"""A batch is one program for several items: what holds it up holds up all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalcore.model.evidence import Evidence
from evalcore.model.suite import DEFAULT_VARIANT, Case
from evalcore.targets.program import Batches, ProgramAnswer
from evalcore.targets.work import Work
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.machine_faults import faults_noted_by, noting_faults


def _work(name: str) -> Work:
    case = Case(id=name, input=name)
    return Work(case, DEFAULT_VARIANT, 0, 0, name, (), Path.cwd(), ImportPolicy())


def test_the_time_of_every_item_of_a_batch_stands_still_while_the_machine_is_waited_for() -> None:
    standing: list[str] = []
    seen: list[list[str]] = []

    async def ask(_: Work, lines: str) -> ProgramAnswer:
        with noting_faults():
            seen.append(sorted(standing))
        seen.append(sorted(standing))
        text = "".join(f'{{"id": "{name}", "output": "x"}}\n' for name in "abc")
        return ProgramAnswer(text if lines else "", 3.0)

    batches = Batches(3, ask, lambda _, record, __: Evidence(record["output"]))

    async def answered(name: str) -> Evidence:
        @contextmanager
        def noting() -> Iterator[None]:
            standing.append(name)
            try:
                yield
            finally:
                standing.remove(name)

        with faults_noted_by(noting):
            return await batches.answer(_work(name))

    async def together() -> list[Evidence]:
        return await asyncio.gather(*map(answered, "abc"))

    assert [evidence.output for evidence in asyncio.run(together())] == ["x", "x", "x"]
    assert seen == [["a", "b", "c"], []]
