"""The application: its commands, and how errors end it.

Errors are one sentence on stderr, exit code 2 for misuse and 1 for failure, no traceback unless --debug. With --json
a command prints one JSON document on stdout and nothing else there.
"""

import importlib.util
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from memfluence.cli._terminal import Commands, as_options, command_in
from memfluence.errors import Interrupted, MemfluenceError, MemfluenceWarning, one_line

_INTERRUPTED = 130
_SECONDS_TO_LEAVE = 10.0  # for threads that code of the user's own has left behind
_LONGEST_IMPORT = 5.0  # seconds that a signal waits for the end of an import
_interrupts: list[float] = []  # when signals came

COMMANDS = {  # and their modules, which are imported when they are asked for
    "run": "_run",
    "plan": "_run",
    "status": "_run",
    "verify": "_upkeep",
    "repair": "_upkeep",
    "merge": "_upkeep",
    "compact": "_upkeep",
    "scores": "_values",
    "pairs": "_findings",
    "mislabels": "_findings",
    "duplicates": "_findings",
    "groups": "_findings",
    "attack": "_findings",
    "report": "_report",
    "serve": "_report",
    "values": "_values",
    "profile": "_values",
    "datamodels": "_values",
    "judge": "_values",
    "experiment": "_experiment",
    "reproduce": "_experiment",
    "compare": "_exchange",
    "export": "_exchange",
    "import": "_exchange",
}


_HAS_TORCH = importlib.util.find_spec("torch") is not None
_START = (
    "memfluence run digits, then memfluence report runs/digits-mlp"
    if _HAS_TORCH
    else "memfluence run digits --learner sklearn.naive_bayes:GaussianNB, then memfluence report runs/digits-GaussianNB"
    " (networks need more: pip install 'memfluence[torch]')"
)


class _Root(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": Commands(COMMANDS, partial(command_in, COMMANDS))})


app = typer.Typer(
    cls=_Root,
    name="memfluence",
    help="Which training examples does a learning algorithm memorize, and which test predictions does each carry?",
    epilog=f"Start with: {_START}. Any command takes --debug, which shows the traceback of an error."
    " Exit codes: 0, 1 failure, 2 misuse, 130 stopped by Ctrl-C (0 for serve).",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from memfluence import __version__

        typer.echo(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"] or ["--help"]
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", MemfluenceWarning)
    _interrupts.clear()
    try:
        _heed_signals()
        code = app(args=given, prog_name="memfluence", standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:  # Typer has caught it
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:  # the reader of our output (head, less) is gone
        sys.stderr.close()
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, Interrupted):  # said once; more of the same must not cut the end short
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        elif _interrupts or isinstance(error, KeyboardInterrupt):  # whatever Python or a library made of it
            _say("Stopped.")
            # After a KeyboardInterrupt in executed text (`dataclasses` executes some) Python ends the process by SIGINT
            # in place of our code, even if it is caught. Only the execution of another text takes that back.
            exec("")
            sys.exit(_INTERRUPTED)
        if debug:
            raise
        if isinstance(error, MemfluenceError):
            _say(as_options(str(error)))
            sys.exit(error.exit_code)
        if hasattr(error, "format_message"):  # misuse found by the parser of options
            where = getattr(getattr(error, "ctx", None), "command_path", "memfluence")
            _say(f"{_sentence(error.format_message())} See '{where} --help'.")
            sys.exit(2)
        _say(f"Unexpected {type(error).__name__}: {error}. Please report it with what --debug prints.")
        sys.exit(1)
    finally:
        if arguments is None:  # Python waits for threads that a learner's file has left
            leave = threading.Timer(_SECONDS_TO_LEAVE, os._exit, (getattr(sys.exception(), "code", 1),))
            leave.daemon = True
            leave.start()


def _heed_signals() -> None:
    """What a scheduler or a closed terminal sends has the manners of Ctrl-C."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) != signal.SIG_IGN:  # nohup
            signal.signal(name, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})  # see __main__


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in an import, which may make anything of it, or lose it, soon afterwards."""
    _interrupts.append(time.monotonic())
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    if frame is None or _interrupts[-1] - _interrupts[0] > _LONGEST_IMPORT:
        raise KeyboardInterrupt
    again = threading.Timer(0.05, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _sentence(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if one_line.endswith((".", "?", "!")) else f"{one_line}."


def _say(message: str) -> None:
    print(f"memfluence: {one_line(message)}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, MemfluenceWarning):
        print(f"memfluence: note: {one_line(as_options(str(message)))}", file=sys.stderr)
    else:
        text = f"{category.__name__}: {message} ({filename}:{lineno})"
        print("\n".join(map(one_line, text.splitlines())), file=sys.stderr)
