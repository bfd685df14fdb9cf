"""The contract of every design, and what distinguishes each."""

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from memfluence import designs
from memfluence.designs import Design
from memfluence.errors import DesignError

MASKS = np.random.default_rng(0).random((40, 30)) < 0.6
SPECS = ["fixed", "balanced", "balanced:4", "bernoulli", "lemma", "repeats:3", "uniform", "uniform:12", "explicit"]


def make(spec: str, **options: object) -> Design:
    extra = {"masks": MASKS} if spec == "explicit" else {}
    return designs.make(spec, n_train=30, **{"keep": 0.7, "seed": 5, **extra, **options})  # type: ignore[arg-type]


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestContract:
    def test_a_trial_is_a_function_of_its_number(self, spec: str) -> None:
        forwards = [make(spec).trial(k) for k in range(40)]
        design = make(spec)
        for k in [39, 0, 17, 3, 38, 3]:
            again = design.trial(k)
            assert again.number == k
            assert again.kind == forwards[k].kind
            assert (again.mask == forwards[k].mask).all()

    def test_masks_have_the_size_that_their_kind_says(self, spec: str) -> None:
        design = make(spec)
        for k in range(40):
            trial = design.trial(k)
            assert trial.mask.dtype == bool
            assert trial.mask.shape == (30,)
            size = design.kinds[trial.kind].subset_size
            assert size is None or trial.mask.sum() == size
            assert (trial.kept == np.flatnonzero(trial.mask)).all()

    def test_the_seed_changes_the_plan_and_all_masks_but_given_ones(self, spec: str) -> None:
        one, other = make(spec), make(spec, seed=6)
        assert one.plan.digest != other.plan.digest
        differ = any((one.trial(k).mask != other.trial(k).mask).any() for k in range(5))
        assert differ == (spec != "explicit")

    def test_it_can_be_sent_to_a_worker(self, spec: str) -> None:
        design = make(spec)
        design.trial(3)
        copy = pickle.loads(pickle.dumps(design))
        assert copy.plan.digest == design.plan.digest
        assert (copy.trial(7).mask == design.trial(7).mask).all()

    def test_seeds_of_trials_differ(self, spec: str) -> None:
        design = make(spec)
        assert len({design.trial(k).seed for k in range(40)}) == 40


@pytest.mark.parametrize("spec", ["fixed", "balanced", "bernoulli", "lemma"])
def test_every_example_is_kept_with_the_right_probability(spec: str) -> None:
    design = designs.make(spec, n_train=20, keep=0.7, seed=1)
    kinds = np.array([design.trial(k).kind for k in range(4000)])
    masks = np.stack([design.trial(k).mask for k in range(4000)])
    for number, kind in enumerate(design.kinds):
        rate = masks[kinds == number].mean(axis=0)
        expected = kind.keep if kind.subset_size is None else kind.subset_size / 20
        assert np.abs(rate - expected).max() < 4.5 * np.sqrt(0.25 / (kinds == number).sum())


def test_each_balanced_trial_alone_is_a_uniform_subset() -> None:
    """All C(5, 2) subsets, at the first and at the last place of a block of 3: chi-square, 9 degrees of freedom."""
    for place in (0, 2):
        design = designs.make("balanced:3", n_train=5, keep=0.4, seed=2)
        subsets = [tuple(design.trial(3 * block + place).kept.tolist()) for block in range(5000)]
        counts = np.array([subsets.count(one) for one in itertools.combinations(range(5), 2)])
        assert ((counts - 500) ** 2 / 500).sum() < 27.9  # 0.1% point


@pytest.mark.parametrize(
    ("n", "keep", "block"), [(30, 0.7, 10), (31, 0.7, 10), (7, 0.3, 4), (50, 0.5, 2), (11, 0.9, 3)]
)
def test_balanced_counts_differ_by_at_most_one_in_every_block(n: int, keep: float, block: int) -> None:
    design = designs.make(f"balanced:{block}", n_train=n, keep=(keep, 0.6), seed=3)
    for kind in (0, 1):
        masks = np.stack([design.trial(k).mask for k in range(kind, 2 * 6 * block, 2)])
        for start in range(0, len(masks), block):
            counts = masks[start : start + block].sum(axis=0)
            assert counts.max() - counts.min() <= 1


def test_lemma_alternates_between_m_and_m_minus_one() -> None:
    design = make("lemma")
    assert [int(design.trial(k).mask.sum()) for k in range(4)] == [21, 20, 21, 20]
    assert [kind.arm for kind in design.kinds] == ["in", "out"]


