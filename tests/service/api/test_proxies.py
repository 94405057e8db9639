"""The proxies of the documents, as they stand there, before a service: Debian's nginx and Caddy."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.in_process_service import BUTTON, DECISIONS, FEEDBACK, ONE
from helpers.paths import ROOT
from helpers.service_process import ADMIN_KEY, HANG_TIMEOUT_SECONDS, HOST, Server, until
from whitelie.service.api.protocol import MAX_HEAD_BYTES, MAX_URL_BYTES
from whitelie.service.engine.keys import create
from whitelie.service.store.contract import Key
from whitelie.service.store.sqlite.store import SQLiteStore

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
PER_ADDRESS = 5
NGINX = """\
daemon off;
pid {folder}/pid;
error_log {folder}/main-log info;
events {{}}
http {{
    client_body_temp_path {folder}/a;
    proxy_temp_path {folder}/b;
    fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d;
    scgi_temp_path {folder}/e;
    {server}
}}
"""


def documented(mark: str) -> str:
    """Return the block of the document that has a mark."""
    page = (ROOT / "docs/service.md").read_text("utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (configuration,) = (block for block in blocks if mark in block)
    return str(configuration)


def put(text: str, *changes: tuple[str, str]) -> str:
    """Replace what is another on this machine: ports, names, files. All of it must be there."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def certify(folder: Path) -> tuple[Path, Path]:
    """Write a certificate that nobody trusts, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "decide.example")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files = folder / "x.pem", folder / "x.key"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, form, secret))
    return files


@dataclass
class Proxy:
    """A proxy at work, and where it might have said something."""

    name: str
    port: int
    folder: Path
    server: Server
    key: str

    @property
    def origin(self) -> str:
        return f"{'https' if self.name == 'nginx' else 'http'}://{HOST}:{self.port}"

    def client(self, address: str, **headers: str) -> httpx.Client:
        """Return a client at an address of this machine."""
        transport = httpx.HTTPTransport(verify=False, local_address=address)
        return httpx.Client(
            transport=transport, base_url=self.origin, headers=headers, timeout=HANG_TIMEOUT_SECONDS
        )

    def page(self, address: str, **headers: str) -> httpx.Client:
        """Return a client with a publishable key."""
        return self.client(address, Authorization=f"Bearer {self.key}", **headers)

    def line(self) -> socket.socket:
        """Return a connection on which anything may be sent."""
        line = socket.create_connection((HOST, self.port), HANG_TIMEOUT_SECONDS)
        if self.name != "nginx":
            return line
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(line)

    @property
    def said(self) -> str:
        files = [path for path in self.folder.glob("*log") if path.is_file()]
        return "".join(path.read_text("utf-8", "replace") for path in files)


def nginx(folder: Path, port: int, upstream: int, program: str) -> list[str]:
    certificate, key = certify(folder)
    server = put(
        documented("proxy_pass"),
        ("listen 443 ssl", f"listen {HOST}:{port} ssl"),
        ("/etc/ssl/decide.example.pem", str(certificate)),
        ("/etc/ssl/decide.example.key", str(key)),
        ("http://127.0.0.1:8000", f"http://{HOST}:{upstream}"),
    )
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, server=server))
    return [program, "-c", str(settings), "-p", str(folder), "-e", f"{folder}/start-log"]


def caddy(folder: Path, port: int, upstream: int, program: str) -> list[str]:
    settings = folder / "Caddyfile"
    settings.write_text(
        put(
            documented("reverse_proxy"),
            ("decide.example", f"http://{HOST}:{port}"),
            ("127.0.0.1:8000", f"{HOST}:{upstream}"),
        )
    )
    return [program, "run", "--config", str(settings), "--adapter", "caddyfile"]


COMMANDS = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(scope="module", params=COMMANDS)
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    program = shutil.which(request.param, path=PLACES)
    if program is None:
        pytest.skip(f"{request.param} is not installed: apt-get install {request.param}")
    folder = tmp_path_factory.mktemp(request.param)
    folder.chmod(0o755)
    arguments = ("--per-address", str(PER_ADDRESS))
    with Server(folder / "x.db", folder / "service.log", *arguments).ready() as server:
        server.create(name="Button", arms=BUTTON["arms"])
        store = SQLiteStore(folder / "x.db")
        key = create(store, Key("page", "publishable", b"", (), 10**6))
        store.close()
        port = free_port()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                COMMANDS[request.param](folder, port, server.port, program),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PATH": PLACES},
            )
        proxy = Proxy(request.param, port, folder, server, key)
        try:
            until(lambda: answers(proxy, process))
            yield proxy
        finally:
            process.terminate()
            process.wait(HANG_TIMEOUT_SECONDS)


def answers(proxy: Proxy, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, proxy.said
    try:
        return asked(proxy, HOST) == 200
    except httpx.TransportError:
        return False


def asked(proxy: Proxy, address: str, **headers: str) -> int:
    """Ask for a decision, and return the status of the answer."""
    with proxy.page(address, **headers) as client:
        return client.post(DECISIONS).status_code


def test_decisions_feedback_and_pages_pass(proxy: Proxy) -> None:
    with proxy.page("127.0.0.10") as client:
        (decision,) = client.post(DECISIONS).json()["decisions"]
        answer = client.post(FEEDBACK, json={"token": decision["token"], "bit": 1})
        assert answer.json() == {"items": [{"status": "accepted"}]}
        assert client.get("/").status_code == 200
        assert client.get("/nowhere").json()["error"]["code"] == "not_found"


def test_a_batch_of_reports_passes_in_one_body(proxy: Proxy) -> None:
    with proxy.client("127.0.0.11", Authorization=f"Bearer {ADMIN_KEY}") as client:
        made = client.post(DECISIONS, json={"count": 1000}).json()["decisions"]
        items = [{"token": decision["token"], "bit": 0} for decision in made]
        answer = client.post(FEEDBACK, json={"items": items}).json()
        assert {item["status"] for item in answer["items"]} == {"accepted"}


def test_a_stream_comes_as_it_is_written(proxy: Proxy) -> None:
    with (
        proxy.client("127.0.0.12", Authorization=f"Bearer {ADMIN_KEY}") as client,
        client.stream("GET", f"{ONE}/stream") as answer,
    ):
        lines = answer.iter_lines()

        def issued() -> int:
            text = next(line for line in lines if line.startswith("data: "))
            results = json.loads(text.removeprefix("data: "))
            return sum(int(arm["issued"]) for arm in results["arms"])

        before = issued()
        client.post(DECISIONS, json={"count": 7})
        until(lambda: issued() == before + 7)


def test_the_service_knows_the_visitors_address_and_believes_no_other(proxy: Proxy) -> None:
    forged = [
        asked(proxy, "127.0.0.13", **{"X-Forwarded-For": f"203.0.113.{number}"})
        for number in range(30 * PER_ADDRESS)
    ]
    assert forged[:PER_ADDRESS] == [200] * PER_ADDRESS
    assert forged.count(429) > 20 * PER_ADDRESS
    assert asked(proxy, "127.0.0.14") == 200


def test_a_body_without_end_is_refused(proxy: Proxy) -> None:
    with proxy.line() as line:
        line.sendall(f"POST {FEEDBACK} HTTP/1.1\r\nHost: {HOST}\r\n".encode())
        line.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        with suppress(OSError):  # a reset may overtake the answer
            for _ in range(64):
                line.sendall(piece)
            assert line.recv(1 << 16).split()[1] == b"413"
    assert asked(proxy, "127.0.0.15") == 200


@pytest.mark.parametrize(
    "head", [f"GET /{'x' * 4 * MAX_URL_BYTES}", f"GET / HTTP/1.1\r\nX: {'x' * 2 * MAX_HEAD_BYTES}"]
)
def test_a_head_that_is_too_large_is_refused(proxy: Proxy, head: str) -> None:
    with proxy.line() as line, suppress(OSError):  # a reset may overtake the answer
        line.sendall(f"{head}\r\n\r\n".encode())
        assert line.recv(1 << 16).split()[1] in (b"400", b"414", b"431")


def test_a_proxy_says_nothing_of_visitors(proxy: Proxy) -> None:
    visitor = "127.0.0.16"
    with proxy.client(visitor, **{"User-Agent": "Telltale"}) as client:
        for path in ("/", "/telltale", DECISIONS):
            client.get(path)
        client.post(FEEDBACK, content=b" " * (1 << 21))
    with proxy.line() as line:
        line.sendall(b"telltale\r\n\r\n")
        line.recv(1 << 16)
    said = proxy.said
    assert "serving" in said, "there is a log to look at"
    assert visitor not in said
    assert "telltale" not in said.lower()


@pytest.mark.long
def test_a_body_that_trickles_does_not_reach_the_service_for_ever(proxy: Proxy) -> None:
    """nginx hands on whole requests only; the service ends what Caddy hands on."""
    with proxy.line() as line:
        line.sendall(f"POST {FEEDBACK} HTTP/1.1\r\nHost: {HOST}\r\n".encode())
        line.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        line.sendall(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
        deadline = time.monotonic() + HANG_TIMEOUT_SECONDS
        for _ in range(6 if proxy.name == "nginx" else 0):
            line.sendall(b"1\r\n \r\n")
            time.sleep(0.5)
            assert not accepted(proxy.server)
        while proxy.name != "nginx" and not accepted(proxy.server):
            time.sleep(0.01)
        while accepted(proxy.server) and time.monotonic() < deadline:
            with suppress(OSError):
                line.sendall(b"1\r\n \r\n")
            time.sleep(0.5)
        assert not accepted(proxy.server)


def accepted(server: Server) -> list[str]:
    """Return the connections that a service has now, as the kernel lists them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    is_ours = re.compile(rf"\s*\d+: \w+:{server.port:04X} \w+:\w+ 01 ")
    return [line for line in lines if is_ours.match(line)]
