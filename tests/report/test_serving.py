"""The server: its folder only, with headers that keep it shut, on a port that is free."""

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from explorer_files import data_folder
from tiny_run import make_run

from memfluence.errors import InputError
from memfluence.report import ReportServer, write_report
from memfluence.report.explorer import serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReportServer]:
    write_report(make_run(tmp_path), tmp_path / "out")
    with ReportServer(tmp_path / "out", port=0) as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def ask(
    server: ReportServer, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_pages_and_data_with_their_headers(server: ReportServer, tmp_path: Path) -> None:
    status, headers, body = ask(server, "/")
    assert status == 200
    assert body == (tmp_path / "out" / "index.html").read_bytes()
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-cache"
    assert "Python" not in headers["Server"]
    data = data_folder(tmp_path / "out" / "index.html")
    status, headers, body = ask(server, f"/{data.name}/meta.js")
    assert (status, headers["Content-type"]) == (200, "text/javascript")
    assert "immutable" in headers["Cache-Control"]
    assert body == (data / "meta.js").read_bytes()


def test_only_the_data_themselves_are_kept_for_ever(server: ReportServer, tmp_path: Path) -> None:
    for path, status in (("/data-nope/x.js", 404), ("/?a=/data-x", 200), ("/nothing/data-x.js", 404)):
        answer = ask(server, path)
        assert (answer[0], answer[1]["Cache-Control"]) == (status, "no-cache")
    data = f"/{data_folder(tmp_path / 'out' / 'index.html').name}/meta.js"
    modified = ask(server, data)[1]["Last-Modified"]
    code, headers, _ = ask(server, data, headers={"If-Modified-Since": modified})
    assert code == 304
    assert "immutable" in headers["Cache-Control"]


def test_text_is_compressed_for_those_who_take_it(server: ReportServer, tmp_path: Path) -> None:
    data = data_folder(tmp_path / "out" / "index.html")
    for path, file in (("/", data.parent / "index.html"), (f"/{data.name}/explorer.js", data / "explorer.js")):
        status, headers, body = ask(server, path, headers={"Accept-Encoding": "br, gzip;q=0.8"})
        assert (status, headers["Content-Encoding"], headers["Vary"]) == (200, "gzip", "Accept-Encoding")
        assert int(headers["Content-Length"]) == len(body)
        assert gzip.decompress(body) == file.read_bytes()
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert len(body) < (data / "explorer.js").stat().st_size / 2
    assert "immutable" in headers["Cache-Control"]
    for headers in ({}, {"Accept-Encoding": "br"}, {"Accept-Encoding": "br, gzip; q=0.0"}):
        answered = ask(server, f"/{data.name}/meta.js", headers=headers)[1]
        assert "Content-Encoding" not in answered
        assert answered["Vary"] == "Accept-Encoding"  # or a cache would give it to those who take gzip, and back
    status, headers, body = ask(server, "/", "HEAD", {"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"], body) == (200, "gzip", b"")
    assert ask(server, "/../trials.npz", headers={"Accept-Encoding": "gzip"})[0] == 404


def test_asked_by_another_name_it_says_nothing(server: ReportServer) -> None:
    """A page elsewhere may have its own name mean 127.0.0.1, and would be let read what it gets."""
    port = server.server_address[1]
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::"):
        status, headers, body = ask(server, "/", headers={"Host": host})
        assert (status, headers["Cache-Control"]) == (421, "no-cache"), host
        assert b"explorer.js" not in body
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", "[::1]", "localhost:9000"):  # a tunnel's port
        status, _, body = ask(server, "/", headers={"Host": host})
        assert status == 200, host
        assert b"explorer.js" in body


def test_asked_by_any_name_where_all_may_ask(tmp_path: Path) -> None:
    write_report(make_run(tmp_path), tmp_path / "out")
    with ReportServer(tmp_path / "out", host="0.0.0.0", port=0) as open_to_all:
        thread = threading.Thread(target=open_to_all.serve_forever)
        thread.start()
        status = ask(open_to_all, "/", headers={"Host": "lab.example"})[0]
        assert open_to_all.url == f"http://{socket.gethostname()}:{open_to_all.server_address[1]}/"
        assert not open_to_all.is_private
        open_to_all.shutdown()
        thread.join()
    assert status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../run/run.json",
        "/%2e%2e/run/run.json",
        "/..%2frun/run.json",
        "/%2e%2e%2frun%2frun.json",
        "//etc/passwd",
        "/.secret.html",
        "/link.html",
        "/notes.txt",
        "/DATA/",
        "/DATA",
        "/nothing.html",
        "/index.html/",
        "/%00",
    ],
)
def test_nothing_else_is_served(server: ReportServer, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "out"
    (tmp_path / "outside.html").write_text("outside")
    (folder / "link.html").symlink_to(tmp_path / "outside.html")
    (folder / ".secret.html").write_text("secret")
    (folder / "notes.txt").write_text("notes")
    status, headers, body = ask(server, path.replace("DATA", data_folder(folder / "index.html").name))
    assert status in (400, 404), body
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert all(word not in body for word in (b"outside", b"secret", b"notes", b"root:", b"fingerprint"))


def test_a_page_that_is_a_link_out_of_the_folder_is_not_served(server: ReportServer, tmp_path: Path) -> None:
    (tmp_path / "outside.html").write_text("outside")
    (tmp_path / "out" / "index.html").unlink()
    (tmp_path / "out" / "index.html").symlink_to(tmp_path / "outside.html")
    for path in ("/", "/index.html"):
        status, _, body = ask(server, path)
        assert status == 404
        assert b"outside" not in body


def test_only_reading(server: ReportServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, "/", method)[0] == 501
    assert ask(server, "/", "HEAD")[2] == b""


def test_a_taken_port_gives_the_next(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with ReportServer(tmp_path, port=port) as other:
            assert other.server_address[1] != port


def test_addresses_that_are_not_ours(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out `host`"):
        ReportServer(tmp_path, host="no such host.invalid")
    with pytest.raises(InputError, match="choose another `host`"):
        ReportServer(tmp_path, host="192.0.2.1")
    with pytest.raises(InputError, match="0 to 65535"):
        ReportServer(tmp_path, port=70_000)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_command_prints_the_address_and_ends_at_ctrl_c(tmp_path: Path, host: str, warned: bool) -> None:
    make_run(tmp_path)
    command = [sys.executable, "-m", "memfluence", "serve", str(tmp_path / "run"), "--port", "0", "--json"]
    command += ["--host", host]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert warned or url.startswith("http://127.0.0.1:")
        port = int(url.rstrip("/").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        assert b"memfluence" in connection.getresponse().read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert b"Traceback" not in errors
        assert (b"there is no password" in errors) == warned
    with ReportServer(tmp_path, port=port) as next_one:  # the port is free again
        assert next_one.server_address[1] == port
    assert (tmp_path / "run" / "report" / "index.html").is_file()


def test_who_asks_slowly_or_never_keeps_nobody_out(server: ReportServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS", 3)
    half = [socket.create_connection(server.server_address[:2], timeout=10) for _ in range(8)]
    for one in half:
        one.sendall(b"GET / HT")
    assert ask(server, "/")[0] == 200
    for one in half[:6]:  # the oldest are closed for the next ones
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""
    for one in half:
        one.close()


def test_a_request_that_does_not_end_is_ended_by_the_clock(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < serving._Handler.timeout <= 60
    monkeypatch.setattr(serving._Handler, "timeout", 0.3)
    with socket.create_connection(server.server_address[:2], timeout=10) as half:
        half.sendall(b"GET / HT")
        assert half.recv(1) == b""


def test_the_secret_is_asked_for(tmp_path: Path) -> None:
    write_report(make_run(tmp_path), tmp_path / "out")
    with ReportServer(tmp_path / "out", port=0, secret="s3cret") as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        try:
            data = data_folder(tmp_path / "out" / "index.html").name
            assert ask(started, "/s3cret/")[0] == ask(started, f"/s3cret/{data}/meta.js")[0] == 200
            for path in ("/", "/s3cret", "/s3creT/", f"/{data}/meta.js", "/index.html", f"/s3cret/{data}/"):
                assert ask(started, path)[0] == 404, path
        finally:
            started.shutdown()
            thread.join()
