"""run.json harmed as JSON and as text, and the other JSON files of a run: failures, checkpoints, what is condemned.

A run.json whose plan was harmed mostly gets the digest of the harmed plan, and segments that belong to the harmed run:
otherwise every harm would be noticed for the segments' sake.
"""

import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import memfluence as mf
from fuzzing.bytewise import bytewise
from fuzzing.jsons import harmed_json, harmed_value
from fuzzing.reading import CANARY, Case
from fuzzing.runs import ask, refuse_hidden, seed_runs
from memfluence.errors import MemfluenceError
from memfluence.records import digest
from memfluence.store.parquet import content_digest
from memfluence.store.segments import encode_table

_CODE = ("input/learner.py:learn", "input/learner.py", "learner:learn", "./input/learner.py:learn@fast", "os:system")


class RunFiles:
    def __init__(self) -> None:
        import_module("memfluence.learners.nets.architectures.resnet9")  # harmed runs may name networks
        self._runs = seed_runs()
        self.seeds = tuple(Case(run) for run in self._runs)
        self._tables = [
            {
                name: pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
                for name, content in run.items()
                if name.startswith("trials/")
            }
            for run in self._runs
        ]

    def harmed(self, chance: random.Random) -> Case:
        number = chance.randrange(len(self._runs))
        run = dict(self._runs[number])
        notes = sorted(name for name in run if name.startswith(("failures/", "checkpoints/")))
        if notes and chance.random() < 0.5:
            name = chance.choice(notes)
            run[name] = _harmed_note(run[name], chance)
            return Case(run)
        info = json.loads(run["run.json"])
        which = chance.random()
        if which < 0.05:
            names = [name.partition("/")[2] for name in self._tables[number]]
            run["damaged/condemned.json"] = harmed_json(names, chance)
        elif which < 0.45:
            run["run.json"] = harmed_json(info, chance)
        else:
            part = chance.choice(("dataset", "learner", "plan", "plan", "kinds", ""))
            harmed = harmed_value(info[part] if part else info, chance)
            info = {**info, part: harmed} if part else harmed
            if part == "learner" and isinstance(harmed, dict) and chance.random() < 0.5:  # code that comes with the run
                harmed["name"] = chance.choice(_CODE)
                run["learner.py"] = f"open('{CANARY}', 'w').close()\nlearn = None\n".encode()
            run = self._joined(number, run, info) if isinstance(info, dict) else run
            run["run.json"] = json.dumps(info, indent=2).encode()
        if chance.random() < 0.3:  # the labels' file again, where names that lead out of the run would find it
            for name in [name for name in run if name.startswith("examples-")]:
                run[f"trials/{name}"] = run[name]
        return Case(run)

    def _joined(self, number: int, run: dict[str, bytes], info: dict[str, Any]) -> dict[str, bytes]:
        """The run with segments that say they are of the harmed run, as far as it can be said."""
        try:
            if isinstance(info["plan"], dict):
                info["plan"]["digest"] = digest({key: value for key, value in info["plan"].items() if key != "digest"})
            metadata = {
                "memfluence.format": str(info["format"]),
                "memfluence.data": str(info["dataset"]["fingerprint"]),
                "memfluence.plan": str(info["plan"]["digest"]) if info["plan"] else "",
                "memfluence.learner": digest(info["learner"]) if info["learner"] else "",
            }
            for name, table in self._tables[number].items():
                content = encode_table(table, metadata)
                del run[name]
                run[f"{name.rpartition('-')[0]}-{content_digest(content)}.parquet"] = content
        except (KeyError, TypeError, ValueError, RecursionError):
            return dict(self._runs[number])
        return run

    def read(self, folder: Path, how: str) -> list[str]:
        said = ask(folder)
        try:  # the data are not there, so nothing is trained; but the learner is looked for first
            place = str(mf.open(folder).info.dataset["name"]).partition(":")[2]
        except MemfluenceError:
            return said  # heard before
        try:
            mf.verify(folder, sample=1)
        except MemfluenceError as error:
            refuse_hidden(error)
            said.append(f"note: {error}".replace(place or "DATA", "DATA"))  # a path of the run's own, of any length
        return said


def _harmed_note(content: bytes, chance: random.Random) -> bytes:
    """A failure's note, or a checkpoint: a line of JSON and the bytes that it speaks of."""
    if chance.random() < 0.2:
        return bytewise(content, chance)
    try:
        return harmed_json(json.loads(content), chance)
    except ValueError:
        head, _, rest = content.partition(b"\n")
        return harmed_json(json.loads(head), chance).replace(b"\n", b" ") + b"\n" + rest
