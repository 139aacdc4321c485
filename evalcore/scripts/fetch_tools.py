"""Tools that fetch a page: its text, its links, its source."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from evalcore.model.exchange import Endpoint, ProviderError, Request
from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Iteration, Scope, WaitingTool
from evalcore.scripts.page_elements import XPathError, elements_at

FETCH: Final = ("fetch_content", "fetch_page_text", "fetch_page_markdown", "fetch_page_links")
_PARAMETERS: Final = ("url", "xpath", "headers", "on_no_content", "on_error")
_ON: Final = ("raise_exception", "return_error", "return_empty")
_AGENT: Final = "Mozilla/5.0 (compatible; evalcore)"
_HIDDEN: Final = frozenset({"script", "style", "noscript", "template", "head"})
_BLOCKS: Final = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "td",
        "th",
        "tr",
        "ul",
    ]
)


class FetchTool(WaitingTool):
    """Fetches `url` by GET; like any call it is limited, recorded and replayed."""

    def __init__(self, name: str, kind: str, config: Mapping[str, Any]) -> None:
        """Take one of `FETCH`, and what a call need not say."""
        self.name = name
        self.description = "Fetches a web page."
        self._kind = kind
        self._config = dict(config)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return _PARAMETERS

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        properties = {"url": {"type": "string"}}
        return {"type": "object", "properties": properties, "required": ["url"]}

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the page's text, Markdown, links or source."""
        options = {**self._config, **params}
        for name in options:
            if name not in _PARAMETERS:
                run.warn(f"tool '{self.name}' has no parameter '{name}'; it is ignored")
        url = params.get("url")
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise ToolError("ValueError", f"{self.name}: 'url' is no web address: {url!r}")
        try:
            text = await self._text(url, options, run)
        except ProviderError as error:
            if error.status == 404:
                return self._instead(options, "on_no_content", f"there is nothing at {url}")
            if options.get("on_error", "raise_exception") == "raise_exception":
                raise
            return self._instead(options, "on_error", f"{url}: {error}")
        xpath = options.get("xpath")
        if not xpath or self._kind == "fetch_content":
            return _read(self._kind, text, url)
        return self._elements(str(xpath), text, url, options)

    def _elements(self, xpath: str, text: str, url: str, options: Mapping[str, Any]) -> Any:
        try:
            parts = [_read(self._kind, part, url) for part in elements_at(text, xpath)]
        except XPathError as error:
            raise ToolError("ValueError", f"{self.name}: {error}") from None
        if not parts:
            message = f"nothing at {url} matches '{xpath}'"
            return self._instead(options, "on_no_content", message)
        if self._kind == "fetch_page_links":
            return [link for links in parts for link in links]
        return "\n".join(parts)

    async def _text(self, url: str, options: Mapping[str, Any], run: Iteration) -> str:
        headers = {"User-Agent": _AGENT, **dict(options.get("headers") or {})}
        parts = urlsplit(url)
        endpoint = Endpoint("http", "fetch", f"{parts.scheme}://{parts.netloc}")
        parameters = {"method": "GET", "url": url, "headers": headers}
        reply = await run.complete(Request(endpoint=endpoint, parameters=parameters))
        return reply.text

    def _instead(self, options: Mapping[str, Any], option: str, message: str) -> Any:
        chosen = options.get(option, "return_empty")
        if chosen == "return_empty":
            return [] if self._kind == "fetch_page_links" else ""
        kind = "ToolException" if chosen == "return_error" else "ValueError"
        raise ToolError(kind, f"{self.name}: {message}")


def _read(kind: str, text: str, url: str) -> Any:
    if kind == "fetch_content":
        return text
    if kind == "fetch_page_text":
        return page_text(text)
    page = _Page(markdown=kind == "fetch_page_markdown")
    page.feed(text)
    page.close()
    if kind == "fetch_page_links":
        links = [(urljoin(url, link), label) for link, label in page.links]
        return [
            {"link": link, "text": label or None}
            for link, label in links
            if urlsplit(link).scheme in ("http", "https")
        ]
    return page.text()


def page_text(source: str) -> str:
    """Return the visible text of a page, a line for each block."""
    page = _Page(markdown=False)
    page.feed(source)
    page.close()
    return page.text()


class _Page(HTMLParser):
    """Reads the visible text of a page, and its links with theirs."""

    def __init__(self, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, str]] = []
        self._markdown = markdown
        self._pieces: list[str] = []
        self._hidden = 0
        self._link: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line, a link or something hidden."""
        if tag in _HIDDEN:
            self._hidden += 1
        if tag in _BLOCKS:
            self._pieces.append("\n")
            if self._markdown and len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                self._pieces.append("#" * int(tag[1]) + " ")
            elif self._markdown and tag == "li":
                self._pieces.append("* ")
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self._link = (href, len(self._pieces))

    def handle_endtag(self, tag: str) -> None:
        """End what `handle_starttag` began."""
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag in _BLOCKS:
            self._pieces.append("\n")
        if tag == "a" and self._link is not None:
            href, start = self._link
            label = " ".join("".join(self._pieces[start:]).split())
            self.links.append((href, label))
            if self._markdown:
                self._pieces[start:] = [f"[{label}]({href})"]
            self._link = None

    def handle_data(self, data: str) -> None:
        """Take text that is shown."""
        if not self._hidden:
            self._pieces.append(" ".join(data.split("\n")) if self._markdown else data)

    def text(self) -> str:
        """Return the text, a line for each block."""
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        return "\n".join(line for line in lines if line)
