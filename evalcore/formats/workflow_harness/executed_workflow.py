"""A workflow that has to run: its whole shape, what it refers to, and what its target needs.

A file whose cases are all given by fixtures is never asked any of this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from evalcore.errors import EvalError, LoadError
from evalcore.formats.assertions.graders import Graders
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.formats.text.documents import as_json, read_document
from evalcore.formats.workflow_harness.assertions import read_assertion
from evalcore.formats.workflow_harness.block_shapes import EXECUTED_BLOCKS, ExecutedFile
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import describe, shown_path, suggest
from evalcore.model.target import Variant
from evalcore.targets.soul_answers import ENVIRONMENT
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.workflow.definition import MODEL_TYPES, behaviour_of
from evalcore.workflow.engine import MAX_DEPTH
from evalcore.workflow.references import find_mistakes
from evalcore.workflow.variant import PARTS, SOUL_KEYS, apply_variant

_SUFFIXES: Final = ("", ".yaml", ".yml")
_PLACES: Final = ("", "custom/workflows/")


class ExecutedWorkflow:
    """Checks a workflow file that has to run, and makes the options of its target.

    Mistakes are noted at their lines: in the file's own collector, or in those of the sub-workflow
    files (`others`).
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
        self.others: list[Problems] = []
        self._raw, self._path, self._problems, self._options = raw, path, problems, options
        self._workflows: dict[str, dict[str, Any]] = {}
        self._root = repository_root(path.resolve().parent)
        self._with_souls = True

    def options(self, given: frozenset[str], variants: Sequence[Variant] = ()) -> dict[str, Any]:
        """Return the options of the target; `given` are the blocks that never run.

        What is wrong is noted; the options are of no use then.
        """
        if not _check_shape(self._raw, self._problems):
            return {}
        definition = behaviour_of(as_json(self._raw))
        self._with_souls = has_provider(self._raw, given, variants, self._options)
        for mistake in find_mistakes(definition, given, with_souls=self._with_souls):
            self._problems.add(mistake.loc, mistake.message)
        self._check_variants(definition, given, variants)
        checks = _block_checks(self._raw, self._graders, self._problems)
        self._read_below(definition, self._path, self._problems, given, 1)
        made: dict[str, Any] = {"definition": definition}
        if self._workflows:
            made["workflows"] = self._workflows
        if checks:
            made["checks"] = checks
        providers = self._providers(definition, given, variants)
        if providers:
            made["providers"] = providers
        return made

    def _check_variants(
        self, definition: Mapping[str, Any], given: frozenset[str], variants: Sequence[Variant]
    ) -> None:
        known = sorted(PARTS | SOUL_KEYS)
        for index, variant in enumerate(variants):
            loc: Loc = ("evalcore", "variants", index, "config")
            for key in variant.config:
                if key not in known:
                    message = f"unknown key '{key}'.{suggest(key, known)}"
                    self._problems.add((*loc, key), message)
            changed = apply_variant(definition, variant.config)
            if self._problems.count or changed == definition:
                continue
            if _check_shape(changed, self._problems, loc):
                for mistake in find_mistakes(changed, given, with_souls=self._with_souls):
                    self._problems.add((*loc, *mistake.loc), mistake.message)

    def _read_below(
        self,
        raw: Mapping[str, Any],
        path: Path,
        problems: Problems,
        given: frozenset[str],
        depth: int,
    ) -> None:
        """Read the workflows that blocks of type `workflow` name, and those that they name."""
        for name, block in raw["blocks"].items():
            reference = block.get("workflow_ref")
            if block["type"] != "workflow" or name in given or not reference:
                continue
            loc: Loc = ("blocks", name, "workflow_ref")
            if depth > MAX_DEPTH:
                message = f"workflows stand in one another deeper than {MAX_DEPTH} times"
                problems.add(loc, message)
                return
            try:
                found = _find(self._root, path.resolve().parent, reference)
            except EvalError as error:
                problems.add(loc, str(error))
                continue
            key = found.relative_to(self._root).as_posix()
            # The block names the key from now on: where the file lies does not matter to a worker.
            block["workflow_ref"] = key
            if key not in self._workflows:
                self._workflows[key] = {}
                self._workflows[key] = self._read(found, loc, problems, depth)

    def _read(self, path: Path, loc: Loc, outer: Problems, depth: int) -> dict[str, Any]:
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            outer.include(error.problems)
            return {}
        problems = Problems(document.file, document.locate)
        self.others.append(problems)
        raw = document.value
        if not isinstance(raw, dict) or not isinstance(raw.get("blocks"), dict):
            outer.add(loc, f"{document.file} is no workflow: it has no 'blocks'")
            return {}
        if not _check_shape(raw, problems):
            return {}
        definition = behaviour_of(as_json(raw))
        for mistake in find_mistakes(definition, with_souls=self._with_souls):
            problems.add(mistake.loc, mistake.message)
        self._read_below(definition, path, problems, frozenset(), depth + 1)
        return definition

    def _providers(
        self, definition: Mapping[str, Any], given: frozenset[str], variants: Sequence[Variant]
    ) -> dict[str, Any]:
        """Return the entries of `targets.yaml` that souls of blocks that run name."""
        from evalcore.formats.workflow_harness.providers import find_providers

        wanted: dict[str, Loc] = {}
        for name, loc in _named_providers(definition, given):
            wanted.setdefault(name, loc)
        for index, variant in enumerate(variants):
            if isinstance(variant.config.get("provider"), str):
                loc = ("evalcore", "variants", index, "config", "provider")
                wanted.setdefault(variant.config["provider"], loc)
            changed = apply_variant(definition, variant.config)
            for name, _ in _named_providers(changed, given):
                wanted.setdefault(name, ("evalcore", "variants", index, "config"))
        for raw in self._workflows.values():
            for name, _ in _named_providers(raw, frozenset()) if raw else ():
                wanted.setdefault(name, ("blocks",))
        found, others = find_providers(wanted, self._path.parent, self._options, self._problems)
        self.others.extend(others)
        return found


