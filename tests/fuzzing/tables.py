"""Tables of scores and pairs (Parquet, CSV, NPZ) that `compare` reads, harmed."""

import random
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import memfluence as mf
from fuzzing.archives import HARMS as HARMS_OF_ARRAYS
from fuzzing.archives import zipped
from fuzzing.bytewise import bytewise, integer
from fuzzing.reading import Case
from fuzzing.runs import refuse_hidden
from fuzzing.segments import HARMS as HARMS_OF_TABLES
from fuzzing.segments import WRITINGS, bytewise_parquet, written
from memfluence.errors import MemfluenceError
from memfluence.runs import Table

_WHOLE = "whole.csv"  # the same unharmed, for comparison
_CELLS = (
    "",
    "nan",
    "inf",
    "-1",
    "1e999",
    "0x10",
    '"',
    '"a\nb"',
    "\x1b[2J",
    "9" * 400,
    "é",
    "\x00",
    "NA",
    "1;2",
    "True",
)


class Tables:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        labels = np.array(["ant", "bee", "fly"])[np.arange(30) % 3]
        memorized = np.round(rng.random(30), 3)
        gaps = np.where(np.arange(30) == 4, np.nan, memorized)
        scores = {"index": np.arange(30), "label": labels, "memorization": gaps, "stderr": np.full(30, 0.1)}
        train, test = rng.integers(0, 30, 8), rng.integers(0, 20, 8)
        pairs = {"train_index": train, "test_index": test, "label": labels[train]}
        pairs |= {"influence": np.round(rng.random(8), 3), "memorization": memorized[train]}
        self._columns = (scores, scores | {"label": np.arange(30) % 3}, pairs)
        self._tables = [pa.table({n: pa.array(v, from_pandas=True) for n, v in one.items()}) for one in self._columns]
        self._parquet = [[written(table, how) for how in WRITINGS] for table in self._tables]
        self._whole = [_bytes(one, ".csv") for one in self._columns]
        self.seeds = tuple(
            self._case(number, f"table{ending}", _bytes(one, ending))
            for number, one in enumerate(self._columns)
            for ending in (".csv", ".npz", ".parquet")
        )

    def _case(self, number: int, name: str, content: bytes) -> Case:
        return Case({name: content, _WHOLE: self._whole[number]}, name)

    def harmed(self, chance: random.Random) -> Case:
        number = chance.randrange(len(self._columns))
        which = chance.random()
        if which < 0.55:
            return self._case(number, "table.parquet", self._harmed_parquet(number, chance))
        if which < 0.8:
            return self._case(number, "table.csv", self._harmed_csv(number, chance))
        arrays = dict(self._columns[number])
        if chance.random() < 0.4:
            content = bytewise(zipped(arrays, zipfile.ZIP_DEFLATED), chance)
        else:
            chance.choice(HARMS_OF_ARRAYS)(arrays, chance.choice(sorted(arrays)), chance)
            content = zipped(arrays, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        return self._case(number, "table.npz", content)

    def _harmed_parquet(self, number: int, chance: random.Random) -> bytes:
        there = self._parquet[number]
        if chance.random() < 0.5:
            ours = _bytes(self._columns[number], ".parquet")  # with integers as differences
            return bytewise_parquet(chance.choice([*there, ours, ours]), chance, there)
        try:
            table = chance.choice(HARMS_OF_TABLES)(self._tables[number], chance)
            return written(table, chance.choice(WRITINGS))
        except (pa.ArrowException, OSError, ValueError):  # what cannot be written is harmed as bytes
            return bytewise_parquet(there[0], chance, there)

    def _harmed_csv(self, number: int, chance: random.Random) -> bytes:
        content = _bytes(self._columns[number], ".csv")
        if chance.random() < 0.3:
            return bytewise(content, chance)
        rows = [line.split(",") for line in content.decode().splitlines()]
        for _ in range(chance.choice((1, 1, 2, 5))):
            row = chance.choice(rows)
            cell = chance.choice(_CELLS) if chance.random() < 0.7 else str(integer(chance))
            row[chance.randrange(len(row))] = cell
            if chance.random() < 0.1:
                row.append(cell)
        return "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")

    def read(self, folder: Path, how: str) -> list[str]:
        said = []
        for sides in ((folder / how,), (folder / _WHOLE, folder / how), (folder / how, folder / _WHOLE)):
            try:
                found = mf.compare(*sides)
            except MemfluenceError as error:
                refuse_hidden(error)
                said.append(str(error))
            else:
                agreement = found.get("memorization", {})
                assert 0 <= (agreement.get("memorized_jaccard") or 0) <= 1
        return said


def _bytes(columns: dict[str, np.ndarray], ending: str) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{ending}"
        Table(columns).write(path)
        return path.read_bytes()
