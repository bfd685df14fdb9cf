"""One input: the files that are laid down for it, and how they are read."""

import base64
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["CANARY", "Case", "Kind", "from_json", "lay", "to_json"]

CANARY = "canary"  # the file that hostile inputs try to write, beside the folder of the input


@dataclass(frozen=True)
class Case:
    files: Mapping[str, bytes]  # by their paths within the folder of the input
    how: str = ""  # which reader, where a kind has several


class Kind(Protocol):
    """Files of one kind: valid ones that are harmed, and the reader that the harmed ones are given to."""

    seeds: tuple[Case, ...]  # valid

    def harmed(self, chance: random.Random) -> Case: ...

    def read(self, folder: Path, how: str) -> list[str]:
        """What the library says against the files, a sentence each; none if it takes them."""

    def command(self, folder: Path, how: str, chance: random.Random) -> list[str]:
        """A command line that reads the same files."""


def lay(case: Case, folder: Path) -> None:
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def to_json(kind: str, case: Case, **facts: Any) -> str:
    files = {name: base64.b64encode(content).decode() for name, content in case.files.items()}
    return json.dumps({"kind": kind, "how": case.how, **facts, "files": files}, indent=1) + "\n"


def from_json(text: str) -> tuple[str, Case]:
    found = json.loads(text)
    return found["kind"], Case({name: base64.b64decode(part) for name, part in found["files"].items()}, found["how"])
