"""Storages of the Python client, and what becomes of reports when they fail."""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from helpers.in_process_service import Clock
from helpers.processes import started
from helpers.simulated_devices import KEY, LARGEST, SPREAD, WINDOW, Stub, chosen, client_of
from whitelie.client import Answer, Client, Folder, Memory, Storage, WhitelieWarning

pytestmark = pytest.mark.filterwarnings("ignore:whitelie. the bits are not secret")

Mode = Literal["before", "after"]
Rule = Literal["next-visit", "when-due"]


def warned(match: str) -> Any:
    return pytest.warns(WhitelieWarning, match=match)


# No token carries two bits -----------------------------------------------------------------------


class Failing:
    """A storage that fails at one operation, or at all from it until the program starts again.

    It fails before or after the work is done.
    """

    def __init__(self, place: int, mode: Mode, *, lasts: bool) -> None:
        self.inside = Memory()
        self.done = 0
        self.is_broken = False
        self._place = place
        self._mode = mode
        self._lasts = lasts

    def restart(self) -> Storage:
        self.is_broken = False
        return self

    def get(self, key: str) -> str | None:
        with self._operation():
            return self.inside.get(key)

    def set(self, key: str, text: str) -> None:
        with self._operation():
            self.inside.set(key, text)

    def remove(self, key: str) -> None:
        with self._operation():
            self.inside.remove(key)

    def keys(self) -> list[str]:
        with self._operation():
            return self.inside.keys()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        with self.inside.lock(name):
            with self._operation():
                pass
            yield
            with self._operation():
                pass

    @contextmanager
    def _operation(self) -> Iterator[None]:
        is_here = self.done == self._place
        self.done += 1
        self.is_broken |= is_here and self._lasts
        fails = is_here or self.is_broken
        if fails and self._mode == "before":
            raise OSError(errno.EIO, "the disk is broken")
        yield
        if fails:
            raise OSError(errno.EIO, "the disk is broken, and has done it")


def bits_by_token(stub: Stub) -> dict[str, set[int]]:
    """Return which bits were sent about each token."""
    bits: dict[str, set[int]] = defaultdict(set)
    for report in stub.reports:
        bits[report.body["token"]].add(report.body["bit"])
    return bits


def attacked(failing: Failing, rule: Rule) -> Stub:
    """A visit with a click, and a service that refuses reports until the third start."""
    stub = Stub(Clock())
    flips = chosen(0, LARGEST)  # RR(0) = 1, RR(1) = 0: two bits are seen

    def start() -> Client:
        storage = failing.restart()
        options: dict[str, Any] = {"sending": rule, "random_bits_for_tests_only": flips}
        return Client(stub, KEY, clock=stub.clock, storage=storage, **options)

    stub.feedback = Answer(503)
    client = start()
    choice = client.decide("button", sticky=True)
    assert choice.arm == "green"
    client.flush()
    choice.reward(1)
    stub.clock.forward(WINDOW + SPREAD)
    client.flush()
    client = start()
    client.flush()
    client.reward("button")
    stub.clock.forward(60)
    client.flush()
    stub.feedback = Answer(200)
    for _ in range(2):
        client = start()
        client.flush()
        stub.clock.forward(60)
        client.flush()
    return stub


@pytest.mark.filterwarnings("ignore:whitelie")
@pytest.mark.parametrize("rule", ["next-visit", "when-due"])
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.promise("The device's storage")
def test_no_token_carries_two_bits_wherever_the_storage_fails(
    rule: Rule, lasts: bool, mode: Mode
) -> None:
    """At every single operation of four lives of a program; locks are operations, too."""
    sound = Failing(-1, mode, lasts=lasts)
    assert list(bits_by_token(attacked(sound, rule)).values()) == [{0}]
    assert not [key for key in sound.inside.keys() if "report" in key]
    assert sound.done > 40
    seen = set()
    for place in range(sound.done):
        for token, bits in bits_by_token(attacked(Failing(place, mode, lasts=lasts), rule)).items():
            assert len(bits) == 1, (place, token, bits)
            seen |= bits
    assert seen == {0, 1}, "some rewards do not count"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 64 kB, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    tool = shutil.which("mount")
    if tool is None:
        pytest.skip("there is no mount command for a small disk")
    asked = [tool, "-t", "tmpfs", "-o", "size=64k", "whitelie-tests", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def clicked(storage: Storage, stub: Stub, rule: Rule) -> None:
    """Click, and start again twice, while a service refuses reports."""
    flips = chosen(0, LARGEST)

    def start() -> Client:
        return client_of(stub, storage=storage, sending=rule, random_bits_for_tests_only=flips)

    stub.feedback = Answer(503)
    client = start()
    client.flush()
    client.reward("button")
    stub.clock.forward(WINDOW + SPREAD)
    client.flush()
    start().flush()
    stub.feedback = Answer(200)
    start().flush()


@pytest.mark.filterwarnings("ignore:whitelie")
@pytest.mark.parametrize("rule", ["next-visit", "when-due"])
def test_a_full_disk_lets_no_second_bit_out(small_disk: Path, rule: Rule) -> None:
    stub, storage = Stub(Clock()), Folder(small_disk / "device")
    flips = chosen(0, LARGEST)
    client = client_of(stub, storage=storage, random_bits_for_tests_only=flips)
    client.decide("button")
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(1 << 20))
    clicked(storage, stub, rule)
    assert not stub.reports, "the choice of a bit could not be kept"
    ballast.unlink()
    client_of(stub, storage=storage).flush()
    assert bits_by_token(stub) == {"token 1": {1}}, "the click did not count"


