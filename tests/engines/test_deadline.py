"""The deadline of `execute`: at that time a run stops as at Ctrl-C, in the middle of a trial too."""

import signal
import threading
import time
from pathlib import Path

import pytest

from engines import test_long_trials
from engines.commands import DATA, LEARNER
from memfluence.engines import Event, TrialDone, Work, execute, groups_of
from memfluence.errors import DeadlineReached
from memfluence.store import TrialStore
from memfluence.training.campaign import prepare
from memfluence.training.options import RunOptions

ENGINES = [("local", None, 3.0), ("processes", 2, 8.0)]  # and seconds that it takes to begin, at the most


def prepared(data: str, learner: Path, out: Path, trials: int) -> tuple[TrialStore, Work]:
    campaign = prepare(
        RunOptions(data, learner=f"{learner}:{learner.stem}", trials=trials, out=out, device="cpu", progress=False)
    )
    info, dataset = campaign.info, campaign.dataset
    store = TrialStore.create(out, info, dataset.y_train, dataset.y_test)
    size, record = info.group_size, info.record
    return store, Work(dataset, campaign.learner, campaign.design, store.path, info.identity, size, record, "cpu", 3600)


@pytest.mark.parametrize(("engine", "workers", "seconds"), ENGINES)
def test_a_long_trial_that_says_nothing_is_stopped_and_the_others_are_stored(
    engine: str, workers: int | None, seconds: float, tmp_path: Path
) -> None:
    (tmp_path / "learn.py").write_text(LEARNER.replace("float(", "3600 * (len(COUNT.append(0) or COUNT) > 5) + float("))
    with (tmp_path / "learn.py").open("a") as file:
        file.write("\nCOUNT = []\n")
    store, work = prepared(DATA, tmp_path / "learn.py", tmp_path / "run", 60)
    events: list[Event] = []
    until = time.monotonic() + seconds
    with pytest.raises(DeadlineReached, match="run the same command"):
        execute(engine, work, groups_of(range(60), 1), events.append, workers=workers, deadline=until)
    stored = store.scan().numbers.tolist()
    assert stored == sorted(event.trial for event in events if isinstance(event, TrialDone))
    assert len(stored) <= 5 * (workers or 1)
    assert store.failures() == {}


@pytest.mark.parametrize(("engine", "workers", "seconds"), ENGINES)
def test_a_trial_that_is_part_way_is_kept(engine: str, workers: int | None, seconds: float, tmp_path: Path) -> None:
    test_long_trials.write_data_and_learner(tmp_path)
    (tmp_path / "network.py").write_text(test_long_trials.LEARNER.replace("epochs=200", "epochs=20000"))
    store, work = prepared(f"npz:{tmp_path}/pictures.npz", tmp_path / "network.py", tmp_path / "run", 1)
    until = time.monotonic() + seconds + 2
    with pytest.raises(DeadlineReached):
        execute(engine, work, groups_of([0], 1), lambda event: None, workers=workers, deadline=until)
    (kept,) = store.checkpoints().part_way(())
    assert 0 < kept.fraction < 1


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
def test_handlers_of_signals_are_as_they_were(handler: object, tmp_path: Path) -> None:
    """Ctrl-C is ignored under nohup, and a deadline is heeded there as well."""
    (tmp_path / "learn.py").write_text(LEARNER.replace("float(", "3600 + float("))
    _, work = prepared(DATA, tmp_path / "learn.py", tmp_path / "run", 4)
    before = signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    try:
        alarm = signal.getsignal(signal.SIGALRM)
        with pytest.raises(DeadlineReached):
            execute("local", work, groups_of(range(4), 1), lambda event: None, deadline=time.monotonic() + 0.5)
        assert signal.getsignal(signal.SIGINT) == handler
        assert signal.getsignal(signal.SIGALRM) == alarm
    finally:
        signal.signal(signal.SIGINT, before)


def test_on_another_thread_it_is_heeded_between_trials(tmp_path: Path) -> None:
    (tmp_path / "learn.py").write_text(LEARNER.replace("float(", "0.05 + float("))
    store, work = prepared(DATA, tmp_path / "learn.py", tmp_path / "run", 10_000)
    raised: list[BaseException] = []

    def train() -> None:
        try:
            execute("local", work, groups_of(range(10_000), 1), lambda event: None, deadline=time.monotonic() + 1)
        except DeadlineReached as error:
            raised.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert raised
    assert 0 < len(store.scan().numbers) < 10_000
