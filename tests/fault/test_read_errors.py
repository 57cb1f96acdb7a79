"""A disk that does not answer: errors are said, and when it answers again the pool goes on."""

from __future__ import annotations

import threading

import apsw
import pytest
from beside import Gate, over, spin

import mldb

pytestmark = pytest.mark.fault


class Disk(apsw.VFS):
    """A disk that fails to read or write as long as it is told to."""

    def __init__(self):
        self.failing = threading.Event()
        self.failures = 0
        super().__init__("failing disk", "")

    def xOpen(self, name, flags):  # noqa: N802 - named as SQLite does
        return DiskFile(self, name, flags)

    def fail(self):
        if self.failing.is_set():
            self.failures += 1
            raise apsw.IOError("the disk does not answer")


class DiskFile(apsw.VFSFile):
    def __init__(self, disk, name, flags):
        self.disk = disk
        super().__init__("", name, flags)

    def xRead(self, amount, offset):  # noqa: N802
        self.disk.fail()
        return super().xRead(amount, offset)

    def xWrite(self, data, offset):  # noqa: N802
        self.disk.fail()
        return super().xWrite(data, offset)

    def xSync(self, flags):  # noqa: N802
        self.disk.fail()
        return super().xSync(flags)


@pytest.fixture(scope="module")
def disk():
    return Disk()


@pytest.fixture
def attached(path, disk):
    """A queue on the failing disk."""
    disk.failing.clear()
    disk.failures = 0
    opened = []

    def attach(**options):
        connection = apsw.Connection(path, vfs="failing disk")
        opened.append((mldb.attach(connection, **options), connection))
        return opened[-1][0]

    yield attach
    disk.failing.clear()
    for q, connection in opened:
        q.shutdown(drain=False)
        connection.close()


def test_a_pool_goes_on_when_the_disk_answers_again(attached, connect, disk):
    gate = Gate({"done": True})
    q = attached(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x")
    gate.has_begun()

    disk.failing.set()
    connect().execute("INSERT INTO ml_job(kind) VALUES ('next')").fetchall()
    gate.go.set()
    spin(lambda: disk.failures > 2)
    disk.failing.clear()

    assert over(q, job).metrics == {"done": True}
    assert over(q, job + 1).status == "completed"
    assert over(q, q.submit("next", "y")).status == "completed"


def test_a_drain_goes_on_when_the_disk_answers_again(attached, connect, disk):
    gate = Gate({"done": True})
    q = attached(workers=1, handlers={"hold": gate, "next": lambda task: {}})
    job = q.submit("hold", "x")
    gate.has_begun()
    second = q.submit("next", "x")
    stopper = threading.Thread(target=q.shutdown)
    stopper.start()
    spin(lambda: q._pool._dispatcher.stop is not None)

    disk.failing.set()
    # So that pages have to be read again.
    connect().execute("INSERT INTO ml_job(kind) VALUES ('nobody')").fetchall()
    gate.go.set()
    spin(lambda: disk.failures > 2)
    disk.failing.clear()
    stopper.join(30)

    assert not stopper.is_alive()
    assert [q.get(one).status for one in (job, second)] == ["completed", "completed"]
