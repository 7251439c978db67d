"""Flags of the published methods: the short way to a case in a method's own terms."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shardplan.base.fields import dataclass
from shardplan.cli.flags.flag import flag


def _text(title: str, text: str, *names: str, metavar: str = "N", **more: Any) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=title, show_default=False, **more)


@dataclass(frozen=True, kw_only=True)
class CalculatorFlags:
    """What the calculator asks for. Without any flag it answers its page's own example."""

    params: Annotated[str | None, _text("Model", "Billions of parameters. [default: 70]", metavar="BILLIONS")] = None
    hidden_size: Annotated[str | None, _text("Model", "Hidden size. [default: 8192]")] = None
    num_layers: Annotated[str | None, _text("Model", "Layers. [default: 80]")] = None
    vocab_size: Annotated[str | None, _text("Model", "Rows of the vocabulary. [default: 128000]")] = None
    moe: Annotated[bool | None, _text("Model", "The model is a mixture of experts.", metavar="")] = None
    num_experts: Annotated[str | None, _text("Model", "Its experts. [default: 64]")] = None
    gpus: Annotated[str | None, _text("Hardware", "Number of GPUs. [default: 64]")] = None
    memory: Annotated[str | None, _text("Hardware", "Memory of one: 80, 80GB. [default: 80]", metavar="GB")] = None
    gpus_per_node: Annotated[str | None, _text("Hardware", "GPUs of a node. [default: 8]")] = None
    batch_size: Annotated[str | None, _text("Training", "Sequences of a step. [default: 512]")] = None
    seq_len: Annotated[str | None, _text("Training", "Tokens of a sequence. [default: 4096]")] = None
    num_microbatches: Annotated[
        str | None, _text("Training", "Micro-batches of a replica, for the bubble. Default: one sequence each.")
    ] = None
    cluster: Annotated[
        str,
        flag(
            "Accelerators and network of our own estimate next to it; memory and node size are the calculator's.",
            panel="Our estimate",
            metavar="NAME|FILE",
        ),
    ] = "dgx-h100"


@dataclass(frozen=True, kw_only=True)
class SearcherFlags:
    """What the searcher reads and writes."""

    cluster: Annotated[Path | None, _text("Case", "Its description of the cluster, a JSON file.", metavar="FILE")] = (
        None
    )
    model: Annotated[Path | None, _text("Case", "Its description of the model, a JSON file.", metavar="FILE")] = None
    output: Annotated[
        str | None, _text("Output", "Its result file: every configuration with its time, as JSON.", metavar="FILE|-")
    ] = None
    workers: Annotated[str, flag("Number of worker processes.", panel="Search", metavar="N")] = "1"
    top: Annotated[str, flag("Number of configurations to show.", panel="Search", metavar="N")] = "10"


@dataclass(frozen=True, kw_only=True)
class LayerFlags:
    """A linear layer of the data-movement model."""

    device: Annotated[
        str | None, _text("Layer", "H100 SXM5, or an accelerator by name. [default: H100 SXM5]", metavar="NAME")
    ] = None
    d_in: Annotated[str | None, _text("Layer", "Inputs.")] = None
    d_out: Annotated[str | None, _text("Layer", "Outputs.")] = None
    tp_in: Annotated[str | None, _text("Layer", "Devices that share the inputs. [default: 1]")] = None
    tp_out: Annotated[str | None, _text("Layer", "Devices that share the outputs. [default: 1]")] = None
    dp: Annotated[str | None, _text("Layer", "Replicas. [default: 1]")] = None
    batch: Annotated[str | None, _text("Layer", "Tokens of a micro-batch over all replicas.", metavar="TOKENS")] = None
    bytewidth: Annotated[str | None, _text("Layer", "Bytes per number. [default: 2]", metavar="BYTES")] = None
    num_devices: Annotated[
        str | None, _text("Layer", "Search tp-in, tp-out and dp with this product instead of giving them.")
    ] = None
    num_microbatches: Annotated[str | None, _text("Layer", "Of a batch, in a search. [default: 1]")] = None


