"""A cap on the memory of this process, kept by asking before anything large is made.

The cap counts everything that the process holds (the interpreter, libraries, the trials): what may still be made is the
cap less what is resident when it is asked for. What does not fit is an error that says what would.

Not asked about: libraries, which are loaded when they are first needed (Numba, SciPy and scikit-learn make up to 250 MB
of a process) and counted from then on, and a table while it is written to a file, a few times its size.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from memfluence.errors import InputError

HEADROOM = 1.15  # of the advice: what is resident varies, and later steps may need a little more
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def bytes_of(given: "str | int | None") -> int | None:
    """'2GB', '500 MB', '1.5GiB' or an integer, in bytes; None means no cap."""
    if given is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)(b?)\s*", str(given).lower())
    if not found or found[2] not in _UNITS or isinstance(given, bool) or float(found[1]) <= 0:
        raise InputError(f"The `memory` parameter must be a size such as 2GB or 500MB. Got {given!r} instead.")
    if isinstance(given, str) and not found[2] and not found[3]:
        raise InputError(f"The `memory` parameter needs a unit, such as {found[1]}GB or 500MB. Got {given!r} instead.")
    return int(float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Memory:
    """The cap, in bytes; None for no cap."""

    limit: int | None = None

    @classmethod
    def of(cls, given: "str | int | Memory | None") -> "Memory":
        return given if isinstance(given, Memory) else cls(bytes_of(given))

    def left(self) -> float:
        """Bytes that may still be made."""
        return float("inf") if self.limit is None else max(0.0, self.limit - _resident())

    def check(self, needed: float, what: str, instead: str) -> None:
        """Refuse to make `what`, of so many bytes, where it does not fit."""
        if self.limit is not None and needed > self.left():
            enough = HEADROOM * (_resident() + needed)
            raise InputError(
                f"With {_shown(_resident())} in use, {what} ({_shown(needed)}) would go beyond the memory of"
                f" {_shown(self.limit)}; allow at least {_shown(enough)} (`memory`), or choose {instead}."
            )

    def check_column(self, trials: int, examples: int) -> None:
        """Refuse to read a recorded column that does not fit; it is held three times, and once in float64 when used."""
        self.check((3 * 2 + 8) * trials * examples, "a recorded outcome of all trials", "right and wrong")

    def check_matrix(self, rows: int, columns: int, itemsize: int) -> None:
        """Refuse a matrix of estimates that does not fit, and say how much of it would."""
        fits = int(self.left() // (rows * itemsize)) if rows and self.limit is not None else 0
        instead = f"at most {fits:,} test examples at once" if fits else "fewer examples"
        self.check(
            rows * columns * itemsize,
            f"a matrix of {rows:,} x {columns:,} estimates of {itemsize} bytes",
            f"{instead}, a narrower dtype, same_class, top_k or pairs",
        )


def _shown(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _resident() -> int:
    """Bytes of this process in memory now; the most so far where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        try:
            import resource
        except ImportError:  # Windows
            return 0
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    import resource

    return pages * resource.getpagesize()
