"""A workflow that has to run: its whole shape, what it refers to, and what its target needs.

None of this is checked in a file whose cases all have fixtures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evalcore.errors import EvalError, LoadError
from evalcore.formats.documents import as_json, read_document
from evalcore.formats.graders import Graders
from evalcore.formats.options import LoadOptions
from evalcore.formats.test_file.input_messages import InputOrigin, read_workflow_texts
from evalcore.formats.workflow_harness.assertions import read_assertion
from evalcore.formats.workflow_harness.custom_files import CustomFiles, soul_references
from evalcore.formats.workflow_harness.parts import read_workflow
from evalcore.formats.workflow_harness.providers import find_providers
from evalcore.model.target import Variant
from evalcore.problems import Problems
from evalcore.targets.options import ENVIRONMENT
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc, shown_path, suggest
from evalcore.workflow.definition import MAX_DEPTH, PARTS, SOUL_KEYS, apply_variant
from evalcore.workflow.reading import asks_model, behaviour_of
from evalcore.workflow.references import find_mistakes, unknown_placeholders

Warned = tuple[Loc, str]
_UNUSED_BY_BLOCK: Final = {
    "stall_thresholds": "see 'timeout_seconds'",
    "allowed_imports": "code may import any module",
    "stateful": "each call has a conversation of its own",
}
_UNUSED_BY_SOUL: Final = {
    "assertions": "write them in the block",
    "tools": "souls call no tools; make a block of 'type: code' or 'http'",
}


def unused_keys(raw: Mapping[str, Any], souls: Mapping[str, Mapping[str, Any]]) -> Iterator[Warned]:
    """Yield what a workflow writes and nothing reads."""
    unused = (("blocks", raw["blocks"], _UNUSED_BY_BLOCK), ("souls", souls, _UNUSED_BY_SOUL))
    for section, members, keys in unused:
        for name, member in members.items():
            for key in filter(member.get, keys):
                text = f"{section[:-1]} '{name}': '{key}' has no effect; {keys[key]}"
                yield (section, name, key), text
    for name, declared in (raw.get("inputs") or {}).items():
        if declared.get("sensitive"):
            loc: Loc = ("inputs", name, "sensitive")
            yield loc, f"input '{name}': 'sensitive' has no effect; what cases give is stored"
    for key in raw.get("config") or ():
        if key not in {"model_name", "max_workflow_depth"}:
            yield ("config", key), f"'config.{key}' has no effect"
    if raw.get("interface"):
        yield ("interface",), "'interface' has no effect; declare 'inputs' of the workflow"


_SUFFIXES: Final = ("", ".yaml", ".yml")
_FOLDERS: Final = ("", "custom/workflows/")


class ExecutedWorkflow:
    """Checks a workflow file that has to run, and makes the options of its target.

    Mistakes are noted at their lines: in the file's own collector, or in those of the sub-workflow
    files (`file_problems`).
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        path: Path,
        problems: Problems,
        options: LoadOptions,
        graders: Graders | None = None,
    ) -> None:
        self._graders = graders or Graders(path.parent)
        self.file_problems: list[Problems] = []
        self.warned: list[Warned] = []
        self._raw, self._path, self._problems, self._options = raw, path, problems, options
        self._workflows: dict[str, dict[str, Any]] = {}
        self._root = repository_root(path.resolve().parent)
        self._with_souls = True
        self._inputs: Collection[str] | None = None

    def options(
        self,
        fixtures: frozenset[str],
        variants: Sequence[Variant] = (),
        inputs: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Return the options of the target; `fixtures` are the blocks that never run.

        `inputs` are those of the cases, if they are known. Mistakes are noted; the options are
        unusable then.
        """
        self._inputs = inputs
        self._with_souls = has_provider(self._raw, fixtures, variants, self._options)
        if not self._check(self._raw, self._problems, fixtures):
            return {}
        definition = self._behaviour(self._raw, self._path, fixtures)
        self._check_variants(definition, fixtures, variants)
        checks = _block_checks(self._raw, self._graders, self._problems)
        self._read_below(definition, self._path, self._problems, fixtures, 1)
        options: dict[str, Any] = {
            "workflows": self._workflows,
            "checks": checks,
            "providers": self._providers(definition, fixtures, variants),
        }
        return {"definition": definition, **{key: part for key, part in options.items() if part}}

    def _check(
        self,
        raw: Mapping[str, Any],
        problems: Problems,
        fixtures: frozenset[str] = frozenset(),
        prefix: Loc = (),
    ) -> bool:
        """Note what is wrong with a workflow; return whether its shape is sound."""
        workflow = read_workflow(raw, problems, prefix)
        if workflow is None:
            return False
        for mistake in find_mistakes(workflow, fixtures, with_souls=self._with_souls):
            problems.add((*prefix, *mistake.loc), mistake.message)
        if self._inputs is not None and problems is self._problems:  # not of a sub-workflow
            for mistake in unknown_placeholders(workflow, self._inputs, fixtures):
                problems.add((*prefix, *mistake.loc), mistake.message)
        return True

    def _behaviour(
        self,
        raw: Mapping[str, Any],
        path: Path,
        fixtures: frozenset[str],
    ) -> dict[str, Any]:
        """Return what a workflow does; note its keys that have no effect."""
        definition: dict[str, Any] = behaviour_of(as_json(raw))
        souls = definition.get("souls") or {}
        running = {"blocks": {k: v for k, v in raw["blocks"].items() if k not in fixtures}}
        running_souls = {name: souls[name] for name in soul_references(running) if name in souls}
        warned = unused_keys({**raw, **running}, _souls_of(raw, running_souls))
        self.warned += [(loc, f"{_where(path, self._path)}{text}") for loc, text in warned]
        return definition

    def _check_variants(
        self, definition: Mapping[str, Any], fixtures: frozenset[str], variants: Sequence[Variant]
    ) -> None:
        keys = sorted(PARTS | SOUL_KEYS)
        for index, variant in enumerate(variants):
            loc: Loc = ("evalcore", "variants", index, "config")
            for key in variant.config:
                if key not in keys:
                    message = f"unknown key '{key}'.{suggest(key, keys)}"
                    self._problems.add((*loc, key), message)
            changed = apply_variant(definition, variant.config)
            if not self._problems.count and changed != definition:
                self._check(changed, self._problems, fixtures, loc)

    def _read_below(
        self,
        raw: Mapping[str, Any],
        path: Path,
        problems: Problems,
        fixtures: frozenset[str],
        depth: int,
    ) -> None:
        """Read the workflows that blocks of type `workflow` name, and those that they name."""
        for name, block in raw["blocks"].items():
            reference = block.get("workflow_ref")
            if block["type"] != "workflow" or name in fixtures or not reference:
                continue
            loc: Loc = ("blocks", name, "workflow_ref")
            if depth > MAX_DEPTH:
                message = f"workflows stand in one another deeper than {MAX_DEPTH} times"
                problems.add(loc, message)
                return
            try:
                file = _find(self._root, path.resolve().parent, reference)
            except EvalError as error:
                problems.add(loc, str(error))
                continue
            key = file.relative_to(self._root).as_posix()
            # The block names the key from now on: where the file lies does not matter to a worker.
            block["workflow_ref"] = key
            if key not in self._workflows:
                self._workflows[key] = {}
                self._workflows[key] = self._read(file, loc, problems, depth)

    def _read(self, path: Path, loc: Loc, outer: Problems, depth: int) -> dict[str, Any]:
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            outer.include(error.problems)
            return {}
        problems = Problems(document.file, document.locate)
        self.file_problems.append(problems)
        raw = document.value
        if not isinstance(raw, dict) or not isinstance(raw.get("blocks"), dict):
            outer.add(loc, f"{document.file} is no workflow: it has no 'blocks'")
            return {}
        custom = CustomFiles(path.parent)
        raw = read_workflow_texts(raw, InputOrigin(path.resolve().parent, (), problems))
        raw = custom.with_souls(raw)
        self.file_problems += custom.file_problems
        if not self._check(raw, problems):
            return {}
        definition = self._behaviour(raw, path, frozenset())
        self._read_below(definition, path, problems, frozenset(), depth + 1)
        return definition

    def _providers(
        self, definition: Mapping[str, Any], fixtures: frozenset[str], variants: Sequence[Variant]
    ) -> dict[str, Any]:
        """Return the entries of `targets.yaml` that souls of blocks that run name."""
        names: dict[str, Loc] = {}
        for name, loc in named_providers(definition, fixtures):
            names.setdefault(name, loc)
        for index, variant in enumerate(variants):
            if isinstance(variant.config.get("provider"), str):
                loc = ("evalcore", "variants", index, "config", "provider")
                names.setdefault(variant.config["provider"], loc)
            changed = apply_variant(definition, variant.config)
            for name, _ in named_providers(changed, fixtures):
                names.setdefault(name, ("evalcore", "variants", index, "config"))
        for raw in self._workflows.values():
            for name, _ in named_providers(raw, frozenset()) if raw else ():
                names.setdefault(name, ("blocks",))
        providers, file_problems = find_providers(
            names, self._path.parent, self._options, self._problems
        )
        self.file_problems.extend(file_problems)
        return providers


def _souls_of(raw: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return souls as they are written, with what has no effect in them."""
    souls = raw.get("souls") or {}
    return {name: souls[name] for name in names if isinstance(souls.get(name), Mapping)}


def _where(path: Path, suite: Path) -> str:
    return "" if path == suite else f"{shown_path(path)}: "


def has_provider(
    raw: Mapping[str, Any],
    fixtures: Collection[str],
    variants: Sequence[Variant],
    options: LoadOptions,
) -> bool:
    """Whether a provider is set up: the environment knows one, or a soul or variant names one.

    In a replay none is needed.
    """
    if not options.secrets_required or any(map(options.environment.get, ENVIRONMENT)):
        return True
    if any("provider" in variant.config or "souls" in variant.config for variant in variants):
        return True
    return any(named_providers(raw, fixtures))


def can_begin(
    raw: Mapping[str, Any],
    fixtures: Collection[str],
    variants: Sequence[Variant],
    options: LoadOptions,
) -> bool:
    """Whether anything of the workflow can run: it has blocks, and the first needs no provider.

    Or there is a provider. A misshapen workflow counts as able, so that its mistakes are noted.
    """
    blocks, workflow = raw.get("blocks"), raw.get("workflow")
    if not isinstance(blocks, dict) or not blocks:
        return False
    entry = workflow.get("entry") if isinstance(workflow, dict) else None
    name = entry if isinstance(entry, str) else next(iter(blocks))
    block = blocks.get(name)
    kind = block.get("type") if isinstance(block, dict) else None
    if name in fixtures or not asks_model(kind):
        return True
    return has_provider(raw, fixtures, variants, options)


def named_providers(raw: Mapping[str, Any], fixtures: Collection[str]) -> Iterator[tuple[str, Loc]]:
    """Yield the providers that the souls of blocks that run name; nothing of what is misshapen."""
    souls, blocks = raw.get("souls"), raw.get("blocks")
    if not isinstance(souls, dict) or not isinstance(blocks, dict):
        return
    for name, block in blocks.items():
        if name in fixtures or not isinstance(block, dict) or not asks_model(block.get("type")):
            continue
        for reference in soul_references({"blocks": {name: block}}):
            soul = souls.get(reference)
            provider = soul.get("provider") if isinstance(soul, dict) else None
            if isinstance(provider, str):
                yield provider, ("souls", reference, "provider")


def _block_checks(raw: Mapping[str, Any], graders: Graders, problems: Problems) -> dict[str, Any]:
    """Return the blocks' own assertions, read; they are checked whenever the block runs."""
    checks: dict[str, Any] = {}
    for name, block in raw["blocks"].items():
        assertions = []
        for number, entry in enumerate(block.get("assertions") or ()):
            loc: Loc = ("blocks", name, "assertions", number)
            assertion = read_assertion(
                entry, loc, problems, block=None, folder=graders.folder, graders=graders
            )
            if assertion is not None:
                assertions.append(list(assertion))
        if assertions:
            checks[str(name)] = as_json(assertions)
    return checks


def _find(root: Path, folder: Path, reference: str) -> Path:
    """Return the file of a workflow: a path, or a name in `custom/workflows/`, upward to `root`.

    Raise `EvalError` with the first path that was tried.
    """
    problem: EvalError | None = None
    for parent in _FOLDERS:
        for suffix in _SUFFIXES:
            try:
                return resolve_inside(root, folder, f"{parent}{reference}{suffix}")
            except EvalError as error:
                problem = problem or error
    if problem is None:
        raise AssertionError("there are folders to search")
    raise problem
