"""Reading .npz and .npy files that are damaged or lie: one sentence in the caller's error, no memory for claims."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memfluence.errors import DesignError, InputError, MemfluenceError
from memfluence.npzfiles import is_npy, npz_bytes, open_npz, read_npy

ARRAYS = {
    "whole": np.arange(300).reshape(30, 10),
    "text": np.array(["a", "é", "long enough to matter"]),
    "fortran": np.asfortranarray(np.linspace(0, 1, 12).reshape(3, 4)),
    "scalar": np.asarray("one text"),
    "empty": np.zeros((0, 4), np.uint8),
}


def read_all(path: Path) -> dict[str, np.ndarray]:
    with open_npz(path, InputError) as file:
        return {name: file.read(name) for name in file.names}


def header(text: str, version: tuple[int, int] = (1, 0), claimed: int | None = None) -> bytes:
    content = text.encode("latin1")
    length = len(content) if claimed is None else claimed
    return b"\x93NUMPY" + bytes(version) + length.to_bytes(2 if version == (1, 0) else 4, "little") + content


def described(shape: str, dtype: str = "'|u1'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}\n"


def peak_bytes(action: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_written_is_read_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz_bytes(ARRAYS))
    assert npz_bytes(ARRAYS) == path.read_bytes()
    found = read_all(path)
    assert set(found) == set(ARRAYS)
    for name, values in ARRAYS.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)
    np.save(tmp_path / "a.npy", ARRAYS["fortran"])
    assert is_npy(tmp_path / "a.npy")
    assert not is_npy(path)
    assert np.array_equal(read_npy(tmp_path / "a.npy", InputError), ARRAYS["fortran"])


def test_arrays_that_nobody_asks_for_are_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("README.txt", "no array")
        archive.writestr("two\nlines.npy", "no array")
        archive.writestr("x.npy", npz_member(np.arange(3)))
    with open_npz(tmp_path / "a.npz", InputError) as file:
        assert file.read("x").tolist() == [0, 1, 2]
        assert file.listing == "README.txt, 'two\\nlines', x"


def npz_member(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_damage_is_one_sentence_or_harmless(tmp_path: Path, compression: int, soak: bool) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, values in ARRAYS.items():
            archive.writestr(f"{name}.npy", npz_member(values))
    good, path, rng = stream.getvalue(), tmp_path / "a.npz", np.random.default_rng(0)
    found = []
    for _ in range(20_000 if soak else 600):
        bad = bytearray(good)
        if rng.random() < 0.2:
            del bad[int(rng.integers(len(bad))) :]
        for position in rng.integers(0, max(1, len(bad)), int(rng.integers(1, 4))):
            if len(bad):
                bad[position] = rng.integers(256)
        path.write_bytes(bytes(bad))
        try:
            read_all(path)
        except InputError as error:
            found.append(str(error))
    assert len(found) > 300
    assert not [message for message in found if "\n" in message or not message.startswith(str(path))]


def test_a_damaged_deflate_stream(tmp_path: Path) -> None:
    """Far behind the header, where zlib itself finds it."""
    content = bytearray(npz_bytes({"x": np.arange(50_000)}))
    middle = len(content) // 2
    content[middle : middle + 2000] = b"\xff" * 2000
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"'x' cannot be read \(Error -3 while decompressing data.*write it again"):
        read_all(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "content",
    [
        header(described("(4, 99999999999)")) + bytes(50),
        header(described("(2**70,)")) + bytes(50),
        header(described("(-5, -10)")) + bytes(50),
        header(described("(4611686018427387904,)", "'|S0'")),
        header(described(f"({'1, ' * 70})")) + bytes(1),
        header(described("(50,)", "'|O'")) + bytes(50),
        header(described("(50,)", "[('a', '|u1')]")) + bytes(50),
        header(described("(50,)", "'nonsense'")) + bytes(50),
        header(described("(50,)", "'|S99999999999999999999'")) + bytes(50),
        header("{'a': 1, 2: 3}\n") + bytes(50),
        header("{[]: 1}\n") + bytes(50),
        header("(" * 9000 + "\n") + bytes(50),
        header("-" * 9000 + "1\n") + bytes(50),
        header("x" * 20_000 + "\n") + bytes(50),
        header("", (2, 0), claimed=2**32 - 1) + bytes(2**24),
        header(described("(50,)"), (9, 0)) + bytes(50),
        b"\x93NUMPY",
        b"",
    ],
)
def test_headers_that_lie(tmp_path: Path, content: bytes) -> None:
    """Bounded memory, for a single array and in an archive, where deflate makes room for bigger lies."""
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    for read in (lambda: read_npy(tmp_path / "a.npy", DesignError), lambda: read_all(tmp_path / "a.npz")):

        def fails(read: Callable[[], object] = read) -> None:
            with pytest.raises(InputError, match=r"a\.np[yz]: ") as caught:
                read()
            assert "\n" not in str(caught.value)

        assert peak_bytes(fails) < 2**22


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_npy(path, InputError)
        with pytest.raises(InputError, match="cannot be read"):
            read_all(path)


def test_too_little_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz_bytes(ARRAYS))

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("memfluence.npzfiles._read_array", refuse)
    with pytest.raises(MemfluenceError, match="does not fit in memory"):
        read_all(path)
