"""What a notebook shows of a run."""

import pickle
import re
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from memfluence.report.notebook import run_html
from report.tiny_run import MEMORIZED, make_run
from small_world import SmallWorld

HOSTILE = "npz:/data/<script>alert(1)</script>&.npz"


def parsed(page: str) -> ET.Element:
    """It is well-formed, or this raises."""
    return ET.fromstring(page)


def test_a_run_shows_what_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    page = run._repr_html_()
    text = " ".join(parsed(page).itertext())
    assert "40 training and 30 test examples" in text
    assert "200 of 200" in text
    assert f"{len(MEMORIZED)} of 40 training examples have memorization ≥ 0.25" in text
    counts = [int(title.rpartition(": ")[2].replace(",", "")) for title in re.findall(r"<title>(.*?)</title>", page)]
    assert sum(counts) == 40
    assert counts[-1] == len(MEMORIZED)  # 0.95 to 1


def test_names_are_escaped_and_nothing_is_fetched(tmp_path: Path) -> None:
    page = make_run(tmp_path / "<b>&run", name=HOSTILE, fingerprint="0" * 32)._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert not re.search(r"(src|href|url)\b", page.replace("currentColor", ""))
    assert HOSTILE in " ".join(parsed(page).itertext())


def test_bars_hold_their_lower_edge_and_negative_values_have_theirs() -> None:
    status = dict.fromkeys(("learner", "accuracy_in", "accuracy_out", "test_accuracy"))
    status |= {"run": "r", "dataset": "d", "n_train": 5, "n_test": 1, "keep": [0.7, None], "trials": 3}
    status |= {"trials_wanted": 9, "trials_failed": 2, "damaged": [{}]}
    page = run_html(status, np.array([-0.07, 0.0, 0.25, 1.0, np.nan]))
    titles = re.findall(r"<title>(.*?)</title>", page)
    assert [title for title in titles if not title.endswith(": 0")] == [
        "-0.10 to -0.05: 1",
        "0.00 to 0.05: 1",
        "0.25 to 0.30: 1",
        "0.95 to 1.00: 1",
    ]
    text = " ".join(parsed(page).itertext())
    assert "2 of 5 training examples" in text
    assert "1 cannot be estimated yet" in text
    assert "3 of 9, 2 failed, 1 damaged file(s); 70% of the examples kept" in text
    assert "imported trials" in text


def test_a_run_without_trials_says_so(world: SmallWorld, tmp_path: Path) -> None:
    world.create(tmp_path / "run")
    page = mf.open(tmp_path / "run")._repr_html_()
    assert "holds no trials yet" in " ".join(parsed(page).itertext())
    assert "<svg" not in page


def test_tables_are_data_frames_which_notebooks_show(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for table in (run.memorization(), run.pairs(), run.mislabels(), run.duplicates()):
        assert "<table" in table._repr_html_()


@pytest.mark.parametrize("values", [np.full(4, np.nan), np.zeros(1)])
def test_odd_values_have_a_picture(values: np.ndarray, tmp_path: Path) -> None:
    status = make_run(tmp_path / "run").status()
    parsed(run_html(status, values))


def test_a_report_is_a_path_that_shows_a_link_and_a_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path)
    page = run.report()
    assert isinstance(page, Path)
    assert page == run.folder / "report" / "index.html"
    assert page.read_text() == Path(str(page)).read_text()
    assert pickle.loads(pickle.dumps(page)) == page
    assert page.parent._repr_html_() is None  # type: ignore[attr-defined]
    shown = page._repr_html_()
    assert shown is not None
    text = " ".join(" ".join(parsed(shown).itertext()).split())
    assert f"or {page} in a browser at any time" in text
    assert "4 pairs of 3 training and 4 test examples" in text
    (link,) = re.findall(r'href="([^"]+)"', shown)
    assert urllib.request.urlopen(link).read() == page.read_bytes()
    with pytest.raises(urllib.error.HTTPError, match="404"):  # others of this machine do not know the link
        urllib.request.urlopen(re.sub(r"[^/]+/$", "", link))
    assert re.findall(r'href="([^"]+)"', page._repr_html_() or "") == [link]


def test_a_report_without_a_preview_says_why(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = run.report(tmp_path / "<out>")
    run.memory = mf.open(run.path, memory="1KB").memory
    del run.__dict__["trials"]
    shown = page._repr_html_()
    assert shown is not None
    assert "reading the trials" in " ".join(parsed(shown).itertext())


def test_the_preview_is_of_the_fraction_that_the_page_shows(tmp_path: Path) -> None:
    data = mf.datasets.load("longtail?n_train=60&n_test=80&n_classes=3&subpopulations=30&seed=1")
    settings = {"settings": {"epochs": 8}, "trials": 64, "progress": False}
    run = mf.run(data, keep=[0.5, 0.7], out=tmp_path / "run", **settings)
    found = run.find_pairs(keep=0.7, permutations=0)
    page = run.report()._repr_html_()
    assert f"{len(found)} pairs of" in page
    assert "choose one with" not in page
