"""Workflows that run: their whole shape, what they refer to, and what their target needs.

A block that runs is checked whole. A file whose cases all have fixtures is held to its shape only:
the known keys and the kinds of their values. Souls may stand in files of their own
(`custom/souls/*.yaml`), upward from the workflow file to the root of its repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from evalcore.checks.registry import Dialect
from evalcore.errors import EvalError, LoadError
from evalcore.formats.assertions import AssertionReader
from evalcore.formats.documents import as_json, parse_document, read_document
from evalcore.formats.graders import Graders
from evalcore.formats.messages import InputOrigin, read_named_texts
from evalcore.formats.options import LoadOptions
from evalcore.formats.targets import Targets
from evalcore.formats.variables import variables_for
from evalcore.model.target import Variant
from evalcore.problems import Problems
from evalcore.settings import find_upward
from evalcore.shapes import adapter
from evalcore.targets.options import ENVIRONMENT
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc, describe, shown_path, suggest
from evalcore.workflow.definition import (
    MAX_DEPTH,
    PARTS,
    SOUL_KEYS,
    Block,
    Soul,
    WorkflowDefinition,
    WorkflowPart,
    WorkflowSections,
    apply_variant,
)
from evalcore.workflow.reading import (
    BLOCK_TYPES,
    asks_model,
    behaviour_of,
    block_class,
    read_definition,
)
from evalcore.workflow.references import find_mistakes, unknown_placeholders

P = TypeVar("P", bound=WorkflowPart)


def read_part(
    shape: type[P], raw: object, loc: Loc, problems: Problems, *, runs: bool = True
) -> P | None:
    """Return a part of the file; note what is wrong with it, of one that never runs its shape."""
    try:
        part: P = adapter(shape).validate_python(raw)
    except ValidationError as error:
        wrong = error if runs else _of_shape(error)
        if wrong is not None:
            problems.add_invalid(wrong, raw, shape, loc)
        return None
    return part


def _of_shape(error: ValidationError) -> ValidationError | None:
    """Return the errors in the keys of a part and in the kinds of their values, not below it."""
    errors: list[Any] = [
        {key: each[key] for key in ("type", "loc", "input", "ctx") if key in each}
        for each in error.errors(include_url=False)
        if len(each["loc"]) <= 1 and each["type"].endswith(("extra_forbidden", "_type"))
    ]
    return ValidationError.from_exception_data(error.title, errors) if errors else None


def read_block(raw: object, loc: Loc, problems: Problems, *, runs: bool = True) -> Block | None:
    """Return a block as the class of its type."""
    if not isinstance(raw, dict):
        problems.add(loc, f"a block is a mapping with 'type', got {describe(raw)}")
        return None
    kind = raw.get("type")
    if isinstance(kind, str) and kind in BLOCK_TYPES:
        return read_part(block_class(kind), raw, loc, problems, runs=runs)
    message = "is required" if "type" not in raw else f"expected text, got {describe(kind)}"
    if isinstance(kind, str):
        message = f"unknown type '{kind}'.{suggest(kind, BLOCK_TYPES)}"
    problems.add((*loc, "type"), message)
    return None


def read_workflow(
    raw: Mapping[str, Any], problems: Problems, prefix: Loc = ()
) -> WorkflowDefinition | None:
    """Return a workflow that has to run; None if something is wrong, which is noted."""
    before = problems.count
    written = raw.get("blocks")
    for name, block in (written if isinstance(written, dict) else {}).items():
        read_block(block, (*prefix, "blocks", name), problems)
    rest = {key: value for key, value in raw.items() if key != "blocks"}
    read_part(WorkflowSections, rest, prefix, problems)
    if problems.count > before or not raw.get("blocks"):
        return None
    return read_definition(raw)


_ID: Final = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)


class CustomFiles:
    """What stands beside a workflow file in `custom/`; what is wrong there is collected."""

    def __init__(self, folder: Path) -> None:
        self.file_problems: list[Problems] = []
        self._folder = folder

    def with_souls(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a workflow with the souls that its blocks name and it does not define.

        A soul without a file is left to the check of references.
        """
        inline = raw.get("souls") or {}
        if not isinstance(inline, dict):
            return dict(raw)
        names = [name for name in soul_references(raw) if name not in inline]
        souls = {name: self._soul(name) for name in dict.fromkeys(names)}
        library = {name: soul for name, soul in souls.items() if soul is not None}
        return {**raw, "souls": {**library, **inline}} if library else dict(raw)

    def _soul(self, name: str) -> dict[str, Any] | None:
        """Return the soul of a file: an empty one if it is wrong, None if there is no file."""
        path = self._find(f"custom/souls/{name}") if _ID.fullmatch(name) else None
        if path is None:
            return None
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            problems = Problems(shown_path(path), lambda _: None)
            problems.include(error.problems)
            self.file_problems.append(problems)
            return {}
        problems = Problems(document.file, document.locate)
        self.file_problems.append(problems)
        raw = read_named_texts(document.value, InputOrigin(path.parent, (), problems))
        return {} if read_part(Soul, raw, (), problems) is None else as_json(raw)

    def _find(self, name: str) -> Path | None:
        """Return the nearest of the files `custom/…` upward; also where no repository says how far.

        A workflow in `custom/workflows` has them beside that folder.
        """
        names = (f"{name}.yaml", f"{name}.yml")
        path = find_upward(self._folder, names).path
        folder = self._folder.resolve()
        for custom in (folder, folder.parent):
            if path is None and custom.name == "custom":
                path = find_upward(custom.parent, names).path
        return path


