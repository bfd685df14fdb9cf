"""Where a run is: a directory (`pathlib.Path`), or a place on some other file system, named by a URI.

    runs/digits    s3://bucket/runs/digits    gs://bucket/digits    s3://bucket/digits?endpoint_override=host:9000

`pathlib` would make s3:/bucket of s3://bucket, so whoever takes a run's place from outside calls `locate` first.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from memfluence.errors import InputError

__all__ = ["OBJECT_STORES", "Location", "Uri", "folder_for", "locate", "refuse_uri"]

# Where an upload is one object that appears when it is complete; elsewhere files are written and then renamed.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "obs", "b2", "memory"}
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<slash>/?)(?P<rest>.*)", re.DOTALL)
_SECRET = re.compile(r"secret|password|token|(access|account|shared|private)_?key|^key$|^sig", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Uri:
    """A file or folder that is not of this machine's file system, with what of `pathlib` a name needs."""

    root: str  # s3://bucket
    path: str  # runs/digits
    query: str = ""  # endpoint_override=host:9000&scheme=http

    def __str__(self) -> str:
        return "/".join(filter(None, (self.root, self.path))) + (f"?{self.query}" if self.query else "")

    def __truediv__(self, name: str) -> "Uri":
        return Uri(self.root, f"{self.path}/{name}".lstrip("/"), self.query)

    @property
    def scheme(self) -> str:
        return self.root.partition(":")[0]

    @property
    def authority(self) -> str:
        """The bucket, or the host."""
        return self.root.partition("://")[2]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.authority

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.root, *filter(None, self.path.split("/")))

    def absolute(self) -> "Uri":
        return self

    resolve = absolute

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name


Location = Path | Uri


def locate(given: str | Path | Uri) -> Location:
    """The place that a caller means: a path, or a URI such as s3://bucket/runs/digits."""
    match = None if isinstance(given, Uri) else _URI.fullmatch(str(given))
    if isinstance(given, Uri) or match is None or (not match["slash"] and isinstance(given, str)):
        return given if isinstance(given, Uri) else _directory(Path(given))
    scheme = match["scheme"].lower()
    if scheme == "file":
        if match["slash"] and not match["rest"].startswith("/"):
            raise InputError(f"{given} names another machine's file; write file:///directory, or the path alone.")
        return Path("/") / match["rest"]
    place, _, query = match["rest"].partition("?")
    authority, *parts = place.split("/")
    path = [part for part in parts if part]
    secrets = [name for name, _ in parse_qsl(query, keep_blank_values=True) if _SECRET.search(name)]
    if (":" in authority.partition("@")[0] and "@" in authority) or secrets:
        shown = f"...?{secrets[0]}=..." if secrets else f"...@{authority.rpartition('@')[2]}"
        raise InputError(
            f"A password does not belong into a URI ({scheme}://{shown}), which is shown and logged; give credentials"
            " as that file system's tools take them (AWS_PROFILE, environment variables, ...)."
        )
    if (not authority and scheme in OBJECT_STORES) or not (authority or path) or {".", ".."} & set(path):
        raise InputError(f"{given} is no place for a run; write {scheme}://BUCKET/PATH, without . and .. in the path.")
    return Uri(f"{scheme}://{authority}", "/".join(path), query)


def _directory(path: Path) -> Path:
    """A directory under a name that commands which we suggest can be given as well."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"The name {str(path)!a} is not UTF-8, so neither run.json nor any table could say it; name another"
            " directory, or a link to this one."
        ) from None
    return path.absolute() if str(path).startswith("-") else path  # it would be taken for an option


def folder_for(location: Location) -> Path:
    """Where things that are made from a run go unless told otherwise: into its directory, or runs/ in this one."""
    if isinstance(location, Path):
        return location
    return Path("runs") / re.sub("[^A-Za-z0-9.]+", "-", f"{location.root}/{location.path}").strip("-.")


def refuse_uri(path: Path) -> Path:
    """A path of this machine; files that are made from a run are written nowhere else."""
    if (match := _URI.match(str(path))) and match["scheme"] != "file":
        raise InputError(f"{path} is not of this machine's file system; write the file here, then copy it there.")
    return path
