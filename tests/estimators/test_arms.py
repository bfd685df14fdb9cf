"""Which trials serve which arm."""

import numpy as np
import pytest
from bool_trials import BOTH, random_trials, unpacked

from memfluence.errors import InputError
from memfluence.estimators import arms
from memfluence.records import Kind

LEMMA = (Kind(0.7, 7, "in"), Kind(0.7, 6, "out"))


def test_one_kind_is_both_arms_and_no_copy():
    trials = random_trials(20, 9, 4)
    chosen = arms(trials, BOTH)
    assert chosen.in_trials is trials
    assert chosen.shared
    mask, _, _ = unpacked(trials)
    np.testing.assert_array_equal(chosen.trials_in, mask.sum(0))
    np.testing.assert_array_equal(chosen.trials_out, (~mask).sum(0))


def test_the_lemmas_arms_are_never_pooled():
    trials = random_trials(21, 9, 4, kinds=np.arange(21) % 2)
    chosen = arms(trials, LEMMA)
    mask, _, _ = unpacked(trials)
    assert not chosen.shared
    np.testing.assert_array_equal(chosen.in_trials.numbers, np.arange(0, 21, 2))
    np.testing.assert_array_equal(chosen.out_trials.numbers, np.arange(1, 21, 2))
    np.testing.assert_array_equal(chosen.trials_in, mask[::2].sum(0))
    np.testing.assert_array_equal(chosen.trials_out, (~mask[1::2]).sum(0))
    reversed_kinds = arms(trials, LEMMA[::-1])
    np.testing.assert_array_equal(reversed_kinds.in_trials.numbers, np.arange(1, 21, 2))


def test_several_keep_fractions_are_chosen_not_pooled():
    kinds = (Kind(0.7, 6), Kind(0.5, 4))
    trials = random_trials(20, 9, 4, kinds=np.arange(20) % 2)
    np.testing.assert_array_equal(arms(trials, kinds, keep=0.5).in_trials.numbers, np.arange(1, 20, 2))
    with pytest.raises(InputError, match=r"several keep fractions \(0.7, 0.5\); choose one with `keep`"):
        arms(trials, kinds)
    with pytest.raises(InputError, match=r"no trials with keep 0.6; choose one of 0.7, 0.5 with `keep`"):
        arms(trials, kinds, keep=0.6)


def test_imported_masks_have_no_keep():
    trials = random_trials(20, 9, 4)
    assert arms(trials, (Kind(None, None),)).keep is None
    with pytest.raises(InputError, match="leave out `keep`"):
        arms(trials, (Kind(None, None),), keep=0.7)


@pytest.mark.parametrize("kinds", [(), (Kind(0.7, 6), Kind(0.7, 5)), (Kind(0.7, 6, "in"),)])
def test_kinds_that_cannot_be_compared(kinds):
    with pytest.raises(InputError):
        arms(random_trials(20, 9, 4), kinds)


def test_trials_of_a_kind_that_the_plan_lacks():
    with pytest.raises(InputError, match=r"kinds 0 to 1, but the plan has 1 kind\(s\)"):
        arms(random_trials(20, 9, 4, kinds=np.arange(20) % 2), BOTH)


def repeated(trials=21, repeats=3, **options):
    """Trials in threes that share a mask; the last of them is missing."""
    made = random_trials(trials, 9, 4, repeats=repeats, **options)
    made.mask[:] = made.mask[np.arange(trials) // repeats * repeats]
    return made.select(np.arange(trials - 1))


def test_errors_count_masks_not_models():
    trials = repeated()
    chosen = arms(trials, BOTH)
    mask, _, _ = unpacked(trials)
    np.testing.assert_array_equal(chosen.trials_in, mask.sum(0))
    np.testing.assert_array_equal(chosen.sample_in, mask[::3].sum(0))
    np.testing.assert_array_equal(chosen.sample_out, (~mask[::3]).sum(0))


def sorted_rows(bits):
    return sorted(map(tuple, bits.tolist()))


def test_permuting_keeps_every_mask_within_its_arm():
    trials = random_trials(40, 30, 4, kinds=np.arange(40) % 2)
    chosen = arms(trials, LEMMA)
    permuted = chosen.permuted(np.random.default_rng(0))
    for before, after in ((chosen.in_trials, permuted.in_trials), (chosen.out_trials, permuted.out_trials)):
        assert sorted_rows(before.mask) == sorted_rows(after.mask)
        assert not np.array_equal(before.mask, after.mask)
        np.testing.assert_array_equal(before.test_correct, after.test_correct)
    np.testing.assert_array_equal(chosen.trials_in, permuted.trials_in)
    np.testing.assert_array_equal(chosen.trials_out, permuted.trials_out)


def test_permuting_keeps_one_kind_shared_and_is_seeded():
    chosen = arms(random_trials(40, 30, 4), BOTH)
    one, same, other = (chosen.permuted(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.shared
    np.testing.assert_array_equal(one.in_trials.mask, same.in_trials.mask)
    assert not np.array_equal(one.in_trials.mask, other.in_trials.mask)


def test_permuting_moves_whole_masks():
    trials = repeated(trials=30)
    permuted = arms(trials, BOTH).permuted(np.random.default_rng(0)).in_trials
    np.testing.assert_array_equal(permuted.mask, permuted.mask[np.arange(29) // 3 * 3])
    assert sorted_rows(permuted.mask[::3]) == sorted_rows(trials.mask[::3])
    assert not np.array_equal(permuted.mask, trials.mask)
