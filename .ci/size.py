"""Print how large the code is, per area; fail above the bounds on file.

Code lines are lines without docstrings, comments and blank lines. `.ci/size.json` has the bounds:
`{area: {"lines": N, "modules": N}}`. A commit that shrinks an area lowers its bound.

usage: python .ci/size.py [--check]
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

INPUT = frozenset(
    [
        "formats",
        "checks",
        "importers",
        "mistakes",
        "model",
        "patterns",
        "expressions",
        "scripts",
        "judging",
        "suites",
        "gates",
        "statistics",
        "redaction",
        "problems",
        "shapes",
        "wording",
        "jsonvalues",
        "decide",
    ]
)
SURFACE = frozenset(
    ["cli", "service", "client", "viewer", "annotations", "capture", "datasets", "observability"]
)
PRODUCT = ("engine", "input", "surface", "flows", "deployments")
NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Return the number of code lines of a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def area(path: Path) -> str:
    """Return the area of a module: its top-level folder, evalcore in three parts."""
    if path.parts[0] != "evalcore":
        return path.parts[0]
    package = path.parts[1].removesuffix(".py")
    if package in INPUT:
        return "input"
    return "surface" if package in SURFACE else "engine"


def sizes() -> tuple[Counter[str], Counter[str]]:
    """Return code lines and modules of each area, of the files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True)  # noqa: S607
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path in map(Path, listed.stdout.split()):
        name = area(path)
        if name.startswith(".") or name == "examples" or "stores" in path.parts:
            continue
        if not path.is_file():
            continue
        lines[name] += code_lines(path.read_text())
        modules[name] += path.name != "__init__.py"
    for counts in (lines, modules):
        counts["product"] = sum(counts[name] for name in PRODUCT)
        # Where they are is a matter of taste.
        counts["engine"] += counts.pop("flows", 0) + counts.pop("deployments", 0)
    return lines, modules


def main() -> None:
    """Print the sizes; with `--check`, exit with 1 above a bound."""
    lines, modules = sizes()
    bounds = json.loads(Path(__file__).with_name("size.json").read_text())
    above = []
    for name, count in lines.most_common():
        print(f"{name:12}{modules[name]:6} modules{count:9,} code lines")
        bound = bounds.get(name, {})
        for what, size in (("lines", count), ("modules", modules[name])):
            if size > bound.get(what, size):
                above.append(f"{name}: {size:,} {what}, the bound is {bound[what]:,}")
    if above and "--check" in sys.argv:
        sys.exit("The code has grown (.ci/size.json):\n" + "\n".join(above))


main()
