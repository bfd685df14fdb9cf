"""An S3-compatible server on a socket of this machine, and a proxy before it that fails on purpose."""

import http.client
import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.fs
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
HANG = 3.0  # seconds without a byte; tests ask for time-outs of 1 s

_OF_THIS_HOP = {"connection", "content-length", "date", "expect", "server", "transfer-encoding"}
_ERROR = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>On purpose</Message></Error>'
_ANSWERS = {"500": (500, b"InternalError"), "503": (503, b"SlowDown"), "403": (403, b"AccessDenied")}


class Proxy(ThreadingHTTPServer):
    """Forwards to the server, but for what `faults` says.

    500, 503, 403   an error instead of an answer
    hang            neither the request is forwarded nor anything answered, for longer than clients wait
    lost            the request is carried out, and the connection closed without an answer
    cut             half of the answer
    """

    daemon_threads = True

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.log: list[tuple[str, str, str | None]] = []  # method, path, fault
        self.faults: Mapping[str, float] = {}
        self.seed(0)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def seed(self, number: int) -> None:
        self._random = random.Random(number)

    def fault(self, method: str, path: str) -> str | None:
        with self._lock:
            names = [*self.faults, None]
            shares = [*self.faults.values(), 1 - sum(self.faults.values())]
            chosen = self._random.choices(names, shares)[0]
            self.log.append((method, path, chosen))
            return chosen

    @contextmanager
    def failing(self, **faults: float) -> Iterator[None]:
        """Within the block these shares of the requests fail; the names of errors are written as E500."""
        self.faults = {name.lstrip("E"): share for name, share in faults.items()}
        try:
            yield
        finally:
            self.faults = {}

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that were made to wait go away; that is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _forward(self) -> None:
        body = self._body()
        fault = self.server.fault(self.command, self.path)
        if fault in _ANSWERS:
            status, code = _ANSWERS[fault]
            self._answer(status, [("Content-Type", "application/xml")], _ERROR % code)
            return
        if fault == "hang":
            time.sleep(HANG)
            self.close_connection = True
            return
        upstream = http.client.HTTPConnection(*self.server.target, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THIS_HOP}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if fault == "lost":
            self.close_connection = True
            return
        self._answer(answer.status, answer.getheaders(), content, cut=fault == "cut")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
        self.send_response(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # of a HEAD: what a GET would give
            elif name.lower() not in _OF_THIS_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection |= cut

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


class Storage:
    """The server with an empty bucket, the proxy, and the bucket's content read around both."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self.target = self._moto.get_host_and_port()
        connection = http.client.HTTPConnection(*self.target)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        self.proxy = Proxy(self.target)
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self._files = pyarrow.fs.S3FileSystem(
            access_key="test", secret_key="test", region="us-east-1", scheme="http",
            endpoint_override=f"127.0.0.1:{self.target[1]}",
        )  # fmt: skip

    def stop(self) -> None:
        self.proxy.shutdown()
        self.proxy.server_close()
        self._moto.stop()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def names(self, folder: str) -> list[str]:
        """The files of a folder of the bucket."""
        found = self._files.get_file_info(pyarrow.fs.FileSelector(f"{BUCKET}/{folder}", allow_not_found=True))
        return sorted(one.base_name for one in found if one.type == pyarrow.fs.FileType.File)

    def read(self, path: str) -> bytes:
        with self._files.open_input_stream(f"{BUCKET}/{path}") as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        with self._files.open_output_stream(f"{BUCKET}/{path}") as file:
            file.write(content)
