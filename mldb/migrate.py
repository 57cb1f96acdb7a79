"""Brings a database to the current schema, and tells whether the tables under our names are ours."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import cache

import apsw

from mldb.connection import (
    is_barred,
    journal_mode,
    main_file,
    open_setup,
    plain_errors,
    require_shared,
    require_wal,
    run,
    transaction,
)
from mldb.errors import Busy, ForeignSchema, MldbError, NewerSchema, NotInitialised, ReadOnly, UsageError
from mldb.statements import Step, steps

_WAL_DEADLINE_S = 30.0


def prepare(connection: apsw.Connection, *, plan: Sequence[Step] | None = None) -> list[str]:
    """Switch the main database of a user's connection to WAL and apply the steps of the schema that it lacks.

    Gives what was done, in words; nothing when nothing was to do. Many clients may do this at once: it works on a
    connection of its own, which waits for the others whatever the user's does.
    Raises UsageError (no file, exclusive locks, inside a transaction), ReadOnly, NewerSchema, ForeignSchema or Busy.
    """
    path = main_file(connection)
    require_shared(connection)
    plan = steps() if plan is None else plan
    barred = is_barred(connection)
    with plain_errors(path), contextlib.closing(open_setup(path, vfs=connection.open_vfs, readonly=barred)) as ours:
        version = _version(ours, plan)
        wal = journal_mode(ours) == "wal"
        if wal and version == len(plan):
            return []
        if barred:
            raise ReadOnly(f"{path} is open read-only here and has no queue yet; run: mldb init {path}")
        if connection.in_transaction:
            raise UsageError("the queue cannot be set up inside a transaction; COMMIT or ROLLBACK first")
        done = []
        if not wal:
            switch_to_wal(ours)
            done.append("switched to WAL")
        done += [
            "made the queue's tables" if step.version == 1 else f"applied step {step.version}, {step.name}"
            for step in plan[version:]
            if _apply(ours, step, plan)
        ]
    # The user's connection notices the new journal mode when it reads.
    run(connection, "SELECT count(*) FROM main.sqlite_schema")
    return done


def check(connection: apsw.Connection) -> None:
    """Raise SchemaError unless the main database has the current schema, and UsageError unless it is in WAL mode."""
    version = installed_version(connection, steps())
    if version < len(steps()):
        raise NotInitialised("an older mldb made this queue; run SELECT ml_init() to bring it up to date")
    require_wal(connection)


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


def _version(connection: apsw.Connection, plan: Sequence[Step]) -> int:
    try:
        return installed_version(connection, plan)
    except NotInitialised:
        return 0


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
        if _version(connection, plan) >= step.version:
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
