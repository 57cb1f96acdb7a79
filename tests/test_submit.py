"""What ml_submit and Queue.submit take, refuse and give."""

from __future__ import annotations

import json

import apsw
import pytest

import mldb

SUBMIT = "SELECT ml_submit(?, ?, ?)"
LARGE = '{"a": "' + "ü'\\\"x" * 5000 + '"}'


def submit(connection, *arguments):
    marks = ", ".join("?" * len(arguments))
    return connection.execute(f"SELECT ml_submit({marks})", arguments).get


def count(connection):
    return connection.execute("SELECT count(*) FROM ml_job").get


def test_the_first_id_is_1_and_each_is_one_more(connection):
    assert [submit(connection, "noop", "x", None) for _ in range(3)] == [1, 2, 3]


def test_a_new_job_is_queued_and_says_what_it_is(connection):
    job = submit(connection, "train", "churn", '{"query": "SELECT 1 AS a, 2 AS b"}')

    row = connection.execute(
        "SELECT kind, target_name, status, progress, started_at_ms, finished_at_ms, error_message, spec_json,"
        " metrics_json, priority, run_at_ms, attempt, max_attempts, owner, stopped_at_ms, tag, retry_of"
        " FROM ML_JOBS WHERE id = ?",
        (job,),
    ).fetchone()
    assert row == (
        *("train", "churn", "queued", 0, None, None, None, '{"query": "SELECT 1 AS a, 2 AS b"}'),
        *(None, 0, None, 0, 1, None, None, None, None),
    )


def test_a_spec_of_null_is_an_empty_object(connection, queue):
    job = submit(connection, "noop", "x", None)

    assert connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == "{}"
    assert queue().get(queue().submit("noop", "x")).spec_json == "{}"


def test_ids_are_not_used_again_after_a_prune(connection):
    for _ in range(3):
        connection.execute("SELECT ml_cancel(?)", (submit(connection, "noop", "x", None),)).fetchall()

    assert connection.execute("SELECT ml_prune(0)").get == 3
    assert submit(connection, "noop", "x", None) == 4


def test_ids_are_not_used_again_after_a_restart_with_an_empty_queue(queue):
    first = queue()
    for _ in range(3):
        first.cancel(first.submit("noop", "x"))
    first.prune(0)
    first.shutdown()

    assert queue().submit("noop", "x") == 4


def test_an_id_that_was_rolled_back_leaves_the_order_of_those_that_were_not(connection):
    connection.execute("BEGIN")
    submit(connection, "noop", "lost", None)
    connection.execute("ROLLBACK")

    given = [submit(connection, "noop", "kept", None) for _ in range(2)]

    assert given == sorted(given)
    assert connection.execute("SELECT id FROM ML_JOBS").fetchall() == [(given[0],), (given[1],)]


@pytest.mark.parametrize(
    "text", ["naïve", "日本語", "\U0001f600", "O'Brien", 'say "x"', "a%b_c", "--", ";", " ", "\n\t"]
)
def test_texts_come_back_as_they_were_given(connection, queue, text):
    spec = json.dumps({text: text}, ensure_ascii=False)

    by_sql = submit(connection, text, text, spec, json.dumps({"tag": text, "unique": text}))
    by_python = queue().submit(text, text, {text: text}, tag=text)

    for job in (by_sql, by_python):
        found = queue().get(job)
        assert (found.kind, found.target_name, found.tag, json.loads(found.spec_json)) == (
            text,
            text,
            text,
            {text: text},
        )
    assert connection.execute("SELECT id FROM ML_JOBS WHERE kind = ? AND target_name = ?", (text, text)).fetchall() == [
        (by_sql,),
        (by_python,),
    ]


def test_a_large_spec_comes_back_whole_from_everywhere(connection, queue, shell):
    job = submit(connection, "noop", "x", LARGE)

    assert connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == LARGE
    assert connection.execute("SELECT spec_json FROM ML_JOB_LIST WHERE id = ?", (job,)).get == LARGE
    assert queue().get(job).spec_json == LARGE
    assert shell(f"SELECT spec_json FROM ml_job_list WHERE id = {job}") == LARGE + "\n"


@pytest.mark.parametrize("length", [999, 1000, 1001])
def test_a_spec_at_the_edge_of_large_comes_back_whole(connection, length):
    spec = '{"a":"' + "x" * (length - 8) + '"}'
    assert len(spec) == length

    job = submit(connection, "noop", "x", spec, '{"delay": 60}')

    assert connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == spec


def test_a_spec_of_1048576_bytes_is_kept_and_one_more_is_refused(connection):
    spec = '{"a":"' + "x" * (1048576 - 8) + '"}'

    submit(connection, "noop", "x", spec)

    with pytest.raises(mldb.UsageError, match="spec has 1048577 bytes and at most 1048576 are kept; put large input"):
        submit(connection, "noop", "x", spec.replace("x", "xx", 1))
    assert count(connection) == 1


