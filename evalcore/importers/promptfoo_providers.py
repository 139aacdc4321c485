"""promptfoo's templates, prompts and providers, and the Python of imported suites."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from jinja2 import ChainableUndefined, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from evalcore.errors import LoadError
from evalcore.formats.documents import decode, parse_document, read_bytes
from evalcore.importers.converted import (
    MODULE,
    Notes,
    VariableText,
    chat_messages,
    map_texts,
    note_default_judge,
    unique_id,
)
from evalcore.importers.files import json_lines, parse_json, read_csv
from evalcore.model.target import SERVICES
from evalcore.trust.secrets import SecretOption
from evalcore.wording import one_line

_MARKS: Final = re.compile(r"\{\{|\{%|\{#")
_ROUNDS: Final = 5
_READS_ENVIRONMENT: Final = re.compile(r"\{[{%][^}]*\benv\.\w")
_TAG: Final = re.compile(r"\{[{%].*?[}%]\}", re.DOTALL)
_PAIRS: Final = re.compile(r"(for\s+\w+\s*,\s*\w+\s+in\s+)(.+?)(\s*-?%\})$", re.DOTALL)
_PLACED: Final = re.compile(r"(?<!\$)\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_VARIABLE: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def placeholders(value: Any) -> Iterator[str]:
    """Yield the placeholders and tags in every text of a value."""
    if isinstance(value, str):
        yield from _PLACED.findall(value)
    elif isinstance(value, Mapping):
        yield from (mark for member in value.values() for mark in placeholders(member))
    elif isinstance(value, list):
        yield from (mark for member in value for mark in placeholders(member))


class RenderError(Exception):
    """The template needs something that only Nunjucks has."""


def script_text(value: Any) -> Any:
    """Return a value as JavaScript writes it in a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    value = _listed(value)
    if isinstance(value, list | tuple):
        return ",".join(str(script_text(member)) for member in value)
    if isinstance(value, Mapping):
        return orjson.dumps(value).decode()
    return value


def _as_jinja(tag: re.Match[str]) -> str:
    """Return a tag of Nunjucks as Jinja writes it: its comparisons, and loops over mappings."""
    text = tag[0].replace("!==", "!=").replace("===", "==")
    return _PAIRS.sub(r"\1(\2)|pairs\3", text)


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, Mapping) else value


def _dumped(value: Any, indent: int = 0) -> str:
    """Return the JSON of a value, as JavaScript's `JSON.stringify` writes it."""
    separators = (",", ": " if indent else ":")
    return json.dumps(
        _listed(value), indent=indent or None, separators=separators, ensure_ascii=False
    )


def _listed(value: Any) -> Any:
    """Return what a filter yields as a list; any other value as it is."""
    return list(value) if isinstance(value, Iterator) else value


# Filters that have other results in Nunjucks.
_OTHERS: Final = ("e", "escape", "forceescape", "round", "truncate")


