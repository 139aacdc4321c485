"""The module that suites of Inspect AI's scorers have beside them."""

from __future__ import annotations

from typing import Final

MODULE_TEXT: Final = r'''"""Checks of the suite beside this file: Inspect AI's scorers."""

import math
import re
import string
from collections import Counter

EDGES = string.whitespace + string.punctuation
ANSWERS = {
    "letter": r"(?is)ANSWER\s*:\s*([A-Za-z])(?:\W|$)(?!.*ANSWER\s*:)",
    "word": r"(?is)ANSWER\s*:\s*(\S+?)(?=[.,;:!?]?\s*(?:\n|$))(?!.*ANSWER\s*:)",
    "line": r"(?i)ANSWER\s*:\s*([^\n]+)\s*\Z",
}


def match(output, context):
    """Whether the output ends with (begins with, contains, is) one of the targets."""
    config = context["config"]
    return any(matches(output, target, config) for target in config["targets"])


def matches(output, target, config):
    """Whether the output has the target where `location` says."""
    location, value, target = config.get("location", "end"), output.strip(), target.strip()
    if config.get("ignore_case", True):
        value, target = value.casefold(), target.casefold()
    if config.get("numeric"):
        number = as_number(without_signs(target))
        if number is not None:
            numbers = [as_number(word) for word in without_signs(value).split()]
            numbers = [each for each in numbers if each is not None]
            if location == "any":
                return number in numbers
            if location == "exact":
                return number == as_number(without_signs(value), trim=False)
            return bool(numbers) and number == numbers[0 if location == "begin" else -1]
        target = without_signs(target)
    else:
        value, target = value.strip(EDGES), target.strip(EDGES)
    if location == "begin":
        return value.startswith(target)
    if location == "exact":
        return value == target
    return value.endswith(target) if location == "end" else target in value


def without_signs(text):
    """Return the text without signs of currencies, emphasis and thousands."""
    text = re.sub(r"[$,£€*_]", "", re.sub(r"\\([$,£€*_])", r"\1", text))
    return re.sub(r"\.(?=\s|$|\D)", "", text)


def as_number(word, trim=True):
    """Return a decimal number with five significant digits, None if the word is none."""
    try:
        number = float(word.strip("!?:;()[]{}'\"`") if trim else word)
    except ValueError:
        return None
    return format(number, ".5g") if math.isfinite(number) else None


def exact(output, context):
    """Whether the output is one of the targets, but for articles, punctuation and case."""
    answer = normalized(output)
    return any(target and target == answer for target in normalized_targets(context))


def f1(output, context):
    """The best F1 of the words of the output and of a target."""
    stop_words = {token(word) for word in context["config"].get("stop_words") or ()}
    words = Counter(normalized(output, stop_words).split())
    best = 0.0
    for target in normalized_targets(context, stop_words):
        wanted_words = Counter(target.split())
        shared = sum((words & wanted_words).values())
        if shared:
            best = max(best, 2 * shared / (sum(words.values()) + sum(wanted_words.values())))
    return round(best, 2)


def normalized_targets(context, stop_words=()):
    """Return the targets as `exact` compares them."""
    return [normalized(target, stop_words) for target in context["config"]["targets"]]


def normalized(text, stop_words=()):
    """Return the words of a text in lower case without articles and punctuation."""
    tokens = [token(word) for word in re.split(" |-", text)]
    return " ".join(each for each in tokens if each and each not in stop_words)


def token(word):
    """Return a word as it is compared: a number as a decimal number."""
    word = word.casefold()
    for candidate in (word, word.strip(EDGES)):
        if is_finite(candidate):
            word = candidate
            break
    else:
        word = "".join(each for each in word if each not in string.punctuation)
    word = str(float(word)) if is_finite(word) else word
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", word).split())


def is_finite(text):
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def pattern(output, context):
    """Whether a group of the pattern (each, with `match_all`) is one of the targets."""
    config = context["config"]
    return extracted(output, config["pattern"], config)


def answer(output, context):
    """Whether the letter, word or line after the last ANSWER: is one of the targets."""
    config = context["config"]
    return extracted(output, ANSWERS[config.get("pattern", "line")], config)


def extracted(output, expression, config):
    """Whether what the expression finds is one of the targets."""
    ignore_case = config.get("ignore_case", True)
    fold = str.lower if ignore_case else str
    hit = re.search(expression, output, re.IGNORECASE if ignore_case else 0)
    targets = {fold(target) for target in config["targets"]}
    groups = [group for group in (hit.groups() or (hit[0],)) if group is not None] if hit else []
    decide = all if config.get("match_all") else any
    return bool(groups) and decide(fold(group) in targets for group in groups)


def choice(output, context):
    """Whether the letters after the last ANSWER: are the targets."""
    text = re.sub(r"\$\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\$", r"\1", output)
    text = re.sub(r"\*\*\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\*\*", r"\1", text)
    text = re.sub(r"(?i)(^|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:,|\.|\n|\Z))", r"\1\2\3", text)
    answers = re.findall(r"(?im)^ANSWER\s*:\s*([A-Za-z\d ,]+)\s*(?:$|\n|\.)", text)
    answers = answers or re.findall(r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]+)(?:\W|$)", text)
    if not answers:
        return False
    letters = answers[-1].strip().upper().replace(" AND ", ",").replace(" ", "")
    targets = {target.upper() for target in "".join(context["config"]["targets"])}
    return targets in ({each for each in letters.split(",") if each}, set(letters) - {","})
'''
