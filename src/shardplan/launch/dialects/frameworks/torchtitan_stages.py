"""Stages of torchtitan: they follow from the schedule, virtual stages, and how layers are cut."""

from __future__ import annotations

from math import ceil

from shardplan.base.words import folded
from shardplan.inputs.words import SCHEDULES
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import WEIGHTS, Facts
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.dialects.values import whole
from shardplan.physics.frameworks.stage_layers import torchtitan_can_share, torchtitan_layers
from shardplan.physics.schedules.registry import INTERLEAVED


def state_stages(facts: Facts, settings: Settings) -> None:
    """The schedule, and virtual stages where it has several."""
    _schedule(facts, settings)
    _shared(facts, _ends(settings))


def _ends(settings: Settings) -> tuple[int, int]:
    """Layers that embedding and head count as, one each where nothing is stated."""
    names = (f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
    first, last = (whole(settings.value(name)) for name in names)
    return 1 if first is None else first, 1 if last is None else last


def _schedule(facts: Facts, settings: Settings) -> None:
    word, pp = facts.value("schedule_word"), facts.number("pp")
    if pp == 1:
        if word is not None and folded(str(word)) not in {"1f1b", ""}:
            facts.breaks_rule("a schedule needs a pipeline", f"{word} with pipeline degree 1", "leave it out", "notice")
        facts.derive("vp", 1, "one stage holds all layers")
        return
    meant = None if word is None else SCHEDULES.get(folded(str(word)))
    if word is None and "schedule_word" not in facts:
        facts.assume("schedule", "1f1b")
        facts.assume("vp", 1)
    elif meant is None:
        facts.miss("schedule", facts.missing.get("schedule_word", (f"pipeline schedule {word}",)))
    else:
        facts.state("schedule", meant, facts.facts["schedule_word"].why, "parallelism.pipeline_parallel_schedule")
        if meant in {"1f1b", "gpipe"}:
            facts.derive("vp", 1, f"{word} has one stage per rank")
        elif facts.number("layers_per_stage") is not None:
            _by_layers(facts, _ends(settings))
            facts.miss("vp", ("the layers of the model over layers_per_stage",))
        else:
            facts.assume("vp", 2, f"{word} with two stages per rank")
        if meant == INTERLEAVED.name:
            facts.note("interleaved schedules of torchtitan count embedding and head as layers where stages are cut")


def _by_layers(facts: Facts, ends: tuple[int, int]) -> None:
    """Virtual stages from the layers of the catalogue's model over those of a stage, rounded up."""
    number, pp, size = _num_layers(facts), facts.number("pp"), facts.number("layers_per_stage")
    if number is None or not pp or not size:
        return
    layers = number + sum(ends)
    stages, rule = ceil(layers / size), f"{layers} layers with embedding and head / {size} of a stage"
    if stages % pp:
        facts.breaks_rule(
            "stages are a multiple of the pipeline degree",
            f"{rule} make {stages} stages on pp {pp}",
            "change pipeline_parallel_layers_per_stage",
        )
    else:
        facts.derive("vp", stages // pp, f"{rule} / pp {pp}")


def _num_layers(facts: Facts) -> int | None:
    """Layers that are stated, or those of the catalogue's model."""
    model = named_model(facts.value("model"))
    return facts.number("num_hidden_layers") if model is None else model.num_hidden_layers


def _shared(facts: Facts, ends: tuple[int, int]) -> None:
    """Layers of every stage where they are not equal."""
    number, pp, vp = _num_layers(facts), facts.number("pp"), facts.number("vp")
    if not pp or pp == 1 or not vp or "stage_layers" in facts:
        return
    facts.derive(WEIGHTS, ends, "layers that embedding and head count as, one each where nothing is stated")
    if number is None:
        return
    layers = torchtitan_layers(number, pp * vp, *ends)
    if not torchtitan_can_share(number, pp * vp, *ends):
        facts.breaks_rule(
            "embedding and head weigh no more layers than a stage has",
            f"{number} layers on {pp * vp} stages, embedding and head as {ends[0]} and {ends[1]} layers",
            "lower the pipeline degree, or pipeline_parallel_first_stage_less_layers and last_stage_less_layers",
        )
    elif len({*layers}) > 1:
        facts.derive("stage_layers", layers, "embedding and head count as layers where stages are cut")
