"""InternEvo: configurations in Python, mappings at the top of a module."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.tabled.table_dialect import PLAIN, TableDialect
from shardplan.launch.dialects.values import degree, number, on_off, precision, switch, whole


def _rules(facts: Facts, config: Settings) -> None:
    """Degrees whose meaning the mode decides, and layers."""
    _tensor(facts, config)
    _sharding(facts, config)
    facts.miss("intermediate_size", ("model.mlp_ratio and the code's rounding",))
    if "num_experts" in facts:
        facts.miss("ep", ("the code, from the data-parallel degree",))
    if config.has("adam"):
        facts.derive("optimizer", "adam", "the section adam")


def _tensor(facts: Facts, config: Settings) -> None:
    """``mtp``, ``msp`` and ``fsp`` split weights; ``isp`` splits the sequence alone."""
    size, mode = (
        config.first("parallel.tensor.size", "parallel.tensor"),
        str(config.value("parallel.tensor.mode") or "mtp"),
    )
    if mode == "isp" and size is not None:
        state(facts, "cp", size, degree)
        facts.derive("tp", 1, f"{size.place}: mode isp splits the sequence, not the weights")
        facts.derive("cp_comm", "a2a", f"{size.place}: mode isp")
        facts.derive("sequence_parallel", value=True, rule="mode isp")
    elif mode in {"mtp", "msp", "fsp"}:
        state(facts, "tp", size, degree)
        facts.derive("sequence_parallel", mode != "mtp", f"tensor mode {mode}")
    else:
        facts.miss("tp", (f"parallel.tensor.mode = {mode}",))


def _sharding(facts: Facts, config: Settings) -> None:
    """Optimizer states over ``zero1``; weights over ``weight``."""
    zero, weight = config.first("parallel.zero1.size", "parallel.zero1"), whole(config.value("parallel.weight.size"))
    if weight is not None and weight > 1:
        facts.miss("sharding", (f"parallel.weight.size = {weight}: weights are sharded over fewer ranks than states",))
    elif zero is not None and whole(zero.value) == 1:
        facts.derive("sharding", "ddp", f"{zero.place} = 1", zero.name)
    elif zero is not None and (size := whole(zero.value)) is not None:
        facts.derive("sharding", "zero1", f"{zero.place} = {size}", zero.name)
        if size > 1:
            facts.derive("sharding_degree", size, zero.place)


def _recompute(value: object) -> str | None:
    """A switch, or a share of the layers; a share between none and all has no counterpart."""
    if isinstance(value, bool):
        return "full" if value else "none"
    return {0.0: "none", 1.0: "full"}.get(-1.0 if (share := number(value)) is None else share)


INTERNEVO: Final = TableDialect(
    name="internevo",
    version="main of 2025 (c628a8c8)",
    marks=("parallel.tensor", "data.micro_bsz", "hybrid_zero_optimizer"),
    least_marks=2,
    table={
        "sequence_length": (("data.seq_len",), degree),
        "micro_batch_size": (("data.micro_bsz",), degree),
        "gradient_accumulation": (("data.micro_num",), degree),
        "num_hidden_layers": (("model.num_layers",), degree),
        "hidden_size": (("model.hidden_size",), degree),
        "num_attention_heads": (("model.num_attention_heads",), degree),
        "num_key_value_heads": (("model.num_kv_attention_heads",), degree),
        "vocab_size": (("model.vocab_size",), degree),
        "num_experts": (("model.num_experts",), lambda value: None if (n := degree(value)) == 1 else n),
        "num_experts_per_tok": (("moe.top_k", "model.moe_topk"), degree),
        "precision": (("model.dtype",), precision),
        "overlap_dp": (("hybrid_zero_optimizer.overlap_sync_grad",), switch),
        "pp": (("parallel.pipeline.size", "parallel.pipeline"), degree),
        "vp": (("model.num_chunks",), degree),
        "recompute": (("model.checkpoint",), _recompute),
        "bias": (("model.no_bias",), lambda value: None if switch(value) is None else not switch(value)),
        "normalization": (("model.norm_type",), lambda value: "RMSNorm" if "rms" in str(value) else "LayerNorm"),
        "attention": (("model.use_flash_attn",), on_off("flash", "unfused")),
        "overlap_pp": (("parallel.pipeline.interleaved_overlap",), switch),
    },
    defaults={**PLAIN, "recompute": "none", "offload": "none"},
    open={"num_accelerators": "the launch line: --gpus", "global_batch_size": "num_accelerators"},
    rule=_rules,
    watched=r"(?:model|moe|parallel|hybrid_zero_optimizer)\..*",
)
