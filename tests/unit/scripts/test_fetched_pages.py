"""Tools that fetch pages: the elements that an XPath chooses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.exchange import Reply, Request
from evalcore.scripts.builtin_tools import FetchTool, elements_at
from evalcore.scripts.iteration import Iteration, ToolError
from evalcore.scripts.mcp import McpServers
from evalcore.trust.imports import ImportPolicy

PAGE = """<!doctype html><html><body>
<h1>Teas</h1>
<ul class=list><li>green &amp; <a href="/g">fine</a><li id="b">black</ul>
<table><tr><td>1<td>2<tr><td>3</table>
<p>One<p>Two<br>lines</body></html>"""


@pytest.mark.parametrize(
    ("xpath", "texts"),
    [
        ("//h1", ["<h1>Teas</h1>"]),
        ("/html/body/h1", ["<h1>Teas</h1>"]),
        ("//ul[@class='list']/li[2]", ['<li id="b">black</li>']),
        ("//li[@id='b']", ['<li id="b">black</li>']),
        ("//li/a", ['<a href="/g">fine</a>']),
        ("//tr[2]/td", ["<td>3</td>"]),
        ("//p[last()]", ["<p>Two<br>lines</p>"]),
        ("//article", []),
    ],
)
def test_an_xpath_chooses_elements_of_pages_as_they_are(xpath: str, texts: list[str]) -> None:
    elements = [" ".join(html.split()) for html in elements_at(PAGE, xpath)]

    assert elements == texts


def fetched(kind: str, **params: Any) -> Any:
    async def complete(_request: Request) -> Reply:
        return Reply(PAGE)

    policy = ImportPolicy()
    run = Iteration(policy, None, McpServers({}, {}), complete, Path())  # type: ignore[arg-type]
    tool = FetchTool("fetch", kind, {"on_no_content": "raise_exception"})
    return asyncio.run(tool.call({"url": "http://teas.example/", **params}, {}, run))


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("fetch_page_text", "green & fine\nblack"),
        ("fetch_page_links", [{"link": "http://teas.example/g", "text": "fine"}]),
    ],
)
def test_text_and_links_are_those_of_the_elements(kind: str, result: object) -> None:
    assert fetched(kind, xpath="//ul/li") == result


@pytest.mark.parametrize(
    ("xpath", "message"),
    [("//article", "nothing at http"), ("//p[contains(., 'x')]", "functions are not")],
)
def test_an_xpath_without_a_match_or_with_a_function_is_an_error(xpath: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        fetched("fetch_page_text", xpath=xpath)
