"""shardplan: plans the distributed training of large transformer models.

    answer = search("llama-3.1-70b", "dgx-h100", 512, global_batch_size=512)
    answer.recommended                                     # the recommended plan
    answer.fastest.step_time                               # of the fastest plan, in seconds
    estimate("llama-3.1-70b", "dgx-h100", 512, {"tp": 4, "pp": 4}, global_batch_size=512)
    answer.save("plans.json"); load("plans.json")

Names are imported when first used, so that what needs no arrays (``shardplan --help``) starts at once.
"""

from __future__ import annotations

import sys

from shardplan.base.version import VERSION

TYPE_CHECKING = False  # as typing has it, whose import takes time in which Ctrl-C would show a traceback

if TYPE_CHECKING:
    from shardplan.api.answers import PlanAnswer, SearchAnswer, load
    from shardplan.api.audits import AuditAnswer, audit
    from shardplan.api.calls import estimate, export, search, search_frameworks
    from shardplan.api.decisions import (
        BudgetAnswer,
        FitAnswer,
        ParetoAnswer,
        ParetoSizesAnswer,
        ScaleAnswer,
        SensitivityAnswer,
        WhatIfAnswer,
        budget,
        fit,
        pareto,
        pareto_sizes,
        scale,
        sensitivity,
        whatif,
    )
    from shardplan.api.many import search_many
    from shardplan.api.questions import question
    from shardplan.api.resuming import ResumeAnswer, will_resume
    from shardplan.api.rl import RlAnswer, load_rl, rl
    from shardplan.api.rl_audits import RlAuditAnswer
    from shardplan.base.errors import (
        InputError,
        NotRunnableError,
        PlanError,
        ShardplanError,
        UnitError,
        UnknownNameError,
    )
    from shardplan.decide.operations import Operations
    from shardplan.decide.sweeps.run import sweep
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
    from shardplan.planner.result import SearchResult, Suggestion
    from shardplan.planner.robustness import Robustness, Ties
    from shardplan.planner.stopping import Deadline, SearchStopped

__version__ = VERSION

__all__ = [
    "Accelerator",
    "AuditAnswer",
    "BudgetAnswer",
    "Cluster",
    "Deadline",
    "Estimate",
    "Export",
    "FitAnswer",
    "FrameworkAnswer",
    "InputError",
    "Job",
    "ModelConfig",
    "NearRun",
    "NetworkTier",
    "NotRunnableError",
    "Operations",
    "ParetoAnswer",
    "ParetoSizesAnswer",
    "Plan",
    "PlanAnswer",
    "PlanError",
    "Profile",
    "Question",
    "ResumeAnswer",
    "RlAnswer",
    "RlAuditAnswer",
    "Robustness",
    "ScaleAnswer",
    "SearchAnswer",
    "SearchResult",
    "SearchStopped",
    "SensitivityAnswer",
    "ShardplanError",
    "Software",
    "Suggestion",
    "Ties",
    "UnitError",
    "UnknownNameError",
    "WhatIfAnswer",
    "audit",
    "budget",
    "cluster_of_accelerator",
    "default_job",
    "estimate",
    "export",
    "fit",
    "list_accelerators",
    "list_clusters",
    "list_models",
    "load",
    "load_accelerator",
    "load_cluster",
    "load_model",
    "load_profile",
    "load_rl",
    "pareto",
    "pareto_sizes",
    "question",
    "rl",
    "scale",
    "search",
    "search_frameworks",
    "search_many",
    "sensitivity",
    "sweep",
    "whatif",
    "will_resume",
]

_MODULES = {
    "decide.operations": ("Operations",),
    "base.errors": ("InputError", "NotRunnableError", "PlanError", "ShardplanError", "UnitError", "UnknownNameError"),
    "api.answers": ("PlanAnswer", "SearchAnswer", "load"),
    "api.audits": ("AuditAnswer", "audit"),
    "api.resuming": ("ResumeAnswer", "will_resume"),
    "api.rl_audits": ("RlAuditAnswer",),
    "api.calls": ("estimate", "export", "search", "search_frameworks"),
    "api.decisions": (
        "BudgetAnswer",
        "FitAnswer",
        "ParetoAnswer",
        "ParetoSizesAnswer",
        "ScaleAnswer",
        "SensitivityAnswer",
        "WhatIfAnswer",
        "budget",
        "fit",
        "pareto",
        "pareto_sizes",
        "scale",
        "sensitivity",
        "whatif",
    ),
    "api.many": ("search_many",),
    "api.questions": ("question",),
    "api.rl": ("RlAnswer", "load_rl", "rl"),
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
    "planner.stopping": ("Deadline", "SearchStopped"),
    "decide.sweeps.run": ("sweep",),
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


class _Package(type(sys)):  # type: ignore[misc]  # the type of modules
    """The package, whose public names stay what they are when a module of that name (``rl``) is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
