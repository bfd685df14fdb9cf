"""The page: what it says, that it needs nothing but itself, and that nothing in the data can become markup."""

import html.parser
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tiny_run import CARRIED, MEMORIZED, N_TEST, N_TRAIN, TRIALS, make_run, trials

from exchange.trial_files import full_disk
from memfluence.datasets import from_arrays
from memfluence.errors import InputError, MemfluenceError, RunMismatchError, StoreError
from memfluence.records import Kind
from memfluence.report import write_report
from memfluence.runs import Run

HOSTILE = '<script>alert("x")</script>&<b>'


class Elements(html.parser.HTMLParser):
    """Start tags with their attributes, and the text between tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "path", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def read(page: Path) -> Elements:
    return Elements(page.read_text(encoding="utf-8"))


def with_inputs(directory: Path, x_train: object, x_test: object, **options: object) -> Run:
    """The tiny run with its data in memory, as `memfluence.run` gives it."""
    run = make_run(directory)
    train, test = run.label_codes
    data = from_arrays(x_train, run.classes[train], x_test, run.classes[test], **options)
    return Run(run.store, data)


def images(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def test_counts_and_accuracies(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = read(write_report(run, tmp_path / "out"))
    known = trials()
    kept = known["train_correct"][known["mask"]].mean()
    held_out = known["train_correct"][~known["mask"]].mean()
    assert f"{TRIALS} models" in page.words
    assert f"{N_TRAIN} training examples and asked about {N_TEST} test examples" in page.words
    for what, share in (
        ("kept training examples", kept),
        ("held-out training examples", held_out),
        ("test examples", known["test_correct"].mean()),
    ):
        assert f"right on {what} {share:.1%}" in page.words
    assert f"training examples memorized (10.0%) {len(MEMORIZED)}" in page.words
    assert f"{len(MEMORIZED)} at 0.25 or above" in page.words
    assert "0.95 to 1.00: 4" in page.words
    assert "0.00 to 0.05: 36" in page.words
    by_chance = f"{run.find_pairs().expected_by_chance:.1f}"
    assert (
        f"{len(CARRIED)} pairs found {by_chance} expected by chance (permuted masks) 3 training examples"
        " 4 test examples 4 test examples in one pair only"
    ) in page.words


def test_carriers_with_their_test_examples_strongest_first(tmp_path: Path) -> None:
    text = write_report(make_run(tmp_path), tmp_path / "out").read_text(encoding="utf-8")
    carriers = re.search(r'<ol class="carriers">(.*)</ol>\s*</section>', text, re.S)
    assert carriers is not None
    shown = re.findall(r">(train|test) (\d+)<", carriers[1].partition("</section>")[0])
    assert [(split, int(index)) for split, index in shown] == [
        ("train", 0),
        ("test", 0),
        ("train", 1),
        ("test", 1),
        ("train", 2),
        ("test", 4),
        ("test", 6),
    ]
    assert "0% → 100%" in text


def test_more_test_examples_than_fit_are_counted(tmp_path: Path) -> None:
    changed = trials()
    changed["test_correct"][:, 0:14:2] = changed["mask"][:, [0]]  # seven of the carrier's class
    page = read(write_report(make_run(tmp_path, **changed), tmp_path / "out"))
    assert "and 3 more" in page.words


def test_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    run = with_inputs(tmp_path, images(N_TRAIN, 8, 8), images(N_TEST, 8, 8))
    page = read(write_report(run, tmp_path / "out"))
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["index.html"]
    assert page.all("script") == []
    assert all((link["href"] or "").startswith("data:") for link in page.all("link"))
    assert "url(" not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    shown = page.all("img")
    assert len(shown) >= 2 * 16
    for image in shown:
        assert (image["src"] or "").startswith("data:image/png;base64,")
        assert re.fullmatch(r"(training|test) example \d+, (cat|dog)", image["alt"] or "")
        assert (image["width"], image["height"]) == ("96", "96")


@pytest.mark.parametrize(
    ("shape", "size", "kind"),
    [((28, 28), ("84", "84"), "png"), ((3, 32, 16), ("48", "96"), "png"), ((400, 200, 3), ("48", "96"), "jpeg")],
)
def test_images_of_other_shapes(tmp_path: Path, shape: tuple[int, ...], size: tuple[str, str], kind: str) -> None:
    run = with_inputs(tmp_path, images(N_TRAIN, *shape), images(N_TEST, *shape))
    page = write_report(run, tmp_path / "out")
    image = read(page).all("img")[0]
    assert (image["width"], image["height"]) == size
    assert (image["src"] or "").startswith(f"data:image/{kind};")
    assert ("class" in image) == (kind == "png")  # pixel by pixel
    assert page.stat().st_size < 3e6


def test_nothing_from_the_data_becomes_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path, classes=("cat", HOSTILE))
    train, test = run.label_codes
    texts = [HOSTILE + " word" * 100] * N_TRAIN
    data = from_arrays(texts, run.classes[train], texts[:N_TEST], run.classes[test], name=f"hf:{HOSTILE}")
    page = write_report(Run(run.store, data), tmp_path / "out")
    found = read(page)
    assert found.all("script") == []
    assert "<script>" not in page.read_text(encoding="utf-8")
    assert HOSTILE in found.text  # as text, not as markup
    ids = [HOSTILE] * N_TRAIN
    pictures = from_arrays(
        images(N_TRAIN, 8, 8), run.classes[train], images(N_TEST, 8, 8), run.classes[test], train_ids=ids
    )
    found = read(write_report(Run(run.store, pictures), tmp_path / "out"))
    assert found.all("script") == []
    assert any(HOSTILE in (image["alt"] or "") for image in found.all("img"))


def test_texts_are_shortened(tmp_path: Path) -> None:
    texts = [f"text {number}  with\nspaces " + "and more " * 1000 for number in range(N_TRAIN)]
    page = read(write_report(with_inputs(tmp_path, texts, texts[:N_TEST]), tmp_path / "out"))
    assert "text 2 with spaces and more" in page.words
    assert max(len(line) for line in re.findall(r"text \d+ with spaces[^…]*…", page.words)) == 160


def test_long_class_names_are_shortened_and_whole_when_pointed_at(tmp_path: Path) -> None:
    long = "a very long name of a class, " + "x" * 5000 + '"<'
    run = make_run(tmp_path, classes=("cat", long))
    train, test = (run.classes[codes] for codes in run.label_codes)
    data = from_arrays(images(N_TRAIN, 8, 8), train, images(N_TEST, 8, 8), test)
    page = read(write_report(Run(run.store, data), tmp_path / "out"))
    names = re.findall(r"a very long name of a class[^…]*…", page.text)
    assert len(names) >= 16
    assert {len(name) for name in names} == {48}
    titles = [name["title"] for name in page.all("b") if "title" in name]
    assert titles == [long] * len(names)
    assert all(len(image["alt"] or "") < 100 for image in page.all("img"))


def test_first_features_of_a_table_with_their_names(tmp_path: Path) -> None:
    columns = ["age", "<i>height</i>", *(f"c{k}" for k in range(9))]
    table = pd.DataFrame(np.arange(11 * N_TRAIN).reshape(N_TRAIN, 11) / 8, columns=columns)
    page = read(write_report(with_inputs(tmp_path, table, table[:N_TEST]), tmp_path / "out"))
    assert "and 5 more age 2.75 <i>height</i> 2.875" in page.words  # training example 2
    assert page.all("i")[0].keys() == {"style"}


@pytest.mark.parametrize("as_inputs", [np.asarray, sparse.csr_matrix, sparse.csr_array, list])
def test_rows_of_numbers(tmp_path: Path, as_inputs: type) -> None:
    rows = np.zeros((N_TRAIN, 9))
    rows[:, 7] = np.arange(N_TRAIN) + 0.5
    page = read(write_report(with_inputs(tmp_path, as_inputs(rows), as_inputs(rows[:N_TEST])), tmp_path / "out"))
    zeros = "feature 0 0 feature 1 0"
    assert ("feature 7 2.5" if sparse.issparse(as_inputs(rows)) else zeros) in page.words


def test_without_inputs_the_page_says_what_to_do(tmp_path: Path) -> None:
    page = read(write_report(make_run(tmp_path), tmp_path / "out"))
    assert "Only numbers are shown, no inputs." in page.words
    assert "--dataset" in page.words
    assert page.all("img") == []
    gone = read(write_report(make_run(tmp_path / "b", name=f"npz:{tmp_path}/gone.npz"), tmp_path / "out"))
    assert "Only numbers are shown, no inputs." in gone.words
    assert "gone.npz" in gone.words


def test_data_named_by_the_caller_must_load_and_agree(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    train, test = (run.classes[codes] for codes in run.label_codes)
    file = tmp_path / "data.npz"
    np.savez(file, x_train=images(N_TRAIN, 8, 8), y_train=train, x_test=images(N_TEST, 8, 8), y_test=test)
    page = read(write_report(run, tmp_path / "out", dataset=f"npz:{file}"))
    assert page.all("img") != []
    assert "What is memorized in data.npz" in page.words
    with pytest.raises(InputError, match="gone"):
        write_report(make_run(tmp_path), tmp_path / "out", dataset=f"npz:{tmp_path}/gone.npz")
    np.savez(file, x_train=images(N_TRAIN, 8, 8), y_train=train[::-1], x_test=images(N_TEST, 8, 8), y_test=test)
    with pytest.raises(RunMismatchError):
        write_report(make_run(tmp_path), tmp_path / "out", dataset=f"npz:{file}")
    with pytest.raises(RunMismatchError):  # also where the run itself names them
        write_report(make_run(tmp_path / "b", name=f"npz:{file}"), tmp_path / "out")


def test_examples_without_an_estimate_are_counted_and_not_ranked(tmp_path: Path) -> None:
    changed = trials()
    changed["mask"][:, 10] = True
    changed["mask"][:, 11] = False
    text = write_report(make_run(tmp_path, **changed), tmp_path / "out").read_text(encoding="utf-8")
    assert "Memorization of 38 training examples" in text
    assert "2 more have no estimate" in text
    assert "nan" not in Elements(text).words.lower()
    assert not re.search(r">train 1[01]<", text)


def test_one_trial_has_nothing_to_say_and_says_so(tmp_path: Path) -> None:
    one = {name: values[:1] for name, values in trials().items()}
    page = read(write_report(make_run(tmp_path, **one), tmp_path / "out"))
    assert "No training example has an estimate yet" in page.words
    assert "There are none." in page.words
    assert "nan" not in page.words.lower()


def test_no_pairs(tmp_path: Path) -> None:
    always = np.ones((TRIALS, N_TEST), bool)
    page = read(write_report(make_run(tmp_path, test_correct=always), tmp_path / "out"))
    assert "0 pairs found" in page.words
    assert "No pair reaches memorization 0.25 and influence 0.15" in page.words


def test_warning_of_noise_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    noise = {name: rng.random(values.shape) < 0.6 for name, values in trials().items()}
    few = {name: values[:12] for name, values in noise.items()}
    run = make_run(tmp_path, **few)
    warning = run.find_pairs().warning
    assert warning is not None
    assert warning in read(write_report(run, tmp_path / "out")).words


def test_one_class_in_test(tmp_path: Path) -> None:
    changed = trials()
    changed["test_correct"] = changed["test_correct"][:, :1]
    page = read(write_report(make_run(tmp_path, **changed), tmp_path / "out"))
    assert "1 pairs found" in page.words


def test_several_keep_fractions(tmp_path: Path, world) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from memfluence.store import TrialStore

    info = replace(world.info, kinds=(Kind(0.5, 20), Kind(0.7, 28)))
    store = TrialStore.create(tmp_path / "run", info, world.y_train, world.y_test)
    store.write([replace(world.outcome(number), kind=number % 2) for number in range(30)])
    page = read(write_report(Run(store), tmp_path / "out"))
    assert "This page is about the trials that keep 0.7; the run also has 0.5." in page.words
    page = read(write_report(Run(store), tmp_path / "out", keep=0.5))
    assert "trials that keep 0.5; the run also has 0.7." in page.words
    assert "30 of 100 models" in page.words


def test_same_run_same_bytes(tmp_path: Path) -> None:
    run = with_inputs(tmp_path, images(N_TRAIN, 8, 8), images(N_TEST, 8, 8))
    first = write_report(run, tmp_path / "a").read_bytes()
    assert write_report(with_inputs(tmp_path / "again", run.dataset().x_train, run.dataset().x_test), tmp_path / "b")
    assert (tmp_path / "b" / "index.html").read_bytes() == first
    assert write_report(run, tmp_path / "a").read_bytes() == first  # over itself


def test_places_that_cannot_take_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        write_report(run, file)
    with pytest.raises(MemfluenceError, match="check the disk and the path"):
        write_report(run, file / "below")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<h1>mine</h1>")
    with pytest.raises(InputError, match="was not written by memfluence"):
        write_report(run, tmp_path / "site")
    assert (tmp_path / "site" / "index.html").read_text() == "<h1>mine</h1>"
    assert file.read_text() == "mine"


def test_a_full_disk_leaves_the_page_that_was_there(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "a"), tmp_path / "out")
    before = page.read_bytes()
    other = make_run(tmp_path / "b", test_correct=np.ones((TRIALS, N_TEST), bool))
    with full_disk(2000), pytest.raises(StoreError, match=r"Failed writing .*disk is full"):
        write_report(other, tmp_path / "out")
    assert page.read_bytes() == before
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["index.html"]
    assert write_report(other, tmp_path / "out").read_bytes() != before


def test_disk_errors_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"Failed writing .*Permission denied; .* choose another --out\."):
        write_report(run, tmp_path / "out")
