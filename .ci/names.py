"""The project's lint of names and prose: `python .ci/names.py [--count] [PATH …]`.

It reports, one a line, with exit code 1 if there are any:

- names of modules, functions, classes, parameters and variables that consist of vague words only
  (`found`, `given_one`, `_told`): they say what a value went through, not what it is;
- comments and texts with a word of `NARRATING`, but for lines that end in `# verbatim`;
- public classes whose name several modules define, without paths.

Only names that the code defines are checked, not keyword arguments of calls or attributes of other
objects: the language or a library sets those. `--count` prints numbers for each package.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("evalcore", "flows", "deployments")
PACKAGES = (*LIBRARY, "benchmarks")
VAGUE = frozenset(
    {
        *("against", "asked", "begun", "bench", "found", "given", "gone", "got", "held", "here"),
        *("keeper", "kept", "known", "made", "meant", "nobody", "one", "ones", "place", "places"),
        *("pot", "said", "say", "says", "seen", "shown", "similar", "somebody", "stuff", "taken"),
        *("telling", "tells", "there", "thing", "things", "told", "wanted", "whoever"),
    }
)
# The checks of type `similar` are about similarity.
EXEMPT = frozenset({"similar"})
NARRATING = re.compile(r"\b(?:somebody|nobody|whoever|whatever|anybody)\b|\bwhich are no\b", re.I)
# Names that files say, for a check and for a condition of a saved eval.
TWICE = frozenset({"Contains", "EndsWith", "Equals", "StartsWith"})

# From Python 3.12 on the texts of f-strings are tokens of their own.
PROSE_TOKENS = frozenset(
    {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
)

Finding = tuple[Path, int, str]


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of everything that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self")):
                yield node.lineno, node.attr
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield node.lineno, name


def is_vague(name: str) -> bool:
    """Whether a name consists of vague words only."""
    bare = name.strip("_").lower()
    parts = [part for part in bare.split("_") if part and not part.isdigit()]
    return bare not in EXEMPT and bool(parts) and all(part in VAGUE for part in parts)


def narrating_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of comments and texts that narrate."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in PROSE_TOKENS and "# verbatim" not in token.line:
            for number, line in enumerate(token.string.splitlines()):
                for match in NARRATING.finditer(line):
                    yield token.start[0] + number, match.group(0)


def module_findings(path: Path) -> Iterator[Finding]:
    """Yield the findings of a module, in the order of their lines."""
    text = path.read_text("utf-8")
    messages: list[tuple[int, str]] = []
    if is_vague(path.stem):
        messages.append((1, f"the module's name '{path.stem}' is vague"))
    for line, name in set(defined_names(ast.parse(text))):
        if is_vague(name):
            messages.append((line, f"the name '{name}' is vague: name what the value is"))
    for line, word in narrating_words(text):
        messages.append((line, f"'{word}': write plain technical English"))
    for line, message in sorted(messages):
        yield path, line, message


def repeated_classes(modules: Iterable[Path]) -> Iterator[Finding]:
    """Yield the public classes that several modules define, by name."""
    definitions: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in modules:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                definitions[node.name].append((path, node.lineno))
    for name, (first, *repeated) in sorted(definitions.items()):
        if repeated and name not in TWICE:
            elsewhere = ", ".join(str(path.relative_to(ROOT)) for path, _ in repeated)
            yield *first, f"class {name} is also in {elsewhere}"


def package_of(path: Path) -> str:
    """Return the package of a module: `evalcore/gates`, `flows`; `evalcore/errors.py` as it is."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2] if parts[0] == "evalcore" else parts[:1])


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    flags = {argument for argument in arguments if argument.startswith("--")}
    paths = [Path(argument).resolve() for argument in arguments if argument not in flags]
    modules = sorted(
        module
        for root in paths or [ROOT / package for package in PACKAGES]
        for module in ([root] if root.is_file() else root.rglob("*.py"))
    )
    findings = [finding for path in modules for finding in module_findings(path)]
    if not paths:
        # Benchmarks are programs of their own.
        library = [path for path in modules if path.relative_to(ROOT).parts[0] in LIBRARY]
        findings += repeated_classes(library)
    if "--count" in flags:
        for package, number in Counter(package_of(path) for path, _, _ in findings).most_common():
            print(f"{number:6} {package}")
    else:
        for path, line, message in findings:
            print(f"{path.relative_to(ROOT)}:{line}: {message}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
