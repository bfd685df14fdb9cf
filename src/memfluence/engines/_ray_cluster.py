"""Reaching a Ray cluster: connecting, what it has, and one sentence for each way in which that fails."""

import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Any

from memfluence.engines.environment import STOPPING, outside_of_untrusted
from memfluence.errors import EngineError, InputError

_SECONDS_TO_REACH = 5.0
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty frame of HTTP/2's settings: length, type, flags, stream
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS  # to which gRPC, and so Ray, answers with its own


def gpus_and_device(device: str, gpus_per_worker: float | None) -> tuple[float, str]:
    """GPUs that each worker reserves, and the device that it trains on: "auto" is a GPU if some are asked for."""
    gpus = gpus_per_worker if gpus_per_worker is not None else 1.0 if device == "cuda" else 0.0
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not (math.isfinite(gpus) and gpus >= 0):
        raise InputError(f"The `gpus_per_worker` parameter must be a number >= 0. Got {gpus_per_worker!r} instead.")
    if gpus > 1 and gpus != int(gpus):
        raise InputError(f"More than one GPU per worker must be a whole number. Got gpus_per_worker={gpus:g}.")
    if device == "cuda" and gpus == 0:
        raise InputError("Workers with `device='cuda'` need a GPU or a part of one; leave out `gpus_per_worker=0`.")
    if device == "cpu" and gpus > 0:
        raise InputError(
            "Workers with `device='cpu'` use no GPU; leave out `gpus_per_worker`, or give `device='cuda'`."
        )
    return float(gpus), "cuda" if gpus else "cpu"


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The ray module, connected to the cluster; a connection that the caller has made before is used and kept."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise InputError(
            f"The ray engine needs Ray, which cannot be imported here ({error}); install it with"
            " pip install 'memfluence[ray]'."
        ) from error
    if ray.is_initialized():
        yield ray
        return
    where = address or "auto"
    _check_reachable(where)
    with _own_signals(), outside_of_untrusted():  # Ray would take SIGTERM for itself
        try:
            ray.init(address=where, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            raise EngineError(_not_joined(where, error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def told_on_stderr() -> Iterator[None]:
    """What Ray itself tells of the cluster, a node that died say, goes to stderr: stdout is for results."""
    with redirect_stdout(sys.stderr):
        yield


def _check_reachable(where: str) -> None:
    """Ray itself would wait for minutes for a machine that does not answer, or not as Ray does."""
    host, colon, port = where.rpartition("://")[2].rpartition(":")
    if where == "auto":
        return
    if not colon or not host or not port.isdigit():
        raise InputError(f"The `address` parameter must read HOST:PORT, such as 10.0.0.1:6379. Got {where!r} instead.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_REACH) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
                connection.sendall(_HELLO)
                if connection.recv(9)[3:4] != _SETTINGS[3:4]:
                    raise ConnectionError("what answers there is something else")
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"There is no Ray cluster at {where} ({error}); start one with 'ray start --head', or check `address`."
        ) from error


def _not_joined(where: str, error: BaseException) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if where == "auto" and isinstance(error, ConnectionError):
        return "There is no Ray cluster on this machine; start one with 'ray start --head', or name one with `address`."
    return (
        f"The Ray cluster at {where} could not be joined ({reason}); it needs the same versions of Ray and Python as"
        " here, and where it asks for a token, RAY_AUTH_MODE=token and that token."
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Leave the handlers of signals as they were."""
    before = {name: signal.getsignal(name) for name in STOPPING}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for name, handler in before.items():
                signal.signal(name, handler if handler is not None else signal.SIG_DFL)


def places(ray: Any, gpus: float) -> int:
    """How many workers of one CPU and so many GPUs the nodes that are there now can run at once."""

    def of(resources: dict[str, float]) -> int:
        cpus, cards = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        if not gpus:
            return cpus
        return min(cpus, cards // int(gpus) if gpus >= 1 else cards * int(1 / gpus + 1e-9))

    return sum(of(node["Resources"]) for node in ray.nodes() if node["Alive"])


def no_room(gpus: float) -> str:
    """What to say when there is no place at all."""
    if gpus:
        return (
            f"No node of the Ray cluster has {gpus:g} GPU(s) and a CPU for a worker; add one, lower `gpus_per_worker`,"
            " or use `device='cpu'`."
        )
    return "No node of the Ray cluster has a CPU for a worker; add a node (ray start --address ... --num-cpus N)."
