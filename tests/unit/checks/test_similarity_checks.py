from __future__ import annotations

import math

import pytest

from evalcore.model.assertion import Outcome
from tests.unit.checks.checking import (
    FAILED,
    PASSED,
    assertion,
    message,
    outcome,
    result,
    score,
)

FOX = "the quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    ("output", "threshold", "expected"),
    [
        ("sitting", 2, FAILED),
        ("sitting", 2.9, FAILED),
        ("kitten", 0, PASSED),
        ("kittén", 1, PASSED),
        ("", 6, PASSED),
        ("", 5, FAILED),
    ],
)
def test_levenshtein_counts_changed_characters(
    output: str, threshold: float, expected: Outcome
) -> None:
    assert outcome("levenshtein", output, value="kitten", threshold=threshold) is expected


BLEU = {
    "other case and spacing": ("The  QUICK brown\nfox jumps over the lazy dog ", 1.0),
    # One word: 1/1, and 1 for each order without an n-gram.
    # 2/3 words, (1+1)/(2+1) pairs, (0+1)/(1+1) triples, 1 for fours.
    "smoothing": ("the quick cat", (2 / 3 * 2 / 3 * 1 / 2) ** 0.25 * math.exp(1 - 9 / 3)),
}


@pytest.mark.parametrize(("output", "expected"), BLEU.values(), ids=BLEU)
def test_bleu(output: str, expected: float) -> None:
    assert score("bleu", output, value=FOX, threshold=0.5) == pytest.approx(expected, abs=1e-9)


ROUGE = {
    "punctuation and case": ("The quick, brown FOX!", "the quick brown fox", 1.0),
    "no stemming": ("foxes", "fox", 0.0),
    "accents": ("naïve café", "naive CAFÉ", 0.5),
    "a part in another script": ("мама мыла", "мама мыла раму", 0.8),
    "each letter of a script without spaces": ("天气好", "天气很好", 2 * 1 * 0.75 / 1.75),
    "marks belong to their letters": ("कि", "की", 0.0),
    "empty output": ("", FOX, 0.0),
}


@pytest.mark.parametrize(("output", "value", "expected"), ROUGE.values(), ids=ROUGE)
def test_rouge(output: str, value: str, expected: float) -> None:
    measured = score("rouge-n", output, value=value, threshold=0.75)
    assert measured == pytest.approx(expected, abs=1e-9)


SCRIPTS = {
    "Arabic": "مرحبا بالعالم",
    "Chinese": "今天天气很好。",
    "Cyrillic": "Привет, мир!",
    "Devanagari": "नमस्ते दुनिया",
    "Japanese": "こんにちは、カタカナと漢字",
    "Khmer": "ភាសាខ្មែរ",
    "Korean": "안녕하세요 세계",
    "Latin": "Ça va, Łódź? İyi ½",
    "Thai": "สวัสดีชาวโลก",
    "digits": "٤٥",
}


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("check", ["bleu", "rouge-n"])
def test_a_text_is_the_same_as_itself_in_every_script(check: str, text: str) -> None:
    assert score(check, text, value=text, threshold=1.0) == 1.0
    assert score(check, "nothing of it", value=text, threshold=1.0) == 0.0


@pytest.mark.parametrize("value", ["!?", "👍👍", "—"])
def test_rouge_says_that_it_cannot_judge_a_text_without_words(value: str) -> None:
    assert outcome("rouge-n", value, value=value, threshold=0.75) is Outcome.ERROR
    assert f"'{value}' has none" in message("rouge-n", value, value=value, threshold=0.75)


@pytest.mark.parametrize("check", ["bleu", "rouge-n"])
def test_a_graded_check_passes_from_its_threshold_on_and_keeps_its_score(check: str) -> None:
    output = "the quick brown fox"
    measured = score(check, output, value=FOX, threshold=0.0)
    assert outcome(check, output, value=FOX, threshold=measured) is PASSED
    assert outcome(check, output, value=FOX, threshold=measured + 1e-6) is FAILED
    assert score(check, output, value=FOX, threshold=1.0) == measured


def test_the_opposite_of_a_graded_check_has_the_rest_of_the_score() -> None:
    params = {"value": FOX, "threshold": 0.75}
    ended = result(assertion("rouge-n", params, negate=True), "the quick brown fox")
    assert ended.outcome is PASSED
    assert ended.score == pytest.approx(1 - 0.6153846153846153)


def test_a_failure_says_the_measure() -> None:
    assert message("rouge-n", "x", value=FOX, threshold=0.75) == "ROUGE-1 is 0, below 0.75"
    assert message("levenshtein", "", value=FOX, threshold=5) == "the edit distance is more than 5"


@pytest.mark.parametrize(
    ("check", "output", "value", "threshold"),
    [
        ("rouge-n", "a b c", "a b c d e", 0.75),  # 2 · 1 · 0.6 / 1.6 in doubles is below 0.75
        ("bleu", "the quick cat", FOX, None),
    ],
)
@pytest.mark.parametrize("negate", [False, True])
def test_a_score_that_only_rounding_keeps_below_the_threshold_reaches_it(
    check: str, output: str, value: str, threshold: float | None, negate: bool
) -> None:
    measured = score(check, output, value=value, threshold=0.0)
    least = measured + 1e-12 if threshold is None else threshold
    assert measured < least
    one = assertion(check, {"value": value, "threshold": least}, negate=negate)
    assert result(one, output).outcome is (FAILED if negate else PASSED)
