"""A Ray cluster of several node processes on this machine, small enough for two cores."""

import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# Before Ray is loaded; node processes and drivers inherit them. The token keeps others off the cluster's ports.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
pytest.importorskip("ray", reason="clusters need memfluence[ray]")
OBJECT_STORE = 80 * 2**20  # bytes of shared memory per node


class SmallCluster:
    """A head that runs nothing and nodes of one CPU each; use as a context."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster

        # A dead node is noticed after some seconds instead of a quarter of a minute.
        health = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
        head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
        head["_system_config"] = {**health, "health_check_failure_threshold": 3}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.join() for _ in range(nodes)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def join(self) -> Any:
        return self._cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)

    def kill(self, node: Any) -> None:
        """SIGKILL to a node's daemon and to all that it has started, as when a machine is switched off."""
        daemon = _daemon(node)
        for process in [daemon, *_children(daemon)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def workers(self) -> list[int]:
        """The processes that run tasks of ours."""
        return [one for node in self.nodes for one in _children(_daemon(node)) if "ray::run_groups" in _title(one)]

    def take_busy(self, process: subprocess.Popen[str]) -> Any:
        """A node that runs a task of ours, which is then no longer among the nodes; one may be starting its worker."""
        while True:
            for node in self.nodes:
                if any("ray::run_groups" in _title(one) for one in _children(_daemon(node))):
                    self.nodes.remove(node)
                    return node
            assert process.poll() is None, process.communicate()

    def __enter__(self) -> "SmallCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()


def _daemon(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _children(process: int) -> list[int]:
    """Of the process, and theirs, as Linux lists them."""
    try:
        found = [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found + [grandchild for child in found for grandchild in _children(child)]


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for_segments(run: Path, process: subprocess.Popen[str], count: int = 1) -> None:
    while len(list((run / "trials").glob("[!.]*.parquet"))) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
