"""Comparisons in full: curves against plain sets, ranks by hand, figures and files."""

import json
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from exchange.trial_files import TRIALS, trials_file
from memfluence.cli import main
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.exchange import compared, comparison_figure, save_comparison
from memfluence.runs import Run, Table


@pytest.fixture
def both(tmp_path: Path) -> tuple[Run, Run]:
    mf.import_trials([trials_file(tmp_path / "a.npz")], tmp_path / "a")
    rng = np.random.default_rng(8)
    changes = {"train_correct": rng.random((TRIALS, 20)) < 0.7, "test_correct": rng.random((TRIALS, 9)) < 0.6}
    mf.import_trials([trials_file(tmp_path / "b.npz", **changes)], tmp_path / "b")
    return mf.open(tmp_path / "a"), mf.open(tmp_path / "b")


def selected(run: Run, mem: float, infl: float) -> set[tuple[int, int]]:
    found = run.find_pairs(mem, infl, permutations=0)
    return set(zip(found.train_index.tolist(), found.test_index.tolist()))


def jaccard(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> float | None:
    return len(one & other) / len(one | other) if one | other else None


def test_curves_of_two_runs_equal_plain_sets(both: tuple[Run, Run]) -> None:
    found = mf.compare(*both, mem=-0.5, infl=0.1)
    curve = found["curves"]["influence"]
    for k, threshold in enumerate(curve["thresholds"]):
        one, other = (selected(run, -0.5, threshold) for run in both)
        assert (curve["first"][k], curve["second"][k]) == (len(one), len(other))
        assert curve["jaccard"][k] == jaccard(one, other)
    values = [run.memorization().memorization.to_numpy() for run in both]
    curve = found["curves"]["memorization"]
    for k, threshold in enumerate(curve["thresholds"]):
        sets = [set(np.flatnonzero(value >= threshold).tolist()) for value in values]
        assert curve["shared"][k] == len(sets[0] & sets[1])
        union = sorted(sets[0] | sets[1])
        mean = np.abs(values[0] - values[1])[union].mean() if union else None
        assert curve["difference"][k] == (None if mean is None else pytest.approx(mean))
    json.dumps(found, allow_nan=False)


def test_published_scores_give_the_curves_of_their_run(tmp_path: Path, both: tuple[Run, Run]) -> None:
    mf.export_published(both[1], tmp_path / "scores.npz")
    with_file, with_run = (compared(both[0], other, mem=-0.5, infl=0.1) for other in (tmp_path / "scores.npz", both[1]))
    assert with_file.document["curves"] == with_run.document["curves"]
    assert with_file.influence is not None
    assert with_run.influence is not None
    assert (np.stack(with_file.influence) == np.stack(with_run.influence)).all()


def test_published_pairs_give_the_index_from_where_they_were_cut(tmp_path: Path, both: tuple[Run, Run]) -> None:
    mf.export_published(both[1], tmp_path / "pairs.npz", pairs=True, mem=-0.5, infl=0.1)
    curve = mf.compare(both[0], tmp_path / "pairs.npz", mem=-0.5, infl=0.1)["curves"]["influence"]
    assert curve["thresholds"][0] == 0.1
    assert set(curve["difference"]) == {None}
    for k, threshold in enumerate(curve["thresholds"]):
        assert curve["jaccard"][k] == jaccard(*(selected(run, -0.5, threshold) for run in both))


def test_ranks_and_what_is_found_by_hand(tmp_path: Path, both: tuple[Run, Run]) -> None:
    mf.export_published(both[1], tmp_path / "pairs.npz", pairs=True, mem=-0.5, infl=0.1)
    found = mf.compare(both[0], tmp_path / "pairs.npz", mem=-0.5, infl=0.1)["published_pairs"]
    codes, matrix = both[0].label_codes, both[0].influence_estimates().block()
    here = selected(both[0], -0.5, 0.1)
    assert found["pairs"] == len(found["each"]) > 5
    for row in found["each"]:
        i, j = row["train_index"], row["test_index"]
        members = np.flatnonzero(codes[0] == codes[1][j])
        order = sorted(members, key=lambda k: -matrix[k, j])
        assert matrix[order[row["rank"] - 1], j] == matrix[i, j] == row["influence"]
        assert row["class_size"] == len(members) == 5
        assert row["found"] == ((i, j) in here)
    assert found["found"] == len(here & selected(both[1], -0.5, 0.1))
    assert found["median_rank_by_chance"] == 3
    assert found["among_first_5_of_class"] == found["pairs"]


def test_figures_and_files(tmp_path: Path, both: tuple[Run, Run]) -> None:
    mf.export_published(both[1], tmp_path / "pairs.npz", pairs=True, mem=-0.5, infl=0.1)
    mf.export_published(both[1], tmp_path / "scores.npz")
    for other, panels in ((both[1], 4), (tmp_path / "scores.npz", 4), (tmp_path / "pairs.npz", 3)):
        found = compared(both[0], other, mem=-0.5, infl=0.1)
        assert len(comparison_figure(found).axes) == panels
    written = save_comparison(found, tmp_path / "out")
    names = ["comparison.json", "comparison.png", "comparison.svg", "published-pairs.parquet"]
    assert sorted(path.name for path in written) == names
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == found.document
    import pyarrow.parquet as pq

    assert found.published is not None
    table = pq.read_table(tmp_path / "out" / "published-pairs.parquet")
    assert table.to_pylist() == list(found.published.table().rows())
    before = {path: path.read_bytes() for path in written}
    save_comparison(found, tmp_path / "out")
    assert {path: path.read_bytes() for path in written} == before


def test_many_points_are_counted_in_bins(both: tuple[Run, Run]) -> None:
    found = compared(*both, mem=-0.5, infl=0.1)
    many = np.random.default_rng(0).random((2, 5000))
    figure = comparison_figure(type(found)(found.document, (many[0], many[1])))
    assert figure.axes[0].collections  # a mesh
    assert [axes.get_ylabel() for axes in figure.axes[1:]] == ["examples in a bin"]


def test_nothing_in_common(tmp_path: Path, both: tuple[Run, Run]) -> None:
    np.savez(tmp_path / "p.npz", tr_idx=np.empty(0, int), tt_idx=np.empty(0, int), infl=np.empty(0))
    quiet = compared(both[0], tmp_path / "p.npz", mem=1.0, infl=0.9)
    assert quiet.document["published_pairs"]["median_rank_in_class"] is None
    alone = compared(tmp_path / "p.npz")
    with pytest.raises(InputError, match="nothing in common"):
        comparison_figure(alone)


def test_the_command(tmp_path: Path, both: tuple[Run, Run], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(both[0].path), str(both[1].path), "--mem", "0", "--out", str(tmp_path / "out")])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "curves" not in text
    assert f"Wrote {tmp_path / 'out' / 'comparison.png'}" in text
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(both[0].path), "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert "give another run or file to compare with" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_our_tables_are_compared_like_the_runs_they_came_from(
    tmp_path: Path, both: tuple[Run, Run], ending: str
) -> None:
    """Memorization in full; pairs from the thresholds on at which the tables were cut."""
    runs = mf.compare(*both, mem=-0.5, infl=0.1)
    scores, pairs = ([tmp_path / f"{kind}-{side}.{ending}" for side in "ab"] for kind in ("scores", "pairs"))
    for run, score, pair in zip(both, scores, pairs):
        run_main("scores", str(run.path), "--out", str(score))
        run_main("pairs", str(run.path), "--mem", "-0.5", "--infl", "0.1", "--out", str(pair))
    close = pytest.approx(runs["memorization"], rel=1e-12)
    assert mf.compare(*scores)["curves"]["memorization"]["shared"] == runs["curves"]["memorization"]["shared"]
    for sides in (scores, (both[0], scores[1]), (scores[1], both[0])):
        found = mf.compare(*sides, mem=-0.5)
        assert found["memorization"] == close
        assert "pairs" not in found
    curve = runs["curves"]["influence"]
    for sides in (pairs, (both[0], pairs[1])):
        found = mf.compare(*sides, mem=-0.5, infl=0.1)
        assert found["pairs"] == runs["pairs"]
        thresholds = found["curves"]["influence"]["thresholds"]
        places = [curve["thresholds"].index(one) for one in thresholds[1:]]
        for name in ("first", "second", "shared", "jaccard"):
            assert found["curves"]["influence"][name][1:] == [curve[name][k] for k in places]
    higher = mf.compare(*pairs, mem=-0.5, infl=0.3)["pairs"]
    assert [higher["first"], higher["second"]] == [len(selected(run, -0.5, 0.3)) for run in both]


