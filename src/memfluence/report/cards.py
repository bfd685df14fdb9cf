"""Cards: examples with what a run says about them, side by side in a notebook, as lines of text elsewhere.

A row begins with one example, and the examples that it carries, or that carry it, follow. The HTML has no scripts and
nothing from elsewhere, takes its colours from the page, and escapes every text.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence.datasets import Dataset, picture_range
from memfluence.drawing import BLUE, ORANGE, TINY
from memfluence.errors import InputError, RunMismatchError, checked_integer
from memfluence.estimators import Memorization
from memfluence.estimators.counts import column_counts
from memfluence.paper import INFLUENCE
from memfluence.report.explorer.influences import accuracies_of
from memfluence.report.explorer.inputs import rows_as_json
from memfluence.report.explorer.sheets import are_pictures, pictures
from memfluence.wording import approximate, class_name, count, error, percent, shortened, value

if TYPE_CHECKING:
    from PIL.Image import Image

    from memfluence.runs import Run

Split = Literal["train", "test"]
STRONGEST = 4  # examples that follow another one
SIDE = 88  # pixels of a picture as it is shown
LETTERS, NAME_LETTERS = 320, 28
SPLITS = {"train": "training", "test": "test"}
RATES = "Right: models that are right without → with the training example."
SCORES = "Mean scores are those of models without → with the training example."


@dataclass(frozen=True)
class Card:
    """One example: what it is, and what is said about it."""

    split: Split
    id: str
    label: str
    measure: str  # 'memorization'
    number: str  # '0.94 ± 0.03'
    more: str  # models that are right without and with the training example in question, what they say instead
    html: str  # the input
    text: str
    faint: bool = False  # below the threshold

    def __str__(self) -> str:
        said = ", ".join(filter(None, (f"{self.measure} {self.number}", self.more)))
        return f"{SPLITS[self.split]} example {self.id} ({self.label}): {said}" + f"\n    {self.text}" * bool(self.text)

    def as_html(self) -> str:
        line = f"3px {'dotted' if self.faint else 'solid'} {ORANGE if self.split == 'train' else BLUE}"
        return (
            f'<div style="border-top:{line};padding-top:.4em;max-width:19em;overflow-wrap:anywhere">{self.html}'
            f"<div>{self.measure} <strong>{self.number}</strong></div><div>{escape(self.label)}</div>"
            f'<div style="opacity:.75">{escape(self.more)}</div>'
            f'<div style="opacity:.75">{self.split} {escape(self.id)}</div></div>'
        )


@dataclass(frozen=True)
class Row:
    """An example, and the examples that it carries or that carry it."""

    first: Card
    then: str  # 'carries'
    others: Sequence[Card]
    more: int = 0  # than are shown

    def __str__(self) -> str:
        others = [f"  {self.then} {other}" for other in self.others] or [f"  {self.then}"]
        return "\n".join([str(self.first), *others, *([f"  and {self.more} more"] if self.more else [])])

    def as_html(self) -> str:
        others = "".join(card.as_html() for card in self.others)
        more = f'<div style="padding-top:.5em">and {self.more} more</div>' if self.more else ""
        return (
            '<div style="display:flex;gap:.8em;padding:.8em 0;border-top:1px solid rgba(128,128,128,.35)">'
            f'<div style="flex:none">{self.first.as_html()}</div>'
            f'<div style="flex:none;max-width:7em;padding-top:.5em">{self.then}{" →" * bool(others)}</div>'
            f'<div style="display:flex;flex-wrap:wrap;gap:.8em">{others}{more}</div></div>'
        )


@dataclass(frozen=True, repr=False)
class Shown:
    """What a notebook shows as the last line of a cell; `print` gives it as text."""

    heading: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        return "\n".join([self.heading, *map(str, self.rows), *self.notes])

    def _repr_html_(self) -> str:
        rows = "".join(row.as_html() for row in self.rows)
        notes = "".join(f'<div style="opacity:.75">{escape(note)}</div>' for note in self.notes)
        return f'<div style="line-height:1.35;font-size:.88em"><div>{escape(self.heading)}</div>{rows}{notes}</div>'


def show(run: "Run", chosen: Any, index: Any, split: Split, keep: float | None) -> Shown:
    """Examples by their ids (`chosen`) or their positions (`index`), each with the strongest on the other side."""
    if split not in SPLITS:
        raise InputError(f"The `split` parameter must be 'train' or 'test'. Got {split!r} instead.")
    rows = _positions(run, chosen, index, split)
    cards = _Cards(run, keep)
    shown = [cards.trained(row) if split == "train" else cards.tested(row) for row in rows]
    faint = f" Dotted: influence below {value(INFLUENCE)}." * any(one.faint for row in shown for one in row.others)
    return Shown(cards.legend + faint, shown, cards.notes)


def show_pairs(run: "Run", top: int, options: Mapping[str, Any]) -> Shown:
    """The training examples of the strongest pairs, each followed by the test examples of its pairs."""
    checked_integer("top", top, 1)
    found = run.find_pairs(**options)
    cards = _Cards(run, options.get("keep"))
    firsts = list(dict.fromkeys(found.train_index.tolist()))  # the strongest first
    rows = [cards.paired(row, found.test_index[found.train_index == row]) for row in firsts[:top]]
    said = found.summary
    chance = f"; about {approximate(found.expected_by_chance)} by chance" * (found.expected_by_chance >= 0)
    heading = (
        f"{count(said['pairs'])} pairs of {count(said['train_examples'])} training and {count(said['test_examples'])}"
        f" test examples{chance}. {cards.legend}"
    )
    more = [f"{len(firsts) - top} more training examples are in pairs."] if len(firsts) > top else []
    warning = [found.warning] if found.warning else []
    return Shown(heading if rows else "There are no pairs to show.", rows, [*more, *warning, *cards.notes])


def _positions(run: "Run", chosen: Any, index: Any, split: Split) -> list[int]:
    """The positions of examples that are named by their ids, or by their positions; one, or several."""
    if (chosen is None) == (index is None):
        raise InputError("Say which example to show: its id, as tables have it, or its position (`index`).")
    ids = run.ids[split == "test"]
    if chosen is None:
        positions = np.atleast_1d(np.asarray(index))
        if (
            positions.dtype.kind not in "iu"
            or positions.ndim > 1
            or (len(positions) and not 0 <= positions.min() <= positions.max() < len(ids))
        ):
            raise InputError(
                f"The `index` parameter must be positions from 0 to {len(ids) - 1}. Got {index!r} instead."
            )
        return list(map(int, positions))
    found = []
    for one in [chosen] if isinstance(chosen, str) or np.ndim(chosen) == 0 else chosen:
        there = np.flatnonzero(np.asarray([own == one for own in ids.tolist()]))
        if len(there) != 1:
            what = (
                f"There is no {SPLITS[split]} example {one!r:.60}"
                if not len(there)
                else f"Several are called {one!r:.60}"
            )
            other = "test" if split == "train" else "train"
            way_out = f" (split={other!r} has one)" * (
                not len(there) and bool(np.isin(one, run.ids[other == "test"]).any())
            )
            raise InputError(f"{what}{way_out}; ids are like {ids.tolist()[0]!r:.60}, and `index` takes positions.")
        found.append(int(there[0]))
    return found


class _Cards:
    """Makes the cards of one run: estimates and inputs are looked up once for all of them."""

    def __init__(self, run: "Run", keep: float | None) -> None:
        self._run, self._inputs = run, _Inputs(run)
        self._has_scores = run.outcome == "score"
        self.notes, self.legend = self._inputs.notes, SCORES if self._has_scores else RATES
        self._targets = run.labels if self._has_scores else None
        self._scores = run.estimate_memorization(keep)
        self._decimals = _decimals(self._scores) if self._has_scores else 2
        self._estimates = run.influence_estimates(keep)
        self._votes = run.held_out_votes(keep) if "train_prediction" in run.info.columns else None

    def trained(self, row: int) -> Row:
        """A training example and the test examples of its class that it helps most."""
        labels = self._run.label_codes
        tests = np.flatnonzero(labels[1] == labels[0][row])
        helped = tests[_largest(self._estimates.block([row], tests)[0])]
        others = self._others("test", row, helped)
        return Row(self._first(row), "carries" if others else "carries no test example", others)

    def paired(self, row: int, tests: np.ndarray) -> Row:
        """A training example and the test examples that it is in a pair with, the strongest first."""
        others = self._others("test", row, tests[:STRONGEST], -np.inf)
        return Row(self._first(row), "carries", others, len(tests) - len(others))

    def tested(self, test: int) -> Row:
        """A test example and the training examples of its class that help it most."""
        labels = self._run.label_codes
        trains = np.flatnonzero(labels[0] == labels[1][test])
        helpers = trains[_largest(self._estimates.block(trains, [test])[:, 0])]
        first = self._card("test", test, *self._on_test(test))
        others = self._others("train", helpers, test)
        return Row(first, "is carried by" if others else "hangs on no training example", others)

    def _on_test(self, test: int) -> tuple[str, str]:
        """What all models make of a test example."""
        parts = self._estimates.arms.parts
        if self._has_scores:
            numbers = np.concatenate([part.numbers for part in parts])
            scores = self._run.recorded("test_score")[np.isin(self._run.trials.numbers, numbers), test]
            return "mean score", value(float(scores.mean(dtype=np.float64)), self._decimals)
        right = sum(int(column_counts(part.test_correct, part.n_test)[test]) for part in parts)
        return "right", percent(right / max(1, sum(map(len, parts))))

    def _first(self, row: int) -> Card:
        found, label = self._scores, self._run.label_codes[0][row]
        more = self._means(found.accuracy_out[row], found.accuracy_in[row])
        if self._votes is not None and (votes := self._votes[row]).sum():
            others = np.where(np.arange(len(votes)) == label, 0, votes)
            said = shortened(class_name(self._run.class_names[others.argmax()]), NAME_LETTERS)
            more += f", held-out models say {said}: {percent(others.max() / votes.sum())}" * bool(others.any())
        number = self._with_error(found.value[row], found.stderr[row])
        return self._card("train", row, "memorization", number, more)

    def _others(self, split: Split, train: Any, test: Any, least: float = 0.0) -> list[Card]:
        """The cards of one side of the pairs, of those whose interval ends above `least`."""
        train, test = (np.ravel(part) for part in np.broadcast_arrays(train, test))  # (others,) each
        found = self._estimates.at(train, test)
        accuracy_in, accuracy_out = accuracies_of(self._estimates, train, test, found.value)
        return [
            self._card(
                split,
                int((test if split == "test" else train)[k]),
                "influence",
                self._with_error(found.value[k], found.stderr[k]),
                self._means(accuracy_out[k], accuracy_in[k]),
                faint=not self._has_scores and bool(found.value[k] < INFLUENCE),
            )
            for k in np.flatnonzero(found.lower > least)
        ]

    def _with_error(self, estimate: float, stderr: float) -> str:
        small = self._decimals > 2
        return f"{value(estimate, self._decimals)} ± {value(stderr, self._decimals) if small else error(stderr)}"

    def _means(self, without: float, including: float) -> str:
        if self._has_scores:
            return f"mean score {value(without, self._decimals)} → {value(including, self._decimals)}"
        return f"right {percent(without)} → {percent(including)}"

    def _card(self, split: Split, row: int, measure: str, number: str, more: str = "", faint: bool = False) -> Card:
        side = split == "test"
        if self._targets is None:
            label = class_name(self._run.class_names[self._run.label_codes[side][row]])
        else:
            label = f"target {self._targets[side][row]}"
        named = shortened(str(self._run.ids[side][row]), NAME_LETTERS), shortened(label, NAME_LETTERS)
        html, text = self._inputs.of(split, row)
        return Card(split, *named, measure, number, more, html, text, faint)


def _decimals(scores: Memorization) -> int:
    """Decimals of scores in a unit of their own: two, or as many as show two digits of the highest mean."""
    means = np.abs([scores.mean_in, scores.mean_out])
    highest = means.max(initial=0.0, where=np.isfinite(means))
    return max(2, 1 - int(np.floor(np.log10(highest)))) if highest > 0 else 2


def _largest(values: np.ndarray) -> np.ndarray:
    """Where the strongest are, the strongest first."""
    return np.argsort(-values, kind="stable")[:STRONGEST]  # NaN last


class _Inputs:
    """The inputs of a run's examples as HTML and as text; nothing where the data cannot be had: a note says why."""

    def __init__(self, run: "Run") -> None:
        self.notes: list[str] = []
        self._data: Dataset | None = None
        try:
            self._data = run.dataset()
        except RunMismatchError:
            raise
        except InputError as problem:
            self.notes.append(f"Only numbers are shown, no inputs. {problem}")
            return
        self._range = picture_range(self._data.x_train, self._data.value_range)
        self._are_pictures = are_pictures(self._data.x_train, self._range)

    def of(self, split: Split, row: int) -> tuple[str, str]:
        if self._data is None:
            return "", ""
        inputs = self._data.x_train if split == "train" else self._data.x_test
        if self._are_pictures:
            (picture,) = pictures(inputs, self._range, [row])
            return ("", "") if picture is None else (_picture(picture), "")
        found = rows_as_json(inputs, range(row, row + 1), LETTERS)
        if "texts" in found:
            text = found["texts"][0]
            return f'<div style="padding-bottom:.3em;white-space:pre-line">{escape(text)}</div>', " ".join(text.split())
        values = [(found["names"][name], text) for name, text in found["features"][0]]
        more = f"and {found['more'][0]} more" if found["more"][0] else ""
        lines = "".join(
            '<div style="display:flex;justify-content:space-between;gap:1em">'
            f'<span style="opacity:.75">{escape(name)}</span><span>{escape(text)}</span></div>'
            for name, text in [*values, *([(more, "")] if more else [])]
        )
        text = ", ".join([*(f"{name} {text}" for name, text in values), *([more] if more else [])])
        return f'<div style="padding-bottom:.3em">{lines}</div>', text


def _picture(picture: "Image") -> str:
    """An <img> of the size shown; small pictures show their pixels, tiny ones are smoothed."""
    longest = max(picture.size)
    if longest > 2 * SIDE:
        picture = picture.copy()
        picture.thumbnail((2 * SIDE, 2 * SIDE))
    kind = "PNG" if longest <= SIDE else "WEBP"
    content = io.BytesIO()
    picture.save(content, kind)
    data = base64.b64encode(content.getvalue()).decode()
    pixels = "image-rendering:pixelated;" if TINY < longest <= SIDE else ""
    size = f"width:{SIDE}px;height:{SIDE}px;object-fit:contain"  # pages have rules of their own for attributes
    return f'<img alt="" src="data:image/{kind.lower()};base64,{data}" style="{size};{pixels}margin:0 0 .3em"/>'
