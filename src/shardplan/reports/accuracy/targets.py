"""What is aimed at and what is reached, in-sample and with the run's team left out; next to what other tools reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from shardplan.calibrate.errors import GROUPINGS, errors_of, sweeps_of, verdicts_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.runs.rows import is_fitted
from shardplan.calibrate.validate import Validation
from shardplan.inputs.readers.residuals import CONTRADICTORY_MEMORY

Pair = tuple[float, float]


class Target(NamedTuple):
    """Median and 90th percentile of the error over some runs: the least that is asked, and what is wanted."""

    label: str
    chosen: Callable[[Prediction], bool]
    quantity: str = "time"
    floors: Mapping[str, Pair] = {}
    aims: Mapping[str, Pair] = {}


def is_described(one: Prediction) -> bool:
    """Whether a run is described well enough, and its family one that the shipped constants are fitted to in full."""
    return one.run.tier != "B" and is_fitted(one.run)


def is_trusted(one: Prediction) -> bool:
    """Whether its peak memory is evidence, and its family one that the shipped constants are fitted to in full."""
    return one.run.family not in CONTRADICTORY_MEMORY and is_fitted(one.run)


def _compared(*families: str) -> Callable[[Prediction], bool]:
    """Runs of tiers A and A- of families with measurements that the shipped constants are not fitted to."""
    return lambda one: one.run.tier != "B" and one.run.family in families


def _kind(one: Prediction) -> str:
    return GROUPINGS["kind"](one)


TARGETS = (
    Target(
        "step time, all",
        is_described,
        floors={"in_sample": (0.055, 0.19), "left_out": (0.085, 0.28)},
        aims={"in_sample": (0.04, 0.14), "left_out": (0.06, 0.20)},
    ),
    Target(
        "step time, dense",
        lambda one: is_described(one) and _kind(one) == "dense",
        floors={"in_sample": (0.045, 0.14), "left_out": (0.06, 0.22)},
        aims={"in_sample": (0.03, 0.10), "left_out": (0.045, 0.16)},
    ),
    Target(
        "step time, mixture of experts",
        lambda one: is_described(one) and _kind(one) == "moe",
        floors={"in_sample": (0.11, 0.28), "left_out": (0.18, 0.40)},
        aims={"in_sample": (0.08, 0.20), "left_out": (0.12, 0.30)},
    ),
    Target("step time, megatron-bridge alone", lambda one: is_described(one) and one.run.family == "megatron-bridge"),
    Target(
        "step time, all without megatron-bridge",
        lambda one: is_described(one) and one.run.family != "megatron-bridge",
    ),
    Target(
        "peak memory, all tiers",
        is_trusted,
        "memory",
        floors={"in_sample": (0.035, 0.14), "left_out": (0.05, 0.18)},
        aims={"in_sample": (0.025, 0.08), "left_out": (0.035, 0.11)},
    ),
    Target(
        "peak memory, tier A",
        lambda one: is_trusted(one) and one.run.tier == "A",
        "memory",
        floors={"in_sample": (0.033, 0.09), "left_out": (0.05, 0.11)},
    ),
    Target(
        "step time, MLPerf GPT-3 and Llama 3.1 405B, not fitted",
        _compared("mlperf-gpt3", "mlperf-llama31-405b"),
        floors={"left_out": (0.08, 0.20)},
    ),
    Target(
        "step time, aleph-alpha-layouts, not fitted",
        _compared("aleph-alpha-layouts"),
        floors={"left_out": (0.12, 0.30)},
    ),
    Target(
        "step time, zero-bubble and vocabulary-parallelism, not fitted",
        _compared("zero-bubble", "vocabulary-parallelism"),
    ),
    Target(
        "peak memory, zero-bubble and vocabulary-parallelism",
        _compared("zero-bubble", "vocabulary-parallelism"),
        "memory",
    ),
    Target("peak memory, MLPerf Llama 3.1 405B, not fitted", _compared("mlperf-llama31-405b"), "memory"),
)
"""Tiers A and A- where nothing else is stated, of the families that the shipped constants are fitted to in full unless
others are named; peak memory without the families whose rows contradict themselves."""

TOO_SMALL = (0.04, 0.01)
"""Share of memories predicted more than 10 % below the measurement: floor and aim."""
REGRET = (0.03, 0.015)
IN_ORDER = (0.85, 0.95)
RIGHT_VERDICTS = (0.95, 0.98)
FAR_FALSE_FITS = (0.0, 0.0)
"""Share of the runs out of memory that are predicted to leave more than 10 % of it free."""


def targets(fresh: Validation, left_out: Validation) -> dict[str, Any]:
    """Every target with what is reached. Shares, for which there are floors in-sample only."""
    sides = {"in_sample": fresh, "left_out": left_out}
    too_small = {name: _too_small(checked) for name, checked in sides.items()}
    # Order within the sweeps of runs that are described: mean regret, pairs in order
    orders = {
        name: sweeps_of([one for one in checked.predictions if is_described(one)]) for name, checked in sides.items()
    }
    found = {name: replace(checked, sweeps=orders[name]).ranking() for name, checked in sides.items()}
    regret, order = ({name: one[key] for name, one in found.items()} for key in ("mean_regret", "pairs_in_order"))
    return {
        "errors": [_reached(target, sides) for target in TARGETS],
        "shares": [
            _share("peak memory more than 10 % below the measurement", "memory", TOO_SMALL, too_small),
            _share("mean regret of the predicted best, in sweeps", "regret", REGRET, regret),
            _share("pairs that differ by more than 5 %, in order", "order", IN_ORDER, order, more_is_better=True),
            *_verdicts(sides),
        ],
    }


def _share(
    label: str, quantity: str, wanted: Pair, found: Mapping[str, float | None], *, more_is_better: bool = False
) -> dict[str, Any]:
    floor, aim = wanted
    reached = found["in_sample"]
    met = None if reached is None else (reached >= floor if more_is_better else reached <= floor)
    return {"label": label, "quantity": quantity, "floor": floor, "aim": aim, **found, "meets_floor": met}


def _reached(target: Target, sides: Mapping[str, Validation]) -> dict[str, Any]:
    row: dict[str, Any] = {"label": target.label}
    for name, checked in sides.items():
        chosen = [ratio_of(one, target.quantity) for one in checked.predictions if target.chosen(one)]
        errors = asdict(errors_of(chosen))
        floor = target.floors.get(name)
        met = floor is not None and errors["n"] and errors["median"] <= floor[0] and errors["p90"] <= floor[1]
        row[name] = {
            **errors,
            "floor": floor,
            "aim": target.aims.get(name),
            "meets_floor": None if floor is None else bool(met),
        }
    return row


def ratio_of(one: Prediction, quantity: str) -> float:
    """ln(predicted / measured) of ``time`` or ``memory``; NaN: not measured."""
    ratio = one.log_time_ratio if quantity == "time" else one.log_memory_ratio
    return math.nan if ratio is None else ratio


def _too_small(checked: Validation) -> float | None:
    return errors_of([ratio_of(one, "memory") for one in checked.predictions if is_trusted(one)]).too_small


def _verdicts(sides: Mapping[str, Validation]) -> list[dict[str, Any]]:
    """Verdicts "fits" of families with runs that ran out of memory; nothing where there are none."""
    found = {name: verdicts_of(_with_both_ends(checked)) for name, checked in sides.items()}
    if not found["in_sample"].out_of_memory:
        return []
    far = {
        name: one.false_fits_beyond_10_percent / one.out_of_memory if one.out_of_memory else None
        for name, one in found.items()
    }
    right = {name: one.right for name, one in found.items()}
    families = "families with runs out of memory"
    return [
        _share(f'verdicts "fits" that are right, {families}', "fits", RIGHT_VERDICTS, right, more_is_better=True),
        _share("runs out of memory predicted to leave more than 10 % free", "false_fits", FAR_FALSE_FITS, far),
    ]


def _with_both_ends(checked: Validation) -> list[Prediction]:
    families = {one.run.family for one in checked.predictions if not one.run.ran}
    return [one for one in checked.predictions if one.run.family in families]


class Claim(NamedTuple):
    """What a source says of a tool; ``chosen``: our runs that are those of the claim, or drawn from them."""

    tool: str
    runs: str
    says: str
    source: str
    chosen: Callable[[Prediction], bool] | None = None
    """None: the runs are not in our data."""


_OWN = "its authors"
_CODE = "run by us with the tool's code of November 2026"
_ONE_NODE = (
    "1,440 configurations of small GPTs on one A100 node (vTrain's set); ours: the 150 of them that are in the data"
)
_LLAMA = "Llama 3 70B on 64 H100, 14.6 s measured"
_KORTHIKANTI, _VTRAIN, _LLAMA_64 = (
    lambda one: one.run.id.startswith("korthikanti-tab5-"),
    lambda one: one.run.family == "vtrain-single",
    lambda one: one.run.id == "dgxc-v25.02.02-llama3.1-70b-h100-bf16-64gpu",
)
CLAIMS = (
    Claim(
        "Calculon",
        "8 runs of Megatron-LM on A100 (Korthikanti et al. 2022, table 5)",
        "mean error 3.65 %",
        _OWN,
        _KORTHIKANTI,
    ),
    Claim("Calculon", _ONE_NODE, "mean error 38.9 %, rank correlation 0.57, regret 10.0 %", _CODE, _VTRAIN),
    Claim(
        "SimuMax",
        _ONE_NODE,
        "mean error 32.4 %, rank correlation 0.88, regret 3.9 %",
        f"{_CODE}; efficiencies of the A100 guessed",
        _VTRAIN,
    ),
    Claim("llm-analysis", _ONE_NODE, "mean error 56.9 %, rank correlation 0.60, regret 33 %", _CODE, _VTRAIN),
    Claim("SimuMax", _LLAMA, "27 % too slow", _CODE, _LLAMA_64),
    Claim("Calculon", _LLAMA, "97 % too slow", _CODE, _LLAMA_64),
    Claim(
        "SimuMax",
        "its own runs on B200, efficiencies measured on that machine",
        "time -13.5 % to +0.1 %, memory -1.4 % to -0.1 %",
        _OWN,
    ),
    Claim("vTrain", "its own runs on A100, layers profiled there", "mean error 8 to 15 %", _OWN),
    Claim(
        "Calculon, SimuMax, llm-analysis",
        "109 multi-node runs on A100 (vTrain's set), which are not in our data",
        "mean error 15.3 %, 10.9 %, 17.9 %; rank correlation 0.73, 0.82, 0.08",
        _CODE,
    ),
)


def claims(fresh: Validation, left_out: Validation) -> list[dict[str, Any]]:
    """Every claim; ours on the same runs in-sample and left out, or None."""
    return [
        {name: getattr(claim, name) for name in ("tool", "runs", "says", "source")}
        | {"in_sample": _ours(fresh, claim), "left_out": _ours(left_out, claim)}
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
