r"""Unicode properties under ECMAScript's names: what `\p{…}` may hold."""

from __future__ import annotations

import re

from evalcore.patterns.character_sets import LAST_CODE, members

_CATEGORIES = frozenset(
    """
    Cased_Letter LC Close_Punctuation Pe Connector_Punctuation Pc Control Cc cntrl Currency_Symbol
    Sc Dash_Punctuation Pd Decimal_Number Nd digit Enclosing_Mark Me Final_Punctuation Pf Format Cf
    Initial_Punctuation Pi Letter L Letter_Number Nl Line_Separator Zl Lowercase_Letter Ll Mark M
    Combining_Mark Math_Symbol Sm Modifier_Letter Lm Modifier_Symbol Sk Nonspacing_Mark Mn Number N
    Open_Punctuation Ps Other C Other_Letter Lo Other_Number No Other_Punctuation Po Other_Symbol So
    Paragraph_Separator Zp Private_Use Co Punctuation P punct Separator Z Space_Separator Zs
    Spacing_Mark Mc Surrogate Cs Symbol S Titlecase_Letter Lt Unassigned Cn Uppercase_Letter Lu
    """.split()  # noqa: SIM905 - one word a string would take a page
)
_BINARY = frozenset(
    """
    ASCII_Hex_Digit AHex Alphabetic Alpha Bidi_Control Bidi_C Bidi_Mirrored Bidi_M Case_Ignorable CI
    Cased Changes_When_Casefolded CWCF Changes_When_Casemapped CWCM Changes_When_Lowercased CWL
    Changes_When_Titlecased CWT Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI
    Deprecated Dep Diacritic Dia Emoji Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base
    EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext Grapheme_Base Gr_Base
    Grapheme_Extend Gr_Ext Hex_Digit Hex IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST
    ID_Continue IDC ID_Start IDS Ideographic Ideo Join_Control Join_C Logical_Order_Exception LOE
    Lowercase Lower Math Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn Pattern_White_Space
    Pat_WS Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm Soft_Dotted SD
    Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper Variation_Selector VS
    White_Space space XID_Continue XIDC XID_Start XIDS
    """.split()  # noqa: SIM905 - one word a string would take a page
)
_UNSUPPORTED = frozenset({"Changes_When_NFKC_Casefolded", "CWKCF"})
# ECMAScript wants the canonical spelling; the `regex` package, which knows the scripts, does not.
_SCRIPT_SPELLING = re.compile(r"[A-Z][a-z]+(?:_[A-Z][a-z]+)*|SignWriting|Phags_Pa")


def property_members(expression: str, *, negated: bool) -> str:
    r"""Return the inside of a `[…]` for `\p{expression}`; raise `ValueError` if there is none."""
    letter = "P" if negated else "p"
    if expression in ("Any", "ASCII"):
        last = LAST_CODE if expression == "Any" else 0x7F
        if not negated:
            return members([(0, last)])
        return members([(last + 1, LAST_CODE)]) if last < LAST_CODE else ""
    if expression == "Assigned":
        return rf"\{'p' if negated else 'P'}{{Cn}}"
    if expression in _UNSUPPORTED:
        raise ValueError(f"the property {expression!r} is not supported")
    name, equals, value = expression.partition("=")
    if not equals and name in _CATEGORIES:
        return rf"\{letter}{{gc={name}}}"
    if not equals and name in _BINARY:
        return rf"\{letter}{{{name}}}"
    if name in ("General_Category", "gc") and value in _CATEGORIES:
        return rf"\{letter}{{gc={value}}}"
    if name in ("Script", "sc") and _is_script(value):
        return rf"\{letter}{{Script={value}}}"
    if name in ("Script_Extensions", "scx") and _is_script(value):
        return rf"\{letter}{{Script_Extensions={value}}}"
    raise ValueError(f"unknown property {expression!r}")


def _is_script(value: str) -> bool:
    import regex

    if not _SCRIPT_SPELLING.fullmatch(value):
        return False
    try:
        regex.compile(rf"\p{{Script={value}}}", regex.V0)
    except regex.error:
        return False
    return True
