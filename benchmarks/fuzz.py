"""Fuzzing: harmed and hostile files through every reader of what comes from outside.

    python benchmarks/fuzz.py --inputs 20000 --seed 0

Seven kinds of file: segments (with the labels and the index of a run), run.json (with a run's other JSON files), .npz
(datasets, trials to import, the authors' release), IDX, CIFAR's pickles, PNG, and tables of scores and pairs that
`compare` reads (Parquet, CSV, .npz). Each input begins as one of several
small valid ones in the real format (under 50 kB) and is harmed: in its structure, such as a size in a header, an
instruction of a pickle or a value in JSON, with checksums, digests and lengths set right so that the parser gets to see
it; or in its bytes. It is then read as the public functions read it: a run is opened, asked for its status, scores and
pairs, and verified; a dataset is loaded by name; trials are imported. One in 500 also goes through the command line.

The library must take the input or say what is wrong with it in one sentence. A finding is anything else: another
exception, a warning that is not ours, a crash, more time or memory than the limits below, a sentence that is too long
or holds control characters, an answer that contradicts itself (an impossible score), and anything that an input makes
the process do: run a command, connect, unpickle, import, open files beyond its folder. A finding is saved and can be
read again with `--replay FILE`.

Inputs come from a seeded mutator of our own (`fuzzing/`), one from each number, so that any of them can be made again
alone. Hypothesis is not used for this: it draws structures well, but for files of several kB most of the time would go
into its own bookkeeping, and it cannot go on after a crash, a hang or a lack of memory, which are what is looked for.
Inputs are read in a process forked from this one, which is replaced when it dies and after every 4000 inputs.

Last, commands are run in a folder of files that are named as modules (`fuzzing/planted.py`), with one worker, with two
and on Ray: what of them any process executes is a finding.

Prints a table, saves it as JSON, and ends with code 1 if there is a finding.
"""

import argparse
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 10.0  # for one input
PER_PROCESS = 4000
COMMAND_EACH = 500
KINDS = ("segment", "run.json", "npz", "idx", "pickle", "png", "table")
DIRECTORY = "directory"  # of planted modules, which is no kind of file
UNPREPARED = 71  # what a process ends with that never came to its first input
SAVED = 3  # inputs for each distinct finding


def kind_of(name: str) -> Any:
    if name == "segment":
        from fuzzing.segments import Segments as Chosen
    elif name == "run.json":
        from fuzzing.run_files import RunFiles as Chosen
    elif name == "npz":
        from fuzzing.archives import Archives as Chosen
    elif name == "idx":
        from fuzzing.idx import IdxFiles as Chosen
    elif name == "pickle":
        from fuzzing.pickles import Pickles as Chosen
    elif name == "png":
        from fuzzing.pictures import Pictures as Chosen
    else:
        from fuzzing.tables import Tables as Chosen
    return Chosen()


def harmed(kind: Any, name: str, seed: int, number: int) -> tuple[Any, random.Random]:
    """Input `number` of a campaign."""
    chance = random.Random(f"{seed} {name} {number}")
    return kind.harmed(chance), chance


