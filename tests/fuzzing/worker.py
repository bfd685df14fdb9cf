"""The process that reads harmed files: what it may use, what it must not do, and what it says of each input."""

import io
import os
import random
import resource
import shutil
import signal
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from fuzzing.case import CANARY, Case, Kind, lay
from memfluence.errors import MemfluenceWarning

__all__ = ["LONGEST", "MOST_BYTES", "Watch", "prepared", "read_case", "run_command", "sentence_fault"]

MOST_BYTES = 512 * 2**20  # that one input may add to the address space of the process, and to what is resident
LONGEST = 400  # letters of a sentence, where the path of the input counts for none

_FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "subprocess.Popen",
    "pty.spawn",
)
_FORBIDDEN += (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.bind",
    "socket.sendto",
    "pickle.find_class",
    "ctypes.dlopen",
)
_FORBIDDEN += ("urllib.Request", "ftplib.connect", "webbrowser.open", "code.__new__", "sys.settrace")
_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """What the process does while it reads an input, by Python's audit events and the files that Arrow opens.

    Files may be written within the folder of the input alone, and read there and where Python's own code is. No
    command, no connection, no unpickling, no library that was not there before.
    """

    def __init__(self, scratch: Path) -> None:
        import pyarrow as pa

        from memfluence.store.cache import cache_directory

        places = (scratch, cache_directory())  # the second is where this machine remembers its data
        self.places = tuple(f"{place.resolve()}/" for place in places)
        self.is_on, self.seen = False, ""
        self._known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
        self._code = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2])})
        opened = pa.OSFile

        def open_file(path: str, *arguments: Any, **options: Any) -> Any:
            self._look("open", (path, None, os.O_RDONLY))
            return opened(path, *arguments, **options)

        pa.OSFile = open_file
        sys.addaudithook(self._look)

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


def prepared(kind: Kind, here: Path) -> Watch:
    """Everything loaded and compiled that valid inputs need; then memory and actions are watched."""
    folder = here / "input"
    for seed in kind.seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemfluenceWarning)
            said = _read(kind, seed, folder)
        refused = [one for one in said if not one.startswith("note: ") and "save the images with 8 bits" not in one]
        assert not refused, refused
    _try_command(kind, folder)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, resource.RLIM_INFINITY))
    return Watch(here / "input")


def _try_command(kind: Kind, folder: Path) -> None:
    """Each command line here, once: they and Typer load what they need when they first need it."""
    from memfluence.cli import main

    for seed in kind.seeds:
        shutil.rmtree(folder)
        folder.mkdir()
        lay(seed, folder)
        lines = [tuple(kind.command(folder, seed.how, random.Random(number))) for number in range(20)]
        for line in dict.fromkeys(lines):
            with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                main(line)


def _read(kind: Kind, case: Case, folder: Path) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lay(case, folder)
    return kind.read(folder, case.how)


def read_case(kind: Kind, case: Case, here: Path, watch: Watch) -> dict[str, Any]:
    """The verdict on one input: accepted, rejected, or a finding and why; with its time and its memory."""
    folder = here / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lay(case, folder)
    before = _reset_peak()
    began = time.perf_counter()
    said: list[str] = []
    why = ""
    watch.seen, watch.is_on = "", True
    with warnings.catch_warnings(record=True) as heard, redirect_stderr(io.StringIO()) as spoken:
        warnings.simplefilter("always")
        try:
            said = kind.read(folder, case.how)
        except BaseException as error:
            why = f"{type(error).__name__}: {error!s:.300} ({_place(error)})"
        finally:
            watch.is_on = False
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
    verdict = "finding" if why else "rejected" if any(not one.startswith("note: ") for one in said) else "accepted"
    return {"verdict": verdict, "why": why, "seconds": seconds, "bytes": grown, "said": said[:1]}


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


def run_command(kind: Kind, case: Case, here: Path, chance: random.Random, seconds: float, watch: Watch) -> str:
    """The same input through the command line, in a process of its own; what is wrong with how it ends."""
    folder, output = here / "input", here / "output"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lay(case, folder)
    line = kind.command(folder, case.how, chance)
    pid = os.fork()
    if pid == 0:
        _become_command(line, output, watch)
    ends = time.monotonic() + seconds
    done = 0
    while not done and time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)
    if not done:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"'memfluence {line[0]}' ran longer than {seconds} s"
    code = os.waitstatus_to_exitcode(status)
    lines = output.read_text(errors="replace").splitlines()
    errors = [one for one in lines if not one.startswith("memfluence: note: ")]
    shown = f"'memfluence {line[0]}' ended with {code} and said {errors!r:.300}"
    if code not in (0, 1, 2) or any("Unexpected" in one for one in errors):
        return shown
    if code and line[0] != "verify" and (len(errors) != 1 or not errors[0].startswith("memfluence: ")):
        return shown
    if code == 0 and errors and not all(one.startswith("memfluence: ") for one in errors):
        return shown
    return next(iter(fault for fault in (sentence_fault(one, folder) for one in lines) if fault), "")


def _become_command(line: list[str], output: Path, watch: Watch) -> None:
    """In the child: the command, with what it says on stderr in a file. Never returns."""
    code = 70
    try:
        with output.open("w") as file, Path(os.devnull).open("w") as nothing:
            os.dup2(file.fileno(), 2)
            os.dup2(nothing.fileno(), 1)
            sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            from memfluence.cli import main

            watch.is_on = True
            try:
                main(line)
            except SystemExit as end:
                code = int(end.code or 0)
            watch.is_on = False
            if watch.seen:
                print(f"memfluence: Unexpected action: {watch.seen}", file=sys.stderr)
            sys.stderr.flush()
    finally:
        os._exit(code)


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
