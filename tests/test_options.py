"""The options of a submission: what they mean and what is refused."""

from __future__ import annotations

import json
import threading

import pytest

import mldb
from mldb.store import jobs

COLUMNS = {"priority": "priority", "max_attempts": "max_attempts", "backoff": "backoff_s", "timeout": "timeout_s"}
NOW = 1_700_000_000_000


@pytest.fixture
def submit(connection):
    """Submit with options given as a dict or as JSON text; give the id."""

    def submit(options, kind="noop"):
        text = options if isinstance(options, str) else json.dumps(options)
        return connection.execute("SELECT ml_submit(?, 'x', NULL, ?)", (kind, text)).get

    return submit


@pytest.fixture
def stored(connection):
    """Give a column of the newest job."""
    return lambda column: connection.execute(f"SELECT {column} FROM ml_job ORDER BY id DESC LIMIT 1").get


def number_of_jobs(connection):
    return connection.execute("SELECT count(*) FROM ml_job").get


@pytest.mark.parametrize(
    ("option", "given", "kept"),
    [
        ("priority", "0", 0),
        ("priority", "-5", -5),
        ("priority", "9223372036854775807", 2**63 - 1),
        ("priority", "-9223372036854775808", -(2**63)),
        ("max_attempts", "1", 1),
        ("max_attempts", "1000", 1000),
        ("backoff", "0", 0.0),
        ("backoff", "0.25", 0.25),
        ("backoff", "1e10", 1e10),
        ("timeout", "0.001", 0.001),
        ("timeout", "1", 1.0),
        ("timeout", "1e10", 1e10),
    ],
)
def test_a_number_that_can_be_right_is_kept(submit, stored, option, given, kept):
    submit(f'{{"{option}": {given}}}')

    assert stored(COLUMNS[option]) == kept


