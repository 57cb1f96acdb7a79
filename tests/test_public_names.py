"""What `import mldb` gives, and that it gives it quickly."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

import mldb

FUNCTIONS = {"attach", "equip", "handler", "load", "loadable_path", "open"}
ERRORS = {
    "Busy": "MldbError",
    "Cancelled": "MldbError",
    "ForeignSchema": "SchemaError",
    "Forked": "MldbError",
    "JobLost": "MldbError",
    "MldbError": "Exception",
    "ModelError": "MldbError",
    "NewerSchema": "SchemaError",
    "NotInitialised": "SchemaError",
    "QueryRefused": "MldbError",
    "QueueClosed": "MldbError",
    "ReadOnly": "MldbError",
    "SchemaError": "MldbError",
    "UsageError": "MldbError",
}
CLASSES = {"Job", "Model", "Queue", "Result", "Task"}


def test_the_public_names_are_exactly_these():
    assert set(mldb.__all__) == FUNCTIONS | set(ERRORS) | CLASSES
    assert list(mldb.__all__) == sorted(mldb.__all__)
    assert all(hasattr(mldb, name) for name in mldb.__all__)


@pytest.mark.parametrize(("name", "parent"), list(ERRORS.items()))
def test_each_error_descends_from_the_one_above_it(name, parent):
    assert getattr(mldb, name).__bases__[0].__name__ == parent


def test_every_error_class_of_the_package_is_public():
    from mldb import errors

    defined = {name for name, value in vars(errors).items() if inspect.isclass(value)}

    assert defined == set(ERRORS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS | CLASSES | set(ERRORS)))
def test_each_public_name_says_what_it_is_for(name):
    assert inspect.getdoc(getattr(mldb, name))


def test_the_methods_of_a_queue_say_what_they_do():
    public = {name for name in vars(mldb.Queue) if not name.startswith("_")}

    assert public >= {
        "connection",
        "path",
        "submit",
        "get",
        "list",
        "cancel",
        "wait",
        "retry",
        "prune",
        "shutdown",
        "workers",
    }
    assert all(inspect.getdoc(getattr(mldb.Queue, name)) for name in public)


def test_a_job_cannot_be_changed(queue):
    q = queue()
    job = q.get(q.submit("noop", "x"))

    with pytest.raises(dataclasses.FrozenInstanceError):
        job.status = "completed"
    assert not hasattr(job, "__dict__")


def test_a_job_tells_whether_it_is_over(queue, job_in):
    q = queue()
    over = {
        status: q.get(job_in(q.connection, status)).is_terminal
        for status in ("queued", "running", "completed", "failed")
    }

    assert over == {"queued": False, "running": False, "completed": True, "failed": True}


def test_metrics_of_a_job_without_any_are_empty(queue):
    q = queue()

    assert q.get(q.submit("noop", "x")).metrics == {}


def test_importing_loads_no_heavy_library_and_no_second_sqlite():
    script = "import sys, mldb; print(*sorted({name.partition('.')[0] for name in sys.modules}))"

    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )

    assert "apsw" in loaded
    assert not loaded & {
        "numpy",
        "scipy",
        "sklearn",
        "skops",
        "pandas",
        "sqlglot",
        "rich",
        "sqlite3",
        "_sqlite3",
        "joblib",
    }


def test_opening_and_submitting_load_no_heavy_library(tmp_path):
    script = (
        "import sys, mldb\n"
        f"with mldb.open({str(tmp_path / 'x.db')!r}, workers=0) as q: q.submit('noop', 'x')\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )

    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )

    assert not loaded & {
        "numpy",
        "scipy",
        "sklearn",
        "skops",
        "pandas",
        "sqlglot",
        "rich",
        "sqlite3",
        "_sqlite3",
        "joblib",
    }


def test_the_version_is_that_of_the_package():
    from importlib import metadata

    assert mldb.__version__ == metadata.version("mldb")


def test_the_functions_of_sql_are_exactly_these(connection):
    listed = {(row[0], row[4]) for row in connection.execute("PRAGMA function_list") if row[0].startswith("ml_")}

    assert listed == {
        ("ml_init", 0),
        ("ml_version", 0),
        ("ml_submit", 3),
        ("ml_submit", 4),
        ("ml_cancel", 1),
        ("ml_wait", 1),
        ("ml_wait", 2),
        ("ml_retry", 1),
        ("ml_prune", 1),
        ("ml_predict", 2),
    }