@pytest.mark.parametrize(("spec", "smallest"), [("uniform", 1), ("uniform:3", 3)])
def test_uniform_subsets_of_every_size_are_equally_likely(spec: str, smallest: int) -> None:
    """Sizes smallest to 5, and within a size all subsets: chi-squares against their 0.1% points."""
    design = designs.make(spec, n_train=5, seed=4)
    masks = np.stack([design.trial(k).mask for k in range(6000)])
    sizes = np.bincount(masks.sum(axis=1), minlength=6)
    expected = 6000 / (6 - smallest)
    assert sizes[:smallest].sum() == 0
    assert ((sizes[smallest:] - expected) ** 2 / expected).sum() < {1: 18.5, 3: 13.8}[smallest]  # 4 and 2 degrees
    triples = [tuple(np.flatnonzero(mask)) for mask in masks[masks.sum(axis=1) == 3]]
    counts = np.array([triples.count(one) for one in itertools.combinations(range(5), 3)])
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 27.9  # 9 degrees


def test_repeats_share_masks_but_not_seeds() -> None:
    design = make("repeats:3")
    assert design.repeats == 3
    for k in range(0, 12, 3):
        assert (design.trial(k).mask == design.trial(k + 2).mask).all()
        assert (design.trial(k).mask != design.trial(k + 3).mask).any()


def test_several_keep_fractions_take_turns() -> None:
    design = designs.make("fixed", n_train=10, keep=[0.3, 0.5, 0.8])
    assert [int(design.trial(k).mask.sum()) for k in range(6)] == [3, 5, 8, 3, 5, 8]


def test_explicit_masks_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "masks.npy", MASKS)
    np.savez(tmp_path / "masks.npz", mask=MASKS.astype(np.uint8))
    for name in ("masks.npy", "masks.npz"):
        design = designs.make(f"explicit:{tmp_path / name}", n_train=30)
        assert design.limit == 40
        assert design.plan.digest == make("explicit", seed=0).plan.digest
        assert (design.trial(11).mask == MASKS[11]).all()
    with pytest.raises(DesignError, match="no trial 40"):
        design.trial(40)


def test_masks_from_files_that_are_none(tmp_path: Path) -> None:
    np.save(tmp_path / "masks.npy", MASKS)
    np.savez_compressed(tmp_path / "masks.npz", mask=MASKS)
    np.savez(tmp_path / "other.npz", masks=MASKS)
    np.save(tmp_path / "objects.npy", MASKS.astype(object))
    for name in ("masks.npy", "masks.npz"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / f"cut-{name}").write_bytes(content[: len(content) - 30])
    damaged = bytearray((tmp_path / "masks.npz").read_bytes())
    damaged[60:90] = bytes(30)
    (tmp_path / "damaged.npz").write_bytes(damaged)
    header = (tmp_path / "masks.npy").read_bytes()[:128]
    (tmp_path / "huge.npy").write_bytes(header.replace(b"(40, 30), }          ", b"(40, 300000000000), }"))
    for name, says in [
        ("cut-masks.npy", "claims"),
        ("cut-masks.npz", "not a whole .npz"),
        ("damaged.npz", "cannot be read"),
        ("huge.npy", "header of the array claims"),
        ("other.npz", "no array 'mask'; it holds masks"),
        ("objects.npy", "Python objects"),
        (".", "no mask file"),
    ]:
        with pytest.raises(DesignError, match=says) as caught:
            designs.make(f"explicit:{tmp_path / name}", n_train=30)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("fxed", {}, "no design 'fxed'"),
        ("fixed:3", {}, "takes no option"),
        ("balanced:x", {}, "must be an integer"),
        ("balanced:1", {}, "integer >= 2"),
        ("repeats:1", {}, "integer >= 2"),
        ("uniform:0", {}, r"integer in \[1, 29\]"),
        ("uniform:30", {}, r"integer in \[1, 29\]"),
        ("fixed", {"keep": 1.5}, r"float in \(0, 1\). Got 1.5"),
        ("fixed", {"keep": 0}, r"float in \(0, 1\)"),
        ("fixed", {"keep": [0.5, 0.5]}, "distinct"),
        ("fixed", {"keep": []}, "at least one"),
        ("fixed", {"keep": None}, "at least one"),
        ("fixed", {"keep": 0.01}, "keeps 0"),
        ("lemma", {"keep": 0.03}, "at least 2"),
        ("bernoulli", {"keep": 0.001}, "keeps 0"),
        ("fixed", {"seed": -1}, "seed"),
        ("fixed", {"seed": 1.5}, "seed"),
        ("fixed", {"masks": MASKS}, "explicit design"),
        ("explicit", {"masks": None}, "needs masks"),
        ("explicit", {"masks": MASKS[:, :3]}, "shape"),
        ("explicit", {"masks": MASKS * 0.5}, "booleans"),
        ("explicit:/nowhere/masks.npy", {"masks": None}, "no mask file"),
    ],
)
def test_impossible_designs_are_refused(spec: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(DesignError, match=says):
        make(spec, **options)
