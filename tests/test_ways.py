"""The way of a command through the package: the modules of ours whose functions it calls, in the order of first calls.

A newcomer who follows `memfluence run digits` opens these files. A change of module is counted where a function that is
called for the first time lives in another module than the one before it. What runs at import (bodies of modules, and
the functions that they call), lambdas and generators do not count.
"""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "memfluence"
IN_A_FUNCTION = 1  # of co_flags: the code has fast locals, unlike bodies of modules and of classes

# Command -> at most so many modules, and changes of module.
WAYS = {
    "run digits --trials 64 --out digits": (36, 153),
    "scores digits": (19, 69),
}


def test_a_trial_goes_through_few_modules(tmp_path: Path) -> None:
    for command, (modules, changes) in WAYS.items():
        done = subprocess.run(
            [sys.executable, __file__, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        way = json.loads(done.stdout.splitlines()[-1])
        shown = f"{command}: {len(set(way))} modules, {count_of_changes(way)} changes: {' '.join(dict.fromkeys(way))}"
        print(shown)
        assert len(set(way)) <= modules, shown
        assert count_of_changes(way) <= changes, shown


@pytest.mark.parametrize(("way", "changes"), [([], 0), (["a"], 0), (["a", "a", "b", "a"], 2)])
def test_changes_are_counted_between_neighbours(way: list[str], changes: int) -> None:
    assert count_of_changes(way) == changes


def count_of_changes(way: list[str]) -> int:
    return sum(one != other for one, other in pairwise(way))


def at_import(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not main.__code__:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def main(arguments: list[str]) -> None:
    """Run a command, and print as JSON the module of each function of ours in the order of first calls."""
    way: dict[CodeType, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & IN_A_FUNCTION and not code.co_name.startswith("<") and code not in way:
            file = Path(code.co_filename)
            if file.is_relative_to(SOURCE) and not at_import(frame):
                way[code] = file.relative_to(SOURCE).as_posix()

    sys.setprofile(note)
    try:
        from memfluence.cli import main as command

        command(arguments)
    finally:  # the command ends with SystemExit, whose code is that of this process
        sys.setprofile(None)
        print(json.dumps(list(way.values())))


if __name__ == "__main__":
    main(sys.argv[1:])
