"""The kinds of job that mldb brings along: noop, train, backfill.

A handler is a function of one Task. It knows nothing of the queue.
"""

from __future__ import annotations
