"""Learning from the rows of a query, and predicting with what was learned.

    options     what a training spec may say (no heavy import)
    kinds       columns of values -> number, category, date, text, or excluded with a reason
    dates       ISO dates -> numbers
    words       free text -> numbers
    features    one column -> numbers; what was seen in training is plain data
    encoding    all columns -> a matrix, or one row -> a list of numbers
    target      the column to predict -> class codes or floats, and back
    algorithms  the table of algorithms: name, tasks, scikit-learn classes, defaults
    fitting     one fit, with progress and a stop
    evaluation  the held-out part and its metrics
    selection   `auto`: compares candidates and names the best
    statistics  what is remembered of a column's training values
    training    the whole way from columns to a kept model
    artifact    bytes <-> the parts of a model, with a fixed list of trusted types
    bounds      what a loaded model must satisfy before it may predict
    walk        one row through a linear model, a tree, a forest or boosting, without arrays
    predictor   a kept model -> answers

Importing this package alone, or `options`, loads neither numpy nor scikit-learn.
"""

from __future__ import annotations
