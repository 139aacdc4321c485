"""Foreign text made inert for where it is shown: Markdown, XML, workflow commands, HTML data.

Terminals have their own (`trust.text`); HTML itself is escaped by its template.
"""

from __future__ import annotations

import re
from typing import Final

_MARKDOWN_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]#|~$])")
_MARKDOWN_ENTITIES: Final = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", ":": "&#58;", ".": "&#46;"
}  # fmt: skip
# A name (`@team`) calls somebody, an address becomes a link, `:name:` an emoji.
_MARKDOWN_ENTITY: Final = re.compile(r"[&<>]|@(?=\w)|:(?=//|[\w+-]+:)|(?<=\bwww)\.", re.IGNORECASE)

# What XML 1.0 cannot hold at all, not even as a reference; other line ends; bidirectional
# controls, which would show a line in another order than it has.
_NOT_XML: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufffe\uffff]"
)
_XML_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_XML_ATTRIBUTE: Final = {**_XML_ENTITIES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}

_DATA: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028"}


def shorten(text: str, most: int) -> str:
    """Return `text` cut to `most` characters; `…` marks a cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def visible(text: str) -> str:
    r"""Return `text` with controls (but tab and line ends) and their like as `\x1b`, `\u202e`."""
    return _NOT_XML.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escape_markdown(text: str, most: int = 300) -> str:
    """Return foreign text as inert Markdown on one line, cut to `most` characters."""
    one_line = " ".join(visible(shorten(text, most)).split())
    escaped = _MARKDOWN_SPECIAL.sub(r"\\\1", one_line)
    return _MARKDOWN_ENTITY.sub(lambda match: _MARKDOWN_ENTITIES[match[0]], escaped)


def fenced(text: str) -> str:
    """Return foreign text as a Markdown code block that it cannot leave."""
    shown = visible(text).replace("\r\n", "\n").replace("\r", "\n")
    longest = max((len(ticks) for ticks in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def escape_xml(text: str) -> str:
    """Return foreign text as the content of an XML element."""
    return _replaced(visible(text), _XML_ENTITIES)


def escape_xml_attribute(text: str) -> str:
    """Return foreign text as the value of an XML attribute between double quotes."""
    return _replaced(visible(text), _XML_ATTRIBUTE)


def escape_command(text: str) -> str:
    """Return foreign text as the message of a GitHub workflow command."""
    shown = visible(text).replace("%", "%25")
    return shown.replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Return foreign text as the value of a workflow command's property."""
    return escape_command(text).replace(":", "%3A").replace(",", "%2C")


def escape_data(json_text: str) -> str:
    """Return JSON text for a `<script>` element of HTML: nothing in it ends the element."""
    return _replaced(json_text, _DATA).replace("\u2029", "\\u2029")


def _replaced(text: str, entities: dict[str, str]) -> str:
    for character, entity in entities.items():
        if character in text:
            text = text.replace(character, entity)
    return text
