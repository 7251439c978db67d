"""The paper's cost model as a method: its own cases, its reference results, and our questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import AliasChoices, Field

from shardplan.base.errors import InputError
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import Case, Method, MethodAnswer
from shardplan.methods.fields import StrictFields, read_fields
from shardplan.methods.subramanian2024 import question
from shardplan.methods.subramanian2024.candidates import places_of
from shardplan.methods.subramanian2024.inputs import (
    FLAWS,
    GLOBAL_BATCH_SIZE,
    MAX_COUNT,
    MAX_DOMAIN,
    corrections_of,
    load_model,
    load_system,
)
from shardplan.methods.subramanian2024.iteration import STATISTICS, Configuration, PaperSetting
from shardplan.methods.subramanian2024.search import (
    DEGREES,
    PLACES,
    check_configuration,
    configuration_records,
    operator_records,
    search,
    words,
)
from shardplan.methods.subramanian2024.strategies import Strategy, strategy_of
from shardplan.methods.subramanian2024.study import SECONDS_PER_DAY, reference_cases

RESULTS: Final = ("rank", "throughput", "memory_GB", *STATISTICS)
"""Columns of the published results that a case may also contain."""

Degree = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class CaseFields(StrictFields):
    """Fields of a case. With degrees it is one configuration, without them a search."""

    strategy: str
    model: str | dict[str, Any]
    """A model of the paper, a file, or l, e, h and depth."""
    system: str | dict[str, Any] = Field(validation_alias=AliasChoices("system", "gpu"))
    """A system of the paper, a file, or its values."""
    nvs: Annotated[int, Field(ge=1, le=MAX_DOMAIN)] | None = None
    """Accelerators of a scale-up domain."""
    gpus: Degree | None = Field(default=None, validation_alias=AliasChoices("gpus", "n_gpus", "num_gpus"))
    """Number of all accelerators."""
    global_batch_size: Degree = GLOBAL_BATCH_SIZE
    top: Annotated[int, Field(ge=1, le=10_000)] = 10
    corrected: bool | str | list[str] | None = False
    explain: bool = False
    """Whether to add the operators of a layer under the best configuration."""
    dp: Degree | None = None
    tp: Degree | None = None
    tp1: Degree | None = None
    tp2: Degree | None = None
    pp: Degree | None = None
    mbs: Degree | None = None
    nb: Degree | None = None
    nv_tp: Degree | None = None
    nv_tp1: Degree | None = None
    nv_tp2: Degree | None = None
    nv_dp: Degree | None = None
    nv_pp: Degree | None = None


class Subramanian2024(Method):
    """Roofline of every operator, two networks, exhaustive search over three forms of tensor parallelism."""

    name = "subramanian2024"
    title = "roofline of every operator on a two-tier network; 1D and 2D tensor parallelism, searched exhaustively"
    source = "S. Subramanian et al., arXiv 2410.00273 (2024); transformer-perf-estimates, commit 54278b0"
    counts = (
        "time of every operator of a layer: compute, device memory and collectives, forward and backward",
        "pipeline bubble and transfers, data-parallel communication that is not hidden",
        "weights, gradients, ZeRO-1 optimizer states and activations of an accelerator",
        "which ranks lie inside the scale-up domain",
    )
    leaves_out = (
        "models other than equal layers of full attention and a plain MLP of four times the width",
        "recomputation, sharding beyond ZeRO-1, interleaved schedules, number formats other than 16 bits",
        *(f"{number}: {FLAWS[number]}" for number in ("Q12", *(name for name in FLAWS if name != "Q12"))),
    )

    def answer(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The best configurations of a search, or one configuration, with all statistics. Raises ``InputError``."""
        fields = read_fields(CaseFields, case, owner=self.name, results=RESULTS)
        setting = PaperSetting(
            model=load_model(fields.model),
            system=load_system(fields.system, fields.nvs),
            strategy=strategy_of(fields.strategy),
            global_batch_size=fields.global_batch_size,
            corrected=corrections_of(fields.corrected),
        )
        given = [name for name in (*DEGREES, *PLACES) if getattr(fields, name) is not None]
        configurations, counts = _priced_answer(fields, setting) if given else _search_answer(fields, setting)
        records = configuration_records(setting, configurations)
        if given:
            best = max(range(len(records)), key=lambda number: float(records[number]["throughput"]))
            records, configurations = [records[best]], [configurations[best]]
        fits = [record["memory_GB"] <= setting.system.hbm_capacity / 1e9 for record in records]
        samples = setting.model.num_samples
        days = [
            {} if samples is None else {"training_days": samples / record["throughput"] / SECONDS_PER_DAY}
            for record in records
        ]
        result = {
            "strategy": setting.strategy.name,
            "model": setting.model.name,
            "gpu": setting.system.name,
            "nvs": setting.system.nvlink_size,
            "n_gpus": configurations[0].num_gpus,
            "global_batch_size": fields.global_batch_size,
            "corrected": sorted(setting.corrected, key=lambda name: int(name[1:])),
            **counts,
            "configurations": [
                {"rank": number, "fits": fit, **record, **training}
                for number, (fit, record, training) in enumerate(zip(fits, records, days, strict=True), start=1)
            ],
        }
        if fields.explain:
            result["operators"] = operator_records(setting, configurations[0])
        return result

    def cases(self, text: str) -> Iterator[Case] | None:
        """Two cases for every row of a table in the published columns: priced again, and searched again."""
        return reference_cases(text)

    def plan(
        self, model: ModelConfig, cluster: Cluster, num_accelerators: int, job: Job, *, top: int = 10
    ) -> MethodAnswer:
        """The best configurations of all three strategies. Raises ``MethodError`` if the method cannot answer."""
        return question.plan(self.name, model, cluster, num_accelerators, job, top=top)