def has_provider(
    raw: Mapping[str, Any],
    given: Collection[str],
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
    return any(_named_providers(raw, given))


def can_begin(
    raw: Mapping[str, Any],
    given: Collection[str],
    variants: Sequence[Variant],
    options: LoadOptions,
) -> bool:
    """Whether anything of the workflow can run: it has blocks, and the first needs no provider.

    Or there is a provider. What is misshapen is taken to be able to: its mistakes are told then.
    """
    blocks, workflow = raw.get("blocks"), raw.get("workflow")
    if not isinstance(blocks, dict) or not blocks:
        return False
    entry = workflow.get("entry") if isinstance(workflow, dict) else None
    name = entry if isinstance(entry, str) else next(iter(blocks))
    block = blocks.get(name)
    kind = block.get("type") if isinstance(block, dict) else None
    if name in given or not isinstance(kind, str) or kind not in MODEL_TYPES:
        return True
    return has_provider(raw, given, variants, options)


def _named_providers(raw: Mapping[str, Any], given: Collection[str]) -> Iterator[tuple[str, Loc]]:
    """Yield the providers that the souls of blocks that run name; nothing of what is misshapen."""
    souls, blocks = raw.get("souls"), raw.get("blocks")
    if not isinstance(souls, dict) or not isinstance(blocks, dict):
        return
    for name, block in blocks.items():
        if (
            name in given
            or not isinstance(block, dict)
            or block.get("type") not in tuple(MODEL_TYPES)
        ):
            continue
        exits = block.get("exits")
        named = [item.get("soul_ref") for item in exits or () if isinstance(item, dict)]
        for reference in (block.get("soul_ref"), *named):
            soul = souls.get(reference) if isinstance(reference, str) else None
            provider = soul.get("provider") if isinstance(soul, dict) else None
            if isinstance(provider, str):
                yield provider, ("souls", str(reference), "provider")


def _check_shape(raw: Mapping[str, Any], problems: Problems, prefix: Loc = ()) -> bool:
    """Note what is misshapen in a workflow that has to run; return whether nothing is."""
    before = problems.count
    blocks = raw.get("blocks")
    if isinstance(blocks, dict):
        for name, block in blocks.items():
            _check_block(block, (*prefix, "blocks", name), problems)
    rest = {key: value for key, value in raw.items() if key != "blocks"}
    try:
        adapter(ExecutedFile).validate_python(rest)
    except ValidationError as error:
        problems.add_invalid(error, rest, ExecutedFile, prefix)
    return problems.count == before


def _check_block(block: object, loc: Loc, problems: Problems) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        problems.add(loc, f"a block is a mapping with 'type', got {describe(block)}")
        return
    shape: Any = EXECUTED_BLOCKS.get(kind)
    if shape is None:
        message = f"unknown type '{kind}'.{suggest(kind, EXECUTED_BLOCKS)}"
        problems.add((*loc, "type"), message)
        return
    try:
        adapter(shape).validate_python(block)
    except ValidationError as error:
        problems.add_invalid(error, block, shape, loc)


def _block_checks(raw: Mapping[str, Any], graders: Graders, problems: Problems) -> dict[str, Any]:
    """Return the blocks' own assertions, read; they are checked whenever the block runs."""
    checks: dict[str, Any] = {}
    for name, block in raw["blocks"].items():
        found = []
        for number, entry in enumerate(block.get("assertions") or ()):
            loc: Loc = ("blocks", name, "assertions", number)
            assertion = read_assertion(
                entry, loc, problems, block=None, folder=graders.folder, graders=graders
            )
            if assertion is not None:
                found.append(list(assertion))
        if found:
            checks[str(name)] = as_json(found)
    return checks


def _find(root: Path, folder: Path, reference: str) -> Path:
    """Return the file of a workflow: a path, or a name in `custom/workflows/`, upward to `root`.

    Raise `EvalError` that says where it was looked for.
    """
    problem: EvalError | None = None
    for place in _PLACES:
        for suffix in _SUFFIXES:
            try:
                return resolve_inside(root, folder, f"{place}{reference}{suffix}")
            except EvalError as error:
                problem = problem or error
    if problem is None:
        raise AssertionError("there are places to look")
    raise problem
