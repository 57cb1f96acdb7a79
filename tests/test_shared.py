"""What one process shares for a file: a fair lock, one writer, a few readers; and how errors of SQLite are worded."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from pathlib import Path

import apsw
import pytest

import mldb
from mldb.fairlock import FairLock
from mldb.shared import plain_errors


def test_two_queues_on_one_file_share_it_whatever_path_they_took(queue, path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    one = queue()
    two = queue(str(tmp_path / "." / "shop.db"))
    three = queue(str(tmp_path / "link.db"))

    assert one._file is two._file is three._file


def test_two_files_share_nothing(queue, tmp_path):
    assert queue(str(tmp_path / "a.db"))._file is not queue(str(tmp_path / "b.db"))._file


def test_two_queues_on_one_file_agree_on_how_durable_it_is(queue):
    queue(synchronous="NORMAL")

    with pytest.raises(mldb.UsageError, match="is open in this process with synchronous NORMAL; open it with the same"):
        queue(synchronous="FULL")


def test_the_lock_serves_its_waiters_in_the_order_in_which_they_came():
    lock, order, threads = FairLock(), [], []
    in_line = threading.Semaphore(0)

    def take(number):
        in_line.release()
        with lock:
            order.append(number)

    lock.__enter__()
    for number in range(6):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        in_line.acquire()
        while len(lock._waiting) <= number:
            pass
    lock.__exit__(None, None, None)
    for thread in threads:
        thread.join()

    assert order == list(range(6))
    with lock:
        pass


def test_the_lock_is_free_after_an_exception_inside():
    lock = FairLock()

    with pytest.raises(RuntimeError), lock:
        raise RuntimeError

    with lock:
        pass


def test_the_lock_is_held_by_one_thread_at_a_time():
    lock, inside, most = FairLock(), [], []

    def work():
        for _ in range(300):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(most) == 1800
    assert max(most) == 1


def test_a_transaction_that_fails_writes_nothing_and_leaves_the_writer_usable(queue):
    q = queue()

    with pytest.raises(RuntimeError), q._file.transaction() as connection:
        connection.execute("INSERT INTO ml_job (kind) VALUES ('lost')")
        raise RuntimeError

    assert q.list() == []
    assert q.submit("noop", "x") == 1


def test_a_reader_cannot_write(queue):
    with queue()._file.reading() as connection, pytest.raises(apsw.ReadOnlyError):
        connection.execute("INSERT INTO ml_job (kind) VALUES ('lost')")


def test_the_readers_at_hand_are_few_however_many_threads_read(queue):
    q = queue()
    all_in = threading.Barrier(12)

    def read():
        with q._file.reading():
            all_in.wait()

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 <= len(q._file._readers) <= 4


def test_our_writer_is_durable_and_distrusts_the_schema(queue):
    with queue()._file.writing() as connection:
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("trusted_schema") == 0
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1), ("OFF", 0)])
def test_the_durability_that_was_asked_for_holds_on_both_connections(queue, synchronous, level):
    q = queue(synchronous=synchronous)

    with q._file.writing() as connection:
        assert connection.pragma("synchronous") == level
    assert q.connection.pragma("synchronous") == level


def test_a_file_without_a_queue_object_is_let_go_and_its_connections_with_it(path):
    q = mldb.open(path, workers=0)
    q.submit("noop", "x")
    q.get(1)
    q.shutdown()
    del q
    gc.collect()

    assert open_on(path) == []
    assert not Path(path + "-wal").exists()


def test_after_the_shutdown_of_the_last_queue_no_connection_of_ours_is_left(queue, path):
    q = queue()
    q.submit("noop", "x")
    q.get(1)

    q.shutdown()

    assert open_on(path) == []


def test_a_shutdown_leaves_another_queue_on_the_file_alone(queue):
    one, two = queue(), queue()
    one.submit("noop", "x")

    one.shutdown()

    assert two.submit("noop", "y") == 2
    assert two.connection.execute("SELECT ml_submit('noop', 'z', NULL)").get == 3


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_in_a_block_with_an_open_transaction_comes_out_and_ends_the_queue(impatient, path, begin, workers):
    with pytest.raises(ZeroDivisionError), mldb.open(path, workers=workers) as q:
        q.connection.execute(begin)
        q.connection.execute("INSERT INTO ml_job (kind) VALUES ('noop')")
        raise ZeroDivisionError

    gc.collect()
    assert open_on(path) == []
    with mldb.open(path, workers=0) as again:
        assert again.list() == []


def test_a_submit_after_shutdown_is_accepted_and_stays_queued(queue):
    q = queue()
    q.shutdown()

    job = q.submit("noop", "x")

    assert q.get(job).status == "queued"


def test_a_shutdown_may_be_called_again(queue):
    q = queue()

    assert [q.shutdown() for _ in range(3)] == [None] * 3


def test_shutdown_of_an_attached_queue_leaves_the_users_connection_open(connect):
    connection = connect()
    q = mldb.attach(connection, workers=0)

    q.shutdown()

    assert connection.execute("SELECT ml_submit('noop', 'x', NULL)").get == 1


def test_a_file_that_was_replaced_by_another_is_another(queue, path):
    first = queue()
    first.submit("noop", "of the first file")
    first.shutdown()
    for name in (path, path + "-wal", path + "-shm"):
        Path(name).unlink(missing_ok=True)

    second = queue()

    assert second.list() == []
    assert second.submit("noop", "of the second file") == 1
    assert second.connection.execute("SELECT target_name FROM ML_JOBS").fetchall() == [("of the second file",)]


def test_a_file_that_was_moved_and_opened_again_is_found_where_it_is(queue, path, tmp_path):
    first = queue()
    first.submit("noop", "x")
    first.shutdown()
    gc.collect()
    Path(path).rename(tmp_path / "moved.db")

    second = queue(str(tmp_path / "moved.db"))

    assert [job.id for job in second.list()] == [1]
    assert second.submit("noop", "y") == 2


def test_a_queue_in_a_forked_child_says_so_and_the_parents_goes_on(queue):
    q = queue()
    q.submit("noop", "x")
    read, write = os.pipe()

    child = os.fork()
    if child == 0:
        said = []
        calls = (
            lambda: q.submit("noop", "y"),
            lambda: q.get(1),
            q.list,
            lambda: q.cancel(1),
            lambda: q.retry(1),
            lambda: q.prune(0),
            lambda: q.wait(1, 0),
            lambda: q.connection,
            lambda: q._connection.execute("SELECT ml_submit('noop', 'z', NULL)"),
            q.shutdown,
        )
        for number, call in enumerate(calls):
            try:
                call()
            except mldb.Forked:
                said.append("F")
            except BaseException as error:
                said.append(f"[{number}: {error!r}]")
            else:
                said.append(f"[{number}: nothing]")
        os.write(write, "".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    said = os.read(read, 10_000).decode()
    os.close(read)

    assert said == "F" * 10
    assert q.submit("noop", "y") == 2
    assert q.connection.execute("SELECT count(*) FROM ML_JOBS").get == 2


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (apsw.ReadOnlyError("x"), mldb.ReadOnly, "FILE cannot be written here; open it for writing"),
        (apsw.BusyError("x"), mldb.Busy, "another connection holds the write lock"),
        (apsw.FullError("x"), mldb.MldbError, "the disk is full, nothing was written; free some space"),
    ],
)
def test_errors_of_sqlite_are_told_with_what_to_do_and_keep_their_cause(lower, upper, words):
    with pytest.raises(upper, match=words) as caught, plain_errors("FILE"):
        raise lower

    assert caught.value.__cause__ is lower


def test_other_errors_pass_as_they_are():
    with pytest.raises(apsw.CorruptError), plain_errors("FILE"):
        raise apsw.CorruptError("x")


def test_a_disk_that_is_full_is_told_and_the_next_call_works(queue):
    q = queue()
    q.submit("noop", "x")
    with q._file.writing() as writer:
        writer.pragma("max_page_count", writer.pragma("page_count"))

    with pytest.raises(mldb.MldbError, match="the disk is full, nothing was written; free some space and try again"):
        for _ in range(2000):
            q.submit("noop", "x", {"a": "y" * 5000})

    with q._file.writing() as writer:
        assert not writer.in_transaction
        writer.pragma("max_page_count", 1_000_000)
    kept = len(q.list())
    q.submit("noop", "x")
    assert len(q.list()) == kept + 1


def open_on(path):
    """Give the files of a database that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            found.append(str(descriptor.readlink()))
    return [each for each in found if each.startswith(path)]
