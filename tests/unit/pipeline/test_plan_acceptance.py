"""What a process executes of a stored plan (docs/reference/trust.md, row by row)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.errors import DamagedRunError, EvalError, NotAllowedError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.acceptance import Accepted, AcceptingWorker, accept_plan
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.planning.shards import settle
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run

KEY = {"EVALCORE_PLAN_KEY": "a key of sixteen characters or more"}
OTHER_KEY = {"EVALCORE_PLAN_KEY": "another key of sixteen characters"}
PLAIN = """\
name: plain
tests:
  - {id: a, input: b, fixtures: {output: x}, assertions: [{type: contains, value: x}]}
"""
COMMAND = """\
name: command
targets: [{name: default, provider: command, command: ['true']}]
tests: [{id: a, input: b, assertions: [{type: contains, value: x}]}]
"""
Json = dict[str, Any]


class Project:
    """A working folder with a suite, and a store beside it that others can write."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.store = LocalStore(folder / "store")
        self._patch = monkeypatch

    def use(self, environment: Mapping[str, str]) -> None:
        """Let this process be the one with that key; with none it has the user's own."""
        self._patch.delenv("EVALCORE_PLAN_KEY", raising=False)
        for name, value in environment.items():
            self._patch.setenv(name, value)

    def be_user(self, name: str) -> None:
        """Let this process be a user's, with a key of their own."""
        self._patch.setenv("XDG_STATE_HOME", str(self.folder.parent / "users" / name))

    def move_store(self, folder: Path) -> None:
        """Let the store stand in another folder."""
        shutil.move(self.folder.parent / "store", folder)
        self.store = LocalStore(folder)

    def plan(self, text: str = PLAIN, folder: str = ".", **options: Any) -> StoredRun:
        path = self.folder / folder / "suite.eval.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        suite = load_suite(path)
        run = plan_run(suite, self.store, PlanOptions(**options), now=datetime.now(UTC))
        return self.found(run)

    def found(self, run: StoredRun) -> StoredRun:
        """Return the run as a process finds it that has not planned it."""
        return find_run(self.store, run.run_id)

    def accept(self, run: StoredRun, imports: tuple[str, ...] = (), **settings: Any) -> Accepted:
        worker = AcceptingWorker(self.folder, Settings(**settings), imports)
        return accept_plan(self.found(run), worker)

    def path(self, run: StoredRun, name: str) -> Path:
        return self.store.local_path(f"{run.keys.folder}{name}")

    def edit(self, run: StoredRun, name: str, change: Callable[[Json], None]) -> None:
        path = self.path(run, name)
        value = orjson.loads(path.read_bytes())
        change(value)
        path.write_bytes(orjson.dumps(value))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


@pytest.fixture(params=["user's key", "EVALCORE_PLAN_KEY"])
def keyed(request: pytest.FixtureRequest, project: Project) -> Project:
    """The project, its plans signed with either kind of key."""
    project.use(KEY if request.param == "EVALCORE_PLAN_KEY" else {})
    return project


def put(*path: str, value: Any) -> Callable[[Json], None]:
    def change(raw: Json) -> None:
        *outer, last = path
        for name in outer:
            raw = raw[name]
        assert raw.get(last, "nothing") != value
        raw[last] = value

    return change


# A plan that this process's key has signed


def test_a_signed_plan_may_do_what_its_suite_may(keyed: Project) -> None:
    accepted = keyed.accept(keyed.plan(COMMAND), imports=("json",))

    assert accepted.imports.commands
    assert accepted.imports.roots == (keyed.folder, keyed.folder)
    assert accepted.imports.allowed == ("json",)


def test_a_signed_plan_of_elsewhere_imports_from_the_working_folder_only(
    project: Project,
) -> None:
    project.use(KEY)
    run = project.plan(COMMAND, folder="../elsewhere")

    assert project.accept(run).imports.roots == (project.folder,)


def test_an_accepted_plan_is_executed(keyed: Project) -> None:
    accepted = keyed.accept(keyed.plan())

    assert [receipt.items for receipt in execute_run(accepted.run)] == [1]


@pytest.mark.parametrize(
    "change",
    [
        put("mode", value="record"),
        put("created_at", value="2026-01-01T00:00:00Z"),
        put("source", "path", value="other.yaml"),
        put("engine", "evalcore", value="0.0.0"),
        put("plan", "items", value=2),
        put("plan", "shard_size", value=7),
        put("plan", "settled", value=False),
        put("settings", "concurrency", value=1),
        put("settings", "workers", value=64),
        put("settings", "baseline", value="other"),
        put("settings", "more", value=1),
    ],
)
def test_a_frozen_field_that_was_changed_is_damage(
    keyed: Project, change: Callable[[Json], None]
) -> None:
    run = keyed.plan()
    keyed.edit(run, "manifest.json", change)

    with pytest.raises(DamagedRunError, match=r"damaged: manifest\.json"):
        keyed.accept(run)


