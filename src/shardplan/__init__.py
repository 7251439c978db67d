"""shardplan: plans the distributed training of large transformer models.

    model, cluster = load_model("llama-3.1-70b"), load_cluster("dgx-h100")
    job = Job(sequence_length=8192, global_batch_size=512)
    answer = search(model, cluster, job, num_accelerators=512)
    answer.estimates[0].step_time                                              # of the fastest plan, in seconds
    answer.recommended.plan                                                    # the most robust of its ties
    estimate(model, cluster, job, Plan(tp=4, pp=4), num_accelerators=512)      # of any plan

Names are imported when first used, so that what needs no arrays (``shardplan --help``) starts at once.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import takes time in which Ctrl-C would show a traceback

if TYPE_CHECKING:
    from shardplan.errors import InputError, NotRunnableError, PlanError, ShardplanError, UnitError, UnknownNameError
    from shardplan.estimation.estimate import Estimate, estimate
    from shardplan.estimation.evidence import NearRun
    from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier
    from shardplan.inputs.defaults import default_job
    from shardplan.inputs.job import Job
    from shardplan.inputs.model import ModelConfig
    from shardplan.inputs.plan import Plan
    from shardplan.inputs.profile import Profile, load_profile
    from shardplan.inputs.readers.catalog import (
        cluster_of_accelerator,
        list_accelerators,
        list_clusters,
        list_models,
        load_accelerator,
        load_cluster,
        load_model,
    )
    from shardplan.planner.related.frameworks import FrameworkAnswer, search_frameworks
    from shardplan.planner.related.many import search_many
    from shardplan.planner.result import SearchResult, Suggestion
    from shardplan.planner.robustness import Robustness, Ties
    from shardplan.planner.search import search
    from shardplan.planner.stopping import Deadline, SearchStopped

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "Cluster",
    "Deadline",
    "Estimate",
    "FrameworkAnswer",
    "InputError",
    "Job",
    "ModelConfig",
    "NearRun",
    "NetworkTier",
    "NotRunnableError",
    "Plan",
    "PlanError",
    "Profile",
    "Robustness",
    "SearchResult",
    "SearchStopped",
    "ShardplanError",
    "Suggestion",
    "Ties",
    "UnitError",
    "UnknownNameError",
    "cluster_of_accelerator",
    "default_job",
    "estimate",
    "list_accelerators",
    "list_clusters",
    "list_models",
    "load_accelerator",
    "load_cluster",
    "load_model",
    "load_profile",
    "search",
    "search_frameworks",
    "search_many",
]

_MODULES = {
    "errors": ("InputError", "NotRunnableError", "PlanError", "ShardplanError", "UnitError", "UnknownNameError"),
    "estimation.estimate": ("Estimate", "estimate"),
    "estimation.evidence": ("NearRun",),
    "inputs.readers.catalog": (
        "cluster_of_accelerator",
        "list_accelerators",
        "list_clusters",
        "list_models",
        "load_accelerator",
        "load_cluster",
        "load_model",
    ),
    "inputs.cluster": ("Accelerator", "Cluster", "NetworkTier"),
    "inputs.defaults": ("default_job",),
    "inputs.job": ("Job",),
    "inputs.model": ("ModelConfig",),
    "inputs.plan": ("Plan",),
    "inputs.profile": ("Profile", "load_profile"),
    "planner.related.frameworks": ("FrameworkAnswer", "search_frameworks"),
    "planner.result": ("SearchResult", "Suggestion"),
    "planner.robustness": ("Robustness", "Ties"),
    "planner.related.many": ("search_many",),
    "planner.search": ("search",),
    "planner.stopping": ("Deadline", "SearchStopped"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Imports a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'shardplan' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(f"shardplan.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