@pytest.mark.filterwarnings("ignore:whitelie")
@pytest.mark.parametrize("rule", ["next-visit", "when-due"])
def test_one_read_without_a_file_handle_lets_no_second_bit_out(
    tmp_path: Path, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, storage = Stub(Clock()), Folder(tmp_path)
    client_of(stub, storage=storage, random_bits_for_tests_only=chosen(0, LARGEST)).decide("button")
    read, failures = Path.read_text, iter([OSError(errno.EMFILE, "Too many open files")])

    def read_text(path: Path, *given: Any, **named: Any) -> str:
        if "report" in path.name and (error := next(failures, None)):
            raise error
        return read(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    clicked(storage, stub, rule)
    assert [len(bits) for bits in bits_by_token(stub).values()] == [1]


# What a storage that fails costs -----------------------------------------------------------------


class Broken(Memory):
    """A disk on which some operations always fail."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        for name in broken:
            setattr(self, name, self._fail)

    def _fail(self, *_: Any) -> Any:
        raise OSError(28, "No space left on device")


BROKEN = [("get",), ("set",), ("keys",), ("lock",), ("get", "set", "remove", "keys", "lock")]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_with_a_broken_disk_arms_are_shown_and_nothing_is_reported(broken: tuple[str, ...]) -> None:
    stub = Stub(Clock())
    with warned("the storage fails .OSError., so that reports or rewards are not kept"):
        client = client_of(stub, storage=Broken(*broken))
        choice = client.decide("button", sticky=True)
    assert choice.arm == "green"
    choice.reward(1)
    client.reward("button")  # warned once
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 0
    assert not stub.reports
    assert client.next_due is None


def test_a_disk_that_has_room_again_is_used() -> None:
    stub, storage = Stub(Clock()), Broken("set")
    client = client_of(stub, storage=storage)
    with warned("the storage fails"):
        client.decide("button")
    del storage.set
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 1


def test_a_report_whose_write_fails_after_its_work_is_removed_again() -> None:
    class Late(Memory):
        def set(self, key: str, text: str) -> None:
            super().set(key, text)
            if "report" in key:
                raise OSError(errno.EIO, "the disk is broken, and has done it")

    stub, storage = Stub(Clock()), Late()
    with warned("the storage fails"):
        client_of(stub, storage=storage).decide("button")
    assert storage.keys() == []


def test_a_ledger_that_cannot_be_read_is_not_overwritten() -> None:
    stub, storage = Stub(Clock()), Broken("get")
    Memory.set(storage, "whitelie.ledger", "what was spent")
    with warned("the storage fails"):
        client_of(stub, storage=storage).decide("button")
    assert storage.keys() == ["whitelie.ledger"]
    assert Memory.get(storage, "whitelie.ledger") == "what was spent"


def test_a_report_that_cannot_be_removed_is_sent_again_unchanged_after_a_backoff() -> None:
    stub, storage = Stub(Clock()), Broken("remove")
    client = client_of(stub, storage=storage)
    client.decide("button").reward(1)
    stub.clock.forward(WINDOW + SPREAD)
    start = stub.clock()
    with warned("the storage fails"):
        assert client.flush() == 0
    for _ in range(40):
        stub.clock.forward(1)
        client.flush()
    assert [round(report.at - start) for report in stub.reports] == [0, 5, 15, 35]
    assert [len(bits) for bits in bits_by_token(stub).values()] == [1]
    del storage.remove
    stub.clock.forward(60)
    assert client.flush() == 1
    assert client.next_due is None


def test_a_report_that_cannot_be_read_does_not_delay_others(tmp_path: Path) -> None:
    class Holed(Folder):
        def get(self, key: str) -> str | None:
            if key == hole:
                raise OSError(errno.EIO, "bad sector")
            return super().get(key)

    stub, storage, hole = Stub(Clock()), Holed(tmp_path), ""
    client = client_of(stub, storage=storage)
    client.decide("button")
    (hole,) = [key for key in storage.keys() if "report" in key]
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    with warned("the storage fails"):
        assert client.flush() == 1
    hole = ""
    assert client.flush() == 1


def test_a_file_that_is_no_text_is_removed_as_damaged(tmp_path: Path) -> None:
    stub, storage = Stub(Clock()), Folder(tmp_path)
    (tmp_path / "whitelie.report.1").write_bytes(b"\xff\xfe")
    (tmp_path / "whitelie.charge.1").write_bytes(b"\xff")
    client = client_of(stub, storage=storage)
    client.decide("button")
    assert client.next_due is None, "a charge that is not understood is more than any cap"
    client.flush()
    assert storage.keys() == ["whitelie.charge.1"]
    assert json.loads(storage.get("whitelie.charge.1") or "")["epsilon"] is None


def test_forget_warns_of_what_it_could_not_erase() -> None:
    stub, storage = Stub(Clock()), Broken("remove")
    client = client_of(stub, storage=storage)
    client.decide("button")
    with warned("not everything was erased, because the storage fails .OSError.*forget"):
        client.forget()
    del storage.remove
    client.forget()
    assert storage.keys() == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    stub = Stub(Clock())
    (tmp_path / "file").write_text("in the way")
    client = client_of(stub, storage=Folder(tmp_path / "file/folder"))
    with warned("the storage fails"):
        assert client.decide("button").arm == "green"
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 0


# A folder ----------------------------------------------------------------------------------------


def test_a_folder_is_its_owners_alone(tmp_path: Path) -> None:
    stub, folder = Stub(Clock()), tmp_path / "deep" / "device"
    before = os.umask(0)
    try:
        client_of(stub, storage=Folder(folder)).decide("../<button>?", sticky=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) == 4
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stub.requests[0].path == "/v1/experiments/..%2F%3Cbutton%3E%3F/decisions"


def test_a_folder_keeps_texts_by_key(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    assert folder.keys() == []
    assert folder.get("a") is None
    folder.remove("a")
    for key in ("a", "b/../c", "ü.lock%"):
        folder.set(key, f"text of {key}")
    folder.set("a", "new")
    folder.remove("b/../c")
    assert folder.keys() == ["a", "ü.lock%"]
    assert Folder(tmp_path / "new").get("a") == "new"


LONG = ["x" * 300, "ü" * 100, "x" * 299 + "y"]
NAMES = ["offer.lock", "offer.partial", "state.lock", "sending.lock", *LONG]


@pytest.mark.parametrize("sticky", NAMES, ids=range(len(NAMES)))
def test_no_experiment_is_lost_in_a_folder(tmp_path: Path, sticky: str) -> None:
    stub = Stub(Clock())
    for _ in range(2):
        client_of(stub, storage=Folder(tmp_path)).decide(sticky, sticky=True)
    assert len(stub.requests) == 1
    client_of(stub, storage=Folder(tmp_path)).forget()
    assert [file.name for file in tmp_path.iterdir()] == ["state.lock"]


@pytest.mark.parametrize("key", ["state.lock", "sending.lock", "a.partial", ".partial"])
def test_a_key_is_no_lock_and_no_partial_file(tmp_path: Path, key: str) -> None:
    folder = Folder(tmp_path)
    folder.set(key, "text")
    for name in ("state", "sending"):
        with folder.lock(name):
            assert folder.get(key) == "text"
            assert folder.keys() == [key]


def test_long_keys_are_told_apart(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for key in LONG:
        folder.set(key, f"text of {key}")
    assert [folder.get(key) for key in LONG] == [f"text of {key}" for key in LONG]
    for key in folder.keys():
        folder.remove(key)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It left data files that end like locks, and files half written."""
    stub = Stub(Clock())
    (tmp_path / "whitelie.sticky.offer.lock").write_text('{"arm": "x", "payload": 1}')
    (tmp_path / "whitelie.report.1.partial").write_text('{"server": ')
    client = client_of(stub, storage=Folder(tmp_path))
    assert client.decide("offer.lock", sticky=True).arm == "x"
    client.forget()
    assert [file.name for file in tmp_path.iterdir()] == ["state.lock"]


WRITER = """
import sys
from whitelie.client import Folder
folder = Folder(sys.argv[1])
for number in range(10**9):
    with folder.lock("state"):
        folder.set("text", str(number % 10) * 300_000)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_texts(tmp_path: Path) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with started(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.05)
            writer.send_signal(signal.SIGKILL)
        folder = Folder(tmp_path)
        with folder.lock("state"):  # which ended with its holder
            text = folder.get("text")
            assert text is not None
            assert text == text[0] * 300_000
            assert not list(tmp_path.glob("*.partial"))
