"""Free text as a few dense numbers: TF-IDF, then the strongest directions of a truncated SVD.

What is kept is plain: the words, their inverse document frequencies, and the directions as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from mldb.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_WORDS = 10_000
DIRECTIONS = 50


@dataclass(frozen=True, slots=True)
class Words:
    """The learned words; `directions` has the shape (numbers per text, words)."""

    words: tuple[str, ...]
    weights: tuple[float, ...]
    directions: NDArray[np.float64]
    _tfidf: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.directions.ndim != 2 or self.directions.shape[1] != len(self.words):
            raise ModelError("the words and the directions of a text column do not fit each other")
        tfidf = TfidfVectorizer(vocabulary=list(self.words), sublinear_tf=True)
        tfidf.idf_ = np.array(self.weights)
        object.__setattr__(self, "_tfidf", tfidf)

    @property
    def width(self) -> int:
        """How many numbers a text becomes."""
        return int(self.directions.shape[0])

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Give the numbers of each text, shape (texts, width); unknown words count nothing."""
        numbers: NDArray[np.float64] = self._tfidf.transform(texts) @ self.directions.T
        return numbers

    def to_plain(self) -> dict[str, object]:
        """Give all but the directions, JSON-able."""
        return {"words": list(self.words), "weights": list(self.weights)}


def fit(texts: Sequence[str], seed: int) -> Words:
    """Learn words and directions from texts."""
    tfidf = TfidfVectorizer(max_features=MOST_WORDS, sublinear_tf=True)
    counted = tfidf.fit_transform(texts)
    width = max(1, min(DIRECTIONS, counted.shape[1], counted.shape[0] - 1))
    svd = TruncatedSVD(width, random_state=seed)
    with np.errstate(all="ignore"):  # its share of explained variance is 0/0 when texts are alike
        svd.fit(counted)
    return Words(tuple(tfidf.get_feature_names_out().tolist()), tuple(tfidf.idf_.tolist()), svd.components_)


def restore(plain: Mapping[str, Any], directions: Any) -> Words:
    """Make the words again from `to_plain()` and the array of directions."""
    if not isinstance(directions, np.ndarray) or directions.dtype != np.float64:
        raise ModelError("the directions of a text column are no array of numbers")
    return Words(tuple(plain["words"]), tuple(plain["weights"]), directions)
