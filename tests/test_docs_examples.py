"""The examples of README and of all pages of docs/ run as they stand, in order, in an empty directory. Only the largest
numbers of models are smaller here; with --soak they are those of the page.

Of a page, ```python and ```bash blocks are run; one with a title is a file of that name, to be run by a later block. A
```diff block changes the file of its title: its `+` lines follow the line above them there. A page with a file of src/
works on a copy of the package. A block after `<!-- not run: REASON -->` (data or a device that is not here) must
compile, or name commands and options that exist, and so must every other `memfluence ...` on a page, in indented lines
and in running text.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import memfluence as mf
from memfluence.cli import _app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "memfluence"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
BLOCK = re.compile(
    r'(?:<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<source>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    kind: str
    source: str
    title: str | None
    why: str | None  # it is not run


def blocks(page: str) -> list[Block]:
    found = [Block(m["kind"], m["source"], m["title"], m["why"]) for m in BLOCK.finditer(PAGES[page])]
    assert len(found) == PAGES[page].count("\n```") // 2, f"{page} has a block that this test does not understand"
    return found


def adds(page: str) -> bool:
    """Whether the page adds files to the package."""
    return any((block.title or "").startswith("src/") for block in blocks(page))


def commands(page: str) -> list[str]:
    """All `memfluence ...` that a page names, without brackets and comments."""
    text = PAGES[page].replace("\\\n", " ").replace("\\|", ",")  # lines that go on; alternatives in a table
    lines = [line.strip() for block in BLOCK.finditer(text) for line in block["source"].splitlines()]
    lines = [] if adds(page) else lines  # commands that the page adds are not there, and its blocks are run
    rest = BLOCK.sub("", text)
    lines += [line.strip() for line in rest.splitlines() if line.startswith("    ")]
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", rest)]
    found = (re.match(r"(?:timeout -s INT \d+ )?(memfluence [a-z][^#|;]*)", line) for line in lines)
    return [match[1].replace("[", " ").replace("]", " ") for match in found if match]


def change(file: Path, lines: str, page: str) -> None:
    """Put each `+` line below the line before it, which the file has once."""
    there, at = file.read_text().splitlines(), -1
    for line in lines.splitlines():
        if line.startswith("+"):
            at += 1
            there.insert(at, line[1:])
        else:
            assert there.count(line[1:]) == 1, f"{page}: {file.name} does not have this line once: {line[1:]}"
            at = there.index(line[1:])
    file.write_text("\n".join(there) + "\n")


RUN_PAGES = [page for page in PAGES if any(block.why is None for block in blocks(page))]
LEAVES = {  # what a page promises to have made
    "docs/start.md": ["scores.csv", "site/index.html", "runs/python/run.json"],
    "docs/exports.md": ["scores.csv", "digits-scored/README.md", "probabilities.csv", "samples.json", "trials.npz"],
    "docs/guides/labels.md": ["suspects.csv", "suspects.png"],
    "docs/guides/privacy.md": ["vulnerable.csv", "roc.png"],
    "docs/your-own-model.md": ["runs/small-net/run.json", "runs/my-loop/run.json", "runs/averaged/run.json"],
}


def smaller(source: str) -> str:
    fewer = {
        "trials=2000": "trials=400",
        "trials=200,": "trials=60,",
        "trials=100,": "trials=40,",
        "repeats=20)": "repeats=2)",
    }
    for said, done in fewer.items():
        source = source.replace(said, done)
    return source


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_page_runs(page: str, tmp_path: Path, soak: bool) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, arguments in (("memfluence", "-m memfluence"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    place = tmp_path / "empty"
    place.mkdir()
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    if adds(page):
        shutil.copytree(ROOT / "src", place / "src")
        environment["PYTHONPATH"] = str(place / "src")
    for number, block in enumerate(blocks(page)):
        if block.kind == "diff":
            change(place / str(block.title), block.source, page)
        elif block.title is not None:
            (place / block.title).write_text(block.source)
        if block.title is not None or block.why is not None:
            continue
        script = place / f"block-{number}.{block.kind}"
        script.write_text(block.source if soak else smaller(block.source))
        command = {"bash": ["bash", "-euo", "pipefail"], "python": [sys.executable]}[block.kind]
        done = subprocess.run([*command, script.name], cwd=place, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{page}, block {number + 1}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Warning" not in done.stderr, f"{page}, block {number + 1}:\n{done.stderr[-2000:]}"
    for made in LEAVES.get(page, []):
        assert (place / made).stat().st_size > 0
    for run in place.glob("runs/*"):
        assert mf.open(run).memorization()["trials_in"].sum() > 0


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_is_at_least_python(page: str) -> None:
    for block in blocks(page):
        if block.kind == "python":
            compile(block.source, page, "exec")
        else:
            runs = block.kind == "bash" or (block.kind == "diff" and block.title is not None)
            assert runs, f"{page}: nobody knows how to run ```{block.kind}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_and_options_exist(page: str) -> None:
    root = typer.main.get_command(_app.app)
    for line in commands(page):
        words = shlex.split(line.replace("'s ", " "))[1:]
        command = root
        while hasattr(command, "commands") and words and not words[0].isupper():
            assert words[0] in command.commands, f"{page}: {line!r} names no command"
            command = command.commands[words.pop(0)]
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--debug"}
        if hasattr(command, "commands"):  # `memfluence experiment NAME`: any of them
            known |= {option for sub in command.commands.values() for one in sub.params for option in one.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"{page}: {line!r} has options that are not there: {sorted(used - known)}"


def test_files_that_are_named_are_there() -> None:
    """In README, docs and docstrings; paths are those of the repository, or those below the package or the page."""
    texts = {path: path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *SOURCE.rglob("*.py")]}
    named = {(path, name) for path, text in texts.items() for name in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.py)\b", text)}
    assert len(named) > 50
    for path, name in named - {(SOURCE / "learners" / "resolve.py", "models/net.py")}:  # a user's own
        there = any((folder / name).is_file() for folder in (ROOT, SOURCE, path.parent))
        assert there, f"{path.relative_to(ROOT)} names {name}, which is not there"


def test_the_page_for_developers_names_what_is_there() -> None:
    page = PAGES["docs/architecture.md"]
    rooms = {
        path.name + "/" if path.is_dir() else path.name for path in SOURCE.glob("[a-z]*") if path.suffix != ".typed"
    }
    assert rooms <= set(re.findall(r"`([a-z]+(?:/|\.py))`", page))
    for folder in re.findall(r"`((?:[\w-]+/)+)`", page):
        assert folder == "trials/" or (SOURCE / folder).is_dir() or (ROOT / folder).is_dir(), folder
    ways = re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", page, re.MULTILINE)
    assert len(ways) > 10
    for file, names in ways:
        for name in re.findall(r"`(\w+)`", names):
            defined = re.search(rf"^ *(?:def|class) {name}\b|^{name}\b.* = ", (SOURCE / file).read_text(), re.MULTILINE)
            assert defined, f"docs/architecture.md: {file} has no {name}"


def test_the_pages_are_all_there() -> None:
    assert len(RUN_PAGES) >= 10
    assert sum(len(commands(page)) for page in PAGES) > 80