def fuzz(name: str, inputs: int, seed: int, findings: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """All inputs of one kind, in processes that are replaced when they die."""
    began = time.monotonic()
    kind = kind_of(name)
    found: dict[str, Any] = {"kind": name, "inputs": 0, "accepted": 0, "rejected": 0, "findings": 0, "commands": 0}
    found |= {"largest_bytes": 0, "longest_seconds": 0.0, "distinct": {}}
    here = _scratch()
    number = 0
    try:
        while number < inputs:
            last = min(inputs, number + PER_PROCESS)
            for result in _results(kind, name, seed, number, last, here):
                found["inputs"] += 1
                found["commands"] += result.get("command", 0)
                found["accepted"] += result["verdict"] == "accepted"
                found["rejected"] += result["verdict"] == "rejected"
                found["largest_bytes"] = max(found["largest_bytes"], result["bytes"])
                found["longest_seconds"] = max(found["longest_seconds"], result["seconds"])
                if result["verdict"] == "finding":
                    found["findings"] += 1
                    case, _ = harmed(kind, name, seed, number)
                    _save(found, case, seed, number, result["why"], findings, say)
                number += 1
            say(f"{name}: {number} of {inputs}, {found['findings']} findings")
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return found | {"seconds": time.monotonic() - began}


def _scratch() -> Path:
    """A directory in memory, where there is one: files that are synced to a disk would take most of the time."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="memfluence-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))


def _save(
    found: dict[str, Any], case: Any, seed: int, number: int, why: str, findings: Path, say: Callable[[str], None]
) -> None:
    from fuzzing.case import to_json

    name = found["kind"]
    sort = re.sub(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+|'[^']*'|\"[^\"]*\"", "_", why)[:160]
    count = found["distinct"][sort] = found["distinct"].get(sort, 0) + 1
    if count <= SAVED:
        findings.mkdir(parents=True, exist_ok=True)
        path = findings / f"{name}-{seed}-{number}.json"
        path.write_text(to_json(name, case, number=number, seed=seed, why=why))
        say(f"{name} {number}: {why} ({path})")


def _results(kind: Any, name: str, seed: int, first: int, last: int, here: Path) -> Any:
    """The verdicts on inputs first..last-1 of one process; the last of them may be that it died or hung."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _work(kind, name, seed, first, last, here, write)
    os.close(write)
    waiting, number, end = b"", first, ""
    while number < last:
        begun = number > first  # the first answer takes longer: libraries are loaded, kernels compiled
        if not select.select([read], [], [], 3 * SECONDS if begun else 180.0)[0]:
            end = f"longer than {SECONDS} s"
            break
        received = os.read(read, 1 << 16)
        if not received:
            break
        *lines, waiting = (waiting + received).split(b"\n")
        for line in lines:
            yield json.loads(line)
            number += 1
    os.close(read)
    if number < last:
        if end:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == UNPREPARED:
            raise SystemExit(f"The valid inputs of {name} are not taken, so there is nothing to harm.")
        end = end or f"the process ended with {code} (minus the signal)"
        yield {"verdict": "finding", "why": end, "seconds": 0.0, "bytes": 0}
    else:
        os.waitpid(pid, 0)


def _work(kind: Any, name: str, seed: int, first: int, last: int, here: Path, answers: int) -> None:
    """In the child: read one input after the other. Never returns."""
    from fuzzing.worker import prepared, read_case, run_command

    code = UNPREPARED
    try:
        os.chdir(here)
        watch = prepared(kind, here)
        code = 1
        for number in range(first, last):
            case, chance = harmed(kind, name, seed, number)
            result = read_case(kind, case, here, watch)
            if result["verdict"] != "finding" and result["seconds"] > SECONDS:
                result |= {"verdict": "finding", "why": f"longer than {SECONDS} s"}
            if number % COMMAND_EACH == COMMAND_EACH - 1:
                why = run_command(kind, case, here, chance, 6 * SECONDS, watch)
                result |= {"command": 1} | ({"verdict": "finding", "why": why} if why else {})
            os.write(answers, json.dumps(result).encode() + b"\n")
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def replay(path: Path) -> int:
    """Read a saved input again, in this process, and print what becomes of it."""
    from fuzzing.case import from_json
    from fuzzing.worker import prepared, read_case

    name, case = from_json(path.read_text())
    kind = kind_of(name)
    here = _scratch()
    try:
        os.chdir(here)
        result = read_case(kind, case, here, prepared(kind, here))
    finally:
        shutil.rmtree(here, ignore_errors=True)
    print(json.dumps(result, indent=1))
    return int(result["verdict"] == "finding")


def campaign(names: list[str], inputs: int, seed: int, findings: Path, say: Callable[[str], None]) -> dict[str, Any]:
    import memfluence.cli._app  # noqa: F401  what inputs need is loaded before all forks
    from fuzzing.worker import LONGEST, MOST_BYTES

    began, table = time.monotonic(), []
    for name in names:
        if name == DIRECTORY:
            continue
        table.append(fuzz(name, inputs, seed, findings, say))
        row = table[-1]
        say(f"{name}: {row['inputs']} inputs, {row['findings']} findings, {row['seconds']:.0f} s")
    directory = _directory(say) if DIRECTORY in names else []
    return {
        "inputs": inputs,
        "seed": seed,
        "commit": _commit(),
        "seconds": time.monotonic() - began,
        "limits": {"seconds": SECONDS, "bytes": MOST_BYTES, "letters": LONGEST},
        "versions": _versions(),
        "table": table,
        "directory": directory,
        "findings": sum(row["findings"] for row in table) + sum(row["finding"] for row in directory),
    }


def _directory(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """What runs of a directory of planted modules. The first command is the control, in which some must."""
    from fuzzing.planted import planted_runs

    with tempfile.TemporaryDirectory(prefix="memfluence-fuzz-") as here:
        rows = planted_runs(Path(here))
    for number, row in enumerate(rows):
        row["finding"] = (not row["executed"]) if number == 0 else bool(row["executed"] or row["code"])
        said = f" {row['said']}" if row["code"] else ""
        say(f"{row['command']}: {len(row['executed'])} executed {' '.join(row['executed'])}, code {row['code']}{said}")
    return rows


HEADER = ("kind", "inputs", "accepted", "rejected", "findings", "largest memory", "longest time", "commands")


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            row["kind"],
            *(f"{row[name]:,}" for name in ("inputs", "accepted", "rejected", "findings")),
            f"{row['largest_bytes'] / 2**20:.0f} MiB",
            f"{row['longest_seconds']:.2f} s",
            str(row["commands"]),
        )
        for row in found["table"]
    ]


