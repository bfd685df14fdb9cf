"""The rooms and their arrows: who may import whom, read from the source, and what importing the package costs."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "memfluence"

# Room -> rooms that it may know. The base is known to all.
FOUNDATION = {"errors", "seeding", "records", "npzfiles", "paper", "drawing", "wording"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "seeding": set(),
    "records": {"errors", "seeding"},
    "npzfiles": {"errors"},
    "paper": {"errors"},
    "drawing": set(),
    "wording": set(),
    "datasets": FOUNDATION,
    "designs": FOUNDATION,
    "learners": FOUNDATION | {"datasets"},
    "store": FOUNDATION,
    "engines": FOUNDATION | {"datasets", "designs", "learners", "store"},
    "estimators": FOUNDATION,
    "findings": FOUNDATION | {"estimators"},
    "training": FOUNDATION | {"datasets", "designs", "learners", "store", "engines"},
    "runs": FOUNDATION
    | {
        "datasets",
        "store",
        "estimators",
        "findings",
        "engines",
        "training",
    },  # methods of `Run` that show it go through the package's lazy names
    "experiments": FOUNDATION
    | {"datasets", "learners", "store", "engines", "estimators", "findings", "runs", "training"},
    "exchange": FOUNDATION | {"datasets", "store", "estimators", "findings", "runs"},
    "store/upkeep": FOUNDATION | {"designs", "store", "training"},
    "report": FOUNDATION | {"datasets", "store", "estimators", "findings", "runs"},
    "cli": FOUNDATION
    | {
        "engines",
        "findings",
        "runs",
        "exchange",
        "report",
        "experiments",
        "store",
        "store/upkeep",
        "training",
    },
    "__init__": {
        "datasets",
        "designs",
        "errors",
        "exchange",
        "experiments",
        "learners",
        "report",
        "runs",
        "store/upkeep",
        "training",
    },
    "__main__": {"cli"},
}
HEAVY = {"torch", "ray", "matplotlib", "pandas", "sklearn", "numba", "datasets", "PIL", "scipy"}

# Private modules (and all of learners/nets) that their room imports only when the work begins.
IMPORTED_WHEN_USED = {
    "estimators/kernels/compiled.py": {"numba"},
    "estimators/kernels/counting.py": {"numba"},
}


def room_of(path: Path) -> str:
    inside = path.relative_to(SOURCE)
    return "store/upkeep" if inside.parts[:2] == ("store", "upkeep") else inside.parts[0].removesuffix(".py")


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            if node.module in ("memfluence", "memfluence.store"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
    return found


def _room_named(name: str) -> str:
    parts = name.split(".")
    return "store/upkeep" if parts[1:3] == ["store", "upkeep"] else parts[1]


ALL_FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_knows_only_what_it_may(path: Path) -> None:
    room = room_of(path)
    names = imports(path)
    assert "memfluence" not in names or path.relative_to(SOURCE).as_posix() == "runs/run.py", "that hides what it knows"
    known = {_room_named(name) for name in names if name.startswith("memfluence.")} - {room, "__version__"}
    assert known <= ROOMS[room], f"{path.name} of {room} imports {sorted(known - ROOMS[room])}"


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_libraries_are_imported_when_used(path: Path) -> None:
    heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
    where = path.relative_to(SOURCE).as_posix()
    allowed = {"torch"} if where.startswith("learners/nets/") else IMPORTED_WHEN_USED.get(where, set())
    assert heavy <= allowed, f"{path} imports {sorted(heavy)} at its top"


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_fits_in_one_reading(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450


def loaded_by(*arguments: str, code: int | None = 0) -> set[str]:
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=False)
    assert code in (None, done.returncode), done.stderr[-500:]
    return {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("-c", "import memfluence") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    assert not loaded_by("-m", "memfluence", "--help") & (HEAVY | {"pyarrow", "numpy"})


def test_reading_scores_loads_neither_torch_nor_pandas(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "store" / "format-1"
    loaded = loaded_by("-m", "memfluence", "scores", str(fixture), "--keep", "0.5", "--json")
    assert not loaded & {"torch", "pandas", "matplotlib", "sklearn"}


def test_upkeep_and_status_load_neither_torch_nor_pandas(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "store" / "format-1"
    for command in ("verify", "repair", "status", "compact"):
        shutil.copytree(fixture, tmp_path / command)
        loaded = loaded_by("-m", "memfluence", command, str(tmp_path / command), code=None)
        assert "pyarrow" in loaded
        assert not loaded & {"torch", "pandas", "matplotlib", "sklearn"}


def test_every_public_name_is_there() -> None:
    import memfluence

    for name in memfluence.__all__:
        assert getattr(memfluence, name) is not None
    assert set(memfluence.__all__) <= set(dir(memfluence))
    with pytest.raises(AttributeError):
        _ = memfluence.nothing  # type: ignore[attr-defined]


def test_files_of_tests_have_names_of_their_own() -> None:
    """Two of one name cannot be collected together, because folders of tests are no packages."""
    names = sorted(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert not {name for name in names if names.count(name) > 1}
