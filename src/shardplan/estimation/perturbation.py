r"""Constants at the worse end of what is known of them: how a plan fares where the cluster is not as good as assumed.

A profile states for its fitted constants a standard deviation s, of the logarithm, or of the log-odds of a share. At
the worse end a constant is at the 90th percentile of that uncertainty,

.. math:: c \to c\, e^{\pm z s}, \quad \ln\tfrac{c}{1 - c} \to \ln\tfrac{c}{1 - c} \pm z s, \quad z = 1.28

Constants without s are taken as known. Those of matrix products, attention and memory passes stay as they are: they
make all plans of a question slower alike, and so do not tell plans apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.base.fields import replace
from shardplan.estimation.question import Question
from shardplan.estimation.ties import NORMAL_P90
from shardplan.inputs.profile import Constant, load_profile

LESS, MORE = -1, 1
GROUPS: Final[Mapping[str, Mapping[str, int]]] = {
    "network": {
        "network_efficiency": LESS,
        "all_to_all_efficiency": LESS,
        "p2p_efficiency": LESS,
        "collective_launch_time": MORE,
        "ring_step_factor": MORE,
        "low_latency_share": LESS,
    },
    "overlap": {
        "tp_fill": MORE,
        "tp_window": LESS,
        "cp_window": LESS,
        "ep_window": LESS,
        "pp_window": LESS,
        "offload_window": LESS,
        "dp_window": LESS,
        "fsdp_window": LESS,
    },
    "host": {
        "kernel_launch_time": MORE,
        "graph_host_share": MORE,
        "dispatcher_host_share": MORE,
        "capacity_host_share": MORE,
        "moe_host_time": MORE,
        "moe_wait_time": MORE,
        "microbatch_time": MORE,
    },
}
"""Constants that get worse together, and which way is worse."""
SHARE = "share"
"""Unit of constants between zero and one."""


def perturbed(question: Question, group: str) -> Question:
    """``question`` with every constant of a group of :data:`GROUPS` at its worse end."""
    profile = question.profile
    known = profile.constants or load_profile(question.cluster.accelerator.generation).constants
    changes = {name: _moved(getattr(profile, name), known[name], sign) for name, sign in GROUPS[group].items()}
    return replace(question, given_profile=replace(profile, **changes))


def side_by_side(question: Question, *, num_axes: int) -> Question:
    """``question`` as it is and under every group at once: constants as arrays, with ``num_axes`` more axes behind."""
    profiles = [question.profile, *(perturbed(question, group).profile for group in GROUPS)]
    names = [name for group in GROUPS.values() for name in group]
    changes = {name: _stacked([getattr(profile, name) for profile in profiles], num_axes) for name in names}
    return replace(question, given_profile=replace(question.profile, **changes))


def _moved(value: Any, constant: Constant, sign: int) -> Any:
    """A number, or a table key by key, at its worse end; keys joined by ``+`` have one standard deviation."""
    move = sign * NORMAL_P90
    if not isinstance(value, Mapping):
        return value if constant.sd is None else _at(value, move * float(constant.sd), constant.unit)  # type: ignore[arg-type]  # a number has one
    spread = constant.sd if isinstance(constant.sd, Mapping) else {}
    sds = {key: sd for keys, sd in spread.items() for key in keys.split("+")}
    return {key: _at(number, move * sds.get(key, 0.0), constant.unit) for key, number in value.items()}


def _at(value: Numbers, move: float, unit: str) -> Numbers:
    factor = float(np.exp(move))
    return value * factor / (1 - value + value * factor) if unit == SHARE else value * factor


def _stacked(values: list[Any], num_axes: int) -> Any:
    """One value for each profile along a first axis; numbers where they agree."""
    if isinstance(values[0], Mapping):
        return {key: _stacked([table[key] for table in values], num_axes) for key in values[0]}
    if all(value == values[0] for value in values):
        return values[0]
    return np.asarray(values, dtype=np.float64).reshape(-1, *[1] * num_axes)
