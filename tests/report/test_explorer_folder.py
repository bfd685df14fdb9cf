"""The folder: the same bytes for the same run, whole or not at all, and never anything that is not ours."""

import hashlib
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from explorer_files import data_folder, document
from test_explorer_data import images
from tiny_run import N_TEST, N_TRAIN, TRIALS, make_run

from exchange.trial_files import full_disk
from memfluence.datasets import from_arrays
from memfluence.errors import InputError, MemfluenceError, StoreError
from memfluence.report import is_current, write_report
from memfluence.runs import Run

ROOT = Path(__file__).parents[2]


def with_images(directory: Path) -> Run:
    run = make_run(directory)
    train, test = (run.classes[codes] for codes in run.label_codes)
    return Run(run.store, from_arrays(images(N_TRAIN, 8, 8), train, images(N_TEST, 8, 8), test))


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_same_run_same_bytes(tmp_path: Path) -> None:
    run = with_images(tmp_path)
    write_report(run, tmp_path / "a")
    first = content(tmp_path / "a")
    write_report(with_images(tmp_path / "again"), tmp_path / "b")
    assert content(tmp_path / "b") == first
    write_report(run, tmp_path / "a")  # over itself
    assert content(tmp_path / "a") == first


def test_another_content_has_another_name_and_the_old_one_goes(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "a"), tmp_path / "out")
    (tmp_path / "out" / "data-mine").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    old = data_folder(page)
    other = make_run(tmp_path / "b", test_correct=np.ones((TRIALS, N_TEST), bool))
    new = data_folder(write_report(other, tmp_path / "out"))
    assert new != old
    assert not old.exists()
    assert {entry.name for entry in page.parent.iterdir()} == {"index.html", new.name, "data-mine", "notes.txt"}


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
    assert content(tmp_path / "site") == {"index.html": b"<h1>mine</h1>"}
    assert file.read_text() == "mine"


def test_a_full_disk_leaves_the_report_that_was_there(tmp_path: Path) -> None:
    write_report(make_run(tmp_path / "a"), tmp_path / "out")
    before = content(tmp_path / "out")
    other = make_run(tmp_path / "b", test_correct=np.ones((TRIALS, N_TEST), bool))
    with full_disk(200), pytest.raises(StoreError, match=r"Failed writing .*disk is full"):
        write_report(other, tmp_path / "out")
    assert content(tmp_path / "out") == before
    write_report(other, tmp_path / "out")
    assert content(tmp_path / "out") != before


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    gone, here = (tmp_path / "out" / f".partial-{pid}" for pid in (2**22 + 7, 1))  # above any process; init
    for folder in (gone, here):
        folder.mkdir(parents=True)
    write_report(make_run(tmp_path), tmp_path / "out")
    assert not gone.exists()
    assert here.exists()


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    def stop(share: float) -> None:
        raise KeyboardInterrupt

    run = make_run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write_report(run, tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt):
        write_report(run, tmp_path / "mine", progress=stop)
    assert list((tmp_path / "mine").iterdir()) == []


def test_disk_errors_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"Failed writing .*Permission denied; .* choose another `out`\."):
        write_report(run, tmp_path / "out")


def test_a_report_is_current_until_the_run_or_the_options_change(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert not is_current(run, tmp_path / "out")
    write_report(run, tmp_path / "out")
    assert is_current(run, tmp_path / "out")
    assert not is_current(run, tmp_path / "out", dataset="digits")
    fewer = {"mask": 150, "train_correct": 150, "test_correct": 150}
    from tiny_run import trials

    shorter = make_run(tmp_path / "b", **{name: trials()[name][:count] for name, count in fewer.items()})
    assert not is_current(shorter, tmp_path / "out")


def test_page_takes_scripts_and_pictures_from_its_own_folder_alone(tmp_path: Path) -> None:
    page = write_report(with_images(tmp_path), tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'; script-src 'self' file:;" in text
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text
    assert document(page, "meta")["inputs"] == "images"


def test_committed_program_is_built_from_the_committed_source() -> None:
    """`npm run build` in web/ writes the digest of its sources into the first line of what it makes."""
    web = ROOT / "web"
    names = ["build.mjs", "package-lock.json", *(f"src/{path.name}" for path in (web / "src").iterdir())]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode())
        digest.update((web / name).read_bytes())
    for asset in ("explorer.js", "explorer.css"):
        first = (files("memfluence.report.explorer") / "assets" / asset).read_text(encoding="utf-8").splitlines()[0]
        assert digest.hexdigest() in first, "web/ has changed: run 'make web'"


def test_assets_are_in_the_package() -> None:
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if listed:  # in a checkout
        for name in ("explorer.js", "explorer.css", "index.html", "licences.txt"):
            assert f"src/memfluence/report/explorer/assets/{name}" in listed
