"""What is remembered of a column's training values, to see later how far new rows have drifted."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mldb.learn.kinds import NUMBER, Values, plain

MOST_VALUES = 250
DECILES = np.linspace(0, 1, 11)


def summary(kind: str, values: Values) -> dict[str, object]:
    """Give rows and NULLs, and a number's mean, deviation and deciles or another's counts of values."""
    if kind == NUMBER:
        numbers = np.array(plain(values), dtype=np.float64)
        known = numbers[~np.isnan(numbers)]
        found: dict[str, object] = {"rows": len(numbers), "nulls": len(numbers) - len(known)}
        if len(known):
            deciles = np.quantile(known, DECILES).tolist()
            found |= {"mean": float(known.mean()), "std": float(known.std()), "deciles": deciles}
        return found
    counts = Counter(plain(values))
    nulls = counts.pop(None, 0)
    found = {"rows": counts.total() + nulls, "nulls": nulls, "distinct": len(counts)}
    if len(counts) <= MOST_VALUES:
        found["counts"] = [[value, count] for value, count in counts.most_common()]
    return found
