"""Who did what, and how fast of late."""

import numpy as np

from memfluence.runs.status import LATE, summary


def details(host: list[str], process: list[int], finished: list[float]) -> dict[str, np.ndarray]:
    n = len(host)
    floats = {name: np.linspace(0, 1, n) for name in ("accuracy_in", "accuracy_out", "test_accuracy", "seconds")}
    texts = {"host": np.array(host), "device": np.array(["cpu"] * n)}
    return {**floats, **texts, "process": np.array(process), "finished": np.array(finished)}


def test_processes_by_host_the_latest_first() -> None:
    found = summary(details(["a", "b", "a", "a"], [7, 7, 8, 7], [10.0, 14.0, 11.0, 13.0]), {})
    assert [(one["host"], one["process"], one["trials"]) for one in found["processes"]] == [
        ("b", 7, 1),
        ("a", 7, 2),
        ("a", 8, 1),
    ]
    assert found["processes"][1] | {"host": ""} == {
        "host": "",
        "process": 7,
        "trials": 2,
        "first_finished": 10.0,
        "last_finished": 13.0,
    }
    assert found["made_by"] == {"a (cpu)": 3, "b (cpu)": 1}
    assert found["last_finished"] == 14.0
    assert found["trials_per_second"] == 3 / 4


def test_the_pace_is_that_of_late() -> None:
    long_ago = np.linspace(0, 1, 1000)
    late = 10_000 + np.linspace(0, LATE, 61)
    times = [*long_ago.tolist(), *late.tolist()]
    found = summary(details(["a"] * len(times), [1] * len(times), times), {})
    assert np.isclose(found["trials_per_second"], 60 / LATE)


def test_what_older_versions_did_not_record_is_none() -> None:
    found = summary(details(["a", ""], [-1, -1], [np.nan, np.nan]), {})
    assert [one["process"] for one in found["processes"]] == [None, None]
    assert found["processes"][0]["last_finished"] is None
    assert (found["last_finished"], found["trials_per_second"]) == (None, None)
    empty = summary({}, {})
    assert (empty["processes"], empty["made_by"], empty["test_accuracy"]) == ([], {}, None)


def test_one_trial_has_no_pace() -> None:
    assert summary(details(["a"], [1], [5.0]), {})["trials_per_second"] is None
