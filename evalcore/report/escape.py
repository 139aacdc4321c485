"""Foreign text made inert for where it is shown: Markdown, XML, workflow commands, HTML data.

Terminals have their own (`trust.text`); HTML itself is escaped by its template.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from evalcore.wording import escape_character, shorten

_MARKDOWN_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]#|~$])")
# Prefect's page shows numeric references as they are written; an escaped colon is one everywhere.
# Of a name that notifies, the sign may not stand in the text at all.
_MARKDOWN_ENTITIES: Final = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", ":": r"\:", ".": r"\."
}  # fmt: skip
# A name (`@team`) notifies a person, an address becomes a link, `:name:` an emoji.
_MARKDOWN_ENTITY: Final = re.compile(r"[&<>]|@(?=\w)|:(?=//|[\w+-]+:)|(?<=\bwww)\.", re.IGNORECASE)

# What is structure at the beginning of a line, and what a build's log takes for a command there.
_MARKDOWN_START: Final = re.compile(r"^(?:[-+=:]|(\d+)([.)]))")
_MARKDOWN_PLAIN: Final = re.compile(r"[^\w\s,;()%/–…-]")

# What XML 1.0 cannot hold at all, not even as a reference; other line ends; bidirectional
# controls, which would show a line in another order than it has; invisible characters.
_NOT_XML: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\ufffe\uffff\U000e0000-\U000e007f]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
# Commands of a build's log: `::…::` at the beginning of a line, `##…[` anywhere.
_COMMAND_LINE: Final = re.compile(r"^([^\S\n]*):(?=:[^\S\n]*[A-Za-z_-][^\n]*::)", re.MULTILINE)
_COMMAND: Final = re.compile(r"#(?=#[^\S\n]*\w*\[)")
_XML_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_XML_ATTRIBUTE: Final = {**_XML_ENTITIES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}

# A spreadsheet takes a cell that begins so for a formula: a sign (of full width, too), also behind
# spaces, line ends, controls, invisible characters and quotes. One more apostrophe makes it text;
# without that one the cell is the data again. Numbers stay numbers. For Python and DuckDB.
FORMULA_CELL: Final = (
    "[\\t\\r\\n]|[\\x00-\\x20\\x7f-\\xa0\\xad\"'\u034f\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3000\ufe00-\ufe0f\ufeff]*"
    "[=+\\-@\uff1d\uff0b\uff0d\uff20\ufe62\ufe63\ufe66\ufe6b\u2212]"
)
NUMBER_CELL: Final = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_FORMULA_CELL: Final = re.compile(FORMULA_CELL)
_NUMBER_CELL: Final = re.compile(NUMBER_CELL, re.ASCII)

_DATA: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028"}


def visible(text: str) -> str:
    r"""Return `text` with controls (but tab and line ends) and their like as `\x1b`, `\u202e`."""
    return _NOT_XML.sub(escape_character, text)


def escape_markdown(text: str, most: int = 300) -> str:
    """Return foreign text as inert Markdown on one line, cut to `most` characters."""
    one_line = " ".join(visible(shorten(text, most)).split())
    escaped = _MARKDOWN_SPECIAL.sub(r"\\\1", one_line)
    escaped = _MARKDOWN_ENTITY.sub(lambda match: _MARKDOWN_ENTITIES[match[0]], escaped)
    return _MARKDOWN_START.sub(_started, escaped)


def _started(match: re.Match[str]) -> str:
    if match[1] is not None:
        return f"{match[1]}\\{match[2]}"
    return f"\\{match[0]}"


def escape_markdown_html(text: str, most: int = 300) -> str:
    """Return foreign text for an element of HTML that stands in Markdown: on one line, no markup.

    Every sign is a reference, which neither HTML nor any kind of Markdown reads as markup.
    """
    one_line = " ".join(visible(shorten(text, most)).split())
    return _MARKDOWN_PLAIN.sub(lambda match: f"&#{ord(match[0])};", one_line)


def inert_message(text: str) -> str:
    """Return foreign text for a place that may show it as plain text or as Markdown.

    Only what would become a link, an image, an element or structure is escaped; the rest of the
    text reads the same in both. Lines stay.
    """
    # An apostrophe reads the same in both; an escaped backtick does not.
    return _inert_lines(visible(text).replace("\r", "").replace("`", "'"))


_ACTIVE: Final = (
    r"[|\\]|<(?=[A-Za-z/!?])|:(?=//)|(?<=\bwww)\.|(?<![^\W_])_|_(?![^\W_])"
    r"|^\s*(?:#|>|[-+=*](?=\s|[-+=*]|$))|(?<=\w)@(?=\w)|(?<!\w)@(?=\w)"
    # Below a line with a pipe, escaped or not, these make the columns of a table.
    r"|^\s*:(?=-+:?\s*$)|^\s*-(?=:\s*$)"
)
# Brackets are a link only before another pair, or at the start of a definition; one sign of a kind
# emphasises nothing. Paths such as `tests[0].input` and patterns such as `*.yaml` stay as they are.
_LINK: Final = re.compile(r"\][ \t\n]*[(\[]|^\s*\[[^\]]*\]:|^\s*\[[ xX]\]", re.MULTILINE)


@lru_cache(maxsize=8)
def _active(more: str) -> re.Pattern[str]:
    return re.compile(_ACTIVE + more, re.IGNORECASE)


def _inert_lines(text: str) -> str:
    more = r"|[\[\]]" if _LINK.search(text) else ""
    more += "".join(rf"|\{sign}" for sign in "*~" if text.count(sign) > 1)
    return "\n".join(_inert_line(line, _active(more)) for line in text.split("\n"))


def _inert_line(line: str, active: re.Pattern[str]) -> str:
    # Four spaces in front would make it a block of code, which shows the escapes.
    line = active.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", line)
    return re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", line)


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet may calculate a cell of CSV, or read it as a number."""
    return _FORMULA_CELL.match(cell) is not None


