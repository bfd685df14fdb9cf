"""The libraries whose versions change rounding."""

import importlib.metadata
import platform
from contextlib import suppress


def installed_versions() -> dict[str, str]:
    """What run.json records, of this machine."""
    found = {"python": platform.python_version()}
    for package in ("memfluence", "numpy", "scikit-learn", "torch"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