@pytest.mark.parametrize("field", ["state", "started_at", "ended_at", "counts", "decision"])
def test_fields_that_a_run_changes_are_not_signed(keyed: Project, field: str) -> None:
    run = keyed.plan()
    values = {"counts": {"planned": 9}, "state": "cancelled", "decision": "pass"}
    value = values.get(field, "2026-01-01T00:00:00Z")
    keyed.edit(run, "manifest.json", put(field, value=value))

    assert keyed.accept(run).run.run_id == run.run_id


@pytest.mark.parametrize("byte", [0, 100, -1])
@pytest.mark.parametrize("part", ["plan/suite.json", "plan/cases-00000.jsonl.zst"])
def test_a_part_with_one_byte_changed_is_damage(keyed: Project, part: str, byte: int) -> None:
    run = keyed.plan()
    path = keyed.path(run, part)
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedRunError, match=f"{part} is not what was signed"):
        execute_run(keyed.accept(run).run)


def test_evidence_to_be_reused_is_a_part_of_the_plan(keyed: Project) -> None:
    from evalcore.pipeline.finish import finish_run

    first = keyed.plan()
    execute_run(first)
    with finish_run(first, now=datetime.now(UTC)):
        pass
    run = keyed.plan(reuse="history")
    path = keyed.path(run, "plan/reuse-00000.parquet")
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(DamagedRunError, match="reuse-00000"):
        execute_run(keyed.accept(run).run)


@pytest.mark.parametrize("part", ["plan/suite.json", "plan/cases-00000.jsonl.zst"])
def test_a_part_that_is_missing_is_damage(keyed: Project, part: str) -> None:
    run = keyed.plan()
    keyed.path(run, part).unlink()

    with pytest.raises(DamagedRunError, match=f"{part} is missing"):
        keyed.accept(run)


@pytest.mark.parametrize("part", ["cases-00001.jsonl.zst", "reuse-00000.parquet", "more.json"])
def test_a_part_that_was_added_is_damage(keyed: Project, part: str) -> None:
    run = keyed.plan()
    keyed.store.put(f"{run.keys.plan_prefix}{part}", b"{}")

    with pytest.raises(DamagedRunError, match=f"{part} was not there"):
        keyed.accept(run)


@pytest.mark.parametrize("part", ["suite.json", "cases-00000.jsonl.zst"])
def test_a_part_of_another_run_is_damage(keyed: Project, part: str) -> None:
    run, other = keyed.plan(), keyed.plan(COMMAND)
    shutil.copy(keyed.path(other, f"plan/{part}"), keyed.path(run, f"plan/{part}"))

    with pytest.raises(DamagedRunError, match=part):
        execute_run(keyed.accept(run).run)


def test_the_signature_of_another_run_is_damage(keyed: Project) -> None:
    run, other = keyed.plan(), keyed.plan()
    name = "plan/signature.json"
    shutil.copy(keyed.path(other, name), keyed.path(run, name))

    with pytest.raises(DamagedRunError, match="is the signature of another run"):
        keyed.accept(run)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"schema": 2}', b"\xff"])
def test_what_is_no_signature_is_damage(keyed: Project, data: bytes) -> None:
    run = keyed.plan()
    keyed.path(run, "plan/signature.json").write_bytes(data)

    with pytest.raises(DamagedRunError, match=r"signature\.json is no signature"):
        keyed.accept(run)


@pytest.mark.parametrize("with_manifest", [False, True])
def test_an_old_plan_under_a_new_id_is_damage(keyed: Project, with_manifest: bool) -> None:
    run = keyed.plan(COMMAND)
    new_id = "20260518T100000Z-0a1b2c"
    old = keyed.path(run, "manifest.json").parent
    shutil.copytree(old, old.with_name(new_id))
    copy = find_run(keyed.store, new_id)
    if with_manifest:
        keyed.edit(copy, "manifest.json", put("id", value=new_id))

    with pytest.raises(DamagedRunError):
        keyed.accept(copy)


def test_what_changes_after_it_was_accepted_is_not_executed(keyed: Project) -> None:
    accepted = keyed.accept(keyed.plan())
    keyed.edit(accepted.run, "manifest.json", put("mode", value="record"))

    with pytest.raises(DamagedRunError):
        execute_run(accepted.run)


