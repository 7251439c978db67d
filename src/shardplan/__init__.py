"""shardplan: plans the distributed training of large transformer models.

    answer = search("llama-3.1-70b", "dgx-h100", 512, global_batch_size=512)
    answer.recommended                                     # the plan to take
    answer.fastest.step_time                               # of the fastest plan, in seconds
    estimate("llama-3.1-70b", "dgx-h100", 512, {"tp": 4, "pp": 4}, global_batch_size=512)
    answer.save("plans.json"); load("plans.json")

Names are imported when first used, so that what needs no arrays (``shardplan --help``) starts at once.
"""

from __future__ import annotations

from shardplan.version import VERSION

TYPE_CHECKING = False  # as typing has it, whose import takes time in which Ctrl-C would show a traceback

if TYPE_CHECKING:
    from shardplan.api.answers import PlanAnswer, SearchAnswer, load
    from shardplan.api.audits import AuditAnswer, audit
    from shardplan.api.calls import estimate, export, search, search_frameworks
    from shardplan.api.questions import question
    from shardplan.errors import InputError, NotRunnableError, PlanError, ShardplanError, UnitError, UnknownNameError
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.evidence import NearRun
    from shardplan.estimation.question import Question
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
    from shardplan.inputs.software import Software
    from shardplan.launch.export.written import Export
    from shardplan.planner.related.frameworks import FrameworkAnswer
    from shardplan.planner.related.many import search_many
    from shardplan.planner.result import SearchResult, Suggestion
    from shardplan.planner.robustness import Robustness, Ties
    from shardplan.planner.stopping import Deadline, SearchStopped

__version__ = VERSION

__all__ = [
    "Accelerator",
    "AuditAnswer",
    "Cluster",
    "Deadline",
    "Estimate",
    "Export",
    "FrameworkAnswer",
    "InputError",
    "Job",
    "ModelConfig",
    "NearRun",
    "NetworkTier",
    "NotRunnableError",
    "Plan",
    "PlanAnswer",
    "PlanError",
    "Profile",
    "Question",
    "Robustness",
    "SearchAnswer",
    "SearchResult",
    "SearchStopped",
    "ShardplanError",
    "Software",
    "Suggestion",
    "Ties",
    "UnitError",
    "UnknownNameError",
    "audit",
    "cluster_of_accelerator",
    "default_job",
    "estimate",
    "export",
    "list_accelerators",
    "list_clusters",
    "list_models",
    "load",
    "load_accelerator",
    "load_cluster",
    "load_model",
    "load_profile",
    "question",
    "search",
    "search_frameworks",
    "search_many",
]

_MODULES = {
    "errors": ("InputError", "NotRunnableError", "PlanError", "ShardplanError", "UnitError", "UnknownNameError"),
    "api.answers": ("PlanAnswer", "SearchAnswer", "load"),
    "api.audits": ("AuditAnswer", "audit"),
    "api.calls": ("estimate", "export", "search", "search_frameworks"),
    "api.questions": ("question",),
    "estimation.estimate": ("Estimate",),
    "estimation.evidence": ("NearRun",),
    "estimation.question": ("Question",),
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
    "inputs.software": ("Software",),
    "launch.export.written": ("Export",),
    "planner.related.frameworks": ("FrameworkAnswer",),
    "planner.result": ("SearchResult", "Suggestion"),
    "planner.robustness": ("Robustness", "Ties"),
    "planner.related.many": ("search_many",),
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
    return sorted((*__all__, "__version__"))
