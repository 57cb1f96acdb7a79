"""Train a model on the rows of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mldb.outcome import Model, Result

if TYPE_CHECKING:
    from mldb.task import Task


def train(task: Task) -> Result:
    """Learn a column of a query from the others and hand over the model, named by the job's target.

    The spec: `query` and `target`, and optionally `algorithm`, `params`, `test_size`, `seed`, `task`,
    `metric`, `exclude` (see TrainingOptions). Raises UsageError for a spec or for rows that nothing
    can be learned from, QueryRefused for the query.
    """
    from mldb.learn.options import read_training

    options = read_training(task.spec)
    task.set_progress(1, "reading rows")
    table = task.columns(options.query)
    task.raise_if_cancelled()

    from mldb.learn import training  # scikit-learn takes a second to load; a bad spec is told before

    def watch(done: float, message: str) -> None:
        task.raise_if_cancelled()
        task.set_progress(5 + 94 * done, message)

    trained = training.train(table, options, watch)
    for line in trained.log:
        task.log(line)
    for name, value in trained.metrics.items():
        if isinstance(value, float):
            task.log_metric(name, value)
    metric = "accuracy" if trained.task == "classification" else "r2"
    if metric in trained.metrics:
        task.set_progress(99, f"{trained.algorithm}: {metric} {trained.metrics[metric]:.4g}")
    model = Model(
        format=trained.format,
        content=trained.content,
        algorithm=trained.algorithm,
        task=trained.task,
        target=options.target,
        features=trained.features,
        query=options.query,
        tables=task.tables(options.query),
        details=trained.details,
    )
    return Result(trained.metrics, model)
