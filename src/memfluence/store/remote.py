"""`RemotePlace`: runs in object stores and on other file systems. Calls are tried again while nothing answers.

A segment is one PUT, or one upload that ends by being completed: nobody sees a part of it. Calls are made on threads,
so that Ctrl-C is heard at once and does not cut an upload short, and so that many segments are read at a time.
"""

import os
import random
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.fs

from memfluence.errors import InputError, MemfluenceError, StoreError, UnreachableError
from memfluence.store.cache import Cache, digest_in
from memfluence.store.parquet import content_digest
from memfluence.store.places import OBJECT_STORES, PARTIAL_PREFIX, Place, Uri

_CONNECT, _REQUEST = 5.0, 10.0  # seconds: to connect, and without a single byte
_TRUE = {"true": True, "1": True, "false": False, "0": False}
_S3_OPTIONS: Mapping[str, Callable[[str], object]] = {
    "region": str,
    "scheme": str,
    "endpoint_override": str,
    "anonymous": lambda text: _TRUE[text.lower()],
    "force_virtual_addressing": lambda text: _TRUE[text.lower()],
    "tls_ca_file_path": str,
    "role_arn": str,
    "connect_timeout": float,
    "request_timeout": float,
}


def open_filesystem(root: Uri) -> tuple[pa.fs.FileSystem, str]:
    """The file system of a bucket or host, and what its paths begin with."""
    if root.scheme == "s3":
        return _s3(root), root.authority
    try:
        found, prefix = pa.fs.FileSystem.from_uri(str(root))
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise InputError(f"{root} cannot be opened ({error}); check how it is written.") from error
        return _fsspec(root)
    except (NotImplementedError, pa.ArrowNotImplementedError) as error:
        raise InputError(f"This PyArrow is built without {root.scheme}:// ({error}); install another.") from error
    return found, prefix


def _s3(root: Uri) -> pa.fs.FileSystem:
    options: dict[str, object] = {"connect_timeout": _CONNECT, "request_timeout": _REQUEST}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        address = urlsplit(endpoint)
        options |= {"scheme": address.scheme, "endpoint_override": address.netloc}
    for name, text in parse_qsl(root.query, keep_blank_values=True):
        if name not in _S3_OPTIONS:
            raise InputError(f"s3:// URIs have no option {name!r}; choose from {', '.join(_S3_OPTIONS)}.")
        try:
            options[name] = _S3_OPTIONS[name](text)
        except (ValueError, KeyError):
            raise InputError(f"The option {name!r} of the s3:// URI cannot be {text!r}.") from None
    if "region" not in options and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        elsewhere = "endpoint_override" in options
        options["region"] = "us-east-1" if elsewhere else pa.fs.resolve_s3_region(root.authority)
    # Quick second attempts; `RemotePlace._patiently` waits for longer. Without background writes nothing of ours
    # is held by Arrow's threads when the interpreter ends.
    options |= {"retry_strategy": pa.fs.AwsDefaultS3RetryStrategy(max_attempts=3), "background_writes": False}
    try:
        return pa.fs.S3FileSystem(allow_delayed_open=True, **options)  # one PUT for all but large objects
    except TypeError:  # PyArrow before 20
        return pa.fs.S3FileSystem(**options)


def _fsspec(root: Uri) -> tuple[pa.fs.FileSystem, str]:
    try:
        import fsspec

        found, prefix = fsspec.core.url_to_fs(root.root if root.authority else f"{root.root}/")
    except (ImportError, ValueError) as error:
        raise InputError(
            f"There is no file system for {root.scheme}:// here ({error}); PyArrow has s3://, gs://, abfs:// and"
            " hdfs://, other ones come with fsspec and its packages."
        ) from error
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(found)), prefix.rstrip("/")


T = TypeVar("T")

_AT_ONCE = 8  # requests, and segments that are read before the caller asks for them
_PATIENCE = 60.0  # seconds that a call is tried again; $MEMFLUENCE_PATIENCE
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|Bucket '[^']*' not found", re.IGNORECASE)
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN"
    r"|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION|credential|PERMISSION_DENIED|UNAUTHENTICATED"
    r"|Forbidden|Unauthorized|HTTP status 40[13]",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(r"PERMANENT_REDIRECT|AUTHORIZATION_HEADER_MALFORMED|HTTP status 30\d", re.IGNORECASE)