# What the readers promise, for the page; tests/fuzzing has a test of each.
LIMITS = (
    (
        "segment, labels, index",
        "columns of 128 MiB in all, or 100 times the file if that is more: by the numbers of rows"
        " and the uncompressed sizes in Parquet's own metadata",
    ),
    (
        "`run.json`, other JSON",
        "about ten times the file, which may have 64 MiB and 100 levels; no size in it is believed before a file of"
        " that size is there",
    ),
    (
        "`.npz`, IDX",
        "what the file holds: a header that claims more than 1032 times the compressed bytes (the most that deflate can"
        " make) is refused, and memory grows as data come",
    ),
    (
        "pickle",
        "a few times the file, which may have 1 GiB; dicts, lists, texts, numbers and arrays of bytes are made, and"
        " nothing is called",
    ),
    (
        "PNG, other images",
        "89 million pixels, and 8256 for each byte of the file (the most that deflate can make of one bit each); only"
        " PNG, JPEG, BMP, GIF, WebP, PPM and TIFF are decoded, whatever a file is called",
    ),
)


def _directory_of(found: dict[str, Any]) -> str:
    from fuzzing.planted import MODULES

    rows = "\n".join(f"| {row['command']} | {len(row['executed'])} |" for row in found["directory"])
    return f"""
## What runs from the current directory

{len(MODULES)} files that are named as modules ({", ".join(f"`{name}.py`" for name in MODULES)}) lie in the directory
in which a command is started. Each says that it runs, in whichever process, and then is the module that it hides.

| command | planted files that ran |
|---|---|
{rows}

Python puts the current directory first for `python -c` and `python -m`, by which multiprocessing and joblib start
processes, and Ray gives its workers the driver's; those that engines start have a safe path (`PYTHONSAFEPATH`), and
then the path of the process that started them. A learner's file (`--learner file.py:name`) adds its own folder at the
end of the path where it is loaded, a learner's module the current directory if it lies there and is not installed. Type
`memfluence`, or `python -P -m memfluence`: `python -m memfluence` is Python's own way to run what lies in the current
directory. What a learner starts itself is the learner's: with one worker, its own
`multiprocessing.get_context("spawn")` is as Python makes it.
"""


