"""ISO dates as numbers a model can learn from."""

from __future__ import annotations

import re
from datetime import UTC, datetime

PARTS = ("days", "month", "weekday", "hour")
_SHAPE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d:\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parts(value: str) -> tuple[float, float, float, float]:
    """Give days since 1970-01-01 (with the time of day), month, weekday (Monday 0) and hour, in UTC.

    Raises ValueError when the text is no ISO date.

    >>> parts("1970-01-02 06:00")
    (1.25, 1.0, 4.0, 6.0)
    """
    if not _SHAPE.fullmatch(value):
        raise ValueError(value)
    moment = datetime.fromisoformat(value)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    days = (moment - _EPOCH).total_seconds() / 86400
    return days, float(moment.month), float(moment.weekday()), float(moment.hour)


def is_date(value: object) -> bool:
    """Tell whether a value is an ISO date, or date and time, as text."""
    if not isinstance(value, str):
        return False
    try:
        parts(value)
    except (ValueError, OverflowError):
        return False
    return True
