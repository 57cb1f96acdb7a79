"""Checks the queries in a spec when its job is submitted, so that a misspelt column is told at once."""

from __future__ import annotations

import json

from mldb import registry, sandbox
from mldb.errors import QueryRefused
from mldb.shared import SharedFile


def check_queries(file: SharedFile, kind: object, spec: object, *, inside: bool) -> None:
    """Raise QueryRefused when a query in a spec would be refused in the job.

    Checked on a connection of ours: tables of a transaction that is still open are not there yet, so *inside* one a
    missing table or column is left for the job to find. What is wrong with the spec itself is not told here.
    """
    if not isinstance(kind, str) or not isinstance(spec, str):
        return
    keys = registry.queries_of(kind)
    if not keys:
        return
    try:
        values = json.loads(spec)
    except (ValueError, RecursionError):
        return
    if not isinstance(values, dict):
        return
    for key in keys:
        query = values.get(key)
        if isinstance(query, str):
            try:
                with file.reading() as connection:
                    sandbox.check(connection, query)
            except QueryRefused as error:
                if inside and "no such" in str(error):
                    continue
                raise
