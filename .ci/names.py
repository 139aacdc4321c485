"""The project's lint of names and prose: vague names, repeated class names, narrating words.

    python .ci/names.py [PATH …]        findings, one a line; exit code 1 if there are any
    python .ci/names.py --count [PATH …]  how many in each package

A name is vague if it is nothing but words that tell nothing: `found`, `given`, `one`, `told`. It
says what a value went through and not what it is. Names that the language or a library sets
(keyword arguments of calls, attributes of others) are not looked at: only what is defined here.
Prose is every comment and text with a word of `NARRATING`, but for lines with `# verbatim` (stored
texts whose wording must not change).
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("evalcore", "flows", "deployments")
VAGUE = frozenset(
    "found given made told said one ones known seen wanted similar against got held kept meant "
    "asked shown taken gone begun thing things somebody nobody whoever pot bench place places "
    "keeper telling here there stuff told tells says say".split()
)
# Words of the language of a family of names: `_similar` is the check of that type's.
EXEMPT = frozenset({"similar"})
NARRATING = re.compile(
    r"\b(somebody|nobody|whoever|whatever|anybody)\b|\bwhich are no\b|\bis no\b (?=\w+$)", re.I
)


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
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def is_vague(name: str) -> bool:
    """Whether a name is nothing but vague words."""
    bare = name.strip("_").lower()
    parts = [part for part in bare.split("_") if part and not part.isdigit()]
    return bare not in EXEMPT and bool(parts) and all(part in VAGUE for part in parts)


def narrating(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of comments and texts that narrate."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if "# verbatim" in token.line:
            continue
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            for number, line in enumerate(token.string.splitlines()):
                for match in NARRATING.finditer(line):
                    yield token.start[0] + number, match.group(0)


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what is wrong in a module."""
    text = path.read_text("utf-8")
    if is_vague(path.stem):
        yield 1, f"the module's name '{path.stem}' says nothing"
    for line, name in sorted(set(defined_names(ast.parse(text)))):
        if is_vague(name):
            yield line, f"the name '{name}' says nothing: name what the value is"
    for line, word in narrating(text):
        yield line, f"'{word}': write plain technical English (design: Prose)"


def repeated_classes(modules: list[Path]) -> dict[str, list[Path]]:
    """Return the class names that several modules define."""
    defined: dict[str, list[Path]] = defaultdict(list)
    for path in modules:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(path)
    return {name: paths for name, paths in defined.items() if len(paths) > 1}


def main(arguments: list[str]) -> int:
    """Print the findings below the paths; 1 if there are any."""
    counting = "--count" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--count"]
    roots = [path.resolve() for path in paths] or [ROOT / name for name in PACKAGES]
    modules = sorted(
        m for root in roots for m in ([root] if root.is_file() else root.rglob("*.py"))
    )
    count: Counter[str] = Counter()
    for path in modules:
        shown = path.relative_to(ROOT)
        for line, message in findings(path):
            count["/".join(shown.parts[:2])] += 1
            if not counting:
                print(f"{shown}:{line}: {message}")
    if not paths:
        for name, where in sorted(repeated_classes(modules).items()):
            count["repeated class names"] += 1
            if not counting:
                print(
                    f"{where[0].relative_to(ROOT)}: class {name} also in "
                    + ", ".join(str(other.relative_to(ROOT)) for other in where[1:])
                )
    if counting:
        for name, number in count.most_common():
            print(f"{number:6} {name}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
