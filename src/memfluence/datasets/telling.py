"""What is telling about a text or a row of a table: a few words of it, for pictures in which there is no room for all.

Of a text it is the stretch of words that says most about its class. A word says as much as the logarithm of how many
times likelier it is in texts of the class than in others, or in others than in the class: what speaks against the label
is telling, too. With one class alone rare words are.

Of a row it is the features that are least usual in its class. A number is as unusual as its distance from the class's
median in standard deviations (the interquartile range / 1.35), a word as rare as the normal deviate of its share.

All of it is for people. It looks at labels and at all training examples, so no learner may see it.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset
from memfluence.datasets.images import features, one_input
from memfluence.datasets.labels import is_missing

UNUSUAL = 2.0  # standard deviations
LETTERS = 56  # of a stretch of words
SHOWN = 3  # features
READ = 4000  # letters of a text, and texts of each class
ROWS = 256  # of each class, that say what is usual
_WORD = re.compile(r"\w+")

Feature = tuple[str, Any, float]  # name, value, standard deviations from what is usual (below 0: smaller)
Telling = str | list[Feature]


def telling(data: Dataset, rows: Sequence[int]) -> list[Telling]:
    """Of each of these training examples a stretch of its text, or its least usual features, those first."""
    codes = np.asarray(data.y_train)
    if isinstance(one_input(data.x_train, 0), str):
        said = _weights(data, codes)
        return [_stretch(str(one_input(data.x_train, row)), said(codes[row])) for row in rows]
    usual = {code: _usual(data, np.flatnonzero(codes == code)) for code in np.unique(codes[list(rows)])}
    return [_unusual(one_input(data.x_train, row), usual[codes[row]]) for row in rows]


def _weights(data: Dataset, codes: np.ndarray) -> Callable[[Any], Callable[[str], float]]:
    """For each class what a word says, of either sign."""
    of_class: dict[Any, Counter[str]] = {}
    texts: Counter[Any] = Counter()
    for code in np.unique(codes):
        some = _spread(np.flatnonzero(codes == code), READ)
        found = of_class[code] = Counter()
        texts[code] = len(some)
        for row in some:
            found.update(set(_WORD.findall(str(one_input(data.x_train, row))[:READ].lower())))
    together: Counter[str] = Counter()
    for found in of_class.values():
        together.update(found)
    everyone = sum(texts.values())

    def of(code: Any) -> Callable[[str], float]:
        own, n = of_class[code], texts[code]
        others = everyone - n

        def weight(word: str) -> float:
            inside, all_over = own[word] + 0.5, together[word] + 0.5
            if not others:
                return float(np.log((n + 1) / inside))
            return abs(float(np.log(inside / (n + 1)) - np.log((all_over - inside + 0.5) / (others + 1))))

        return weight

    return of


def _stretch(text: str, weight: Callable[[str], float]) -> str:
    """The words of at most so many letters that say most, with an ellipsis where something is left out."""
    text = " ".join(text[:READ].split())
    words = list(_WORD.finditer(text))
    if not words or len(text) <= LETTERS:
        return text[:LETTERS]
    said = [weight(word[0].lower()) if not word[0].isdigit() else 0.0 for word in words]
    best, first, last, begin, total = -1.0, 0, 0, 0, 0.0
    for end, word in enumerate(words):
        total += said[end]
        while begin < end and word.end() - words[begin].start() > LETTERS:
            total -= said[begin]
            begin += 1
        if total > best + 1e-9:
            best, first, last = total, begin, end
    start, stop = words[first].start(), min(words[last].end(), words[first].start() + LETTERS)
    before = "…" if start > len(text) - len(text.lstrip("\"'([")) else ""
    return before + text[start:stop] + ("…" if text[stop:].strip(".!?\"')] ") else text[stop : stop + 1].strip())


class _Usual:
    """Median and spread of a class's numbers, shares of its words, by feature."""

    def __init__(self, cells: dict[str, list[Any]]) -> None:
        self._of: dict[str, tuple[float, float] | tuple[Counter[Any], int]] = {}
        for name, values in cells.items():
            if all(isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in values):
                low, middle, high = np.percentile(np.asarray(values, np.float64), [25, 50, 75])
                self._of[name] = float(middle), float(high - low) / 1.35 or float(np.std(values))
            else:
                self._of[name] = Counter(map(str, values)), len(values)

    def deviation(self, name: str, value: Any) -> float:
        known = self._of.get(name)
        if known is None or is_missing(value):
            return 0.0
        if isinstance(known[0], Counter):
            return float(np.sqrt(-2 * np.log((known[0][str(value)] + 0.5) / (known[1] + 1))))
        if not isinstance(value, int | float | np.number) or not known[1]:
            return 0.0
        return float((value - known[0]) / known[1])


def _usual(data: Dataset, members: np.ndarray) -> _Usual:
    cells: dict[str, list[Any]] = {}
    for row in _spread(members, ROWS):
        for name, value in features(one_input(data.x_train, row)):
            if not is_missing(value):
                cells.setdefault(name, []).append(value)
    return _Usual(cells)


def _unusual(one: Any, usual: _Usual) -> list[Feature]:
    found = [(name, value, usual.deviation(name, value)) for name, value in features(one)]
    return sorted(found, key=lambda feature: -abs(feature[2]))[:SHOWN]  # stable: ties in the table's order


def _spread(rows: np.ndarray, most: int) -> list[int]:
    """At most so many of the rows, evenly spread."""
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(int)]
    found: list[int] = rows.tolist()
    return found
