"""Questions that the benchmarks ask: a built-in model on a built-in cluster, with the default job."""

from __future__ import annotations

from shardplan.estimation.question import Question
from shardplan.inputs.defaults import default_job
from shardplan.inputs.readers.catalog import load_cluster, load_model

__all__ = ["question_of"]


def question_of(model: str, cluster: str, num_accelerators: int) -> Question:
    """``shardplan plan MODEL --cluster CLUSTER --gpus N`` as a question."""
    config = load_model(model)
    machines = load_cluster(cluster)
    job, _ = default_job(config, machines, num_accelerators)
    return Question(model=config, cluster=machines, num_accelerators=num_accelerators, job=job)
