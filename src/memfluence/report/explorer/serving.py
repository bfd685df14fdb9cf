"""A server for one report: this machine only unless told otherwise, its folder only, with headers that keep it shut."""

import gzip
import io
import ipaddress
import re
import socket
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from memfluence.errors import InputError

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".webp": "image/webp"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PORTS_TRIED = 20
SECONDS = 30.0  # without a byte, until a connection is closed
CONNECTIONS = 100  # at a time, each with a thread; a browser opens six
_REFUSED = re.compile(r";q=0(\.0*)?$")
FOREVER = "public, max-age=31536000, immutable"  # the folder of data has another name when it changes


class ReportServer(ThreadingHTTPServer):
    """Serves the folder `report` at `url`; on the first free port from `port` on, any free one if it is 0.

    With a `secret` in its address other users of this machine cannot ask for it.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = CONNECTIONS

    def __init__(self, report: Path, host: str = "127.0.0.1", port: int = 8000, secret: str = "") -> None:
        self.root = f"/{secret}/" if secret else "/"
        self._connections: dict[Any, None] = {}  # that are open, the oldest first
        if not 0 <= port <= 65535:
            raise InputError(f"The port must be a number from 0 to 65535. Got {port} instead.")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        handler = partial(_Handler, directory=str(report.resolve()))
        for candidate in [port + k for k in range(PORTS_TRIED if port else 1) if port + k <= 65535] + [0]:
            try:
                super().__init__((host, candidate), handler)
                break
            except socket.gaierror as error:
                raise InputError(f"{host!r} is not an address of this machine; leave out `host`.") from error
            except OSError as error:
                if candidate == 0:
                    raise InputError(f"Cannot listen on {host}: {error.strerror}; choose another `host`.") from error

    @property
    def is_private(self) -> bool:
        """True if only this machine can ask."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    @property
    def url(self) -> str:
        """For this machine, or, where all addresses are listened to, by the machine's name."""
        host, port = self.server_address[:2]
        if ipaddress.ip_address(str(host)).is_unspecified:
            host = socket.gethostname()
        return f"http://[{host!s}]:{port}{self.root}" if ":" in str(host) else f"http://{host!s}:{port}{self.root}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Where there are too many connections, the oldest one goes: who asks slowly keeps nobody else out."""
        self._connections[request] = None
        for oldest in list(self._connections)[:-CONNECTIONS]:
            self._connections.pop(oldest, None)
            with suppress(OSError):  # its thread then reads the end and closes it
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class _Handler(SimpleHTTPRequestHandler):
    """Files of the folder, nothing hidden, nothing outside of it, no listings."""

    extensions_map = TYPES
    server_version, sys_version = "memfluence", ""
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    status = 0  # of the answer that is under way

    def send_head(self) -> Any:
        if not self._is_for_us():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        root: str = self.server.root  # type: ignore[attr-defined]
        begin = self.path[: len(root)].encode(errors="replace")
        known, self.path = compare_digest(begin, root.encode()), f"/{self.path.removeprefix(root)}"
        if not known or not self._is_ours():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if self._compresses():
            return self._compressed()
        return super().send_head()

    def _compresses(self) -> bool:
        """True if the browser takes gzip and the file is text: numbers in base64 shrink by a third and more."""
        named = self.headers.get("Accept-Encoding", "").lower().replace(" ", "").split(",")
        taken = {part.partition(";")[0] for part in named if not _REFUSED.search(part)}
        if "If-Modified-Since" in self.headers:  # most likely nothing is to be sent
            return False
        return "gzip" in taken and Path(urlsplit(self.path).path).suffix in (".js", ".css", ".html", "")

    def _compressed(self) -> BinaryIO:
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        content = gzip.compress(path.read_bytes(), 6, mtime=0)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES[path.suffix])
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def _is_for_us(self) -> bool:
        """True unless a server for this machine alone was asked by a name that is not this machine's.

        A page elsewhere whose own name was made to mean this machine could read the report otherwise.
        """
        if not self.server.is_private:  # type: ignore[attr-defined]
            return True
        address = str(self.server.server_address[0])  # type: ignore[index]
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname in (address, "localhost", "127.0.0.1", "::1")
        except ValueError:
            return False

    def _is_ours(self) -> bool:
        """True if the path is a file below the folder, after links are followed, of a type that a report has."""
        folder = Path(self.directory).resolve()
        try:
            path = Path(self.translate_path(self.path)).resolve()
            path = (folder / "index.html").resolve() if path == folder else path
            parts = path.relative_to(folder).parts
            return path.is_file() and path.suffix in TYPES and not any(part.startswith(".") for part in parts)
        except (OSError, ValueError):  # outside of the folder, or no path at all
            return False

    def list_directory(self, path: Any) -> BinaryIO | None:  # type: ignore[override]
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def send_response(self, code: int, message: str | None = None) -> None:
        self.status = code
        super().send_response(code, message)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Vary", "Accept-Encoding")
        stays = self.status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED) and self.path.startswith("/data-")
        self.send_header("Cache-Control", FOREVER if stays else "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet: the terminal is for the address."""
