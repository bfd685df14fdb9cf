"""PNG files of many modes in the folders of classes, harmed as chunks (with checksums set right) and as bytes.

Image libraries look at the content, not at the name: some files are of other formats under the name of a PNG, among
them one that its decoder would hand to another program (EPS).
"""

import io
import random
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from fuzzing.bytewise import bytewise, integer
from fuzzing.loading import load
from fuzzing.reading import CANARY, Case

Chunk = tuple[bytes, bytes]  # type and content
_MAGIC = b"\x89PNG\r\n\x1a\n"
_SIZE = 8
_NAMES = tuple(f"{split}/{label}/{k}.png" for split in ("train", "test") for label in ("a", "b") for k in range(1))
_EPS = b"%%!PS-Adobe-3.0 EPSF-3.0\n%%%%BoundingBox: 0 0 8 8\n(%s) (w) file closefile\nshowpage\n" % CANARY.encode()


class Pictures:
    def __init__(self) -> None:
        self._grey = _picture("L")
        self._whole = [_picture(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")]
        self._whole += [_interlaced(0, 1), _interlaced(2, 3), _deep_colour()]
        self._others = [
            _picture("RGB", form) for form in ("GIF", "BMP", "TIFF", "PPM", "JPEG", "WEBP", "ICO", "TGA")
        ] + [_EPS]
        self.seeds = tuple(
            Case(self._tree(content), how) for content in self._whole for how in ("", "?lazy=true&size=8")
        )

    def _tree(self, content: bytes, where: str = _NAMES[0]) -> dict[str, bytes]:
        return {name: content if name == where else self._grey for name in _NAMES}

    def harmed(self, chance: random.Random) -> Case:
        which = chance.random()
        if which < 0.2:
            content = bytewise(chance.choice(self._whole), chance, self._whole)
        elif which < 0.3:
            content = chance.choice(self._others)
            content = bytewise(content, chance, self._others) if chance.random() < 0.8 else content
        else:
            chunks = _chunks(chance.choice(self._whole))
            for _ in range(chance.choice((1, 1, 2, 3))):
                chunks = _harmed(chunks, chance)
            content = _joined(chunks, chance)
        how = chance.choice(("", "", "?size=8", "?lazy=true&size=8", "?lazy=true&size=3"))
        return Case(self._tree(content, chance.choice(_NAMES)), how)

    def read(self, folder: Path, how: str) -> list[str]:
        return load(f"folder:{folder}{how}")


def _picture(mode: str, form: str = "PNG") -> bytes:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (_SIZE, _SIZE, 4), np.uint8)
    image = Image.fromarray(pixels, "RGBA") if mode != "I;16" else Image.fromarray(pixels.view("<u2")[..., 0].copy())
    content = io.BytesIO()
    (image if mode == "I;16" else image.convert(mode)).save(content, form)
    return content.getvalue()


def _joined(chunks: list[Chunk], chance: random.Random | None = None) -> bytes:
    """A PNG of these chunks; with a chance a length or a checksum is wrong."""
    content = _MAGIC
    for kind, data in chunks:
        length, checksum = len(data), zlib.crc32(kind + data)
        if chance is not None and chance.random() < 0.02:
            length = integer(chance) % 2**32
        if chance is not None and chance.random() < 0.02:
            checksum ^= 1
        content += struct.pack(">I", length) + kind + data + struct.pack(">I", checksum)
    return content


def _chunks(content: bytes) -> list[Chunk]:
    found, at = [], len(_MAGIC)
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        found.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def _written(width: int, height: int, depth: int, colour: int, interlaced: bool, lines: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return _joined([(b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")])


def _interlaced(colour: int, channels: int) -> bytes:
    """Adam7 of random pixels: seven small pictures, one after the other."""
    rng = np.random.default_rng(1)
    lines = b""
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        for _ in range(y, _SIZE, dy):
            lines += b"\0" + rng.bytes(len(range(x, _SIZE, dx)) * channels)
    return _written(_SIZE, _SIZE, 8, colour, True, lines)


def _deep_colour() -> bytes:
    """Sixteen bits for each of three channels."""
    lines = b"".join(b"\0" + np.random.default_rng(y).bytes(_SIZE * 6) for y in range(_SIZE))
    return _written(_SIZE, _SIZE, 16, 2, False, lines)


def _harmed(chunks: list[Chunk], chance: random.Random) -> list[Chunk]:
    found = list(chunks) or [(b"IEND", b"")]
    at = chance.randrange(len(found))
    kind, data = found[at]
    which = chance.randrange(8)
    if which < 2 and found[0][0] == b"IHDR" and len(found[0][1]) == 13:
        found[0] = b"IHDR", _harmed_header(found[0][1], chance)
    elif which == 2:
        found[at] = kind, bytewise(data, chance)
    elif which == 3:
        found = found[:at] + [found[at]] * chance.choice((0, 2, 20)) + found[at + 1 :]
    elif which == 4:
        chance.shuffle(found)
    elif which == 5:
        found.insert(chance.randrange(1, len(found) + 1), _more(chance))
    else:
        pixels = [place for place, (name, _) in enumerate(found) if name == b"IDAT"]
        if pixels:
            found[pixels[0]] = b"IDAT", _harmed_pixels(found[pixels[0]][1], chance)
    return found


def _harmed_header(head: bytes, chance: random.Random) -> bytes:
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", head)
    which = chance.randrange(5)
    if which < 2:  # sizes up to those that Pillow takes for an attack
        width = chance.choice((integer(chance) % 2**32, 9000, 30_000, 60_000, 7, 9))
        height = chance.choice((height, 1, 9000, 2900, integer(chance) % 2**32))
    elif which == 2:
        depth = chance.choice((0, 1, 2, 3, 4, 8, 16, 32, 255))
    elif which == 3:
        colour = chance.choice((0, 1, 2, 3, 4, 5, 6, 7, 255))
    else:
        rest[chance.randrange(3)] = chance.choice((0, 1, 2, 255))
    return struct.pack(">IIBBBBB", width, height, depth, colour, *rest)


def _harmed_pixels(data: bytes, chance: random.Random) -> bytes:
    """Lines that are harmed and compressed again, too many, or too few."""
    try:
        lines = zlib.decompress(data)
    except zlib.error:
        return bytewise(data, chance)
    which = chance.randrange(4)
    if which == 0:
        lines = bytewise(lines, chance)
    elif which == 1:
        lines += bytes(chance.choice((1, 1000, 10**6)))
    elif which == 2:
        lines = lines[: chance.randrange(len(lines) + 1)]
    else:
        return bytewise(data, chance)
    return zlib.compress(lines, 1)


def _more(chance: random.Random) -> Chunk:
    """A chunk that a PNG may have, with content that it should not have."""
    bomb = zlib.compress(bytes(chance.choice((100, 10**6, 2 * 10**7 if chance.random() < 0.1 else 10))), 1)
    texts = (b"key\0value", b"", b"\0", b"key\0\0" + bomb, b"key\0\xff" + bomb, b"key\0\1\0\0\0" + bomb, b"x" * 3000)
    kinds = (b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"gAMA", b"cHRM", b"sRGB", b"tRNS", b"PLTE", b"pHYs", b"acTL")
    kinds += (b"fcTL", b"fdAT", b"IDAT", b"IEND", b"IHDR", b"\0\0\0\0", b"abcd", b"ABCD", b"tIME", b"sPLT", b"bKGD")
    numbers = struct.pack(">IIIII", *(integer(chance) % 2**32 for _ in range(5)))
    exif = b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 0x0112, 3, integer(chance) % 2**32, integer(chance) % 2**32)
    data = chance.choice((*texts, numbers, numbers[:4], numbers + bytes(6), bytes(256 * 3), exif, chance.randbytes(30)))
    return chance.choice(kinds), data