def page_of(found: dict[str, Any]) -> str:
    rows = "\n".join("| " + " | ".join(row) + " |" for row in rows_of(found))
    promises = "\n".join(f"| {file} | {limit} |" for file, limit in LIMITS)
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    limits = found["limits"]
    command = f"python benchmarks/fuzz.py --inputs {found['inputs']} --seed {found['seed']}"
    return f"""# Fuzzing

<!-- made by benchmarks/fuzz.py -->

Files that come from outside (a run that somebody sent, a dataset from the web) may be damaged, or made to do harm.
memfluence takes a file or says in one sentence what is wrong with it. This is one campaign of
{found["inputs"]:,} harmed inputs of each kind: `{command}`
at commit {found["commit"]}, {found["seconds"] / 60:.0f} minutes on one shared core; {versions}.

| {" | ".join(HEADER)} |
|---|{"---|" * (len(HEADER) - 1)}
{rows}

Each input begins as a small valid file in the real format and is harmed in its structure (sizes and numbers at their
limits, other types, instructions that name `os.system` or `eval`, names that lead out of a folder, great depths, small
files that claim gigabytes) with checksums, digests and lengths set right, so that the parser gets to see it; or in its
bytes. It is read as the public functions read it: a run is opened, asked for status, scores and pairs, and verified;
data are loaded by name (images at once and lazily); trials are imported. "Commands" are those that also went through
the command line, which must end with code 0, 1 or 2 and one line on stderr.

A finding is an exception that is not ours, a crash, more than {limits["seconds"]:.0f} s, more than
{limits["bytes"] // 2**20} MiB beyond what the process had before (of its address space, and resident), a sentence of
more than {limits["letters"]} letters (the path aside) or with control characters, an answer that contradicts itself,
or anything that a file makes the process do: run a command, connect, unpickle, import, or open a file beyond its
folder. Python's audit events say so, and a canary file that hostile inputs try to write. "Accepted" are inputs whose
harm is none, such as another label or pixel. "Largest memory" and "longest time" are those of single inputs.

## What a file can make us allocate

| file | at most |
|---|---|
{promises}
{_directory_of(found) if found["directory"] else ""}
No pickle from outside is run: CIFAR's are read by an interpreter that can call nothing. The name of a file within a run
cannot lead out of it. A learner file is code: it is run where a command names it, never because a run does. `make test`
reads a few hundred inputs of each kind, `make soak` as many as this campaign with another seed, and
`python benchmarks/fuzz.py --replay FILE` reads a finding again.
"""


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"Python": sys.version.split()[0], **{name: version(name) for name in ("pyarrow", "numpy", "pillow")}}


def _commit() -> str:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*KINDS, DIRECTORY], default=[*KINDS, DIRECTORY])
    parser.add_argument("--findings", default="fuzz-findings", help="where inputs go that are findings")
    parser.add_argument("--replay", help="read one of these again")
    parser.add_argument("--out", default="benchmarks/results/fuzz.json")
    parser.add_argument("--page", help="write the table as a page, such as docs/fuzzing.md")
    options = parser.parse_args()
    if options.replay:
        sys.exit(replay(Path(options.replay).resolve()))
    findings = Path(options.findings).resolve()
    found = campaign(options.only, options.inputs, options.seed, findings, lambda line: print(line, flush=True))
    print()
    for row in [HEADER, *rows_of(found)]:
        print("  ".join(f"{cell:>14s}" for cell in row))
    print(f"{found['findings']} findings in {found['seconds']:.0f} s; commit {found['commit']}")
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    if options.page:
        Path(options.page).write_text(page_of(found))
    sys.exit(1 if found["findings"] else 0)


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # no threads before a fork
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # takes what it needs, so that a limit on memory means something
    os.environ["MALLOC_ARENA_MAX"] = "1"
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**20)  # large blocks go back when they are freed
    main()
