"""The loadable library: what it exports, how it comes and goes, how it waits, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest

import mldb
from mldb import loadable

try:
    LIBRARY = mldb.loadable_path()
except mldb.MldbError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def host(connect):
    """Open a connection with the library, to the test's file unless told otherwise; made into a queue."""

    def open_host(**options):
        connection = connect(**options)
        mldb.load(connection)
        connection.execute("SELECT ml_init()").fetchall()
        return connection

    return open_host


def test_it_exports_its_entry_point_and_nothing_else():
    program = shutil.which("nm")
    if program is None:
        pytest.skip("there is no nm here")

    listed = subprocess.run([program, "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)

    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names - {"_init", "_fini"} == {"sqlite3_mljobs_init"}


def test_loading_leaves_extension_loading_forbidden_and_starts_nothing(connect):
    connection = connect()
    threads = len(list(Path("/proc/self/task").iterdir()))

    mldb.load(connection)

    assert len(list(Path("/proc/self/task").iterdir())) == threads
    with pytest.raises(apsw.ExtensionLoadingError):
        connection.load_extension(LIBRARY)
    with pytest.raises(apsw.SQLError, match="not authorized"):
        connection.execute("SELECT load_extension('x')").fetchall()


def test_it_loads_twice_and_into_two_connections_that_close_in_either_order(connect):
    first, second = connect(), connect()
    for connection in (first, second, first):
        mldb.load(connection)
    first.execute("SELECT ml_init()").fetchall()
    first.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()
    second.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()

    first.close()

    assert second.execute("SELECT ml_submit('noop', 'x', NULL)").get == 3
    second.close()


def test_what_it_kept_open_is_closed_with_the_connection(host, path):
    connection = host()
    connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()

    connection.close()

    open_files = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert [each for each in open_files if each.startswith(path)] == []


def test_an_old_sqlite_and_a_second_sqlite_are_refused_in_plain_words(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (tmp_path / "old.c").write_text(
        """
        #include <dlfcn.h>
        #include <sqlite3ext.h>
        #include <stdarg.h>
        #include <stdio.h>
        static int number(void){ return 3037002; }
        static const char *text(void){ return "3.37.2"; }
        static char *print(const char *format, ...){
          static char words[300];
          va_list all;
          va_start(all, format);
          vsnprintf(words, sizeof(words), format, all);
          va_end(all);
          return words;
        }
        int main(int count, char **words){
          static sqlite3_api_routines old;
          char *problem = 0;
          int (*init)(void*, char**, const sqlite3_api_routines*);
          (void)count;
          *(void**)&init = dlsym(dlopen(words[1], RTLD_NOW), "sqlite3_mljobs_init");
          old.libversion_number = number;
          old.libversion = text;
          old.mprintf = print;
          printf("%d ", init(0, &problem, &old));
          puts(problem);
          return 0;
        }
        """
    )
    subprocess.run([compiler, "-o", tmp_path / "old", tmp_path / "old.c", "-ldl"], check=True)

    done = subprocess.run([tmp_path / "old", LIBRARY], capture_output=True, text=True, check=True)

    assert done.stdout == "1 ml_jobs needs SQLite 3.38 or later and this is 3.37.2; use a newer one\n"


def test_an_interrupt_ends_a_wait(host):
    connection = host()
    connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()
    began = time.monotonic()
    stop = threading.Timer(0.3, connection.interrupt)
    stop.start()

    with pytest.raises(apsw.InterruptError):
        connection.execute("SELECT ml_wait(1, 30)").fetchall()

    assert time.monotonic() - began < 5
    stop.join()


def test_a_wait_ends_when_another_process_ends_the_job(host, path):
    connection = host()
    connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()
    # Starting the other interpreter takes longer than beginning to wait here.
    cancel = "import sys, apsw, mldb; c = apsw.Connection(sys.argv[1]); mldb.equip(c); "
    cancel += "c.execute('SELECT ml_cancel(1)').fetchall()"
    other = subprocess.Popen([sys.executable, "-c", cancel, path])

    assert connection.execute("SELECT ml_wait(1, 30)").get == "cancelled"

    assert other.wait() == 0


def test_a_transaction_that_began_to_read_too_early_says_how_to_begin(host, connect):
    connection, other = host(), connect()
    connection.execute("BEGIN; SELECT * FROM ML_JOBS").fetchall()
    other.execute("INSERT INTO ml_job (kind) VALUES ('noop')")

    with pytest.raises(apsw.SQLError, match=r"another connection committed since .* BEGIN IMMEDIATE"):
        connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()

    connection.execute("ROLLBACK")


def test_a_select_over_jobs_goes_on_while_others_commit(host, connect):
    connection, other = host(), connect()
    connection.execute("INSERT INTO ML_JOBS (kind) VALUES ('noop'), ('noop'), ('noop')")
    done = []

    for row in connection.execute("SELECT id, ml_cancel(id) FROM ML_JOBS"):
        done.append(row)
        other.execute("INSERT INTO ml_job (kind) VALUES ('noop')")

    assert done == [(1, 1), (2, 1), (3, 1)]


def test_a_job_of_a_python_worker_is_run_for_the_library(host, path, queue):
    connection = host()
    job = connection.execute("SELECT ml_submit('noop', 'x', NULL)").get

    queue(workers=1)

    assert connection.execute("SELECT ml_wait(?, 30)", (job,)).get == "completed"
    assert connection.execute("SELECT status, progress FROM ML_JOBS WHERE id = ?", (job,)).fetchall() == [
        ("completed", 100)
    ]


def test_a_database_in_memory_is_refused():
    connection = apsw.Connection(":memory:")
    mldb.load(connection)

    for sql in ("SELECT ml_init()", "SELECT ml_submit('noop', 'x', NULL)", "SELECT * FROM ML_JOBS"):
        with pytest.raises(apsw.SQLError, match="the queue needs a database in a file"):
            connection.execute(sql).fetchall()
    connection.close()


def test_a_database_in_utf_16_works_as_well(connect):
    connection = connect()
    connection.execute("PRAGMA encoding = 'UTF-16'")
    mldb.load(connection)
    connection.execute("SELECT ml_init()").fetchall()

    connection.execute("SELECT ml_submit('noöp', 'Ärger', '{\"ä\": 1}')").fetchall()
    connection.execute("INSERT INTO ML_JOBS (kind, target_name) VALUES ('noöp', 'Öl')")

    found = connection.execute("SELECT target_name, spec_json FROM ML_JOBS WHERE kind = 'noöp'").fetchall()
    assert found == [("Ärger", '{"ä": 1}'), ("Öl", "{}")]


def test_the_settings_of_the_host_stay_as_they_are(connect):
    connection = connect()
    connection.execute("PRAGMA synchronous = NORMAL")
    names = ("synchronous", "wal_autocheckpoint", "journal_size_limit", "busy_timeout", "trusted_schema", "query_only")
    before = {name: connection.pragma(name) for name in names}

    mldb.load(connection)
    connection.execute("SELECT ml_init()").fetchall()
    connection.execute("SELECT ml_submit('noop', 'x', NULL)").fetchall()

    assert {name: connection.pragma(name) for name in names} == before


def test_the_version_names_known_faults_of_the_sqlite_at_work(host, shell):
    ours = json.loads(host().execute("SELECT ml_version()").get)
    theirs = json.loads(shell(f".load {LIBRARY}\nSELECT ml_version();"))

    assert ours["mldb"] == mldb.__version__
    assert (ours["journal_mode"], ours["synchronous"]) == ("wal", "full")
    assert ours["known_faults"] == []
    number = tuple(map(int, theirs["sqlite"].split(".")))
    if number < (3, 44, 6):
        assert "WAL reset" in theirs["known_faults"][0]


def test_the_shell_leaves_checkpoints_to_workers_where_its_sqlite_may_lose_commits(shell, path):
    version = json.loads(shell(f".load {LIBRARY}\nSELECT ml_version();", ":memory:"))
    if not version["known_faults"]:
        pytest.skip("this sqlite3 has no known fault")

    shell(f".load {LIBRARY}\nSELECT ml_init();\nSELECT ml_submit('noop', 'x', NULL);")

    assert Path(path + "-wal").stat().st_size > 0


def test_without_the_library_its_path_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(loadable, "_LIBRARY", tmp_path / "ml_jobs.so")
    monkeypatch.setattr(loadable, "_HEADERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(mldb.MldbError, match=r"C compiler .* and SQLite's header .*pip install"):
        mldb.loadable_path()


def test_a_connection_that_cannot_load_extensions_is_told_so():
    with pytest.raises(mldb.UsageError, match="cannot load extensions"):
        mldb.load(object())


def test_a_connection_can_be_closed_at_any_moment(tmp_path, path, connect):
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/sqlite3.h").exists():
        pytest.skip("there is no C compiler or no SQLite library to link here")
    source = Path(__file__).parent / "native_closing.c"
    subprocess.run([compiler, "-g", "-o", tmp_path / "closing", source, "-lsqlite3"], check=True)
    valgrind = shutil.which("valgrind")
    checker = [valgrind, "-q", "--leak-check=full", "--error-exitcode=9"] if valgrind else []

    done = subprocess.run([*checker, tmp_path / "closing", LIBRARY, path], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert connect().execute("SELECT count(*), min(kind), max(kind) FROM ml_job").get == (6, "noop", "noop")