@dataclass(frozen=True, kw_only=True)
class LimitsFlags:
    """The limits curve of the data-movement model."""

    limits: Annotated[
        bool | None, _text("Limits", "The best utilisation against training compute, in place of a layer.", metavar="")
    ] = None
    min_flop: Annotated[
        str | None, _text("Limits", "Training compute at which the curve begins. [default: 1e20]", metavar="FLOP")
    ] = None
    max_flop: Annotated[
        str | None, _text("Limits", "Training compute at which the curve ends. [default: 1e33]", metavar="FLOP")
    ] = None
    points_per_decade: Annotated[str | None, _text("Limits", "Points of the curve per decade. [default: 5]")] = None
    training_time: Annotated[
        str | None, _text("Limits", "Within which a run must end: 30days, 720h. [default: 3 months]", metavar="TIME")
    ] = None
    out: Annotated[
        Path | None, _text("Output", "Write the curve there as a page, a picture and a table.", metavar="DIR")
    ] = None
    variants: Annotated[
        bool | None, _text("Limits", "Show how batch size, shape, links and latency move the cliff.", metavar="")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchedFlags:
    """A search of the model of arXiv 2410.00273."""

    model: Annotated[
        str | None, _text("Search", "gpt3_1T, vit_era5, gpt3, or a file with l, e, h and depth.", metavar="NAME|FILE")
    ] = None
    system: Annotated[str | None, _text("Search", "A100, H200, B200, B200-next, or a file.", metavar="NAME|FILE")] = (
        None
    )
    nvs: Annotated[str | None, _text("Search", "Accelerators of a scale-up domain. [default: 8]")] = None
    strategy: Annotated[
        str | None, _text("Search", "Form of tensor parallelism: 1d, 2d-seqp or 2d.", metavar="NAME")
    ] = None
    gpus: Annotated[str | None, _text("Search", "Number of accelerators.")] = None
    global_batch_size: Annotated[str | None, _text("Search", "Sequences of a step. [default: 4096]")] = None
    top: Annotated[str | None, _text("Search", "Number of configurations. [default: 10]")] = None
    corrected: Annotated[
        str | None,
        _text(
            "Search", "Correct Q1, Q2, Q3, Q5 and Q11 of its known errors, or those named: Q2,Q11.", metavar="[NAMES]"
        ),
    ] = None
    explain: Annotated[
        bool | None, _text("Search", "Show every operator of a layer under the best configuration.", metavar="")
    ] = None


_degree = partial(_text, "One configuration")


@dataclass(frozen=True, kw_only=True)
class DegreeFlags:
    """Degrees that make the case one configuration to price."""

    dp: Annotated[str | None, _degree("Price one configuration: replicas. Default: what is left of --gpus.")] = None
    tp: Annotated[str | None, _degree("Tensor-parallel degree of 1d.")] = None
    tp1: Annotated[str | None, _degree("Its first degree in 2d-seqp and 2d: heads and width.")] = None
    tp2: Annotated[str | None, _degree("Its second degree: the sequence.")] = None
    pp: Annotated[str | None, _degree("Pipeline stages.")] = None
    mbs: Annotated[str | None, _degree("Sequences of a micro-batch.")] = None
    nb: Annotated[str | None, _degree("Blocks of 2d (SUMMA).")] = None
    nv_dp: Annotated[str | None, _degree("Replicas inside a scale-up domain. Default: the best place.")] = None
    nv_tp: Annotated[str | None, _degree("Tensor-parallel ranks inside one.")] = None
    nv_tp1: Annotated[str | None, _degree("The same of the first degree.")] = None
    nv_tp2: Annotated[str | None, _degree("The same of the second degree.")] = None
    nv_pp: Annotated[str | None, _degree("Pipeline stages inside one.")] = None
