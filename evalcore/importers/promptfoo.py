"""A configuration of promptfoo as a suite: tests are cases, providers × prompts are variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evalcore.formats.documents import as_json
from evalcore.importers.converted import (
    Converted,
    ConvertedCase,
    Notes,
    check_cases,
    unique_id,
)
from evalcore.importers.files import ForeignFile, PromptfooConfiguration, check_shape
from evalcore.importers.promptfoo_providers import (
    ChecksModule,
    GradingProviders,
    Prompt,
    Providers,
    read_prompts,
    resolved_refs,
)
from evalcore.importers.promptfoo_templates import (
    RenderError,
    render,
    rendered_prompt,
    resolved_variables,
)
from evalcore.importers.promptfoo_tests import AT, Assertions, Test, TestContext, read_tests
from evalcore.importers.registry import ImportOptions
from evalcore.model.suite import Format

_READ: Final = (
    "$schema",
    "description",
    "prompts",
    "providers",
    "targets",
    "tests",
    "scenarios",
    "defaultTest",
    "evaluateOptions",
    "assertionTemplates",
)
# What is about promptfoo's own program, and changes no result.
_OWN: Final = (
    "outputPath",
    "sharing",
    "writeLatestResults",
    "commandLineOptions",
    "metadata",
    "tags",
)
_TEST_KEYS: Final = (
    "description",
    "vars",
    "assert",
    "options",
    "threshold",
    "metadata",
    "providerOutput",
    AT,
)
_OPTION_KEYS: Final = ("prefix", "suffix", "transform", "postprocess", "provider")


def convert(file: ForeignFile, _source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a configuration; raise `LoadError` if nothing is left of it."""
    check_shape(file, file.value, PromptfooConfiguration)
    raw = as_json(file.value)
    raw = resolved_refs(raw, raw)
    folder = file.path.parent
    for key in raw.keys() - {*_READ, *_OWN, "env"}:
        notes.add(f"'{key}' is not taken over")
    if raw.get("env"):
        notes.add("'env': set these variables in the environment or in a .env file")
    module = ChecksModule(folder)
    providers = Providers(module, notes, folder)
    key = "providers" if raw.get("providers") else "targets"
    targets = providers.read_all(raw.get(key), key)
    reader = _CaseReader(folder, module, GradingProviders(providers, notes), notes)
    reader.transform = _shared_transform(targets, providers, notes)
    prompts = read_prompts(raw.get("prompts"), folder, notes)
    cases: dict[str, ConvertedCase] = {}
    keys = {f"prompt-{number}": prompt for number, prompt in enumerate(prompts, 1)}
    for number, test in enumerate(read_tests(file, raw, notes), 1):
        case = reader.read(test, number, keys)
        if case is not None:
            name = unique_id(case.id, cases)
            cases[name] = replace(case, id=name)
    check_cases(file.name, cases, notes)
    several = len(prompts) > 1
    if several and reader.judges.targets:
        notes.add("a judge sees the prompts of all variants of a case, not the one that is graded")
    if several and module.text is not None:
        notes.add("Python assertions get the prompts of all variants as context['prompt']")
    prompt_values = [
        each
        for case in cases.values()
        for each in (case.input.values() if several else [case.input])
    ]
    has_messages = any(isinstance(each, list) for each in prompt_values)
    if has_messages and any(target["provider"] == "echo" for target in targets):
        notes.add("echo repeats the last user message, promptfoo's the prompt as JSON")
    return Converted(
        Format.SUITE,
        options.name,
        tuple(cases.values()),
        description=raw.get("description"),
        targets=targets,
        prompts={key: each.label or key for key, each in keys.items()} if several else {},
        judges=reader.judges.targets,
        section=_section(raw.get("evaluateOptions") or {}),
        module=module.text,
        imported_files=tuple(module.imported_files),
    )


def _section(options: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if isinstance(options.get("repeat"), int) and options["repeat"] > 1:
        section["iterations"] = options["repeat"]
    if isinstance(options.get("maxConcurrency"), int):
        section["limits"] = {"concurrency": options["maxConcurrency"]}
    return section


def _shared_transform(
    targets: Sequence[Mapping[str, Any]], providers: Providers, notes: Notes
) -> str | None:
    """Return the transform of the providers, if all have the same."""
    transforms = {providers.transforms.get(target["name"]) for target in targets}
    if len(transforms) > 1:
        notes.add("providers with different transforms: their outputs are checked as they are")
        return None
    return transforms.pop() if transforms else None


class _CaseReader:
    """Makes cases of tests; `transform` is that of the providers."""

    def __init__(
        self, folder: Path, module: ChecksModule, judges: GradingProviders, notes: Notes
    ) -> None:
        self.judges, self._notes = judges, notes
        self.transform: str | None = None
        self._assertions = Assertions(module, judges, notes, folder)

    def read(self, test: Test, number: int, prompts: Mapping[str, Prompt]) -> ConvertedCase | None:
        """Return the case of a test, None (and a note) if it can be none.

        Its input is the filled prompt; of several prompts it has each, by its key.
        """
        position = test[AT]
        self._note_unused(test, position)
        variables = resolved_variables(test["vars"])
        assertions = self._checks(test, variables)
        if assertions is None:
            return None
        options = test.get("options") or {}
        questions: dict[str, Any] = {}
        try:
            name = render(str(test.get("description") or f"test-{number}"), variables)
            for key, prompt in prompts.items():
                raw = f"{options.get('prefix') or ''}{prompt.raw}{options.get('suffix') or ''}"
                questions[key] = rendered_prompt(raw, variables)
        except RenderError as error:
            self._notes.add(f"the test is left out: {error}", position)
            return None
        if not questions:
            return None
        return ConvertedCase(
            name,
            questions if len(prompts) > 1 else next(iter(questions.values())),
            assertions,
            output=test.get("providerOutput"),
            metadata={**(test.get("metadata") or {}), "vars": dict(variables)},
        )

    def _checks(self, test: Test, variables: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return the assertions; None and a note if none of them has a counterpart."""
        listed = test["assert"]
        options = test.get("options") or {}
        own = options.get("transform") or options.get("postprocess")
        scripts = [each for each in (self.transform, own) if each]
        context = TestContext(variables, scripts, options.get("provider"))
        assertions = self._assertions.read_all(listed, test.get("threshold"), context)
        if listed and not assertions:
            self._notes.add("the test is left out: nothing of it has a counterpart", test[AT])
            return None
        return assertions

    def _note_unused(self, test: Mapping[str, Any], position: str) -> None:
        for key in test.keys() - set(_TEST_KEYS):
            self._notes.add(f"'{key}' of a test is not taken over", position)
        options = test.get("options") or {}
        for key in options.keys() - set(_OPTION_KEYS):
            self._notes.add(f"'options.{key}' is not taken over", position)
        if (test.get("metadata") or {}).get("conversationId"):
            reason = "conversationId: each test is asked by itself; a conversation is one test"
            self._notes.add(f"{reason} with all its messages", position)