_MISUSED = re.compile(r"HTTP status 4(?!08|29)\d\d|INVALID_BUCKET|InvalidBucketName", re.IGNORECASE)
_NEVER = (TypeError, ValueError, AttributeError, NotImplementedError, ImportError)


class RemotePlace(Place):
    """The file system of a bucket or host. Paths are URIs below `root`."""

    def __init__(self, root: Uri) -> None:
        self._root = root
        self._is_object_store = root.scheme in OBJECT_STORES
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="memfluence-remote")
        self._cache = Cache()
        self._patience = _patience()

    @cached_property
    def _opened(self) -> tuple[pa.fs.FileSystem, str]:
        return self._patiently(f"opening {self._root}", partial(open_filesystem, self._root))

    @property
    def _files(self) -> pa.fs.FileSystem:
        return self._opened[0]

    def _key(self, path: Uri) -> str:
        return f"{self._opened[1].rstrip('/')}/{path.path}".rstrip("/")

    def read(self, path: Uri, most: int | None = None, *, fresh: bool = False) -> pa.Buffer:
        digest = digest_in(path.name) if most is None else None
        if digest is not None and not fresh and (copy := self._cache.get(path.name)) is not None:
            return copy
        if digest is None:
            self._forget_listings()
        content = self._patiently(f"reading {path}", partial(self._get, self._key(path), most))
        if digest is None:
            return content
        if content_digest(content) != digest:  # altered on its way, or there
            content = self._patiently(f"reading {path}", partial(self._get, self._key(path), None))
        if content_digest(content) == digest:
            self._cache.put(path.name, content)
        return content

    def read_all(self, paths: Iterable[Uri], *, fresh: bool = False) -> Iterator[tuple[Uri, Callable[[], pa.Buffer]]]:
        """Some files ahead are read while the caller looks at one."""
        _ = self._opened
        ahead: deque[tuple[Uri, Future[pa.Buffer]]] = deque()
        with ThreadPoolExecutor(_AT_ONCE) as readers:
            try:
                for path in paths:
                    ahead.append((path, readers.submit(partial(self.read, path, fresh=fresh))))
                    if len(ahead) > _AT_ONCE:
                        there, reading = ahead.popleft()
                        yield there, reading.result
                while ahead:
                    there, reading = ahead.popleft()
                    yield there, reading.result
            finally:
                for _, reading in ahead:
                    reading.cancel()

    def publish(self, path: Uri, content: bytes, *, replace: bool, patience: float | None = None) -> bool:
        """With `replace` false, of two that publish one name at the same moment both may get True: the last one stays.

        A caller that needs to know reads the file again, see `TrialStore.write`.
        """
        if not replace and self.is_file(path):
            return False
        try:
            self._patiently(f"writing {path}", partial(self._put, self._key(path), content), patience)
        except FileNotFoundError as error:  # how some file systems say that there is no bucket
            raise StoreError(f"Failed writing {path}: {self._no_bucket()}") from error
        if digest_in(path.name) is not None:
            self._cache.put(path.name, content)
        return True

    def names(self, directory: Uri) -> list[str]:
        self._forget_listings()
        selector = pa.fs.FileSelector(self._key(directory), allow_not_found=True)
        found = self._patiently(f"listing {directory}", partial(self._files.get_file_info, selector))
        return sorted(one.base_name for one in found)

    def is_file(self, path: Uri) -> bool:
        return bool(self._info(path).type == pa.fs.FileType.File)

    def age(self, path: Uri) -> float:
        written = self._info(path).mtime
        return 0.0 if written is None else max(0.0, (datetime.now(UTC) - written).total_seconds())

    def check(self, directory: Uri) -> None:
        """Raise if there is no such bucket, which listings and reads do not tell from an empty one."""
        if self._root.scheme in ("s3", "gs") and self._info(self._root).type == pa.fs.FileType.NotFound:
            raise InputError(f"T{self._no_bucket()[1:]}")

    def make(self, directory: Uri) -> None:
        """Folders are but parts of names; where they are more, files come with them."""

    def move(self, path: Uri, to: Uri) -> None:
        """Not at once: for a moment, or if the process is killed in it, the file is in both places."""
        if not self.is_file(path):
            raise FileNotFoundError(str(path))
        self._patiently(f"moving {path}", partial(self._copy, self._key(path), self._key(to)))
        self.remove(path)

    def remove(self, path: Uri, patience: float | None = None) -> None:
        try:
            self._patiently(f"removing {path}", partial(self._files.delete_file, self._key(path)), patience)
        except FileNotFoundError:
            return

    def clean(self, directory: Uri) -> None:
        """Nothing is half-written here."""

    def _forget_listings(self) -> None:
        """File systems of fsspec keep what they have listed, for ever, and other hosts change it."""
        if isinstance(self._files, pa.fs.PyFileSystem):
            self._files.handler.fs.invalidate_cache()

    def _info(self, path: Uri) -> pa.fs.FileInfo:
        self._forget_listings()
        return self._patiently(f"looking for {path}", partial(self._files.get_file_info, self._key(path)))

    def _get(self, key: str, most: int | None) -> pa.Buffer:
        with self._files.open_input_file(key) as file:
            return file.read_buffer(most)

    def _put(self, key: str, content: bytes) -> None:
        if self._is_object_store:
            if isinstance(self._files, pa.fs.PyFileSystem):
                self._files.handler.fs.pipe_file(key, content)
            else:
                self._write(key, content)
            return
        partial_key = f"{self._make_parent(key)}/{PARTIAL_PREFIX}{uuid.uuid4().hex}"
        self._write(partial_key, content)
        self._files.move(partial_key, key)

    def _copy(self, key: str, to: str) -> None:
        if not self._is_object_store:
            self._make_parent(to)
        self._files.copy_file(key, to)

    def _make_parent(self, key: str) -> str:
        directory = key.rpartition("/")[0]
        self._files.create_dir(directory, recursive=True)
        return directory

    def _write(self, key: str, content: bytes) -> None:
        stream = self._files.open_output_stream(key)
        stream.write(content)
        stream.close()

    def _patiently(self, doing: str, call: Callable[[], T], patience: float | None = None) -> T:
        """Call, and call again while the storage is not to blame for good; at least once."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        longest = self._patience if patience is None else min(patience, self._patience)
        while True:
            try:
                return self._threads.submit(call).result()
            except (FileNotFoundError, MemfluenceError):
                raise
            except Exception as error:
                if (why := self._for_good(error)) is not None:
                    raise StoreError(f"Failed {doing}: {why}") from error
                waited = time.monotonic() - began
                if waited + pause > longest:
                    raise UnreachableError(
                        f"Failed {doing}: the storage does not answer as it should, tried for {waited:.0f} seconds"
                        f" ({_short(error)}); check the network and the address."
                    ) from error
                time.sleep(pause * random.SystemRandom().uniform(0.5, 1.0))  # so that many clients do not come at once
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _for_good(self, error: Exception) -> str | None:
        """Why trying again is of no use, or None."""
        text = _said(error)
        if _NO_BUCKET.search(text):
            return self._no_bucket()
        if isinstance(error, PermissionError) or _REFUSED.search(text):
            return (
                f"the storage refuses these credentials ({_short(error)}); give ones that may read and write"
                f" {self._root.root}, as its own tools take them (AWS_PROFILE, AWS_ACCESS_KEY_ID, gcloud auth, ...)."
            )
        if _ELSEWHERE.search(text):
            return f"{self._root.root} is in another region ({_short(error)}); add ?region=... to the URI."
        if _MISUSED.search(text) or isinstance(error, _NEVER):
            return f"{_short(error)}; check how the URI is written."
        return None

    def _no_bucket(self) -> str:
        return f"there is no bucket {self._root.authority!r}; make it first, or check its name and the endpoint."


def _said(error: Exception) -> str:
    """The message without the names of files, which may look like anything."""
    text = " ".join((str(error) or type(error).__name__).split())
    return re.sub(r" ?\(Request ID:[^)]*\)| ?Detail: .*|^When [^:]*: ", "", text).rstrip(". ")


def _short(error: Exception) -> str:
    text = _said(error)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _patience() -> float:
    given = os.environ.get("MEMFLUENCE_PATIENCE", str(_PATIENCE))
    try:
        if (seconds := float(given)) >= 0:
            return seconds
    except ValueError:
        pass
    raise InputError(f"MEMFLUENCE_PATIENCE must be a number of seconds >= 0. Got {given!r} instead.")
