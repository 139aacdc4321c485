"""Every link in the repository's Markdown pages leads to a file and to a heading of it."""

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
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
# Pictures for light and for dark pages, as GitHub and the site's theme tell them apart.
THEMES = {"gh-light-mode-only", "gh-dark-mode-only"}


@cache
def prose(path: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return frozenset(re.sub(r"\s", "-", name) for name in names)


def links(page: str) -> list[tuple[str, str]]:
    """Return the links of a page to places in the repository: file and anchor."""
    pairs = LINK.findall(prose(ROOT / page))
    return [(target, anchor) for target, anchor in pairs if not re.match(r"[a-z]+:", target)]


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page, (target, anchor) in ((one, link) for one in PAGES for link in links(one)):
        path = (ROOT / page).parent / target if target else ROOT / page
        is_place = bool(anchor) and not (path.suffix == ".svg" and anchor in THEMES)
        if not path.exists() or (is_place and anchor not in anchors(path.resolve())):
            broken.append(f"{page}: {target}#{anchor}")
    assert broken == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target, _ in links(str(page.relative_to(ROOT))):
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
