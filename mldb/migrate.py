"""Brings a database to the current schema, and tells whether the tables under our names are ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

import apsw

from mldb.connection import main_file, run, transaction
from mldb.errors import Busy, ForeignSchema, MldbError, NewerSchema, NotInitialised, ReadOnly, UsageError
from mldb.statements import Step, steps

_WAL_DEADLINE_S = 30.0


def prepare(connection: apsw.Connection, *, plan: Sequence[Step] | None = None) -> list[str]:
    """Switch the main database to WAL and apply the steps of the schema that it lacks.

    Gives what was done, in words; nothing when nothing was to do. Many clients may do this at once.
    Raises UsageError (no file, inside a transaction), ReadOnly, NewerSchema, ForeignSchema or Busy.
    """
    path = main_file(connection)
    plan = steps() if plan is None else plan
    done: list[str] = []
    try:
        version = installed_version(connection, plan)
    except NotInitialised:
        version = 0
    wal = journal_mode(connection) == "wal"
    if wal and version == len(plan):
        return done
    if connection.in_transaction:
        raise UsageError("the queue cannot be set up inside a transaction; COMMIT or ROLLBACK first")
    if connection.readonly("main") or run(connection, "PRAGMA query_only")[0][0]:
        raise ReadOnly(f"{path} is open read-only here and has no queue yet; run: mldb init {path}")
    if not wal:
        switch_to_wal(connection)
        done.append("switched to WAL")
    done += [
        "made the queue's tables" if step.version == 1 else f"applied step {step.version}, {step.name}"
        for step in plan[version:]
        if _apply(connection, step, plan)
    ]
    return done


def check(connection: apsw.Connection) -> None:
    """Raise SchemaError unless the main database has the current schema, and UsageError unless it is in WAL mode."""
    version = installed_version(connection, steps())
    if version < len(steps()):
        raise NotInitialised("an older mldb made this queue; run SELECT ml_init() to bring it up to date")
    require_wal(connection)


def require_wal(connection: apsw.Connection) -> None:
    """Raise UsageError when the main database is not in WAL mode, or this connection keeps others out."""
    mode = journal_mode(connection)
    if mode != "wal":
        raise UsageError(f"the queue needs journal mode WAL and the database is in mode {mode}; run SELECT ml_init()")
    if run(connection, "PRAGMA main.locking_mode")[0][0] != "normal":
        raise UsageError(
            "this connection locks the database exclusively and keeps workers out; run PRAGMA locking_mode = NORMAL"
        )


def installed_version(connection: apsw.Connection, plan: Sequence[Step]) -> int:
    """Give the number of the last step that the main database has.

    Raises NotInitialised, NewerSchema, or ForeignSchema when a table under one of our names is not as we made it.
    """
    found = {
        name.lower(): (kind, sql)
        for kind, name, sql in run(connection, "SELECT type, name, sql FROM main.sqlite_schema WHERE sql > ''")
        if name.lower().startswith("ml_")
    }
    if "ml_schema" not in found:
        taken = sorted(found.keys() & (_objects(tuple(plan)).keys() | {"ml_jobs"}))
        if taken:
            raise ForeignSchema(f"{taken[0]} in this database is not mldb's; rename it or use another file")
        raise NotInitialised("this database has no job queue yet; run SELECT ml_init(), or: mldb init FILE")
    expected = _objects(tuple(plan[:1]))
    if found["ml_schema"] != expected["ml_schema"]:
        raise ForeignSchema("ml_schema in this database is not mldb's; rename it or use another file")
    version = run(connection, "SELECT coalesce(max(version), 0) FROM main.ml_schema")[0][0]
    if version > len(plan):
        raise NewerSchema(
            f"a newer mldb made this queue (its schema is {version}, this mldb knows {len(plan)}); upgrade mldb"
        )
    expected = _objects(tuple(plan[:version]))
    for name, made in expected.items():
        if found.get(name) != made:
            raise ForeignSchema(
                f"{name} in this database is not as mldb made it; use another file, or a backup of this one"
            )
    if "ml_jobs" in found:
        raise ForeignSchema("ml_jobs in this database hides the virtual table ML_JOBS; rename it")
    return int(version)


def journal_mode(connection: apsw.Connection) -> str:
    """Give the journal mode of the main database, in lower case."""
    return str(run(connection, "PRAGMA main.journal_mode")[0][0]).lower()


def switch_to_wal(connection: apsw.Connection) -> None:
    """Switch the main database to WAL; raise Busy when others keep it locked, MldbError when it cannot have WAL."""
    deadline = time.monotonic() + _WAL_DEADLINE_S
    while True:
        try:
            mode = str(run(connection, "PRAGMA main.journal_mode = WAL")[0][0]).lower()
        except apsw.BusyError as error:
            # SQLite gives up at once here when two clients switch together, whatever the busy timeout is.
            if time.monotonic() > deadline:
                raise Busy("the database is locked by another connection; close it and run SELECT ml_init()") from error
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise MldbError(f"the database cannot use WAL (its journal mode stays {mode}); keep it on a local disk")
        return


def _apply(connection: apsw.Connection, step: Step, plan: Sequence[Step]) -> bool:
    with transaction(connection):
        try:
            version = installed_version(connection, plan)
        except NotInitialised:
            version = 0
        if version >= step.version:
            return False
        for _ in connection.execute(step.sql):
            pass
        if run(connection, "SELECT max(version) FROM main.ml_schema")[0][0] != step.version:
            raise MldbError(f"step {step.version} of the schema does not record itself")
    return True


def blank(plan: Sequence[Step] | None = None) -> apsw.Connection:
    """Give a database in memory with the queue's tables, empty."""
    memory = apsw.Connection(":memory:")
    for step in steps() if plan is None else plan:
        for _ in memory.execute(step.sql):
            pass
    return memory


@cache
def _objects(plan: tuple[Step, ...]) -> dict[str, tuple[str, str]]:
    """Give type and SQL of each object that the steps make, by name in lower case."""
    memory = blank(plan)
    rows = run(
        memory,
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name LIKE 'ml\\_%' ESCAPE '\\'",
    )
    memory.close()
    return {name.lower(): (kind, sql) for kind, name, sql in rows}