def soul_references(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the souls that blocks and their exits name; nothing of what is misshapen."""
    blocks = raw.get("blocks")
    for block in blocks.values() if isinstance(blocks, dict) else ():
        if not isinstance(block, dict):
            continue
        exits = block.get("exits")
        for part in (block, *(exits if isinstance(exits, list) else ())):
            named = part if isinstance(part, dict) else {}
            reference = named.get("soul_ref", named.get("soul"))
            if isinstance(reference, str):
                yield reference


# Known without an entry; their keys come from the environment.
_PROTOCOLS: Final = ("anthropic", "openai")


def judges_of(folder: Path, options: LoadOptions, problems: Problems) -> Graders:
    """Return what reads judges; the nearest `targets.yaml` is opened once one is needed."""
    return Graders(
        folder,
        lambda: Targets(
            None, folder, variables_for(folder, options), problems, strict=options.strict
        ),
    )


def find_providers(
    names: Mapping[str, Loc], folder: Path, options: LoadOptions, problems: Problems
) -> tuple[dict[str, dict[str, Any]], list[Problems]]:
    """Return `{kind, options}` by name, and the collectors of the files that have them.

    A provider is an entry of the `targets.yaml`. A name that is none, nor `openai` or `anthropic`,
    is noted at its place.
    """
    if not names:
        return {}, []
    variables = variables_for(folder, options)
    try:
        targets = Targets(None, folder, variables, problems, strict=options.strict)
    except LoadError as error:
        problems.include(error.problems)
        return {}, []
    for name, loc in names.items():
        if name in targets:
            targets.use(name, loc, problems, without=("model",))  # the soul names it
        elif name not in _PROTOCOLS and targets.complete:
            providers = dict.fromkeys([*targets.names, *_PROTOCOLS])
            hint = suggest(name, providers)
            problems.add(loc, f"unknown provider '{name}'.{hint} Write an entry in targets.yaml")
    entries = {
        name: {"kind": target.kind, "options": dict(target.options)}
        for name, target in targets.used.items()
        if name in names
    }
    file_problems = targets.file_problems
    return entries, [] if file_problems is None else [file_problems]


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
        definition: dict[str, Any] = behaviour_of(as_json(self._raw))
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
        raw = read_named_texts(raw, InputOrigin(path.resolve().parent, (), problems))
        raw = custom.with_souls(raw)
        self.file_problems += custom.file_problems
        if not self._check(raw, problems):
            return {}
        definition: dict[str, Any] = behaviour_of(as_json(raw))
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
    reader = AssertionReader(graders, Dialect.WORKFLOW)
    for name, block in raw["blocks"].items():
        assertions = []
        for number, entry in enumerate(block.get("assertions") or ()):
            loc: Loc = ("blocks", name, "assertions", number)
            assertion = reader.read(entry, loc, problems)
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


def read_registered_workflow(written: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a workflow's definition from a mapping or from YAML text.

    Raises `LoadError` with every mistake. Blocks cannot name workflow files: there are none.
    """
    if isinstance(written, str):
        document = parse_document(written.encode("utf-8", "replace"), "definition")
        problems, raw = Problems(document.file, document.locate), document.value
    else:
        problems, raw = Problems("definition", lambda _: None), as_json(written)
    if not isinstance(raw, dict):
        problems.add((), f"a workflow is a mapping with 'blocks', got {describe(raw)}")
        problems.raise_if_any()
    if not isinstance(raw.get("blocks"), dict):
        description = f", got {describe(raw['blocks'])}" if "blocks" in raw else ""
        problems.add(("blocks",), f"expected a mapping of ids to blocks{description}")
    elif not raw["blocks"]:
        problems.add(("blocks",), "a workflow has one block at least, got none")
    read_named_texts(raw, InputOrigin(None, (), problems))
    workflow = read_workflow(raw, problems)
    if workflow is not None:
        for mistake in find_mistakes(workflow, with_souls=False):
            problems.add(mistake.loc, mistake.message)
        for name, block in workflow.blocks.items():
            if block.type == "workflow":
                message = "a registered workflow cannot contain another one"
                problems.add(("blocks", name, "type"), message)
    problems.raise_if_any()
    definition: dict[str, Any] = behaviour_of(as_json(raw))
    return definition