def _search_answer(fields: CaseFields, setting: PaperSetting) -> tuple[list[Configuration], dict[str, float]]:
    """The best configurations; if none fits, the one with least memory. Raises ``InputError`` if there is none."""
    if fields.gpus is None:
        raise InputError("the case has no gpus", rule="a search has a number of accelerators", hint="give gpus")
    (found,) = search(setting, [fields.gpus], top=fields.top)
    if found.smallest is None:
        raise InputError(
            f"{setting.strategy.name} has no configuration of {setting.model.name} on {fields.gpus:,} accelerators in "
            f"domains of {setting.system.nvlink_size} for a batch of {fields.global_batch_size:,}",
            rule="degrees divide the accelerators, the layers, the batch and the scale-up domain",
            hint="choose a number of accelerators and a batch with more common divisors",
        )
    counts = {
        "num_candidates": found.num_candidates,
        "num_fitting": found.num_fitting,
        "smallest_memory_GB": found.smallest_memory_bytes / 1e9,
    }
    return list(found.best) or [found.smallest], counts


def _priced_answer(fields: CaseFields, setting: PaperSetting) -> tuple[list[Configuration], dict[str, float]]:
    """The configuration of a case; in all its places, if the case gives none."""
    configuration, domain = _configuration(fields, setting.strategy), setting.system.nvlink_size
    check_configuration(setting, configuration)
    is_placed = any(getattr(fields, name) is not None for name in PLACES)
    places = [configuration] if is_placed else places_of(configuration, domain)
    if not places:
        raise InputError(
            f"no way to fill a scale-up domain of {domain} with ranks of {words(configuration)}",
            rule="the degrees fill a scale-up domain exactly",
            hint="say where they lie (nv_tp, nv_dp, nv_pp), or change nvs",
        )
    return places, {}


def _configuration(fields: CaseFields, strategy: Strategy) -> Configuration:
    """Degrees of a case; missing ones are 1, and dp follows from the accelerators. Raises ``InputError``."""
    _check_names(fields, strategy)
    tp1 = fields.tp1 or fields.tp or 1
    if strategy.has_second_degree and fields.tp is not None and fields.tp1 is None:
        raise InputError("tp is given without tp1 and tp2", rule="a grid has two degrees", hint="give tp1 and tp2")
    tp2, pp = fields.tp2 or 1, fields.pp or 1
    dp = fields.dp or (fields.gpus or tp1 * tp2 * pp) // (tp1 * tp2 * pp)
    places = {name: getattr(fields, name) or 1 for name in ("nv_tp2", "nv_dp", "nv_pp")}
    places["nv_tp1"] = fields.nv_tp1 or fields.nv_tp or 1
    nb = fields.nb or (max(tp1, tp2) if strategy.has_blocks else 1)
    return Configuration(dp=max(dp, 1), tp1=tp1, tp2=tp2, pp=pp, mbs=fields.mbs or 1, nb=nb, **places)


def _check_names(fields: CaseFields, strategy: Strategy) -> None:
    """Checks that degrees without a role in the strategy are 1, and that the product of two is as stated."""
    unknown: list[str] = [] if strategy.has_second_degree else ["tp2", "nv_tp2"]
    for name in unknown if strategy.has_blocks else [*unknown, "nb"]:
        if (getattr(fields, name) or 1) != 1:
            raise InputError(
                f"{name} is {getattr(fields, name)}, which {strategy.name} does not have",
                rule=f"{strategy.name} is {strategy.title}",
                hint=f"leave out {name}",
            )
    for whole, first, second in (("tp", "tp1", "tp2"), ("nv_tp", "nv_tp1", "nv_tp2")):
        given, one, two = (getattr(fields, name) for name in (whole, first, second))
        if given is not None and one is not None and given != one * (two or 1):
            raise InputError(
                f"{whole} is {given}, but {first} x {second} is {one * (two or 1)}",
                rule=f"{whole} is the product of {first} and {second}",
                hint=f"leave out {whole}",
            )
    product = math.prod(degree or 1 for degree in (fields.dp, fields.tp1 or fields.tp, fields.tp2, fields.pp))
    if fields.gpus is not None and (fields.gpus % product or (fields.dp is not None and product != fields.gpus)):
        raise InputError(
            f"the degrees multiply to {product:,}, the case has {fields.gpus:,} accelerators",
            rule="dp x tp x pp is the number of accelerators",
            hint="correct a degree, or leave out dp",
        )
