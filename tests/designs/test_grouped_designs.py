"""Groups are kept or left out whole, by any design; what cannot be a grouping is refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from memfluence import designs
from memfluence.designs import groups_from
from memfluence.errors import DesignError

VALUES = np.array(["b", "a", "c", "a", "d", "c", "e", "a", "d", "b"])
LABELS = np.arange(10) % 2


def groups(values=VALUES):
    return groups_from(values, len(values), {}, LABELS)


@pytest.mark.parametrize("spec", ["fixed", "balanced:4", "bernoulli", "lemma", "repeats:3", "explicit"])
def test_groups_are_whole_and_the_rest_is_the_design_over_groups(spec):
    options = {"keep": 0.6, "seed": 5}
    if spec == "explicit":
        options["masks"] = np.random.default_rng(0).random((12, 5)) < 0.6
    design = designs.make(spec, n_train=10, groups=groups(), **options)
    over_groups = designs.make(spec, n_train=5, **options)
    codes = np.unique(VALUES, return_inverse=True)[1]
    for number in range(12):
        trial, drawn = design.trial(number), over_groups.trial(number)
        np.testing.assert_array_equal(trial.mask, drawn.mask[codes])
        assert (trial.number, trial.kind, trial.seed) == (drawn.number, drawn.kind, drawn.seed)
    assert [kind.arm for kind in design.kinds] == [kind.arm for kind in over_groups.kinds]
    assert all(kind.subset_size is None for kind in design.kinds)  # groups of several sizes
    assert (design.repeats, design.limit) == (over_groups.repeats, over_groups.limit)
    copy = pickle.loads(pickle.dumps(design))  # as workers get it
    np.testing.assert_array_equal(copy.trial(7).mask, design.trial(7).mask)
    assert copy.plan.digest == design.plan.digest
    assert design.plan.n_train == 10
    assert design.plan.options["n_groups"] == 5


def test_groups_of_one_size_have_subsets_of_one_size():
    design = designs.make("fixed", n_train=12, keep=0.5, groups=groups(np.arange(12) // 3))
    assert design.kinds[0].subset_size == 6
    assert design.trial(0).mask.sum() == 6


def test_the_grouping_is_part_of_the_plan():
    plans = [
        designs.make("fixed", n_train=10, groups=groups(values)).plan.digest
        for values in (VALUES, VALUES[::-1], np.char.upper(VALUES))
    ]
    assert len({*plans, designs.make("fixed", n_train=10).plan.digest}) == 4


def test_groups_by_name_and_from_a_file(tmp_path: Path):
    np.save(tmp_path / "groups.npy", VALUES)
    attributes = {"train_source": VALUES, "test_source": VALUES[:3], "note": np.arange(3)}
    for given in (tmp_path / "groups.npy", str(tmp_path / "groups.npy"), "source", "train_source"):
        found = groups_from(given, 10, attributes, LABELS)
        assert found.names == ("a", "b", "c", "d", "e")
        assert found.digest == groups().digest
    assert groups_from("class", 10, attributes, LABELS).names == ("0", "1")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("colour", "no attribute 'colour' to group by; choose one of class, source"),
        ("/nowhere/groups.npy", "no file of groups"),
        (VALUES[:4], "one per training example"),
        (np.linspace(0, 1, 10), "integers or texts"),
        (np.zeros(10, int), "at least two groups"),
    ],
)
def test_what_is_no_grouping_is_refused(given, says):
    with pytest.raises(DesignError, match=says):
        groups_from(given, 10, {"train_source": VALUES}, LABELS)
