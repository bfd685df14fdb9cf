"""Figures on the pages are those of the saved benchmarks."""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_how_large_and_fast_the_explorer_is() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "explorer.json").read_text())
    text = (ROOT / "docs" / "explorer.md").read_text()
    disk, server = found["open_file"], found["open_server"]
    slow, slow_index = found["scroll_memorized_reading"], found["scroll_index_reading"]
    fast, fast_index = found["scroll_memorized_fling"], found["scroll_index_fling"]
    for words in (
        f"{found['trials']} trials",
        f"{found['cores']}-core",
        f"load average {found['load_average']}",
        f"| {found['write_seconds']:.0f} s |",
        f"| {found['megabytes']} MB in {found['files']:,} files |",
        f"| {disk['overview']} s / {server['overview']} s |",
        f"| {disk['gallery']} s / {server['gallery']} s |",
        f"| {slow['frames_per_second']} frames a second, 95% within {slow['p95_ms']} ms |",
        f"| {slow_index['frames_per_second']} frames a second, 95% within {slow_index['p95_ms']} ms |",
        f"| {fast['frames_per_second']} and {fast_index['frames_per_second']} frames a second |",
        f"| {found['reach_end_memorized']} s |",
    ):
        assert words in text


def test_how_fast_counting_is() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "counting.json").read_text())
    mnist, cifar100, digits = (found["cases"][name] for name in ("mnist", "cifar100", "digits"))
    text = " ".join((ROOT / "README.md").read_text().split())
    faster = [one["popcount"]["core_seconds"] / one["adders"]["core_seconds"] for one in (mnist, cifar100)]
    for words in (
        f"is {mnist['factor_per_core']['ours']:.0f}x (first row) and {cifar100['factor_per_core']['ours']:.0f}x",
        f"{digits['factor_per_core']['ours']:.1f}x for `digits`",
        f"commit {found['commit']}",
        f"are {faster[0]:.1f}x and {faster[1]:.1f}x faster than population counts",
    ):
        assert words in text
