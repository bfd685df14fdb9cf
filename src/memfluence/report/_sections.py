"""Parts of the page as HTML. Every text that came with the data passes through `escape`."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from memfluence.report._contents import Contents
from memfluence.report._examples import MEMORIZED, Carrier, Example
from memfluence.report._histogram import Histogram
from memfluence.report._wording import NAME_LETTERS, approximate, count, error, percent, shortened, value

__all__ = ["carriers_as_html", "gallery_as_html", "histogram_as_html", "notice_as_html", "pair_counts_as_html"]

Inputs = Mapping[int, str]  # HTML of the inputs shown, by index; empty where the data could not be loaded

_ARROW = (
    '<span class="arrow" aria-label="carries"><svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">'
    '<path d="M1 7h24m-6-5.5L25.5 7 19 12.5" fill="none" stroke="currentColor" stroke-width="2"/></svg></span>'
)


def notice_as_html(text: str) -> str:
    return f'<p class="notice" role="note">{escape(text)}</p>'


def histogram_as_html(chart: Histogram, memorized: int) -> str:
    """Bars of HTML, so that text keeps its size on any screen; each says its count when pointed at or read out."""
    n_known = int(chart.counts.sum())
    if not n_known:
        return notice_as_html(
            "No training example has an estimate yet: each needs a trial that kept it and one that left it out."
        )
    low, high = float(chart.edges[0]), float(chart.edges[-1])
    bars = []
    for k, (number, height) in enumerate(zip(chart.counts.tolist(), chart.heights.tolist())):
        place = 2 * k / len(chart.counts)
        kinds = ["memorized"] * bool(chart.edges[k] >= MEMORIZED)
        kinds += ["early"] * (place < 0.3) + ["late"] * (place > 1.7)
        tip = f"{value(chart.edges[k])} to {value(chart.edges[k + 1])}: {count(number)}"
        bars.append(f'<li class="{" ".join(kinds)}"><i style="height:{100 * height:.1f}%"></i><span>{tip}</span></li>')
    top = np.log1p(max(1, int(chart.counts.max())))
    lines = "".join(
        f'<div class="tick" style="bottom:{100 * np.log1p(tick) / top:.1f}%"><span>{count(tick)}</span></div>'
        for tick in chart.ticks
    )
    labels = "".join(
        f'<span style="left:{100 * (tick - low) / (high - low):.2f}%">{value(tick)}</span>'
        for tick in np.arange(np.ceil(low * 4), 5) / 4
    )
    missing = (
        f" {count(chart.missing)} more have no estimate: no trial kept them, or none left them out."
        if chart.missing
        else ""
    )
    return f"""<figure class="chart">
<div class="plot">{lines}<ol class="bars" aria-label="Training examples by memorization">{"".join(bars)}</ol>
<div class="threshold" style="left:{100 * (MEMORIZED - low) / (high - low):.2f}%"><span><b class="memorized">{
        count(memorized)
    }</b> at {value(MEMORIZED)} or above</span></div></div>
<div class="axis" aria-hidden="true">{labels}</div>
<figcaption>Memorization of {count(n_known)} training examples, in bins of 0.05. The height is the number of
examples, on a logarithmic scale.{missing}</figcaption>
</figure>"""


def gallery_as_html(examples: Sequence[Example], names: Sequence[str], inputs: Inputs) -> str:
    """Training examples as a grid of cards."""
    if not examples:
        return "<p>There are none.</p>"
    cards = "".join(f"<li>{_card(example, names, inputs, 'train')}</li>" for example in examples)
    return f'<ol class="gallery{_wide(inputs)}">{cards}</ol>'


def carriers_as_html(
    carriers: Sequence[Carrier], names: Sequence[str], train_inputs: Inputs, test_inputs: Inputs
) -> str:
    """One row for each training example: it, an arrow, and the test examples that it carries."""
    rows = []
    for carrier in carriers:
        tests = "".join(f"<li>{_card(test, names, test_inputs, 'test')}</li>" for test in carrier.tests)
        if carrier.pairs > len(carrier.tests):
            tests += f'<li class="more">and {count(carrier.pairs - len(carrier.tests))} more</li>'
        rows.append(f"<li>{_card(carrier.train, names, train_inputs, 'train')}{_ARROW}<ol>{tests}</ol></li>")
    return f'<ol class="carriers{_wide(train_inputs)}">{"".join(rows)}</ol>' if rows else ""


def pair_counts_as_html(contents: Contents) -> str:
    """The paper's four counts, what chance alone would give, and the warning if there is one."""
    pairs = contents.pairs
    counts = pairs.summary
    parts = [
        (count(counts["pairs"]), "pairs found"),
        (approximate(pairs.expected_by_chance), "expected by chance (permuted masks)"),
        (count(counts["train_examples"]), "training examples"),
        (count(counts["test_examples"]), "test examples"),
        (count(counts["single_test_examples"]), "test examples in one pair only"),
    ]
    shown = "".join(f"<span><b>{number}</b> {what}</span> " for number, what in parts)
    order = (
        f"<p>The {count(len(contents.carriers))} training examples with the highest influence, strongest first:</p>"
        if len(contents.carriers) < counts["train_examples"]
        else ""
    )
    return f'<p class="counts">{shown}</p>{notice_as_html(pairs.warning) if pairs.warning else ""}{order}'


def _wide(inputs: Inputs) -> str:
    """Texts and tables want more room than pictures."""
    return " wide" if any("<img" not in shown for shown in inputs.values()) else ""


def _card(example: Example, names: Sequence[str], inputs: Inputs, split: str) -> str:
    kind = "memorized" if split == "train" else "influence"
    thumb = f'<div class="thumb">{inputs[example.index]}</div>' if example.index in inputs else ""
    low, high = sorted((example.accuracy_out, example.accuracy_in))
    left = min(100 * low, 97)  # what has no length is still seen
    without, seen = percent(example.accuracy_out), percent(example.accuracy_in)
    return (
        f'<div class="card {kind}">{thumb}'
        f'<span class="value">{value(example.value)} <small>± {error(example.stderr)}</small></span>'
        f'{_class_name(names[example.label])}<span class="soft">{split} {example.index}</span>'
        f'<span class="range" aria-hidden="true"><i style="left:{left:.0f}%;width:{100 * high - left:.0f}%"></i></span>'
        f'<span class="soft" title="models that are right: {without} without the training example, {seen} with it">'
        f"{without} → {seen}</span></div>"
    )


def _class_name(name: str) -> str:
    """A class's name; all of a long one is seen when pointed at."""
    short = shortened(name, NAME_LETTERS)
    title = "" if short == name else f' title="{escape(name)}"'
    return f"<b{title}>{escape(short)}</b>"