def test_the_size_of_a_spec_counts_bytes_and_not_characters(connection):
    with pytest.raises(mldb.UsageError, match="at most 1048576"):
        submit(connection, "noop", "x", '{"a":"' + "ü" * 600_000 + '"}')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, "x", None), "kind must be a text such as 'train', not null"),
        ((5, "x", None), "kind must be a text such as 'train', not integer"),
        ((1.5, "x", None), "kind must be a text such as 'train', not real"),
        ((b"noop", "x", None), "kind must be a text such as 'train', not blob"),
        (("", "x", None), "kind must have 1 to 200 characters; give a name such as 'train'"),
        (("k" * 201, "x", None), "kind must have 1 to 200 characters; give a name such as 'train'"),
        (("noop", None, None), "target must be a text that names what the job is for, not null"),
        (("noop", 5, None), "target must be a text that names what the job is for, not integer"),
        (("noop", b"x", None), "target must be a text that names what the job is for, not blob"),
        (("noop", "x" * 1001, None), "target must have at most 1000 characters; shorten it"),
        (
            ("noop", "x", 5),
            "spec must be the text of a JSON object or NULL, not integer; make it with json_object(...)",
        ),
        (("noop", "x", 1.5), "spec must be the text of a JSON object or NULL, not real; make it with json_object(...)"),
        (
            ("noop", "x", b"{}"),
            "spec must be the text of a JSON object or NULL, not blob; make it with json_object(...)",
        ),
        (("noop", "x", ""), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", "nonsense"), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": }'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": NaN}'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": Infinity}'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", "{a: 1}"), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", "{'a': 1}"), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": 1,}'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": 1} // so'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": 1}{"b": 2}'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", '{"a": "\n"}'), "spec is not valid JSON; make it with json_object(...)"),
        (("noop", "x", "[1]"), "spec must be a JSON object, not a JSON array; make it with json_object(...)"),
        (("noop", "x", "null"), "spec must be a JSON object, not a JSON null; make it with json_object(...)"),
        (("noop", "x", '"{}"'), "spec must be a JSON object, not a JSON text; make it with json_object(...)"),
        (("noop", "x", "5"), "spec must be a JSON object, not a JSON integer; make it with json_object(...)"),
    ],
)
@pytest.mark.parametrize("options", [(), (None,), ("{}",), ('{"priority": 1}',)])
def test_what_cannot_be_right_is_refused_in_words_and_nothing_is_written(connection, arguments, words, options):
    with pytest.raises(mldb.UsageError) as caught:
        submit(connection, *arguments, *options)

    assert str(caught.value) == words
    assert count(connection) == 0
    assert submit(connection, "noop", "x", None) == 1


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("text", ["\0", "a\0b", "a\0" + "x" * 5000])
def test_a_kind_or_target_with_a_nul_character_is_refused(connection, place, text):
    arguments = ["noop", "x", None]
    arguments[place] = text

    with pytest.raises(mldb.UsageError):
        submit(connection, *arguments)

    assert count(connection) == 0


@pytest.mark.parametrize("spec", ["{}\0", '{}\0{"a": 1}', '{"a": "\0"}', "\0{}"])
@pytest.mark.parametrize("options", [(), ("{}",)])
def test_a_spec_with_a_nul_character_is_refused(connection, spec, options):
    with pytest.raises(mldb.UsageError, match="spec is not valid JSON"):
        submit(connection, "noop", "x", spec, *options)

    assert count(connection) == 0


def test_an_escaped_nul_character_in_a_spec_is_kept(connection):
    job = submit(connection, "noop", "x", '{"a": "\\u0000"}')

    assert connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == '{"a": "\\u0000"}'


def test_a_deep_spec_is_taken_or_refused_as_json_and_breaks_nothing(connection):
    outcomes = []
    for depth in (10, 900, 1000, 1100, 100_000):
        spec = '{"a":' * depth + "1" + "}" * depth
        try:
            job = submit(connection, "noop", "x", spec)
        except mldb.UsageError as error:
            outcomes.append((depth, str(error)))
        else:
            outcomes.append(
                (depth, connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == spec)
            )

    assert outcomes[:2] == [(10, True), (900, True)]
    assert outcomes[3:] == [
        (1100, "spec is not valid JSON; make it with json_object(...)"),
        (100_000, "spec is not valid JSON; make it with json_object(...)"),
    ]


def test_a_deep_spec_of_a_kind_whose_query_is_checked_breaks_nothing(connection):
    spec = '{"query": "SELECT 1 AS a", "more":' + "[" * 990 + "]" * 990 + "}"

    assert submit(connection, "train", "x", spec) == 1