# The size of shards is settled after the plan is signed


def unsettled(project: Project) -> StoredRun:
    tests = "\n".join(f"  - {{id: c{n}, input: b}}" for n in range(600))
    target = "targets: [{name: default, provider: mock, response: x, latency_ms: 1}]"
    run = project.plan(
        f"name: many\n{target}\nassertions: [{{type: contains, value: x}}]\ntests:\n{tests}\n"
    )
    assert not run.manifest().plan.settled
    return run


def test_a_plan_that_its_pilot_has_settled_is_the_one_that_was_signed(project: Project) -> None:
    run = unsettled(project)
    run.update(
        lambda manifest: replace(
            manifest,
            plan=settle(manifest.plan, 7),
            settings={**manifest.settings, "latency_s": 0.1},
        )
    )

    assert project.accept(run).run.manifest().plan.shard_size == 7


@pytest.mark.parametrize("values", [{"shards": 1}, {"shard_size": 0}, {"items": 599}, {"pilot": 0}])
def test_a_plan_that_no_pilot_settles_like_that_is_damage(project: Project, values: Json) -> None:
    run = unsettled(project)
    run.update(lambda manifest: replace(manifest, plan=settle(manifest.plan, 7)))
    project.edit(run, "manifest.json", lambda raw: raw["plan"].update(values))

    with pytest.raises(DamagedRunError, match=r"damaged: manifest\.json"):
        project.accept(run)


# With EVALCORE_PLAN_KEY only a plan that it has signed is executed


@pytest.mark.parametrize("how", ["another key", "no signature", "user's key"])
def test_with_a_key_a_plan_without_its_signature_is_refused(project: Project, how: str) -> None:
    project.use({} if how == "user's key" else OTHER_KEY if how == "another key" else KEY)
    run = project.plan()
    if how == "no signature":
        project.path(run, "plan/signature.json").unlink()
    project.use(KEY)

    with pytest.raises(NotAllowedError, match=r"is (not signed|signed with another key)"):
        project.accept(run, allow_commands=True)


# Without one it may do what the process's own settings allow


@pytest.fixture
def foreign(project: Project) -> Callable[..., StoredRun]:
    """Plan a run as another user; this process has a key of its own."""

    def plan(text: str = PLAIN, folder: str = ".") -> StoredRun:
        project.be_user("another")
        run = project.plan(text, folder)
        project.be_user("this one")
        return run

    return plan


def test_a_plan_that_asks_for_nothing_is_executed(
    project: Project, foreign: Callable[..., StoredRun]
) -> None:
    accepted = project.accept(foreign())

    assert not accepted.imports.commands
    assert accepted.imports.roots == ()
    assert [receipt.items for receipt in execute_run(accepted.run)] == [1]


def test_removing_the_signature_gains_nothing(project: Project) -> None:
    run = project.plan(COMMAND)
    project.path(run, "plan/signature.json").unlink()

    with pytest.raises(NotAllowedError, match="a command starts a program"):
        project.accept(run)