def run_main(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0


def written(path: Path, **columns: object) -> Path:
    Table({name: np.asarray(values) for name, values in columns.items()}).write(path)
    return path


def test_tables_of_other_data_and_other_tables_are_refused(tmp_path: Path, both: tuple[Run, Run]) -> None:
    labels = both[0].classes[both[0].label_codes[0]]
    scores = {"index": np.arange(20), "label": labels, "memorization": np.linspace(0, 1, 20)}
    pairs = {"train_index": [3], "test_index": [1], "label": labels[[3]], "influence": [0.5], "memorization": [0.5]}
    backwards = written(tmp_path / "a.csv", **{name: values[::-1] for name, values in scores.items()})
    assert mf.compare(written(tmp_path / "b.csv", **scores), backwards)["memorization"]["mean_absolute_difference"] == 0
    for refused, error, columns in (
        ("their training labels differ", RunMismatchError, scores | {"label": labels[::-1]}),
        ("20 and 19 training examples", RunMismatchError, {k: v[:19] for k, v in scores.items()}),
        ("one row for each training example", InputError, scores | {"index": np.arange(1, 21)}),
        ("must hold numbers", InputError, scores | {"memorization": ["much"] * 20}),
        ("must hold integers", InputError, scores | {"index": np.arange(20) + 0.5}),
        ("1 training examples of .* have another label", RunMismatchError, pairs | {"label": labels[[4]]}),
        ("names examples that .* does not have", RunMismatchError, pairs | {"train_index": [20]}),
        ("an index below 0", InputError, pairs | {"test_index": [-1]}),
        ("numbers beyond 1e", InputError, pairs | {"influence": [np.inf]}),
        ("no table of scores or pairs", InputError, {"a": [1], "b": [2]}),
    ):
        for ending in ("csv", "parquet"):
            with pytest.raises(error, match=refused):
                mf.compare(both[0], written(tmp_path / f"other.{ending}", **columns))
    other = written(tmp_path / "p.csv", **(pairs | {"label": labels[[4]]}))
    with pytest.raises(RunMismatchError, match="another label"):
        mf.compare(written(tmp_path / "s.csv", **scores), other)
    for name, content in (("x.parquet", b"PAR1 nothing"), ("x.csv", b"\xff\xfe"), ("y.csv", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as"):
            mf.compare(both[0], tmp_path / name)
    short = tmp_path / "short.npz"
    np.savez(short, **(scores | {"label": labels[:5]}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="flat and equally long"):
        mf.compare(both[0], short)


def test_an_example_without_an_estimate_stays_without_one(tmp_path: Path) -> None:
    columns = {"index": np.arange(3), "label": ["a", "b", "NA"], "memorization": [0.5, np.nan, 0.25]}
    for ending in ("csv", "npz", "parquet"):
        first = written(tmp_path / f"one.{ending}", **columns)
        found = mf.compare(first, written(tmp_path / f"two.{ending}", **columns))["memorization"]
        assert (found["examples"], found["memorized_first"]) == (2, 2)


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_pairs_of_two_classes_are_left_out_beside_a_run(tmp_path: Path, both: tuple[Run, Run], ending: str) -> None:
    table = tmp_path / f"any.{ending}"
    run_main("pairs", str(both[1].path), "--mem", "-0.5", "--infl", "0.1", "--any-class", "--out", str(table))
    with pytest.warns(MemfluenceWarning, match=r"\d+ pairs of .* are of two classes and left out"):
        found = mf.compare(both[0], table, mem=-0.5, infl=0.1)
    expected = mf.compare(*both, mem=-0.5, infl=0.1)["pairs"]
    assert found["pairs"] == expected
    assert found["published_pairs"]["pairs"] == expected["second"]
    assert found["published_pairs"]["found"] == expected["shared"]
    with pytest.warns(MemfluenceWarning, match="two classes"):
        higher = mf.compare(both[0], table, mem=-0.5, infl=0.3)
    assert higher["published_pairs"]["pairs"] == higher["pairs"]["second"] == len(selected(both[1], -0.5, 0.3))
    assert higher["published_pairs"]["found"] == higher["pairs"]["shared"]


def test_pairs_of_any_class(tmp_path: Path, both: tuple[Run, Run], capsys: pytest.CaptureFixture[str]) -> None:
    sets = [run.find_pairs(-0.5, 0.1, same_class=False, permutations=0) for run in both]
    one, other = (set(zip(found.train_index.tolist(), found.test_index.tolist())) for found in sets)
    found = mf.compare(*both, mem=-0.5, infl=0.1, same_class=False)
    assert found["pairs"]["same_class"] is False
    assert len(one) > 2 * len(selected(both[0], -0.5, 0.1))
    assert [found["pairs"][name] for name in ("first", "second", "shared")] == [len(one), len(other), len(one & other)]
    at = found["curves"]["influence"]["thresholds"].index(0.1)
    assert found["curves"]["influence"]["shared"][at] == len(one & other)

    run_main(
        "pairs", str(both[1].path), "--mem", "-0.5", "--infl", "0.1", "--any-class", "--out", str(tmp_path / "p.csv")
    )
    capsys.readouterr()
    run_main("compare", str(both[0].path), str(tmp_path / "p.csv"), "--mem=-0.5", "--infl=0.1", "--any-class", "--json")
    again = json.loads(capsys.readouterr().out)
    assert again["pairs"] == found["pairs"]
    codes, matrix = both[0].label_codes, both[0].influence_estimates().block()
    for row in again["published_pairs"]["each"]:
        i, j = row["train_index"], row["test_index"]
        members = np.flatnonzero(codes[0] == codes[0][i])
        assert row["rank"] == 1 + (matrix[members, j] > matrix[i, j]).sum()
        assert row["found"] == ((i, j) in one)
    mf.export_published(both[1], tmp_path / "scores.npz")
    with pytest.raises(InputError, match="of the same class only"):
        mf.compare(both[0], tmp_path / "scores.npz", same_class=False)


def test_the_mean_influence_has_its_error(
    tmp_path: Path, both: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    mf.export_published(both[1], tmp_path / "pairs.npz", pairs=True, mem=-0.5, infl=0.1)
    found = compared(both[0], tmp_path / "pairs.npz", mem=-0.5, infl=0.1)
    said = found.document["published_pairs"]
    assert 0.01 < said["mean_influence_here_stderr"] < 0.1
    shown = f"{said['mean_influence_here']:.3f} ± {said['mean_influence_here_stderr']:.2f}"
    run_main("compare", str(both[0].path), str(tmp_path / "pairs.npz"), "--mem=-0.5", "--infl=0.1")
    text = capsys.readouterr().out
    assert f"mean influence here: {shown}\n" in text
    assert "stderr" not in text
    figure = comparison_figure(found)
    assert "n = 20 training, 9 test examples; t = 60." in " ".join(figure.texts[0].get_text().split())
    words = figure.axes[0].texts[0].get_text()
    assert words.startswith(f"n = {said['pairs']} pairs\n")
    assert f"± {said['mean_influence_here_stderr']:.2f}" in words


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
@pytest.mark.parametrize(
    "labels", [["00", "01"], ["true", "false"], ["1e3", "2e3"], ["NA", ""], ["=1+1", "'=1+1"], [0, 1]]
)
def test_labels_come_back_as_they_were_written(tmp_path: Path, labels: list[object], ending: str) -> None:
    train, test = np.array(labels)[np.arange(20) % 2], np.array(labels)[np.arange(9) % 2]
    mf.import_trials([trials_file(tmp_path / "a.npz", train_labels=train, test_labels=test)], tmp_path / "a")
    run_main("scores", str(tmp_path / "a"), "--out", str(tmp_path / f"scores.{ending}"))
    found = mf.compare(mf.open(tmp_path / "a"), tmp_path / f"scores.{ending}")
    assert found["memorization"]["mean_absolute_difference"] == 0


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_a_table_without_pairs_is_one_without_pairs(tmp_path: Path, both: tuple[Run, Run], ending: str) -> None:
    table = tmp_path / f"none.{ending}"
    run_main("pairs", str(both[1].path), "--mem", "1", "--infl", "1", "--out", str(table))
    found = mf.compare(both[0], table)["pairs"]
    assert (found["second"], found["shared"]) == (0, 0)


def test_what_a_list_of_pairs_cannot_say_is_said(tmp_path: Path, both: tuple[Run, Run]) -> None:
    for side, run in zip("ab", both):
        run_main("pairs", str(run.path), "--mem", "-0.5", "--infl", "0.2", "--out", str(tmp_path / f"{side}.csv"))
        run_main("scores", str(run.path), "--out", str(tmp_path / f"{side}-scores.csv"))
    with pytest.warns(MemfluenceWarning, match="no pair below an influence of 0.15"):
        mf.compare(tmp_path / "a.csv", tmp_path / "b.csv", mem=-0.5, infl=0.05)
    with pytest.raises(InputError, match="nothing in common that could be compared"):
        mf.compare(tmp_path / "a-scores.csv", tmp_path / "b.csv")
    labels = both[0].classes[both[0].label_codes[0]]
    pair = {"train_index": [3], "test_index": [1], "label": labels[[3]], "influence": [0.5], "memorization": [0.5]}
    one, other = written(tmp_path / "1.csv", **pair), written(tmp_path / "2.csv", **(pair | {"label": labels[[4]]}))
    with pytest.raises(RunMismatchError, match="have another label"):
        mf.compare(one, other)