def test_a_key_that_is_given_twice_stays_as_it_was_given(connection):
    job = submit(connection, "noop", "x", '{"a": 1, "a": 2}')

    assert connection.execute("SELECT spec_json FROM ML_JOBS WHERE id = ?", (job,)).get == '{"a": 1, "a": 2}'


def test_a_wrong_number_of_arguments_is_an_error_of_sql(connection):
    for sql in (
        "SELECT ml_submit()",
        "SELECT ml_submit('noop', 'x')",
        "SELECT ml_submit('noop', 'x', NULL, NULL, NULL)",
    ):
        with pytest.raises(apsw.SQLError, match="wrong number of arguments"):
            connection.execute(sql)


def test_a_query_that_cannot_run_is_refused_when_it_is_submitted(connection):
    connection.execute("CREATE TABLE customers (age, churned)")

    with pytest.raises(mldb.QueryRefused, match="agee"):
        submit(connection, "train", "x", '{"query": "SELECT agee FROM customers", "target": "churned"}')

    assert count(connection) == 0
    assert submit(connection, "train", "x", '{"query": "SELECT age FROM customers", "target": "churned"}') == 1


def test_a_query_may_read_a_table_of_the_transaction_it_is_submitted_in(connection):
    connection.execute("BEGIN; CREATE TABLE customers (age, churned)").fetchall()

    submit(connection, "train", "x", '{"query": "SELECT age FROM customers", "target": "churned"}')
    connection.execute("COMMIT")

    assert count(connection) == 1


def test_a_query_that_writes_is_refused_inside_a_transaction_too(connection):
    connection.execute("BEGIN; CREATE TABLE customers (age, churned)").fetchall()

    with pytest.raises(mldb.QueryRefused):
        submit(connection, "train", "x", '{"query": "DELETE FROM customers"}')


@pytest.mark.parametrize("spec", [[1], 5, b"{}", "[]", {"a": float("nan")}, {"a": {1, 2}}, {"a": b"x"}, "{}\0"])
def test_python_refuses_a_spec_that_is_no_json_object(queue, spec):
    q = queue()

    with pytest.raises(mldb.UsageError):
        q.submit("noop", "x", spec)

    assert q.list() == []


def test_python_refuses_a_spec_that_contains_itself(queue):
    spec = {}
    spec["itself"] = spec

    with pytest.raises(mldb.UsageError, match="spec must be made of JSON values"):
        queue().submit("noop", "x", spec)


@pytest.mark.parametrize("arguments", [(None, "x"), (5, "x"), ("noop", None), ("noop", 5), (b"noop", "x"), ("", "x")])
def test_python_refuses_a_kind_or_target_that_is_no_text(queue, arguments):
    q = queue()

    with pytest.raises(mldb.UsageError):
        q.submit(*arguments)

    assert q.list() == []


@pytest.mark.parametrize(
    "arguments", [("\ud800", "x", None), ("noop", "\ud800", None), ("noop", "x", '{"a": "\ud800"}')]
)
def test_python_refuses_a_text_that_is_no_unicode(queue, arguments):
    q = queue()

    with pytest.raises(mldb.UsageError):
        q.submit(*arguments)

    assert q.list() == []


def test_a_lone_surrogate_in_a_spec_of_python_comes_back(queue):
    q = queue()

    job = q.submit("noop", "x", {"a": "\ud800"})

    assert json.loads(q.get(job).spec_json) == {"a": "\ud800"}


def test_python_gives_a_spec_of_text_on_unchanged(queue):
    q = queue()

    assert q.get(q.submit("noop", "x", '{ "a" :1 }')).spec_json == '{ "a" :1 }'


def test_the_constraint_of_a_users_trigger_is_told(connection, queue):
    connection.execute(
        "CREATE TRIGGER mine BEFORE INSERT ON ml_job WHEN NEW.kind = 'forbidden'"
        " BEGIN SELECT RAISE(ABORT, 'not here'); END"
    )

    for options in ((), ('{"priority": 1}',)):
        with pytest.raises(mldb.MldbError, match="not here"):
            submit(connection, "forbidden", "x", None, *options)
    with pytest.raises(mldb.MldbError, match="not here"):
        queue().submit("forbidden", "x", priority=1)
    assert count(connection) == 0


def test_a_job_of_a_kind_nobody_knows_is_taken(connection):
    assert submit(connection, "of tomorrow", "x", None) == 1


def test_two_submits_of_one_select_are_two_jobs(connection):
    assert connection.execute("SELECT ml_submit('noop', 'x', NULL), ml_submit('noop', 'x', NULL)").fetchall() == [
        (1, 2)
    ]
