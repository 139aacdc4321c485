"""Tools that fetch pages: the elements that an XPath chooses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.exchange import Reply, Request
from evalcore.scripts.builtin_tools import FetchTool
from evalcore.scripts.iteration import Iteration, ToolError
from evalcore.scripts.mcp import McpServers
from evalcore.trust.imports import ImportPolicy

PAGE = """<!doctype html><html><body>
<h1>Teas</h1>
<ul class=list><li>green &amp; <a href="/g">fine</a><li id="b">black</ul>
<table><tr><td>1<td>2<tr><td>3</table>
<p>One<p>Two<br>lines</body></html>"""


@pytest.mark.parametrize(
    ("xpath", "text"),
    [
        ("//h1", "Teas"),
        ("/html/body/h1", "Teas"),
        ("//ul[@class='list']/li[2]", "black"),
        ("//li/a", "fine"),
        ("//tr[2]/td", "3"),
        ("//p[last()]", "Two\nlines"),
        ("//p[contains(., 'One')]", "One"),
    ],
)
def test_an_xpath_chooses_elements(xpath: str, text: str) -> None:
    assert fetched("fetch_page_text", xpath=xpath) == text


def fetched(kind: str, **params: Any) -> Any:
    async def complete(_request: Request) -> Reply:
        return Reply(PAGE)

    policy = ImportPolicy()
    run = Iteration(policy, None, McpServers({}, {}).call, complete, Path())  # type: ignore[arg-type]
    tool = FetchTool("fetch", kind, {"on_no_content": "raise_exception"})
    return asyncio.run(tool.call({"url": "http://teas.example/", **params}, {}, run))


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("fetch_page_text", "green & fine\nblack"),
        ("fetch_page_links", [{"link": "http://teas.example/g", "text": "fine"}]),
        ("fetch_page_markdown", "* green & [fine](/g)\n* black"),
    ],
)
def test_text_and_links_are_those_of_the_elements(kind: str, result: object) -> None:
    assert fetched(kind, xpath="//ul/li") == result


@pytest.mark.parametrize(
    ("xpath", "message"),
    [("//article", "nothing at http"), ("//p[", "the xpath '//p\\['")],
)
def test_an_xpath_that_is_wrong_or_has_no_match_is_an_error(xpath: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        fetched("fetch_page_text", xpath=xpath)
