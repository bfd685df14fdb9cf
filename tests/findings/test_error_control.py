"""The realised false discovery rate, and the number of pairs by chance, in worlds with known truth."""

import numpy as np
import pytest

import studies


@pytest.mark.parametrize(
    "options",
    [{}, {"shared": 2.0}, {"fixed": True}, {"any_dependence": True}, {"null": 0.05}],
    ids=lambda options: "-".join(options),
)
def test_the_rate_is_at_most_nominal(soak, options):
    sizes = {} if soak else {"counts": (100, 400), "worlds": 15}
    for row in studies.false_discoveries(rate=0.1, **sizes, **options):
        assert row["realised rate"] < 0.1
        # under permuted masks every discovery is false, so the rate is the share of worlds with any
        worlds = sizes.get("worlds", 100)
        assert row["permuted masks: worlds with any"] < 0.1 + 2 * np.sqrt(0.09 / worlds)
        if row["trials"] >= 400 and not {"null", "shared"} & set(options):
            assert row["of those above 0.15 found"] > 0.7  # and it is not for want of power


def test_chance_gives_as_many_false_pairs_as_expected(soak):
    sizes = {} if soak else {"counts": (100,), "worlds": 12}
    for row in studies.by_chance(**sizes):
        assert row["of them with influence 0"] == pytest.approx(row["expected by chance"], rel=0.15, abs=0.5)
        if row["expected by chance"] > 20:
            assert row["spread over permutations"] == pytest.approx(np.sqrt(row["expected by chance"]), rel=0.4)
