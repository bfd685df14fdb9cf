"""From a URI to a file system of PyArrow (S3, GCS, HDFS, Azure) or, where it has none, of fsspec."""

import os
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.fs

from memfluence.errors import InputError
from memfluence.store.locations import Uri

__all__ = ["open_filesystem"]

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
    # Quick second attempts; who has to wait for longer does so in `_remote`. Without background writes nothing of ours
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