def inert_cell(cell: str) -> str:
    """Return a cell of CSV that no spreadsheet calculates; one that is a number stays one."""
    return f"'{cell}" if is_formula(cell) and not _NUMBER_CELL.fullmatch(cell) else cell


def fenced(text: str) -> str:
    """Return foreign text as a Markdown code block that it cannot leave."""
    block = visible(text).replace("\r\n", "\n").replace("\r", "\n")
    block = _COMMAND.sub(r"\\x23", _COMMAND_LINE.sub(r"\1\\x3a", block))
    longest = max((len(ticks) for ticks in re.findall("`+", block)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{block}\n{fence}"


def escape_xml(text: str) -> str:
    """Return foreign text as the content of an XML element."""
    return _inert_in_xml(_replaced(visible(text), _XML_ENTITIES))


def _inert_in_xml(escaped: str) -> str:
    """Return the content with references in the place of what a build's log would obey."""
    return _COMMAND.sub("&#35;", _COMMAND_LINE.sub(r"\1&#58;", escaped))


def escape_xml_attribute(text: str) -> str:
    """Return foreign text as the value of an XML attribute between double quotes."""
    return _COMMAND.sub("&#35;", _replaced(visible(text), _XML_ATTRIBUTE))


def escape_command(text: str) -> str:
    """Return foreign text as the message of a GitHub workflow command."""
    escaped = _COMMAND.sub(r"\\x23", visible(text)).replace("%", "%25")
    return escaped.replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Return foreign text as the value of a workflow command's property."""
    return escape_command(text).replace(":", "%3A").replace(",", "%2C")


def escape_data(json_text: str) -> str:
    """Return JSON text for a `<script>` element of HTML: nothing in it ends the element."""
    escaped = _replaced(json_text, _DATA).replace("\u2029", "\\u2029")
    return _COMMAND.sub(r"\\u0023", escaped)


def _replaced(text: str, entities: dict[str, str]) -> str:
    for character, entity in entities.items():
        if character in text:
            text = text.replace(character, entity)
    return text
