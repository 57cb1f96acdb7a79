from __future__ import annotations

import numpy as np
import pytest
from task_double import objects

from mldb.errors import ModelError, UsageError
from mldb.learn import dates, features
from mldb.learn.kinds import Column, Excluded, infer

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([1, 2, 3, 4]), "number"),
        (np.array([1.5, NAN, 3.0]), "number"),
        (np.array([0, 1, 1, 0]), "category"),
        (np.array([0.0, NAN, 1.0]), "category"),
        (objects([2**60, None, 5]), "number"),
        (objects(["red", "blue", "red", None, "blue", "red"]), "category"),
        (objects(["x", None, None]), "category"),
        (objects(["2024-01-31", None, "2024-02-01 10:30", "2023-05-05T01:02:03Z"]), "date"),
        (objects(f"some words about thing{i} here" for i in range(60)), "text"),
        (objects([1, "one", 2, "two", 1, "one", 2, "two"]), "category"),
    ],
)
def test_a_column_is_what_its_values_say(values, kind):
    column = infer("c", values)

    assert isinstance(column, Column)
    assert column.type == kind


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("c", np.full(5, 7), "same value"),
        ("c", objects(["a"] * 5), "same value"),
        ("c", np.full(5, NAN), "only NULL"),
        ("c", objects([None, None]), "only NULL"),
        ("code", objects(f"a{i:05}" for i in range(100)), "identifier"),
        ("zip", objects(f"{i:05}" for i in range(100)), "CAST(zip AS REAL)"),
        ("user_id", np.arange(100), "key"),
    ],
)
def test_a_column_without_anything_to_learn_is_excluded_with_the_reason(name, values, reason):
    column = infer(name, values)

    assert isinstance(column, Excluded)
    assert reason in column.reason


def test_a_constant_with_nulls_is_kept_because_the_nulls_tell_something():
    assert infer("c", np.array([7.0, NAN, 7.0])) == Column("c", "number")


def test_whole_numbers_beyond_2_53_in_a_feature_are_noted():
    column = infer("c", np.array([2**60, 2**60 + 1, 3]))

    assert "2^53" in column.note


def test_a_blob_is_an_error_that_names_the_column_and_the_cure():
    with pytest.raises(UsageError, match=r"'photo'.*exclude"):
        infer("photo", objects([b"\0", None]))


def test_an_infinite_number_is_an_error_that_names_the_column():
    with pytest.raises(UsageError, match="'ratio' holds a number beyond"):
        infer("ratio", np.array([1.0, float("inf")]))


def test_a_date_becomes_days_month_weekday_and_hour_in_utc():
    assert dates.parts("2024-02-29") == (19782.0, 2.0, 3.0, 0.0)
    assert dates.parts("1970-01-02T01:00+02:00") == (23 / 24, 1.0, 3.0, 23.0)


@pytest.mark.parametrize("value", ["2024-02-30", "24-02-03", "20240203", "2024-W05-1", "", 20240203, None])
def test_what_is_no_iso_date_is_not_taken_for_one(value):
    assert not dates.is_date(value)


def test_a_category_keeps_null_as_a_code_of_its_own_and_unseen_values_as_nan():
    feature = features.fit(infer("c", objects(["b", None, "a", "b"] * 5)), objects(["b", None, "a", "b"] * 5), 0)

    codes = feature.many(["a", "b", None, "never seen"])

    assert codes.ravel().tolist()[:3] == [0, 1, 2]
    assert np.isnan(codes[3, 0])
    assert [feature.one(value) for value in ("a", "b", None)] == [(0.0,), (1.0,), (2.0,)]


def test_a_category_keeps_the_commonest_values_and_counts_the_others():
    values = objects(f"v{i % 400}" if i < 4000 else "v0" for i in range(9000))

    feature = features.fit(Column("c", "category", holds=("text",)), values, 0)

    assert feature.categories == features.MOST_CATEGORIES
    assert feature.describe()["other"] == 150
    assert "v0" in feature.describe()["values"]


def test_text_and_number_categories_of_the_same_digits_are_different():
    column = infer("c", objects([1, "1", 2, "2"] * 5))

    feature = features.fit(column, objects([1, "1", 2, "2"] * 5), 0)

    assert len({feature.one(value) for value in (1, "1", 2, "2")}) == 4
    assert feature.one(1.0) == feature.one(1) == feature.one(True)


@pytest.mark.parametrize(
    ("feature", "value", "message"),
    [
        (features.Number("n"), "7", "'n' must be a number or NULL, not text"),
        (features.Number("n"), [7], "'n' must be a number or NULL, not a list"),
        (features.Number("n"), float("inf"), "'n' is too large"),
        (features.Number("n"), 10**400, "'n' is too large"),
        (features.Category("c", ("a",), False, ("text",)), 7, "'c' must be a text or NULL, not a number"),
        (features.Category("c", ("a",), False, ("text",)), {}, "'c' must be a text or NULL, not an object"),
        (features.Category("c", (0, 1), False, ("number",)), "0", "'c' must be a number or NULL, not text"),
        (features.Date("d"), "yesterday", "'d' must be an ISO date or NULL, not 'yesterday'"),
        (features.Date("d"), 7, "'d' must be an ISO date or NULL, not a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_that_names_the_feature(feature, value, message):
    with pytest.raises(ModelError, match=message):
        feature.one(value)
    with pytest.raises(ModelError, match=message):
        feature.many([None, value])
