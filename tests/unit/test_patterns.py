"""Patterns: each dialect means what its language means, and every search ends in time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.patterns import PatternError, compile_pattern

TIMEOUT_S = 20.0


def is_found(pattern: str, text: str, flags: str = "") -> bool:
    return compile_pattern(pattern, flags, "ecmascript").is_found_in(text, TIMEOUT_S)


# pattern, flags, texts with a match, texts without one
MATCHES: dict[str, tuple[str, str, list[str], list[str]]] = {
    "alternatives": ("^(?:a|bc)$", "", ["a", "bc"], ["b", "ac"]),
    "the end is the very end": ("b$", "", ["ab"], ["ab\n"]),
    "m: line ends": ("^b$", "m", ["a\nb", "a\rb", "a\u2028b\u2029c"], ["a\x0bb", "a\x85b"]),
    "the dot excludes line terminators": ("^.$", "", ["x", "\x85"], ["\n", "\r", "\u2028"]),
    "a character is a character": ("^.$", "", ["😀"], []),
    "s: the dot takes them": ("^.$", "s", ["\n", "\u2029", "😀"], []),
    "digits are ASCII": (r"^\d$", "", ["7"], ["٣"]),
    "no digit": (r"^\D$", "", ["٣", "a"], ["7"]),
    "words are ASCII": (r"^\w$", "", ["a", "_", "Z"], ["é", "-"]),
    "word boundary": (r"\bfoo\b", "", ["a foo.", "éfoo"], ["foox"]),
    "no word boundary": (r"\B", "", [""], ["a"]),
    "white space": (r"^\s$", "", ["\ufeff", "\xa0", "\u3000"], ["\x1c", "\x85", "\u180e"]),
    "no white space in a set": (r"^[^\S]$", "", ["\ufeff", "\n"], ["\x1c", "a"]),
    "empty set": ("[]", "", [], ["", "a", "]"]),
    "any character": ("^[^]$", "", ["\n", "😀"], ["", "ab"]),
    "named group": (r"^(?<year>\d{4})-\k<year>$", "", ["2024-2024"], ["2024-2025"]),
    "a name with a dollar": (r"^(?<$a>b)\k<$a>$", "", ["bb"], ["b"]),
    "backreference before its group": (r"^\1(a)$", "", ["a"], ["aa"]),
    "a group that took no part is empty": (r"^(?:(a)|b)\1$", "", ["aa", "b"], ["ba"]),
    "a round forgets its groups": (r"^(?:(a)|b)*\1$", "", ["ab", "aa"], ["aba"]),
    "an empty round does not count": (r"^(?:(?=(a)))*\1b", "", ["b"], ["ab"]),
    "a group within itself is empty": (r"^(a\1)$", "", ["a"], ["aa"]),
    "lookbehind": (r"(?<=\$)\d+(?!%)", "", ["$5"], ["5", "5%"]),
    "a lookbehind goes from right to left": (
        r"(?<=^(\d+)(\d+))\1$",
        "",
        ["10531", "111"],
        ["1053105"],
    ),
    "in a lookbehind the last round stands first": (
        r"(?<=^\1\1(?:(b)?){1,2})$",
        "",
        ["", "bbb"],
        ["b", "bb"],
    ),
    "lookbehind of any length": ("(?<!ab*)c", "", ["c", "bc"], ["ac", "abbc"]),
    "quantified lookahead": ("^(?=a)*b", "", ["b"], ["a"]),
    "lazy": ("^a+?b??$", "", ["aa", "ab"], ["b"]),
    "braces": ("^a{2,3}$", "", ["aa", "aaa"], ["a", "aaaa"]),
    "lone braces": ("^{}$", "", ["{}"], [""]),
    "no quantifier": ("^a{,3}$", "", ["a{,3}"], ["a", "aa"]),
    "lone bracket": ("^]$", "", ["]"], []),
    "null": (r"^\0$", "", ["\0"], ["0"]),
    "legacy octal": (r"^\101\7\400$", "", ["A\x07 0"], []),
    "no such group: octal": (r"^(a)\2$", "", ["a\x02"], ["aa"]),
    "no such group: eight": (r"^\8$", "", ["8"], []),
    "hexadecimal": (r"^\x41\u0042$", "", ["AB"], []),
    "x without digits": (r"^\x4$", "", ["x4"], []),
    "u with braces but without the flag": (r"^\u{2}$", "", ["uu"], ["\x02"]),
    "u with braces": (r"^\u{1F600}$", "u", ["😀"], []),
    "surrogate pair": (r"^\ud83d\ude00$", "", ["😀"], []),
    "surrogate pair in a set": (r"^[\ud83d\ude00-\ud83d\ude02]$", "u", ["😁"], ["a"]),
    "control": (r"^\cA\cz$", "", ["\x01\x1a"], []),
    "c without a letter": (r"^\c$", "", ["\\c"], []),
    "control digit in a set": (r"^[\c1]$", "", ["\x11"], ["c", "1"]),
    "backspace in a set": (r"^[\b]$", "", ["\b"], ["b"]),
    "identity escapes": (r"^\a\-\k\p{2}$", "", ["a-kpp"], []),
    "class in a range": (r"^[\w-.]$", "", ["a", "-", "."], ["+"]),
    "i": ("^é[a-c]$", "i", ["ÉB", "éc"], ["eb"]),
    "iu: simple case folding": ("^[a-z]$", "iu", ["\u017f", "\u212a", "K"], ["\u0131", "İ"]),
    "iu: word characters": (r"^\w$", "iu", ["\u017f", "\u212a"], ["é"]),
    "i: not the letter": ("^[^a]$", "i", ["b"], ["a", "A"]),
    "i: sigma": ("^\u03c3$", "i", ["ς", "Σ"], ["s"]),
    "i: sharp s": ("^ß$", "i", ["ß"], ["ẞ", "SS"]),
    "iu: sharp s": ("^ß$", "iu", ["ß", "ẞ"], ["SS"]),
    "i: backreference": (r"^(a)\1$", "i", ["aA"], ["ab"]),
    "properties": (r"^\p{Lu}\P{Lu}\p{Script=Greek}$", "u", ["Aaβ"], ["aAβ", "Aab"]),
    "property in a set": (r"^[\p{L}\d]$", "u", ["é", "1"], ["-"]),
    "property and its opposite": (r"[^\p{L}\P{L}]", "u", [], ["a", "1"]),
    "emoji": (r"^\p{Emoji_Presentation}\p{Any}\p{ASCII}$", "u", ["😀éa"], ["aéa"]),
    "g means nothing here": ("a", "g", ["ba"], ["b"]),
}


def test_means_what_ecmascript_means() -> None:
    for name, (pattern, flags, found, not_found) in MATCHES.items():
        matches = [is_found(pattern, text, flags) for text in (*found, *not_found)]
        assert matches == [True] * len(found) + [False] * len(not_found), name


REFUSED = [
    *["(", ")", "a)", "(?:a", "[", "[a", "a\\", "[\\"],
    *["*", "a|*", "+a", "?", "^*", "$+", "(?:+)", "a**", "a*+", "a++", "a?+", "a{2}{3}"],
    *["{2}", "a{2}+", "(?<=a)*", "(?<!a){2}", "a{2,1}", "[z-a]"],
    *["(?P<y>a)", "(?P=y)", "(?i)a", "(?>a)", "(?|a)", "(?#a)", "(?1)", "(?R)", "(?&a)"],
    *["(?<1>a)", "(?<>a)", "(?<a", "(?<a-b>c)", "(?<a>b)(?<a>c)", r"(?<a>b)\k<c>", r"(?<a>b)\k"],
]
REFUSED_WITH_U = [
    *["{", "}", "]", "a{", "{}", "a{,3}", "(?=a)*", r"\a", r"\-", r"\_", r"\1", r"(a)\2", r"\00"],
    *[r"\01", r"\8", r"\x4", r"\u12", r"\u{110000}", r"\c", r"\c1", r"[\c1]", r"\k", r"[\w-a]"],
    *[r"[a-\d]", r"[\B]", r"\p", r"\p{Foo}", r"\p{greek}", r"\p{Script=greek}", r"\p{lu}", r"\pL"],
    *[r"\p{^L}", r"\p{Script=Foo}", r"\N{DASH}", r"\h", r"\A"],
]


@pytest.mark.parametrize("flags", ["", "u"])
def test_what_ecmascript_refuses_is_an_error(flags: str) -> None:
    assert [pattern for pattern in REFUSED if not is_refused(pattern, flags)] == []


def test_the_flag_u_ends_the_leniencies() -> None:
    assert [pattern for pattern in REFUSED_WITH_U if not is_refused(pattern, "u")] == []
    assert [pattern for pattern in REFUSED_WITH_U if is_refused(pattern, "")] == []


def is_refused(pattern: str, flags: str, dialect: str = "ecmascript") -> bool:
    """Return whether a pattern is an error; its message has to say so."""
    try:
        compile_pattern(pattern, flags, dialect)
    except PatternError as error:
        return str(error).startswith("invalid pattern ")
    return False


@pytest.mark.parametrize("flags", ["y", "d", "v", "x", "I", "gg", "imi", "gim "])
def test_unknown_and_repeated_flags_are_errors(flags: str) -> None:
    with pytest.raises(PatternError, match="flag"):
        compile_pattern("a", flags, "ecmascript")


REFUSED_BY_RE = {
    "property": r"\p{L}",
    "branch reset": "(?|(a)|(b))",
    "recursion": "a(?R)?b",
    "named list": r"\L<words>",
    "start of a word": r"\mfoo",
    "grapheme": r"\X",
    "keep": r"a\Kb",
    "ECMAScript's named group": "(?<y>a)",
    "lookbehind of any length": "(?<=a+)b",
    "repeated group name": "(?P<a>x)|(?P<a>y)",
    "partial fuzziness": "(?e)(a){e}",
    "unclosed": "(a",
}


def test_what_re_refuses_is_refused() -> None:
    refused = {name for name, each in REFUSED_BY_RE.items() if is_refused(each, "", "python")}
    assert refused == set(REFUSED_BY_RE)


def test_an_invalid_pattern_of_python_has_its_position() -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern("ab(c")
    assert caught.value.position == 2
    assert str(caught.value).startswith("invalid pattern 'ab(c': ")
    assert str(caught.value).endswith(" at position 2")


SLOW = ["(a|a|aa)+$", r"(a*)*\1b"]


@pytest.mark.parametrize("dialect", ["python", "ecmascript"])
@pytest.mark.parametrize("pattern", SLOW)
def test_every_search_is_stopped_when_time_is_up(pattern: str, dialect: str) -> None:
    compiled = compile_pattern(pattern, "", dialect)
    with pytest.raises(PatternError, match=r"the search for '.*' took longer than 0.5 s"):
        compiled.is_found_in("a" * 5000 + "!", timeout_s=0.5)


@pytest.mark.parametrize("dialect", ["python", "ecmascript"])
def test_what_runs_in_a_worker_finds_the_same(dialect: str) -> None:
    compiled = compile_pattern("(?:ab|c)+d$", "", dialect)
    found = [compiled.is_found_in(text, TIMEOUT_S) for text in ("abcd", "d", "x" * 100_000 + "cd")]
    assert found == [True, False, True]


def test_a_match_has_its_span_and_its_groups() -> None:
    pattern = compile_pattern("(a+)|(b)")
    assert pattern.fullmatch("aa", 1.0) == ((0, 2), ("aa", "aa", None))
    assert pattern.fullmatch("ab", 1.0) is None
    assert pattern.match("ba", 1.0) == ((0, 1), ("b", None, "b"))
    repeated = compile_pattern("(a|b)+")
    assert repeated.search("xab", TIMEOUT_S) == ((1, 3), ("ab", "b"))


def test_half_a_character_is_searched_as_a_replacement_character() -> None:
    assert is_found("^.$", "\ud83d")
    assert is_found("b", "a\ud83db")


@settings(max_examples=150, deadline=None)
@given(pattern=st.text(st.sampled_from(r"ab()[]{}?*+^$.|\-,:=!<>P12dwkuxcp&~"), max_size=12))
def test_every_pattern_is_compiled_or_refused(pattern: str) -> None:
    for flags, dialect in (("", "ecmascript"), ("u", "ecmascript"), ("", "python")):
        try:
            compiled = compile_pattern(pattern, flags, dialect)
        except PatternError:
            continue
        if dialect == "python":
            found = re.compile(pattern).search("ab1b") is not None
            assert compiled.is_found_in("ab1b", TIMEOUT_S) is found