class _ScriptEnvironment(SandboxedEnvironment):
    """Knows the one property of JavaScript that templates read of texts and lists."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if attribute == "length" and isinstance(obj, str | list):
            return len(obj)
        return super().getattr(obj, attribute)


def _environment() -> SandboxedEnvironment:
    environment = _ScriptEnvironment(
        undefined=ChainableUndefined, keep_trailing_newline=True, finalize=script_text
    )
    environment.filters.update(dump=_dumped, pairs=_pairs)
    for name in _OTHERS:
        del environment.filters[name]
    return environment


_ENVIRONMENT: Final = _environment()


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text with its variables filled in; raise `RenderError`."""
    if not _MARKS.search(text):
        return text
    if _READS_ENVIRONMENT.search(text):
        raise RenderError("the template reads the environment: write the value")
    try:
        return _ENVIRONMENT.from_string(_TAG.sub(_as_jinja, text)).render(variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise RenderError(f"the template cannot be rendered: {error}") from error


def resolved_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables whose texts name other variables with those filled in."""
    resolved = dict(variables)
    for _ in range(_ROUNDS):
        changed = False
        for key, value in resolved.items():
            match = _VARIABLE.search(value) if isinstance(value, str) else None
            if match and match[1] in resolved and match[1] != key:
                text = str(script_text(resolved[match[1]]))
                resolved[key] = value.replace(match[0], text, 1)
                changed = True
        if not changed:
            break
    return resolved


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a variable filled in; one that names what is no variable stays as it is."""
    if not isinstance(value, str) or not _MARKS.search(value):
        return value
    try:
        names = meta.find_undeclared_variables(_ENVIRONMENT.parse(_TAG.sub(_as_jinja, value)))
    except TemplateError:
        names = set()
    return render(value, variables) if names <= variables.keys() else value


def rendered_prompt(raw: str, variables: Mapping[str, Any]) -> Any:
    """Return a prompt filled in: a text, or messages where it is a JSON array of them."""
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError:
        inner = {key: _filled(value, variables) for key, value in variables.items()}
        text = render(raw, inner)
        return _messages_of(text) or text
    if isinstance(parsed, list | dict):
        rendered = map_texts(parsed, lambda text: render(text, variables))
        return (
            chat_messages(rendered) or orjson.dumps(rendered, option=orjson.OPT_INDENT_2).decode()
        )
    return render(raw, variables)


def _messages_of(text: str) -> list[dict[str, Any]] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        return chat_messages(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


_STEP: Final = re.compile(
    r"""\??\.(?P<key>[A-Za-z_$][\w$]*)|\??\.?\[(?P<index>\d+)\]|\[(['"])(?P<name>[^'"\]]+)\3\]"""
)


def json_path(script: str, names: Sequence[str] = ("output",)) -> str | None:
    """Return the JSONPath of `output.a[0]` or `JSON.parse(output).a[0]`, None for other scripts.

    `$` is the output itself. `names` are what the script calls the output.
    """
    text = script.strip().rstrip(";").strip().removeprefix("return ").strip()
    for name in names:
        for start in (f"JSON.parse({name})", f"({name})", name):
            if text.startswith(start):
                rest = _steps(text.removeprefix(start))
                if rest is not None:
                    return f"${rest}"
    return None


def _steps(text: str) -> str | None:
    path, position = "", 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return None
        if match["index"] is not None:
            path += f"[{match['index']}]"
        else:
            key = match["key"] or match["name"]
            if key in ("length", "trim", "toLowerCase", "toUpperCase"):
                return None
            path += f".{key}" if match["key"] else f"['{key}']"
        position = match.end()
    return path


def path_of(script: str) -> str:
    """Return the steps of a transform that follows a path, as paths of evidence write them."""
    path = json_path(script)
    if path is None:
        raise NotTakenOverError(f"the transform {script[:60]!r} is a program")
    return re.sub(r"\['([^']+)'\]", r'["\1"]', path.removeprefix("$"))


def python_transform(script: str) -> tuple[str, str] | None:
    """Return the file and the function of a transform in Python, None for others."""
    reference = python_reference(script) if is_reference(script) else None
    return reference and (reference[0], reference[1] or "get_transform")


_LONGEST_NAME: Final = 80
PREFIX: Final = "file://"
_CODE: Final = (".js", ".ts", ".mjs", ".cjs", ".mts", ".cts", ".py", ".rb", ".go")


class NotTakenOverError(Exception):
    """A reference leads to something that has no counterpart; the message says what."""


def is_reference(value: Any) -> bool:
    """Whether a value names a file."""
    return isinstance(value, str) and value.startswith(PREFIX)


def python_reference(value: str) -> tuple[str, str | None] | None:
    """Return the file and the function of `[file://]PATH.py[:FUNCTION]`, None if it is none."""
    text = value.removeprefix(PREFIX)
    path, _, function = text.partition(".py")
    if not text.startswith(path + ".py") or (function and not function.startswith(":")):
        return None
    return f"{path}.py", function[1:] or None


def is_code(value: str) -> bool:
    """Whether a reference leads to a program."""
    name = value.removeprefix(PREFIX)
    return any(name.endswith(suffix) or f"{suffix}:" in name for suffix in _CODE)


def named_files(folder: Path, value: str) -> Iterator[Path]:
    """Yield the files that a path or a glob names; raise `NotTakenOverError` if there is none."""
    name = value.removeprefix(PREFIX)
    if is_code(value):
        raise NotTakenOverError(f"{name} is a program")
    is_glob = has_magic(name) and not Path(name).is_absolute()
    try:
        paths = sorted(folder.glob(name)) if is_glob else [folder / name]
        files = [path for path in paths if path.is_file()]
    except (OSError, ValueError):  # a text that is too long for a name, or no glob
        files = []
    if not files:
        raise NotTakenOverError(f"{one_line(name, _LONGEST_NAME)}: no such file")
    yield from files


def read_value(path: Path) -> Any:
    """Return what a file holds: a document, rows, or its text; raise `NotTakenOverError`."""
    name, suffix = str(path), path.suffix.lower()
    try:
        if suffix == ".csv":
            return [{key: cell or "" for key, cell in row.items()} for row in read_csv(path)]
        data = read_bytes(path, name)
        if suffix in (".yaml", ".yml"):
            return parse_document(data, name).value
        if suffix == ".json":
            return parse_json(data, name)
        return list(json_lines(data, name)) if suffix == ".jsonl" else decode(data, name)
    except LoadError as error:
        raise NotTakenOverError(str(error)) from error


def read_text(path: Path) -> str:
    """Return a file's text; raise `NotTakenOverError` if it is none."""
    try:
        return decode(read_bytes(path, str(path)), str(path))
    except LoadError as error:
        raise NotTakenOverError(str(error)) from error


def resolved_refs(value: Any, root: Any, depth: int = 0) -> Any:
    """Return a value with each `{$ref: '#/…'}` replaced by what stands there."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/") and depth < 20:
            target = root
            for step in reference[2:].split("/"):
                target = target.get(step) if isinstance(target, dict) else None
            return resolved_refs(target, root, depth + 1)
        return {key: resolved_refs(member, root, depth) for key, member in value.items()}
    if isinstance(value, list):
        return [resolved_refs(member, root, depth) for member in value]
    return value


_FILE: Final = re.compile(r"^[\w./*\\ -]+\.(?:txt|md|json|jsonl|ya?ml|csv|j2|py|js|ts|mjs|cjs)$")
_DEFAULT: Final = "{{prompt}}"
_PROGRAM: Final = "exec:"
_BETWEEN: Final = re.compile(r"^[ \t]*---[ \t\r]*$", re.MULTILINE)
_KEYS: Final = {"id", "label", "display", "raw"}


class Prompt(NamedTuple):
    """A prompt: its template, and what a person calls it (None: its number)."""

    raw: str
    label: str | None = None


def read_prompts(written: Any, folder: Path, notes: Notes) -> list[Prompt]:
    """Return the prompts in their order; those that programs write are noted."""
    if written is None:
        return [Prompt(_DEFAULT)]
    if isinstance(written, Mapping):
        entries: list[Any] = [{"id": name, "label": label} for name, label in written.items()]
    else:
        entries = written if isinstance(written, list) else [written]
    prompts: list[Prompt] = []
    for index, entry in enumerate(entries):
        position = f"prompts[{index}]"
        try:
            prompts.extend(_prompts_of(entry, folder))
            for key in entry.keys() - _KEYS if isinstance(entry, Mapping) else ():
                notes.add(f"'{key}' of a prompt is not taken over", position)
        except NotTakenOverError as error:
            notes.add(f"the prompt is left out: {error}", position)
    return prompts


def _prompts_of(entry: Any, folder: Path) -> Iterator[Prompt]:
    label = None
    if isinstance(entry, Mapping):
        label = entry.get("label") or entry.get("display")
        label = None if label is None else one_line(str(label))
        entry = entry.get("raw") or entry.get("id")
    if not isinstance(entry, str):
        raise NotTakenOverError("it is neither a text nor a file")
    if entry.startswith(_PROGRAM):
        raise NotTakenOverError(f"{entry} is a program")
    is_named = is_reference(entry)
    files: list[Path] = []
    try:
        files = list(named_files(folder, entry)) if is_named or _FILE.match(entry) else []
    except NotTakenOverError:
        if is_named or is_code(entry):
            raise  # else what looks like a file's name is a text
    if not files and "://" in entry[:20] and " " not in entry:
        raise NotTakenOverError(f"{entry} is kept elsewhere")
    if not files:
        yield Prompt(entry, label)
    for path in files:
        yield from (Prompt(text, own or label) for text, own in _texts(path))


def _texts(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the prompts in a file, with labels: the columns `prompt` and `label` of a table."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        rows = read_value(path)
        yield from ((row["prompt"], row.get("label")) for row in rows if row.get("prompt"))
    elif suffix in (".yaml", ".yml"):
        yield orjson.dumps(read_value(path)).decode(), None
    elif suffix == ".txt":
        texts = (text.strip() for text in _BETWEEN.split(read_text(path)))
        yield from ((text, None) for text in texts if text)
    else:
        yield read_text(path), None


_HEAD: Final = Path(__file__).with_name("modules") / "promptfoo.py.txt"
_ASSERTION: Final = '''

def {name}(output, context):
    """An assertion of the configuration."""
{function}
    return called(check, {output}, context, {threshold!r})
'''
_COMPARISON: Final = '''

def {name}(output, context):
    """Compare a transformed output as the assertion does."""
    return compared({output}, context["config"])
'''
_TRANSFORM: Final = '''

def {name}(output, context):
    """Transform an output as the configuration does."""
{steps}    return output
'''
_PROVIDER: Final = '''

def {name}(input, *, context):
    """Answer as promptfoo's provider does."""
    from {module} import {function}

    variables = (context.metadata or {{}}).get("vars", {{}})
    config = dict(context.config)
    asked_for = config.pop("prompt_key", None)
    input = input if asked_for is None else input[asked_for]
    prompt = input if isinstance(input, str) else json.dumps(input)
    options = {{"id": {identity!r}, "config": config}}
    asked = {{"vars": variables, "prompt": {{"raw": prompt, "label": prompt}}}}
    return answered({function}(prompt, options, asked))
'''


_NAME: Final = "__name__of__"


class ChecksModule:
    """Collects the functions of the module; `folder` is the configuration's.

    `imported_files` are those that the functions import, as the configuration names them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._functions: dict[str, str] = {}
        self.imported_files: dict[str, None] = {}

    @property
    def text(self) -> str | None:
        """The module's text, None if nothing is in it."""
        functions = (text.replace(_NAME, name) for text, name in self._functions.items())
        return _HEAD.read_text("utf-8") + "".join(functions) if self._functions else None

    def add_assertion(self, code: str, threshold: float | None, output: str) -> str:
        """Add an assertion that is Python itself; return its reference.

        `output` is an expression of what it gets. Raises `NotTakenOverError`.
        """
        lines = code.strip("\n")
        body = textwrap.dedent(lines) if "\n" in lines else f"return {lines.strip()}"
        function = f"def check(output, context):\n{textwrap.indent(body, '    ')}"
        try:
            compile(function, "check", "exec")
        except SyntaxError as error:
            raise NotTakenOverError(f"it is no Python: {error.msg}") from error
        return self._add_check(f"\n{textwrap.indent(function, '    ')}\n", threshold, output)

    def add_file(self, file: str, function: str, threshold: float | None, output: str) -> str:
        """Add an assertion in a Python file; return its reference; raise `NotTakenOverError`."""
        imported = f"    from {self._module_of(file)} import {function} as check\n"
        return self._add_check(imported, threshold, output)

    def _add_check(self, function: str, threshold: float | None, output: str) -> str:
        parts = {"function": function, "output": output, "threshold": threshold}
        return self._add("check", _ASSERTION, parts)

    def add_comparison(self, output: str) -> str:
        """Add an assertion that compares what a transform makes; return its reference."""
        return self._add("check", _COMPARISON, {"output": output})

    def add_transform(self, scripts: Sequence[str]) -> str:
        """Add a chain of transforms; return the expression of what it makes of the output.

        Each follows a path or is a function of a Python file. Raises `NotTakenOverError`.
        """
        steps = ""
        for script in scripts:
            reference = python_transform(script)
            if reference is None:
                keys = re.sub(r"\.([A-Za-z_$][\w$]*)", r'["\1"]', path_of(script))
                steps += f"    output = parsed(output){keys}\n"
                continue
            file, function = reference
            steps += f"    from {self._module_of(file)} import {function} as transform\n\n"
            steps += "    output = transform(output, asked(context))\n"
        name = self._add("transform", _TRANSFORM, {"steps": steps}).removeprefix(f"{MODULE}:")
        return f"{name}(output, context)"

    def add_provider(self, file: str, function: str, identity: str) -> str:
        """Add a provider in a Python file; return its reference; raise `NotTakenOverError`.

        `identity` is the provider's id in the configuration.
        """
        parts = {"module": self._module_of(file), "function": function, "identity": identity}
        return self._add("provider", _PROVIDER, parts)

    def _add(self, kind: str, template: str, parts: Mapping[str, Any]) -> str:
        text = template.format(name=_NAME, **parts)
        name = self._functions.setdefault(text, f"{kind}_{len(self._functions) + 1}")
        return f"{MODULE}:{name}"

    def _module_of(self, file: str) -> str:
        """Return how the suite imports a file; it has to be in the configuration's folder."""
        path = self._folder / file
        try:
            parts = path.resolve().relative_to(self._folder.resolve()).with_suffix("").parts
        except ValueError:
            raise NotTakenOverError(f"{file} is outside of the configuration's folder") from None
        if not path.is_file():
            raise NotTakenOverError(f"{file}: no such file")
        if not all(part.isidentifier() for part in parts):
            raise NotTakenOverError(f"{file} is no name of a Python module")
        self.imported_files[file] = None
        return ".".join(parts)


Target = dict[str, Any]

_SAME: Final = frozenset(
    ("temperature", "max_tokens", "top_p", "seed", "stop", "response_format", "base_url")
)
_RENAMED: Final = {
    "apiBaseUrl": "base_url",
    "maxTokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "topP": "top_p",
}
_ENV: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
_PROMPT: Final = re.compile(r"\{\{\s*prompt\s*\}\}")
_DUMPED: Final = re.compile(r"\{\{\s*prompt\s*\|\s*dump\s*\}\}")
_READ: Final = ("label", "id", "config", "delay", "transform")
_MODELS: Final = re.compile(
    r"^(?:(?P<openai>openai)(?::(?:chat|completion|responses))?"
    r"|(?P<anthropic>anthropic)(?::messages|:completion)?"
    r"|(?P<ollama>ollama)(?::chat|:completion)?"
    r"|(?P<service>[a-z]+)(?::(?:chat|completion))?):(?P<model>.+)$"
)
# What stands in the position of a model and is none that chats.
_NO_CHAT: Final = re.compile(
    r"(?:agents|assistant|chatkit|claude-agent-sdk|claude-code|codex-app-server|codex-sdk"
    r"|embeddings?|image|moderation|realtime|speech|transcription|tts|video)(?::.*)?"
)
_HTTP: Final[Mapping[str, Any]] = {"method": str, "headers": dict, "body": (str, dict, list)}
_DOCUMENTS: Final = (".yaml", ".yml", ".json")
_OLLAMA: Final = "http://localhost:11434/v1"


class Providers:
    """Reads providers; `targets` and their `transforms` are those so far, by their names."""

    def __init__(self, module: ChecksModule, notes: Notes, folder: Path) -> None:
        self._module, self._notes, self._folder = module, notes, folder
        self.targets: dict[str, Target] = {}
        self.transforms: dict[str, str] = {}

    def read_all(self, written: Any, key: str) -> list[Target]:
        """Return the targets of the configuration's providers; note those without a counterpart."""
        entries = written if isinstance(written, list) else [written] if written else []
        targets: list[Target | None] = []
        for index, entry in enumerate(entries):
            position, listed = f"{key}[{index}]", [entry]
            try:
                if is_reference(entry) and entry.endswith(_DOCUMENTS):
                    values = [read_value(path) for path in named_files(self._folder, entry)]
                    listed = [
                        each
                        for value in values
                        for each in (value if isinstance(value, list) else [value])
                    ]
            except NotTakenOverError as error:
                self._notes.add(f"the providers are left out: {error}", position)
                continue
            targets.extend(self.read(each, position) for each in listed)
        return [target for target in targets if target is not None]

    def read(self, entry: Any, position: str, name: str | None = None) -> Target | None:
        """Return the target of a provider, None and a note if it can be none."""
        identity, options = _identity(entry)
        config = options.get("config") or {}
        try:
            target = self._target(identity, config if isinstance(config, Mapping) else {}, position)
        except NotTakenOverError as error:
            self._notes.add(f"the provider {identity or entry!r} is left out: {error}", position)
            return None
        for mark in placeholders(target):
            if _ENV.fullmatch(mark) is None:
                reason = f"{mark} is not filled in: {{{{prompt}}}} and {{{{env.NAME}}}} are"
                self._notes.add(reason, position)
        label = unique_id(name or str(options.get("label") or identity), self.targets)
        target = {"name": label, **map_texts(target, _with_variables)}
        for key in options.keys() - {*_READ}:
            self._notes.add(f"'{key}' of a provider is not taken over", position)
        self.transforms[label] = str(options.get("transform") or "")
        self.targets[label] = target
        return target

    def _target(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        if not identity:
            raise NotTakenOverError("it has no 'id'")
        if identity == "echo":
            return {"provider": "echo"}
        if identity.startswith("exec:"):
            return self._command(identity)
        if identity.startswith("http"):
            return self._http(identity, config, position)
        if python_reference(identity.removeprefix("python:")) is not None:
            return self._python(identity, config, position)
        model = _MODELS.match(identity)
        is_known = model is not None and (not model["service"] or model["service"] in SERVICES)
        if model is None or not is_known or _NO_CHAT.fullmatch(model["model"]):
            raise NotTakenOverError(
                "it has no counterpart; a model behind OpenAI's protocol is a target with "
                "'base_url'"
            )
        return self._model(model, config, position)

    def _model(self, match: re.Match[str], config: Mapping[str, Any], position: str) -> Target:
        provider = "anthropic" if match["anthropic"] else "openai"
        target: Target = {"provider": provider, "model": match["model"]}
        variable = config.get("apiKeyEnvar")
        if match["ollama"]:
            target["base_url"] = _OLLAMA
        elif match["service"]:
            target["base_url"], default = SERVICES[match["service"]]
            variable = variable or default
        for key, value in config.items():
            name = _RENAMED.get(key, key)
            if name in _SAME:
                target[name] = value
            elif key not in ("apiKey", "apiKeyEnvar"):
                self._notes.add(f"'{key}' of a model is not taken over", position)
        written = config.get("apiKey")
        reference = _ENV.fullmatch(written.strip()) if isinstance(written, str) else None
        variable = reference[1] if reference else variable
        if variable:
            target["api_key"] = VariableText(f"${{{{ {variable} }}}}")
            if variable not in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
                reason = f"name {variable} in a .env file or in `readable_names`, it is a key"
                self._notes.add(reason, position)
        elif written:
            self._notes.add("a key is not copied: it is read from the environment", position)
        return target

    def _command(self, identity: str) -> Target:
        words = shlex.split(identity.partition(":")[2].strip())
        if not words:
            raise NotTakenOverError("it names no program")
        self._notes.add("exec: the program gets the prompt only, no options and no context")
        return {"provider": "command", "command": [*words, "{prompt}"]}

    def _drop_keys(self, options: dict[str, Any], position: str) -> None:
        for name in [name for name, value in options.items() if _is_key(name, value)]:
            del options[name]
            self._notes.add(f"'{name}' is a key, which is not copied", position)

    def _python(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        options = dict(config)
        self._drop_keys(options, position)
        file, function = python_reference(identity.removeprefix("python:")) or ("", None)
        reference = self._module.add_provider(file, function or "call_api", identity)
        target = {"provider": "python", "callable": reference}
        return target | ({"config": options} if options else {})

    def _http(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        url = config.get("url") or (identity if "://" in identity else None)
        if not isinstance(url, str):
            raise NotTakenOverError("it has no 'url'")
        target: Target = {"provider": "http", "url": url}
        for key, kinds in _HTTP.items():
            if key in config and not isinstance(config[key], kinds):
                raise NotTakenOverError(f"its '{key}' is no value of that kind")
            if key in config:
                target[key] = _json_body(config) if key == "body" else config[key]
        target = map_texts(target, lambda text: _PROMPT.sub("{prompt}", text))
        self._drop_keys(target.get("headers") or {}, position)
        transform = config.get("transformResponse") or config.get("responseParser")
        path = "$" if transform is None else json_path(str(transform), ("json", "output"))
        if path is None:
            self._notes.add("transformResponse: JavaScript is not taken over", position)
        elif path != "$":
            target["response_path"] = path
        for key in config.keys() - {"url", *_HTTP, "transformResponse", "responseParser"}:
            self._notes.add(f"'{key}' of an HTTP provider is not taken over", position)
        return target


def _is_key(name: str, value: Any) -> bool:
    """Whether a header or an option holds a key itself, and no reference to one."""
    return (
        isinstance(value, str)
        and SecretOption(("headers", name), _with_variables(value)).is_literal
    )


def _identity(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """Return a provider's id and its options: `id`, `{id, config}`, or `{ID: {config}}`."""
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, Mapping):
        return "", {}
    if isinstance(entry.get("id"), str):
        return entry["id"], entry
    if len(entry) == 1:
        ((identity, options),) = entry.items()
        return str(identity), options if isinstance(options, Mapping) else {}
    return "", entry


def _json_body(config: Mapping[str, Any]) -> Any:
    """Return the body; one that is the text of JSON as its value, so that quotes are escaped."""
    body, headers = config["body"], config.get("headers") or {}
    kind = next((v for k, v in headers.items() if str(k).lower() == "content-type"), "json")
    if not isinstance(body, str) or "json" not in str(kind) or body.strip()[:1] not in ("{", "["):
        return body
    try:
        return json.loads(_DUMPED.sub('"{{prompt}}"', body))
    except ValueError:
        return body


def _with_variables(text: str) -> str:
    """Return a text with `{{env.NAME}}` as suites write it."""
    return VariableText(_ENV.sub(r"${{ \1 }}", text)) if _ENV.search(text) else text


_DEFAULT_JUDGE: Final = "openai:gpt-4.1-2025-04-14"  # promptfoo's own
_NOTE: Final = (
    "graded by a model: the judge answers evalcore's prompt with a score, which passes from "
    "'threshold' on, else from 0.8"
)


class GradingProviders:
    """Finds the judge of an assertion; the first one is called `judge`."""

    def __init__(self, providers: Providers, notes: Notes) -> None:
        self._providers, self._notes = providers, notes
        self._names: dict[str, str | None] = {}

    @property
    def targets(self) -> list[Mapping[str, Any]]:
        """The targets that grade."""
        return [self._providers.targets[name] for name in self._names.values() if name]

    def config(self, written: Any, position: str) -> dict[str, Any]:
        """Return the `config` that names the judge, empty for the first one."""
        self._notes.add(_NOTE)
        if isinstance(written, Mapping) and "text" in written:
            written = written["text"]
        name = self._name(written, position) if written else None
        if name is None and (name := self._name(_DEFAULT_JUDGE, position)) is not None:
            judge = self._providers.targets[name]
            note_default_judge(self._notes, judge, "promptfoo's default", position)
        return {} if name == "judge" else {"config": {"judge": name}}

    def _name(self, written: Any, position: str) -> str | None:
        key = repr(written)
        if key not in self._names:
            number = sum(name is not None for name in self._names.values()) + 1
            label = "judge" if number == 1 else f"judge-{number}"
            target = self._providers.read(written, f"{position}.provider", label)
            self._names[key] = target["name"] if target else None
        return self._names[key]