MODEL = "{name: default, provider: openai, model: m"
GRADED = (
    "name: graded\nvariants: [{id: v}]\nflow: {provider: mock, response: x}\n"
    "cases: [{id: a, input: b, assertions: [%s]}]\n"
)
DEMANDS = {
    "a command target": (COMMAND, "EVALCORE_ALLOW_COMMANDS"),
    "a target of AgentV's kind cli": (
        COMMAND.replace("command, command: ['true']", "cli, command: 'true'"),
        "EVALCORE_ALLOW_COMMANDS",
    ),
    "a fallback": (
        "targets: [{name: default, provider: mock, response: x, fallback_targets: [c]}, "
        "{name: c, provider: command, command: ['true']}]\ntests: [{id: a, input: b, assertions: "
        "[{type: contains, value: x}]}]",
        "EVALCORE_ALLOW_COMMANDS",
    ),
    "a code grader": (
        PLAIN.replace("{type: contains, value: x}", "{type: code-grader, command: ['true']}"),
        "a code grader starts a program",
    ),
    "a code grader of a composite": (
        PLAIN.replace(
            "{type: contains, value: x}",
            "{type: composite, aggregator: {type: weighted_average}, "
            "assertions: [{name: g, type: code-grader, command: ['true']}]}",
        ),
        "a code grader starts a program",
    ),
    "a code grader at a path": (
        GRADED % "{type: code-grader, command: ['true'], path: outputs.primary_output}",
        "a code grader starts a program",
    ),
    "a Python check at a path in a composite": (
        GRADED
        % "{type: composite, assertions: [{type: python, callable: 'mine:check', path: outputs}]}",
        "module 'mine' of mine:check is not on the allow-list",
    ),
    "hooks": (
        f"workspace: {{hooks: {{before_each: {{command: ['true']}}}}}}\n{PLAIN}",
        "a workspace starts a program",
    ),
    "a Python target": (
        "targets: [{name: default, provider: python, callable: 'mine:answer'}]\n"
        "tests: [{id: a, input: b, assertions: [{type: contains, value: x}]}]",
        "module 'mine' of mine:answer is not on the allow-list",
    ),
    "a custom gate": (
        "name: gated\nvariants: [{id: v}]\nflow: {provider: mock, response: x}\ncases: [{id: a, "
        "input: b, assertions: [{type: output.contains, value: x}]}]\n"
        "gates: [{gate: custom, callable: 'mine:gate'}]",
        "module 'mine'",
    ),
    "a block of code": (
        "workflow: {name: w, entry: b}\nblocks: {b: {type: code, code: 'def main(data): "
        "return 1'}}\neval: {cases: [{id: a, inputs: {x: 1}, expected: {b: [{type: contains, "
        "value: '1'}]}}]}",
        "a block of code starts a program",
    ),
    "a program of a script": (
        "shared: {tools: [{import_tool: llm_workers.tools.unsafe.bash}]}\n"
        "suites: {s: {tests: {t: {do: {call: bash, params: {script: 'true'}}}}}}",
        "the tool llm_workers.tools.unsafe.bash starts a program",
    ),
    "an address": (
        f"targets: [{MODEL}, base_url: 'http://evil.test/v1'}}]\n"
        "tests: [{id: a, input: b, assertions: [{type: contains, value: x}]}]",
        r"the address 'http://evil\.test/v1' is none of this process's own",
    ),
    "an address of a variant": (
        f"targets: [{MODEL}}}]\nevalcore: {{variants: [{{id: v, config: {{base_url: "
        "'http://evil.test/v1'}}]}\n"
        "tests: [{id: a, input: b, assertions: [{type: contains, value: x}]}]",
        r"http://evil\.test",
    ),
    "an HTTP target": (
        "targets: [{name: default, provider: http, url: 'http://evil.test/'}]\n"
        "tests: [{id: a, input: b, assertions: [{type: contains, value: x}]}]",
        r"http://evil\.test",
    ),
}


@pytest.mark.parametrize("name", DEMANDS)
def test_what_the_settings_do_not_allow_is_refused_as_a_whole(
    project: Project,
    foreign: Callable[..., StoredRun],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    text, reason = DEMANDS[name]
    (project.folder / "mine.py").write_text("def answer(input): return 'x'\n")
    run = foreign(text)

    with pytest.raises(NotAllowedError, match=reason):
        project.accept(run)
    assert not list(project.store.list(run.keys.results_prefix))


def test_settings_allow_commands_modules_and_addresses(
    project: Project, foreign: Callable[..., StoredRun]
) -> None:
    (project.folder / "mine.py").write_text("")
    run = foreign(DEMANDS["a Python target"][0])
    assert project.accept(run, allow_imports=("mine",)).imports.allowed == ("mine",)
    assert project.accept(run, imports=("mine",)).imports.roots == ()
    allowing: dict[str, Json] = {
        "a command target": {"allow_commands": True},
        "an HTTP target": {"allow_addresses": ("http://evil.test",)},
    }
    for name, settings in allowing.items():
        assert project.accept(foreign(DEMANDS[name][0]), **settings)


@pytest.mark.parametrize("how", ["..", "link", "elsewhere", "store"])
def test_a_folder_that_does_not_lie_below_the_working_folder_is_refused(
    project: Project, foreign: Callable[..., StoredRun], how: str
) -> None:
    outside = project.folder.parent / "outside"
    outside.mkdir()
    (project.folder / "link").symlink_to(outside)
    run = foreign()
    place = {"..": f"{project.folder}/../outside", "link": f"{project.folder}/link"}
    folder = place.get(how, str(outside))
    if how == "store":
        project.move_store(project.folder / ".evalcore")
        folder = f"{project.folder}/.evalcore/blobs"
    project.edit(run, "plan/suite.json", put("source", "folder", value=folder))

    with pytest.raises(NotAllowedError, match="does not lie below"):
        project.accept(run)


def test_a_torn_plan_is_damage(project: Project, foreign: Callable[..., StoredRun]) -> None:
    run = foreign()
    path = project.path(run, "plan/cases-00000.jsonl.zst")
    path.write_bytes(path.read_bytes()[:-3])

    with pytest.raises(EvalError, match="damaged"):
        project.accept(run)
