"""Pages are reachable from the README, and pages that code names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

THIS_FILE = Path(__file__).resolve()
ROOT = THIS_FILE.parents[3]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "deployments/**/*.md",
        "tests/**/*.md",
        ".github/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)#\s]*)[^)]*\)")


@cache
def prose(path: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: str) -> list[str]:
    """Return the files that a page links to; the site's build checks that they exist."""
    return [to for to in LINK.findall(prose(ROOT / page)) if not re.match(r"[a-z]+:", to)]


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in links(str(page.relative_to(ROOT))):
            path = (page.parent / target).resolve() if target else page
            path = path / "README.md" if path.is_dir() else path
            if path.suffix == ".md" and path.exists():
                waiting.append(path)
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= {
        str(path.relative_to(ROOT)) for path in reached
    }


def modules() -> Iterator[Path]:
    """Yield the modules and files of today; `tests/stores` has those of earlier versions."""
    suffixes = {".py", ".sql", ".yaml", ".toml"}
    for folder in ("evalcore", "flows", "deployments", "benchmarks", "examples", "tests"):
        paths = (path for path in (ROOT / folder).rglob("*.*") if path.suffix in suffixes)
        yield from (path for path in paths if "stores" not in path.parts and path != THIS_FILE)


def test_every_page_that_code_names_exists() -> None:
    missing = set()
    for path in modules():
        for page in re.findall(r"\bdocs/[\w/-]+(?:\.md)?", path.read_text("utf-8")):
            stem = page.removesuffix(".md")
            places = (f"{stem}.md", f"{stem}-*.md", stem)
            if not any(list(ROOT.glob(place)) for place in places):
                missing.add(f"{path.relative_to(ROOT)}: {page}")
    assert missing == set()
