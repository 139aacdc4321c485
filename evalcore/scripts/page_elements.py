"""The elements of a web page that an XPath names."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

_DEEPEST: Final = 200
_VOID: Final = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"),
        *("track", "wbr"),
    }
)
# What an element ends where pages leave out the end tag, up to the nearest of the containers.
_ENDS: Final = {
    "dd": ("dd", "dt"),
    "dt": ("dd", "dt"),
    "li": ("li",),
    "option": ("option",),
    "p": ("p",),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("tr",),
}
_CONTAINERS: Final = frozenset({"div", "dl", "ol", "section", "select", "table", "ul"})


class XPathError(ValueError):
    """An XPath is wrong, or uses what is not supported."""


def elements_at(source: str, xpath: str) -> list[str]:
    """Return the HTML of the elements that match, in the order of the page.

    The XPaths are those of `xml.etree`: names, `*`, `..`, `//`, `[@name='value']`, `[tag]`,
    `[.='text']`, `[1]`, `[last()]`, but no functions such as `contains()`. Raises `XPathError`.
    """
    page = _Tree()
    page.feed(source)
    page.close()
    path = f".{xpath}" if xpath.startswith("/") else xpath
    try:
        elements = page.root.findall(path)
    except (SyntaxError, KeyError, ValueError) as error:
        message = f"the xpath '{xpath}' is not supported ({error}); functions are not"
        raise XPathError(message) from error
    return [_html_of(element) for element in elements]


def _html_of(element: Element) -> str:
    tail, element.tail = element.tail, None
    html = tostring(element, encoding="unicode", method="html")
    element.tail = tail
    return html


class _Tree(HTMLParser):
    """Reads a page into elements; what is not closed ends with its parent."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self._end_before(tag)
        element = SubElement(self._open[-1], tag, {name: value or "" for name, value in attrs})
        if tag not in _VOID and len(self._open) < _DEEPEST:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element of this name, and what is open in it."""
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].tag == tag:
                del self._open[depth:]
                return

    def handle_data(self, data: str) -> None:
        """Add text where it stands."""
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data

    def _end_before(self, tag: str) -> None:
        ends = _ENDS.get(tag, ())
        for depth in range(len(self._open) - 1, 0, -1):
            name = self._open[depth].tag
            if name in ends:
                del self._open[depth:]
                return
            if name in _CONTAINERS:
                return