@pytest.mark.parametrize(
    ("option", "given"),
    [
        *(
            ("priority", each)
            for each in ("1.5", "1.0", "1e300", "1e999", "9223372036854775808", '""', '"5"', "true", "[]", "{}")
        ),
        *(("max_attempts", each) for each in ("0", "-1", "1001", "1.5", "1e300", "1e999", '""', '"3"', "true", "[1]")),
        *(("backoff", each) for each in ("-1", "-0.001", "1e300", "1e999", "1.1e10", '""', '"3"', "false", "[]")),
        *(("timeout", each) for each in ("0", "0.0", "-1", "1e300", "1e999", '""', '"3"', "true", "{}")),
        *(("delay", each) for each in ("-1", "-0.001", "1e300", "1e999", '""', '"3"', "true", "[]")),
        *(("run_at", each) for each in ("-1", "1.5", "1e300", "1e999", '""', "true", "[]", "253402300800000")),
        *(("unique", each) for each in ('""', "5", "true", "[]", json.dumps("k" * 1001))),
        *(("tag", each) for each in ("5", "true", "[]", json.dumps("k" * 1001))),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_by_name(connection, submit, option, given):
    with pytest.raises(mldb.UsageError, match=rf"^option '{option}' must be .*, not "):
        submit(f'{{"{option}": {given}}}')

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize("option", ["priority", "max_attempts", "backoff", "timeout", "delay", "run_at"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "0x10", ".5", "5.", "+5", "05"])
def test_a_number_that_json_does_not_know_is_refused(connection, submit, option, number):
    with pytest.raises(mldb.UsageError, match="options is not valid JSON"):
        submit(f'{{"{option}": {number}}}')

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize("option", ["priority", "max_attempts", "backoff", "timeout", "delay", "run_at"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300, "", b"", [], True])
def test_python_refuses_a_number_that_cannot_be_right(queue, option, number):
    q = queue()

    with pytest.raises(mldb.UsageError):
        q.submit("noop", "x", **{option: number})

    assert q.list() == []


@pytest.mark.parametrize(
    "option", ["priority", "run_at", "delay", "max_attempts", "backoff", "timeout", "unique", "tag"]
)
def test_an_option_that_is_null_is_as_one_left_out(submit, connection, option):
    submit("{}")
    submit(f'{{"{option}": null}}')

    without, with_null = connection.execute(
        "SELECT priority, run_at_ms, due, max_attempts, backoff_s, timeout_s, unique_key, tag FROM ml_job ORDER BY id"
    )
    assert with_null == without == (0, None, 1, 1, 1.0, None, None, None)


@pytest.mark.parametrize("given", [(), (None,), ("{}",), (" { } ",)])
def test_no_options_are_the_defaults(connection, given):
    connection.execute(f"SELECT ml_submit('noop', 'x', NULL{', ?' * len(given)})", given).fetchall()

    assert connection.execute("SELECT priority, max_attempts, run_at_ms, timeout_s, tag FROM ml_job").fetchall() == [
        (0, 1, None, None, None)
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (5, "options must be the text of a JSON object or NULL, not integer"),
        (b"{}", "options must be the text of a JSON object or NULL, not blob"),
        ("", "options is not valid JSON"),
        ("{priority: 1}", "options is not valid JSON"),
        ("[1]", "options must be a JSON object, not a JSON array"),
        ("null", "options must be a JSON object, not a JSON null"),
        ('{"priority": 1}\0', "options is not valid JSON"),
    ],
)
def test_options_that_are_no_json_object_are_refused(connection, options, words):
    with pytest.raises(mldb.UsageError, match=words):
        connection.execute("SELECT ml_submit('noop', 'x', NULL, ?)", (options,))

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("prioritty", "priority"),
        ("Priority", "priority"),
        ("PRIORITY", "priority"),
        ("run_at_ms", "run_at"),
        ("runat", "run_at"),
        ("delay_s", "delay"),
        ("max_attempt", "max_attempts"),
        ("maxattempts", "max_attempts"),
        ("attempts", "max_attempts"),
        ("backof", "backoff"),
        ("time_out", "timeout"),
        ("timeouts", "timeout"),
        ("unique_key", "unique"),
        ("tags", "tag"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_known_one(connection, submit, wrong, nearest):
    with pytest.raises(mldb.UsageError) as caught:
        submit({wrong: 1})

    assert str(caught.value) == f"there is no option '{wrong}'; did you mean '{nearest}'?"
    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize("wrong", ["", "q", "zzz", "'", "日本語", "x" * 5000])
def test_an_unknown_option_that_resembles_none_is_told_which_there_are(submit, wrong):
    with pytest.raises(mldb.UsageError, match="; the options are priority, run_at, delay, max_attempts, backoff"):
        submit({wrong: 1})


def test_an_unknown_option_is_refused_even_when_its_value_is_null(connection, submit):
    with pytest.raises(mldb.UsageError, match="did you mean 'priority'"):
        submit('{"prioritty": null}')

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize("options", ['{"priority": 1, "priority": 2}', '{"priority": null, "priority": 2}'])
def test_an_option_that_is_given_twice_is_refused(connection, submit, options):
    with pytest.raises(mldb.UsageError, match="option 'priority' is given twice; give it once"):
        submit(options)

    assert number_of_jobs(connection) == 0


def test_an_escaped_name_of_an_option_is_that_option(submit, stored):
    submit('{"prior\\u0069ty": 7}')

    assert stored("priority") == 7


@pytest.mark.parametrize(
    ("given", "epoch_ms"),
    [
        (0, 0),
        (1_893_456_000_000, 1_893_456_000_000),
        (253402300799999, 253402300799999),
        ("2030-01-01T00:00:00Z", 1_893_456_000_000),
        ("2030-01-01 00:00:00z", 1_893_456_000_000),
        ("2030-01-01T00:00Z", 1_893_456_000_000),
        ("2030-01-01T01:00:00+01:00", 1_893_456_000_000),
        ("2029-12-31T18:30:00-05:30", 1_893_456_000_000),
        ("2030-01-01T14:00:00+14:00", 1_893_456_000_000),
        ("2030-01-01T00:00:00.250Z", 1_893_456_000_250),
        ("2030-01-01T00:00:00.001+00:00", 1_893_456_000_001),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_run_at_is_milliseconds_or_a_time_with_its_offset(submit, stored, given, epoch_ms):
    submit({"run_at": given})

    assert stored("run_at_ms") == epoch_ms
    assert stored("due") == 0


@pytest.mark.parametrize(
    "given",
    [
        "2030-01-01T00:00:00",
        "2030-01-01",
        "2030-01-01Z",
        "00:00Z",
        "now",
        "now+01:00",
        "tomorrow",
        "1893456000000",
        "2462502.5",
        "2030-13-01T00:00:00Z",
        "2030-01-32T00:00:00Z",
        "2030-01-01T25:00:00Z",
        "2030-01-01T00:00:00+1:00",
        "2030-01-01T00:00:00+0100",
        "2030-01-01T00:00:00 CET",
        "1969-12-31T23:59:59Z",
        "2030-01-01T00:00:00Z; DROP TABLE ml_job",
    ],
)
def test_run_at_without_a_clear_meaning_is_refused(connection, submit, given):
    with pytest.raises(
        mldb.UsageError, match="option 'run_at' must be milliseconds since 1970, or a time with its offset"
    ):
        submit({"run_at": given})

    assert number_of_jobs(connection) == 0


def test_a_day_that_the_month_does_not_have_is_refused(connection, submit):
    with pytest.raises(mldb.UsageError, match="option 'run_at'"):
        submit({"run_at": "2030-02-30T00:00:00Z"})

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize("seconds", [100_000_000, 1_893_456_000, 99_999_999_999])
def test_run_at_in_seconds_is_told_to_be_in_milliseconds(connection, submit, seconds):
    with pytest.raises(mldb.UsageError, match=f"and {seconds} looks like seconds; multiply it by 1000"):
        submit({"run_at": seconds})

    assert number_of_jobs(connection) == 0


@pytest.mark.parametrize(
    ("delay", "after"), [(0.01, 10), (0.25, 250), (0.999, 999), (1.001, 1001), (60, 60_000), (1e10, 10_000_000_000_000)]
)
def test_delay_counts_from_now_to_the_millisecond(connection, stored, delay, after):
    jobs.submit(connection, "noop", "x", None, json.dumps({"delay": delay}), NOW)

    assert stored("run_at_ms") == NOW + after
    assert stored("due") == 0
    assert stored("created_at_ms") == NOW


@pytest.mark.parametrize("delay", ["0", "0.0", "-0.0"])
def test_a_delay_of_0_is_due_at_once(submit, stored, delay):
    submit(f'{{"delay": {delay}}}')

    assert stored("run_at_ms") is None
    assert stored("due") == 1


def test_run_at_and_delay_together_are_refused(connection, submit):
    with pytest.raises(mldb.UsageError, match="both say when to run; give one of them"):
        submit({"run_at": 1_893_456_000_000, "delay": 5})

    assert number_of_jobs(connection) == 0


def test_a_unique_key_gives_the_live_jobs_id_and_leaves_that_job_as_it_is(connection, submit):
    first = submit({"unique": "k", "priority": 1})
    before = connection.execute("SELECT * FROM ml_job").fetchall()

    assert [submit({"unique": "k", "priority": 9}) for _ in range(3)] == [first] * 3
    assert connection.execute("SELECT * FROM ml_job").fetchall() == before


def test_a_unique_key_counts_within_a_kind(submit):
    assert submit({"unique": "k"}) != submit({"unique": "k"}, kind="another")


def test_a_unique_key_is_compared_letter_by_letter(submit):
    assert len({submit({"unique": key}) for key in ("k", "K", "k ", "\uff4b")}) == 4


@pytest.mark.parametrize(
    ("status", "body", "same"),
    [
        ("queued", False, True),
        ("running", False, True),
        ("cancelled", True, True),
        ("failed", True, True),
        ("completed", False, False),
        ("cancelled", False, False),
        ("failed", False, False),
    ],
)
def test_a_unique_key_is_taken_while_the_job_or_its_body_lives(connection, job_in, submit, status, body, same):
    first = job_in(connection, status, body=body, unique_key="k")

    assert (submit({"unique": "k"}) == first) == same


def test_a_unique_key_inside_a_transaction_sees_what_is_not_committed(connection, submit):
    connection.execute("BEGIN")
    first = submit({"unique": "k"})

    assert submit({"unique": "k"}) == first
    connection.execute("ROLLBACK")
    assert number_of_jobs(connection) == 0


def test_many_threads_with_one_unique_key_get_one_job(queue):
    q = queue()
    given, start = [], threading.Barrier(8)

    def submit():
        start.wait()
        given.extend(q.submit("noop", "x", unique="k") for _ in range(20))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(given) == 160
    assert set(given) == {given[0]}
    assert len(q.list()) == 1


def test_python_takes_the_same_options(queue, connection):
    q = queue()

    q.submit("noop", "x", priority=3, delay=60, max_attempts=4, backoff=2, timeout=9, unique="k", tag="t")

    assert connection.execute(
        "SELECT priority, due, max_attempts, backoff_s, timeout_s, unique_key, tag FROM ml_job"
    ).fetchall() == [(3, 0, 4, 2.0, 9.0, "k", "t")]


def test_python_names_an_unknown_option_with_the_nearest(queue):
    with pytest.raises(mldb.UsageError, match="there is no option 'prio'; did you mean 'priority'"):
        queue().submit("noop", "x", prio=1)
