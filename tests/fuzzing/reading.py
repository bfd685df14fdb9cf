"""Reading harmed files: one input, what a reader may use and do while it reads it, and what becomes of it."""

import io
import os
import random
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from memfluence.errors import MemfluenceWarning
from memfluence.store.cache import cache_directory

SECONDS = 10.0  # that one input may take
MOST_BYTES = 512 * 2**20  # that one input may add to the address space of the process, and to what is resident
LONGEST = 400  # letters of a sentence, where the path of the input counts for none
CANARY = "canary"  # the file that hostile inputs try to write, beside the folder of the input

_FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn"),
    *("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto", "pickle.find_class", "ctypes.dlopen"),
    *("urllib.Request", "ftplib.connect", "webbrowser.open", "code.__new__", "sys.settrace"),
)
_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Case:
    """One input."""

    files: Mapping[str, bytes]  # by their paths within the folder of the input
    how: str = ""  # which reader, where a kind has several


class Kind(Protocol):
    """Files of one kind: valid ones that are harmed, and the reader that the harmed ones are given to."""

    seeds: tuple[Case, ...]  # valid

    def harmed(self, chance: random.Random) -> Case: ...

    def read(self, folder: Path, how: str) -> list[str]:
        """What the library says against the files, a sentence each; none if it takes them."""


class Watch:
    """What the process does while it reads an input, by Python's audit events and the files that Arrow opens.

    Files may be written within the folder of the input alone, and read there and where Python's own code is. No
    command, no connection, no unpickling, no library that was not there before.
    """

    def __init__(self, scratch: Path) -> None:
        places = (scratch, cache_directory())  # the second is where this machine remembers its data
        self.places = tuple(f"{place.resolve()}/" for place in places)
        self.is_on, self.seen = False, ""
        self._known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
        packages = Path(pa.__file__).parent.parent
        self._code = tuple({sys.prefix, sys.base_prefix, str(packages), str(Path(__file__).resolve().parents[2])})
        self._opened = opened = pa.OSFile

        def open_file(path: str, *arguments: Any, **options: Any) -> Any:
            self._look("open", (path, None, os.O_RDONLY))
            return opened(path, *arguments, **options)

        pa.OSFile = open_file
        sys.addaudithook(self._look)  # for as long as the process lives

    def end(self) -> None:
        self.is_on, pa.OSFile = False, self._opened

    def _look(self, event: str, arguments: Any) -> None:
        if not self.is_on or self.seen:
            return
        if event in _FORBIDDEN:
            self.seen = f"{event} {str(arguments)[:100]}"
        elif event == "open":
            self._look_at_file(*arguments)
        elif event in _CHANGING and not self._is_inside(arguments[0]):
            self.seen = f"{event} {arguments[0]!r:.100}"
        elif event == "import" and str(arguments[0]).partition(".")[0] not in self._known:
            self.seen = f"import of {arguments[0]}"
        elif event == "exec" and not arguments[0].co_filename.startswith(("<frozen ", *self._code)):
            self.seen = f"exec of {arguments[0]!r:.100}"

    def _look_at_file(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int) or self._is_inside(path):
            return
        if (flags or 0) & _WRITING or any(letter in (mode or "") for letter in "wax+"):
            self.seen = f"open of {path!r:.100} for writing"
        elif not self._is_ours(os.fsdecode(path)):
            self.seen = f"open of {path!r:.100}"

    def _is_inside(self, path: Any) -> bool:
        return f"{os.path.realpath(os.fsdecode(path))}/".startswith(self.places)

    def _is_ours(self, name: str) -> bool:
        return name.startswith(("/proc/", "/sys/", *self._code))


@contextmanager
def watched(kind: Kind, here: Path) -> Iterator[Watch]:
    """Everything loaded and compiled that valid inputs need; then actions are watched, and memory is limited."""
    limits, pool = resource.getrlimit(resource.RLIMIT_AS), pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # takes what it needs, so that a limit means something
    for seed in kind.seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemfluenceWarning)
            said = kind.read(_laid(seed, here), seed.how)
        refused = [one for one in said if not one.startswith("note: ") and "save the images with 8 bits" not in one]
        assert not refused, refused
    watch = Watch(here / "input")
    try:
        yield watch
    finally:
        watch.end()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        pa.set_memory_pool(pool)


def _laid(case: Case, here: Path) -> Path:
    folder = here / "input"
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def read_case(kind: Kind, case: Case, here: Path, watch: Watch) -> tuple[str, str]:
    """The verdict on one input, accepted, rejected or a finding, and why."""
    folder, why = _laid(case, here), ""
    said: list[str] = []
    before, (_, hard) = _reset_peak(), resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, hard))
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as heard, redirect_stderr(io.StringIO()) as spoken:
        warnings.simplefilter("always")
        watch.seen, watch.is_on = "", True
        try:
            said = kind.read(folder, case.how)
        except BaseException as error:
            why = f"{type(error).__name__}: {error!s:.300} ({_place(error)})"
        finally:
            watch.is_on = False
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    seconds, grown = time.perf_counter() - began, max(0, _peak() - before)
    for warning in heard:
        if issubclass(warning.category, MemfluenceWarning):
            said.append(f"note: {warning.message}")
        else:
            why = why or f"{warning.category.__name__}: {warning.message!s:.200} ({warning.filename}:{warning.lineno})"
    why = why or (f"on stderr: {spoken.getvalue()!r:.200}" if spoken.getvalue() else "")
    faults = [fault for fault in (sentence_fault(one, folder) for one in said) if fault]
    why = why or watch.seen or next(iter(faults), "")
    why = why or (f"{grown / 2**20:.0f} MiB of memory" if grown > MOST_BYTES else "")
    why = why or ("the canary was written" if (here / CANARY).exists() or (folder / CANARY).exists() else "")
    why = why or (f"longer than {SECONDS} s" if seconds > SECONDS else "")
    verdict = "finding" if why else "rejected" if any(not one.startswith("note: ") for one in said) else "accepted"
    return verdict, why


def sentence_fault(text: str, folder: Path) -> str:
    """What is wrong with what people get to read; nothing if it is one line of bounded length."""
    plain = text.replace(str(folder), "INPUT").replace(str(folder.resolve()), "INPUT")
    if len(plain) > LONGEST:
        return f"a sentence of {len(plain)} letters: {plain[:300]!r}"
    if not plain.isprintable():
        return f"unprintable letters: {plain!r:.300}"
    if "Traceback" in plain.replace("Traceback (most recent call last):", "", 1) and "Error" in plain:
        return f"a traceback: {plain!r:.300}"
    if not plain.strip() or plain.rstrip()[-1] not in ".?)":
        return f"no sentence: {plain!r:.300}"
    return ""


def _place(error: BaseException) -> str:
    """Where an exception came from: the last line of ours that it passed."""
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "memfluence" in name or "fuzzing" in name:
            found = f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _reset_peak() -> int:
    """Resident bytes now; from here on the peak is counted anew."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
