"""The SQL of the queue: its files, how they are read, and that nothing in them is unused or unexplained."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import apsw
import pytest

import mldb
from mldb import migrate
from mldb.statements import parse, statements, steps

GROUPS = ("connection", "jobs", "models", "pool", "submit", "workers")
NAMES = [(group, name) for group in GROUPS for name in statements(group)]
PYTHON = Path(mldb.__file__).parent
NATIVE = Path(__file__).parent.parent / "mldb" / "native"


def text_of(group):
    return resources.files("mldb.sql").joinpath(f"{group}.sql").read_text("utf-8")


def test_every_file_of_named_statements_is_known():
    files = {
        entry.name.removesuffix(".sql")
        for entry in resources.files("mldb.sql").iterdir()
        if entry.name.endswith(".sql")
    }

    assert files == {*GROUPS, "schema"}


def test_a_statement_stands_under_its_name():
    assert parse("-- head\n\n-- name: one\n-- Gives 1.\nSELECT 1;\n\n-- name: two\n-- Gives 2.\nSELECT\n  2;\n") == {
        "one": "SELECT 1",
        "two": "SELECT\n  2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "-- name: one\n-- Gives nothing.\n",
        "-- name: one\n",
        "-- name: one\n-- A.\nSELECT 1;\n-- name: one\n-- B.\nSELECT 2;\n",
        "-- name: one\n-- A.\n-- name: two\n-- B.\nSELECT 2;\n",
    ],
)
def test_an_empty_statement_or_a_name_that_stands_twice_is_an_error(text):
    with pytest.raises(ValueError, match="statement 'one' is empty or stands twice"):
        parse(text)


def test_a_text_without_names_has_no_statements():
    assert parse("-- only a head\nSELECT 1;\n") == {}


@pytest.mark.parametrize("group", GROUPS)
def test_every_line_that_looks_like_a_name_is_one(group):
    assert len(re.findall(r"^\s*--\s*name\b", text_of(group), re.MULTILINE)) == len(statements(group))


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_each_statement_says_what_it_gives_or_does_in_a_sentence(group, name):
    comment = re.search(rf"^-- name: {name}\n((?:-- .*\n)+)", text_of(group), re.MULTILINE)

    assert comment is not None
    sentence = " ".join(line.removeprefix("-- ") for line in comment[1].splitlines())
    assert re.match(r"[A-Z].*\.$", sentence)


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_each_statement_is_used_by_the_store_or_by_the_library(group, name):
    sources = "\n".join(path.read_text("utf-8") for path in PYTHON.rglob("*.py"))
    library = "\n".join(path.read_text("utf-8") for path in NATIVE.glob("*.c"))

    assert re.search(rf"[\"']{name}[\"']", sources) or re.search(rf"\bSQL_{name}\b", library)


def test_the_library_has_no_sql_of_its_own():
    library = "\n".join(path.read_text("utf-8") for path in NATIVE.glob("*.c"))

    code = re.sub(r"/\*.*?\*/", "", library, flags=re.DOTALL)
    assert not re.search(r'"\s*(SELECT|UPDATE|DELETE|PRAGMA|BEGIN|COMMIT|ROLLBACK) ', code)


def test_only_the_store_and_the_migrations_read_the_statements():
    readers = {
        str(path.relative_to(PYTHON))
        for path in PYTHON.rglob("*.py")
        if "mldb.statements import" in path.read_text("utf-8") or "import statements" in path.read_text("utf-8")
    }

    assert all(reader.startswith("store/") or reader == "migrate.py" for reader in readers)


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_each_statement_is_one_with_named_parameters_and_qualified_tables(group, name):
    sql = statements(group)[name]
    bare = re.sub(r"'(?:[^']|'')*'", "''", sql)

    assert ";" not in bare
    assert "?" not in bare
    assert not re.search(r"[@$]\w", bare)
    for table in re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+([a-z_.]+)", bare):
        assert not table.startswith("ml_"), f"{table} is not qualified with main."


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_each_statement_can_be_prepared_and_takes_what_it_names(connection, group, name):
    sql = statements(group)[name]
    cursor = connection.cursor()
    named = set(re.findall(r"(?<![:\w]):([a-z_]+)", re.sub(r"'(?:[^']|'')*'", "''", sql)))

    cursor.execute("EXPLAIN " + sql, dict.fromkeys(named))

    assert set(cursor.bindings_names) == named
    cursor.fetchall()


@pytest.mark.parametrize(("group", "name"), [key for key in NAMES if key != ("connection", "meet_jobs")])
def test_each_statement_can_be_prepared_by_the_stock_shell(shell, group, name):
    schema = resources.files("mldb.sql").joinpath("schema.sql").read_text("utf-8")
    given = shell(f"{schema}\nEXPLAIN {statements(group)[name]};", ":memory:")

    assert given


def test_nothing_newer_than_sqlite_3_38_is_used():
    texts = [step.sql for step in steps()] + [text_of(group) for group in GROUPS]

    for text in texts:
        for newer in (
            "subsec",
            "jsonb",
            "json_error_position",
            "json_array_insert",
            "unixepoch()",
            "RIGHT JOIN",
            "FULL JOIN",
            "IS DISTINCT",
            "string_agg",
            "octet_length",
            "json_valid(:spec,",
            "timediff",
            "concat(",
        ):
            assert newer not in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).replace("group_concat(", ""), newer


def test_the_statements_do_their_work_in_the_stock_shell(shell):
    schema = resources.files("mldb.sql").joinpath("schema.sql").read_text("utf-8")
    run = statements("jobs")

    printed = shell(
        f"""{schema}
        .parameter init
        .parameter set :kind "'noop'"
        .parameter set :target "'x'"
        .parameter set :spec NULL
        .parameter set :now 1700000000000
        {run["submit_job"]};
        .parameter set :id 1
        {run["job_status"]};
        {run["cancel_job"]};
        {run["job_status"]};
        {run["cancel_job"]};
        {run["retry_job"]};
        {run["last_job_id"]};
        .parameter set :ids "'[1]'"
        {run["delete_jobs"]};
        """.replace("        .", ".")
    )

    assert printed.split() == ["1", "queued|0", "1", "cancelled|1", "2", "2", "1"]


PROBLEMS = [
    ("'noop'", "'x'", "NULL", "NULL"),
    ("NULL", "'x'", "NULL", "NULL"),
    ("5", "'x'", "NULL", "NULL"),
    ("''", "'x'", "NULL", "NULL"),
    ("'noop'", "NULL", "NULL", "NULL"),
    ("'noop'", "'x'", "5", "NULL"),
    ("'noop'", "'x'", "'nonsense'", "NULL"),
    ("'noop'", "'x'", "'{a:1}'", "NULL"),
    ("'noop'", "'x'", "'{''a'':1}'", "NULL"),
    ("'noop'", "'x'", "'[1]'", "NULL"),
    ("'noop'", "'x'", "'{\"a\": NaN}'", "NULL"),
    ("'noop'", "'x'", "NULL", "'[]'"),
    ("'noop'", "'x'", "NULL", "'{x:1}'"),
    *(
        ("'noop'", "'x'", "NULL", "'{" + options.replace("'", "''") + "}'")
        for options in (
            '"priority": 5',
            '"priority": 1.5',
            '"priority": "5"',
            '"priority": 1e300',
            '"priority": null',
            '"priority": 1, "priority": 2',
            '"prioritty": 1',
            '"Delay": 1',
            '"zzz": 1',
            '"delay": 5',
            '"delay": -1',
            '"delay": ""',
            '"delay": 5, "run_at": 1893456000000',
            '"run_at": 1893456000000',
            '"run_at": 1893456000',
            '"run_at": "2030-01-01T00:00:00Z"',
            '"run_at": "2030-01-01T00:00:00"',
            '"run_at": "2030-01-01T00:00:00+01:00"',
            '"run_at": "2030-02-30T00:00:00Z"',
            '"run_at": -1',
            '"max_attempts": 0',
            '"max_attempts": true',
            '"timeout": 0',
            '"timeout": 1.5',
            '"backoff": -1',
            '"unique": ""',
            '"unique": "k"',
            '"tag": 5',
            '"tag": ["x"]',
            '"tag": {}',
            '"tag": "it\'s"',
        )
    ),
]


def test_the_stock_shell_accepts_and_refuses_the_same_in_the_same_words(shell, connection):
    sql = statements("submit")["submission_problem"]
    script = "".join(
        f"WITH p (kind, target, spec, options) AS (SELECT {', '.join(each)})\n"
        f"SELECT coalesce(({inlined(sql)}), 'nothing') FROM p;\n"
        for each in PROBLEMS
    )

    ours = [connection.execute(one).get for one in script.split("FROM p;\n") if one.strip() for one in [one + "FROM p"]]
    theirs = shell(script, ":memory:").splitlines()

    assert len(theirs) == len(PROBLEMS)
    assert theirs == ours


@pytest.mark.parametrize(
    ("options", "meaning"),
    [
        ("{}", "[0,null,1,1.0,null,null,null]"),
        (
            '{"priority": 3, "max_attempts": 4, "backoff": 2, "timeout": 9, "unique": "k", "tag": "t"}',
            '[3,null,4,2,9,"k","t"]',
        ),
        ('{"delay": 0.25}', "[0,1700000000250,1,1.0,null,null,null]"),
        ('{"delay": 0}', "[0,null,1,1.0,null,null,null]"),
        ('{"run_at": 1893456000000}', "[0,1893456000000,1,1.0,null,null,null]"),
        ('{"run_at": "2030-01-01T05:30:00.250+05:30"}', "[0,1893456000250,1,1.0,null,null,null]"),
        ('{"prior\\u0069ty": 7}', "[7,null,1,1.0,null,null,null]"),
    ],
)
def test_both_libraries_read_the_same_out_of_options(shell, connection, options, meaning):
    sql = statements("submit")["read_options"].replace(":options", f"'{options}'").replace(":now", "1700000000000")
    script = f"SELECT json_array(priority, run_at_ms, max_attempts, backoff_s, timeout_s, unique_key, tag) FROM ({sql})"

    assert connection.execute(script).get == meaning
    assert shell(script, ":memory:") == meaning + "\n"


def inlined(sql):
    """Take the parameters from a table p instead: the shell has no way to bind them per statement."""
    return re.sub(r"(?<![:\w]):(kind|target|spec|options)\b", r"(SELECT \1 FROM p)", sql)


def test_the_schema_text_makes_the_objects_that_migrate_expects(connect):
    connection = connect()
    migrate.prepare(connection)

    assert migrate.installed_version(connection, steps()) == len(steps())


def test_a_named_statement_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        statements("jobs")["no_such_statement"]
    with pytest.raises(FileNotFoundError):
        statements("nothing")


def test_apsw_brings_a_sqlite_without_the_wal_reset_fault():
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


def test_a_scan_without_dear_columns_has_the_columns_of_the_list(connection):
    def names(sql):
        cursor = connection.cursor()
        cursor.execute(sql, dict.fromkeys(("first", "last", "kind", "target_name", "count"), 1))
        return [name for name, _ in cursor.get_description()]

    connection.execute("INSERT INTO ml_job (kind, target_name) VALUES ('1', '1')")

    assert names(statements("jobs")["scan_jobs_up"]) == names(statements("jobs")["list_jobs_up"])
