"""Accuracy that was published for other tools, or measured with their code, next to ours on the same runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardplan.base.fields import dataclass
from shardplan.calibrate.errors import sweeps_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import Validation


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a source says of a tool; ``chosen``: our runs that are those of the claim, or drawn from them."""

    tool: str
    runs: str
    says: str
    source: str
    chosen: Callable[[Prediction], bool] | None = None
    """None: the runs are not in our data."""


def _is_korthikanti(one: Prediction) -> bool:
    return one.run.id.startswith("korthikanti-tab5-")


def _is_vtrain(one: Prediction) -> bool:
    return one.run.family == "vtrain-single"


def _is_llama_64(one: Prediction) -> bool:
    return one.run.id == "dgxc-v25.02.02-llama3.1-70b-h100-bf16-64gpu"


_OWN = "its authors"
_CODE = "run by us with the tool's code of November 2026"
_ONE_NODE = (
    "1,440 configurations of small GPTs on one A100 node (vTrain's set); ours: the 150 of them that are in the data"
)
_LLAMA = "Llama 3 70B on 64 H100, 14.6 s measured"
CLAIMS = (
    Claim(
        tool="Calculon",
        runs="8 runs of Megatron-LM on A100 (Korthikanti et al. 2022, table 5)",
        says="mean error 3.65 %",
        source=_OWN,
        chosen=_is_korthikanti,
    ),
    Claim(
        tool="Calculon",
        runs=_ONE_NODE,
        says="mean error 38.9 %, rank correlation 0.57, regret 10.0 %",
        source=_CODE,
        chosen=_is_vtrain,
    ),
    Claim(
        tool="SimuMax",
        runs=_ONE_NODE,
        says="mean error 32.4 %, rank correlation 0.88, regret 3.9 %",
        source=_CODE + "; efficiencies of the A100 guessed",
        chosen=_is_vtrain,
    ),
    Claim(
        tool="llm-analysis",
        runs=_ONE_NODE,
        says="mean error 56.9 %, rank correlation 0.60, regret 33 %",
        source=_CODE,
        chosen=_is_vtrain,
    ),
    Claim(tool="SimuMax", runs=_LLAMA, says="27 % too slow", source=_CODE, chosen=_is_llama_64),
    Claim(tool="Calculon", runs=_LLAMA, says="97 % too slow", source=_CODE, chosen=_is_llama_64),
    Claim(
        tool="SimuMax",
        runs="its own runs on B200, efficiencies measured on that machine",
        says="time -13.5 % to +0.1 %, memory -1.4 % to -0.1 %",
        source=_OWN,
    ),
    Claim(tool="vTrain", runs="its own runs on A100, layers profiled there", says="mean error 8 to 15 %", source=_OWN),
    Claim(
        tool="Calculon, SimuMax, llm-analysis",
        runs="109 multi-node runs on A100 (vTrain's set), which are not in our data",
        says="mean error 15.3 %, 10.9 %, 17.9 %; rank correlation 0.73, 0.82, 0.08",
        source=_CODE,
    ),
)


def claims(fresh: Validation, left_out: Validation) -> list[dict[str, Any]]:
    """Every claim; ours on the same runs in-sample and left out, or None."""
    return [
        {
            "tool": claim.tool,
            "runs": claim.runs,
            "says": claim.says,
            "source": claim.source,
            "in_sample": _ours(fresh, claim),
            "left_out": _ours(left_out, claim),
        }
        for claim in CLAIMS
    ]


def _ours(checked: Validation, claim: Claim) -> dict[str, Any] | None:
    if claim.chosen is None:
        return None
    chosen = [one for one in checked.predictions if claim.chosen(one) and one.log_time_ratio is not None]
    if not chosen:
        return None
    ratios: Sequence[float] = [math.exp(one.log_time_ratio or 0.0) for one in chosen]
    sweeps = sweeps_of(chosen) if len(chosen) > 8 else ()
    return {
        "n": len(chosen),
        "mean_error": float(np.mean([abs(ratio - 1) for ratio in ratios])),
        "mean_bias": float(np.mean([ratio - 1 for ratio in ratios])),
        "spearman": float(np.mean([sweep.spearman for sweep in sweeps])) if sweeps else None,
        "regret": float(np.mean([sweep.regret for sweep in sweeps])) if sweeps else None,
    }
