"""Hooks of the documentation site (`mkdocs.yml`): pages from outside `docs/`, links, the API.

README, CONTRIBUTING and others stay where readers of the repository look for them and are pages of
the site as well. A relative link to a page leads to it; a link to any other file of the repository
leads to `repo_url`, or is plain text without one. A link to a file that does not exist is a
warning, which `--strict` makes an error.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import evalcore

ROOT = Path(__file__).resolve().parent.parent
# Page of the site: file of the repository.
PAGES = {
    "project/readme.md": "README.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/deployments.md": "deployments/README.md",
    "project/security.md": "SECURITY.md",
    "project/changelog.md": "CHANGELOG.md",
}
API_PAGE = "reference/python-api.md"
API_INTRODUCTION = """\
# Python API

Everything that `evalcore` exports. [Suites](suites.md) has examples.
"""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?(?=\))")
UNLINKED = "unlinked:"
STYLE = ".md-typeset td:first-child code { white-space: nowrap }\n"
FENCE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.M | re.S)

logger = logging.getLogger("mkdocs.site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs/` and the page of the API."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "site.css", content=STYLE))
    names = [name for name in evalcore.__all__ if not name.startswith("_")]
    entries = (f"\n::: evalcore.{name}\n" for name in sorted(names))
    files.append(File.generated(config, API_PAGE, content="".join((API_INTRODUCTION, *entries))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the relative links of a page to pages of the site or to files of the repository."""
    uri = page.file.src_uri
    source = PAGES.get(uri, f"docs/{uri}")

    def led(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        target = os.path.normpath(f"{Path(source).parent}/{path}")
        if not (ROOT / target).exists():
            logger.warning("%s: link to %s, which does not exist", source, path)
        target_page = page_of(target)
        if target_page is not None and files.get_file_from_path(target_page):
            return relpath(target_page, str(Path(uri).parent)) + anchor
        return f"{config.repo_url}/blob/main/{target}{anchor}" if config.repo_url else UNLINKED

    # Code blocks have no links; they stand at the odd positions of the split text.
    parts = FENCE.split(markdown)
    parts[::2] = [
        re.sub(rf"\[((?:[^\[\]]|\[[^\]]*\])*)\]\({UNLINKED}\)", r"\1", LINK.sub(led, part))
        for part in parts[::2]
    ]
    return "".join(parts)


def page_of(target: str) -> str | None:
    """Return the page of the site that shows a file of the repository, if one does."""
    if (ROOT / target).is_dir():
        target = f"{target}/README.md"
    for page, source in PAGES.items():
        if source == target:
            return page
    return target.removeprefix("docs/") if target.startswith("docs/") else None
