"""Options of measured runs: what each sets, in whose words, and what is not understood."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from tests.calibrate.rows import asked

from shardplan.base.errors import InputError
from shardplan.calibrate.predict import predict
from shardplan.calibrate.runs.option_words import OVERLAPS, WITHOUT_EFFECT
from shardplan.calibrate.runs.options import OPTIONS
from shardplan.inputs.software import Software


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("cuda_graph=full_iteration", "cuda_graphs", "full"),
        ("cuda_graph=local:full_iteration", "cuda_graphs", "full"),
        ("cuda_graph=transformer_engine:attn+mamba", "cuda_graphs", "partial"),
        ("cuda_graph=yes", "cuda_graphs", "partial"),
        ("cuda_launch_blocking=yes", "blocking_launches", True),
        ("cuda_graph=none(unsupported)", "cuda_graphs", "none"),
        ("cuda_graph=unclear:full_iteration", "cuda_graphs", "none"),
        ("moe_dispatcher=hybridep", "moe_dispatcher", "hybridep"),
        ("moe_dispatcher=flex", "moe_dispatcher", "deepep"),
        ("moe_dispatch_format=fp8", "moe_dispatch_format", "fp8"),
        ("moe_dispatch_format=bf16", "moe_dispatch_format", "activation"),
        ("cuda_graph=moe_router,moe_preprocess", "cuda_graphs", "router"),
        ("cuda_graph=transformer_engine:attn+moe_router", "cuda_graphs", "partial"),
        ("cuda_graph=full", "cuda_graphs", "full"),
        ("cuda_graph=no", "cuda_graphs", "none"),
        ("moe_capacity_factor=1", "moe_capacity", True),
        ("moe_capacity_factor=1.25", "moe_capacity", True),
        ("moe_capacity_factor=none", "moe_capacity", False),
        ("primary_weights=fp8", "quantised_weights", True),
        ("primary_weights=fp4", "quantised_weights", True),
        ("primary_weights=BF16", "quantised_weights", False),
        ("compile=no", "kernels", "eager"),
        ("torch_compile=no", "kernels", "eager"),
        ("num_vocab_tiling=16", "fused_loss", True),
        ("num_vocab_tiling=1", "fused_loss", False),
        ("attention_generation=flash2", "attention_generation", "flash2"),
        ("kernels=eager", "kernels", "eager"),
        ("fused_accumulation=no", "fused_accumulation", False),
        ("reduces_whole=yes", "reduces_whole", True),
        ("gradient_copy=yes", "gradient_copy", True),
        ("features=Liger kernels, FA3", "fused_loss", True),
        ("features=TE + deepep", "moe_dispatcher", "deepep"),
        ("moe_dispatcher=alltoall;features=TE + deepep", "moe_dispatcher", "alltoall"),
    ],
)
def test_options_of_the_software(tmp_path: Path, option: str, field: str, value: object) -> None:
    assert getattr(asked(tmp_path, options=option).question.job.software, field) == value


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("overlap=tp,p2p", "overlap_tp", True),
        ("overlap=tp,p2p", "overlap_pp", True),
        ("overlap=dp,pp", "overlap_dp", True),
        ("overlap=dp,pp", "overlap_pp", True),
        ("overlap=none", "overlap_dp", False),
        ("overlap=no_tp", "overlap_tp", False),
        ("overlap=fsdp_prefetch", "overlap_dp", True),
        ("overlap=moe_a2a_1f1b", "overlap_ep", True),
        ("moe_a2a_1f1b=yes", "overlap_ep", True),
        ("overlap=moe_a2a_1f1b;moe_a2a_1f1b=yes", "overlap_ep", True),
        ("moe_a2a_1f1b=no", "overlap_ep", False),
        ("cp_comm_type=all_gather", "cp_comm", "allgather"),
        ("cp_comm_type=a2a", "cp_comm", "a2a"),
        ("recompute_layers=3", "recompute_num_layers", 3),
        ("cpu_activation_offload_layers=20", "offload_num_layers", 20),
        ("offload_num_layers=20", "offload_num_layers", 20),
        ("recompute_num_layers=3", "recompute_num_layers", 3),
        ("cpu_activation_offload_layers=20", "offload", "activations"),
        ("cpu_activation_offload_layers=0", "offload", "none"),
        ("remat_policy=minimal", "recompute", "layernorm,activation,core_attn"),
        ("remat_policy=save_dot_with_context_except_mlp", "recompute", "layernorm,activation,mlp"),
        ("remat_policy=per-op-sac", "recompute", "op_sac"),
        ("remat_policy=custom: decoder_layer_input & out_proj offload", "recompute", "full"),
        ("remat_policy=custom: context,q,k,v,mlpwo on device", "recompute", "layernorm,activation,mlp"),
        (
            "remat_policy=custom: context,decoder_layer_input,q,k,v kept on device",
            "recompute",
            "layernorm,activation,mlp",
        ),
        ("remat_tensors=decoder_layer_input:offload", "recompute", "full"),
        (
            "remat_tensors=query_proj:offload,key_proj:device,value_proj:offload",
            "recompute",
            "layernorm,activation,core_attn,mlp",
        ),
        ("remat_tensors=qkv_proj:device,context:device,mlpwi:offload", "recompute", "layernorm,activation"),
        ("remat_tensors=query_proj:remat,key_proj:remat,value_proj:remat", "recompute", "full"),
        ("placement=tp-cp-ep-pp-dp", "placement", "tp-cp-ep-pp-dp"),
    ],
)
def test_options_of_the_plan(tmp_path: Path, option: str, field: str, value: object) -> None:
    assert getattr(asked(tmp_path, options=option).plan, field) == value


def test_the_network_between_nodes_can_be_stated(tmp_path: Path) -> None:
    """Its kind brings its latency; bandwidth and fast domains stay as they are."""
    usual = asked(tmp_path, num_accelerators="64").question.cluster.tiers
    stated = asked(tmp_path, num_accelerators="64", options="network=efa").question.cluster.tiers
    assert (usual[1].link_type, stated[1].link_type) == ("infiniband", "efa")
    assert stated[1].latency == pytest.approx(50e-6)
    assert (stated[0], stated[1].bandwidth) == (usual[0], usual[1].bandwidth)


def test_options_of_the_job(tmp_path: Path) -> None:
    job = asked(tmp_path, options="optimizer_moments=bf16;dropout=yes;optimizer=adamw").question.job
    assert (job.moment_dtype, job.dropout, job.optimizer) == ("bf16", True, "adam")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("moe_dispatcher=pigeon", "one of alltoall, deepep, hybridep"),
        ("optimizer_moments=fp8", "one of bf16, fp16, fp32"),
        ("optimizer=adamm", "one of adam, sgd, muon (did you mean adam?)"),
        ("moe_a2a_1f1b=perhaps", "yes or no"),
        ("compile=perhaps", "yes or no"),
        ("dropout=lots", "yes, no or a probability below 1"),
        ("schedule=intreleaved", "one of 1f1b, interleaved, gpipe"),
        ("cp_comm_type=smoke", "one of p2p, allgather, a2a"),
        ("recompute_layers=-1", "a whole number of layers of each stage"),
        ("network=string", "one of nvlink, pcie, xgmi"),
        ("memory_rank=middle", "fullest, first, last or a pipeline rank from 0 to 0"),
        ("memory_rank=1", "fullest, first, last or a pipeline rank from 0 to 0"),
        ("pp_layout=xyz", "stages between '|'"),
        ("kernels=handmade", "one of fused, eager"),
        ("fused_loss=2", "yes or no"),
        ("cuda_graph=perhaps", "full, none or parts of a layer"),
        ("stack=torchtitn", "one of the stacks (did you mean torchtitan?)"),
        ("placement=nowhere", "an order such as tp-cp-ep-dp-pp"),
        ("reshard_after_forward=sometimes", "always, never, default or a number of ranks"),
        ("overlap=", "a comma list of what overlaps"),
        ("compile", "yes or no"),
        ("remat_tensors=foo", "a comma list of name:device, name:offload or name:remat"),
        ("remat_tensors=context:device,foo:bar", "a comma list of name:device, name:offload or name:remat"),
        ("remat_tensors=", "a comma list of name:device, name:offload or name:remat"),
        ("remat_tensors=context:device,context:remat", "a comma list of name:device"),
        ("num_vocab_tiling=lots", "a whole number from 1"),
        ("num_vocab_tiling=0", "a whole number from 1"),
        ("num_vocab_tiling=2.5", "a whole number from 1"),
        ("routing=0.5", "balanced, early, learned, a ratio from 1"),
        ("moe_imbalance=some", "balanced, early, learned"),
        ("moe_capacity_factor=big", "a number above zero, or no"),
        ("moe_capacity_factor=0", "a number above zero, or no"),
        ("moe_capacity_factor=nan", "a number above zero, or no"),
        ("moe_capacity_factor=inf", "a number above zero, or no"),
        ("primary_weights=fp9", "one of bf16, fp16, fp8"),
        ("primary_weights=fp8ish", "one of bf16, fp16, fp8"),
    ],
)
def test_a_value_that_is_not_understood_sets_nothing_and_is_said(tmp_path: Path, option: str, said: str) -> None:
    one, plain = asked(tmp_path, options=option), asked(tmp_path)
    key, _, value = option.partition("=")
    assert (one.question, one.plan) == (plain.question, plain.plan)
    assert len(one.unknown) == 1
    assert one.unknown[0].startswith(f"option {key}={value} is not {said}")
    assert one.ignored == one.unknown


@pytest.mark.parametrize(
    ("option", "words"), [("overlap=fsdp,none", "fsdp and none"), ("overlap=no_tp,tp", "no_tp and tp")]
)
def test_words_of_one_option_that_exclude_each_other_are_refused(tmp_path: Path, option: str, words: str) -> None:
    with pytest.raises(InputError, match=f"{words} exclude each other") as refused:
        asked(tmp_path, options=option)
    assert refused.value.rule == "options do not contradict each other"


@pytest.mark.parametrize(
    ("key", "words", "field", "value"),
    [
        ("cuda_graph", "off OFF 0 disabled none no", "cuda_graphs", "none"),
        ("cuda_graphs", "off", "cuda_graphs", "none"),
        ("cuda_graph", "full-iteration Full full_iteration", "cuda_graphs", "full"),
        ("compile", "no off 0 False disabled", "kernels", "eager"),
        ("moe_dispatcher", "standard torch_a2a All-to-All AlltoAll", "moe_dispatcher", "alltoall"),
        ("moe_dispatcher", "DeepEP deep_ep", "moe_dispatcher", "deepep"),
        ("attention_generation", "fa2 FA2 flash-attn-2 flash_attention_2", "attention_generation", "flash2"),
        ("moe_capacity_factor", "-1 none off", "moe_capacity", False),  # -1: MaxText, base.yml
        ("primary_weights", "float8 FP8", "quantised_weights", True),
    ],
)
def test_words_of_frameworks_for_software(tmp_path: Path, key: str, words: str, field: str, value: object) -> None:
    for word in words.split():
        one = asked(tmp_path, options=f"{key}={word}", framework="nobody")
        assert getattr(one.question.job.software, field) == value, word
        assert one.unknown == ()


@pytest.mark.parametrize("word", ["1", "on", "true", "inductor", "model", "max-autotune"])
def test_what_a_compiler_is_called(tmp_path: Path, word: str) -> None:
    one = asked(tmp_path, options=f"torch_compile={word}", framework="deepspeed")  # eager by itself
    assert one.question.job.software.kernels == "fused"


@pytest.mark.parametrize("word", ["fa3", "flash3", "flash-attn-3", "cuDNN"])
def test_generations_of_attention(tmp_path: Path, word: str) -> None:
    """The best for the part, as is what torchtitan asks PyTorch for."""
    stated = asked(tmp_path, options=f"attention_generation={word}", framework="torchtitan")
    assert stated.question.job.software.attention_generation == "current"
    in_column = asked(tmp_path, attention=word, framework="torchtitan")
    assert in_column.question == stated.question
    assert f"attention {word} is taken as flash (attention_generation current)" in in_column.taken
    sdpa = asked(tmp_path, attention="sdpa", framework="torchtitan").question.job
    assert (sdpa.attention, sdpa.software.attention_generation) == ("flash", "current")


@pytest.mark.parametrize(
    ("key", "words", "field", "value"),
    [
        ("cp_comm_type", "ring P2P", "cp_comm", "p2p"),
        ("cp_comm_type", "alltoall all-to-all ulysses", "cp_comm", "a2a"),
        ("cp_comm_type", "all-gather all_gather AllGather", "cp_comm", "allgather"),
        ("placement", "TP-CP-EP-PP-DP", "placement", "tp-cp-ep-pp-dp"),
    ],
)
def test_words_of_frameworks_for_the_plan(tmp_path: Path, key: str, words: str, field: str, value: object) -> None:
    for word in words.split():
        one = asked(tmp_path, options=f"{key}={word}")
        assert getattr(one.plan, field) == value, word
        assert one.unknown == ()


def test_words_of_frameworks_for_the_job(tmp_path: Path) -> None:
    for word, dropout in (("0", False), ("0.0", False), ("0.1", True), ("on", True)):
        assert asked(tmp_path, options=f"dropout={word}").question.job.dropout == dropout
    for word in ("fused_adamw", "distributed", "AdamW", "adamw_torch_fused"):
        assert asked(tmp_path, options=f"optimizer={word}").question.job.optimizer == "adam"
    for word, dtype in (("float32", "fp32"), ("bfloat16", "bf16"), ("BF16", "bf16")):
        assert asked(tmp_path, options=f"optimizer_moments={word}").question.job.moment_dtype == dtype


@pytest.mark.parametrize(
    ("words", "schedule"),
    [
        ("1F1B 1f1b Schedule1F1B", "1f1b"),
        ("GPipe ScheduleGPipe", "gpipe"),
        ("Interleaved1F1B interleaved_1f1b interleaved-1f1b ScheduleInterleaved1F1B vpp", "interleaved"),
        ("ScheduleLoopedBFS LoopedBFS breadth-first", "breadth-first"),
        ("zb-h1 ZB-1p", "zb-h1"),
        ("zb-h2 zb_2p", "zb-h2"),
        ("ScheduleZBVZeroBubble ZBVZeroBubble zb-v zbv", "zb-v"),
        ("ScheduleDualPipeV DualPipeV", "dualpipe-v"),
        ("DualPipe", "dualpipe"),
    ],
)
def test_schedules_by_the_names_of_frameworks(tmp_path: Path, words: str, schedule: str) -> None:
    for word in words.split():
        one = asked(tmp_path, pp="2", framework="deepspeed", global_batch_size="64", options=f"schedule={word}")
        assert one.plan.effective_schedule == schedule, word
        assert (one.unknown, one.taken) == ((), ())


TORCH_SCHEDULES = {
    "ScheduleInterleavedZeroBubble": "interleaved",
    "v-half": "zb-v",
    "zero-bubble": "zb-h1",
}
"""Of torch.distributed.pipelining 2.9, those that are not modelled."""


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
@pytest.mark.parametrize("prefix", ["", "Schedule"])
def test_schedules_that_are_not_modelled_say_what_they_are_priced_as(tmp_path: Path, name: str, prefix: str) -> None:
    word, nearest = prefix + name.removeprefix("Schedule"), TORCH_SCHEDULES[name]
    one = asked(tmp_path, pp="2", framework="torchtitan", options=f"schedule={word}")
    assert one.plan.effective_schedule == nearest
    assert one.taken == (f"schedule {word} is taken as {nearest}",)


def test_a_schedule_that_is_not_known_says_what_it_is_priced_as(tmp_path: Path) -> None:
    one = asked(tmp_path, pp="2", vp="2", options="schedule=hanayo")
    assert one.plan.effective_schedule == "interleaved"
    assert "schedule hanayo is priced as interleaved where vp is above 1, else as 1f1b" in one.assumed
    assert one.unknown[0].startswith("option schedule=hanayo is not one of 1f1b, interleaved, gpipe")


@pytest.mark.parametrize(
    ("word", "sharding"),
    [("default", "zero3"), ("always", "zero3"), ("Never", "zero2"), ("0", "zero2"), ("4", "zero3"), ("yes", "zero3")],
)
def test_when_weights_are_resharded(tmp_path: Path, word: str, sharding: str) -> None:
    """torchtitan's fsdp_reshard_after_forward, and fully_shard's number of ranks."""
    one = asked(tmp_path, framework="torchtitan", sharding="zero3", options=f"reshard_after_forward={word}")
    assert (one.plan.sharding, one.unknown) == (sharding, ())
    is_said = "weights are resharded over 4 ranks after the forward pass: taken as zero3" in one.assumed
    assert is_said == (word == "4")


def test_recipes_of_8_bits_say_what_is_gathered(tmp_path: Path) -> None:
    for words, scaling, gathers in (("tensorwise+fp8-allgather", "tensor", True), ("rowwise", "row", False)):
        options = f"fp8_recipe={words}"
        software = asked(tmp_path, framework="torchtitan", precision="fp8", options=options).question.job.software
        assert (software.fp8_scaling, software.quantised_gathers) == (scaling, gathers)


@pytest.mark.parametrize("words", ["transformer_engine:attn+tail", "somebody:attn", "te:tail"])
def test_unknown_parts_of_graphs_are_said_to_be_taken_as_parts(tmp_path: Path, words: str) -> None:
    one = asked(tmp_path, options=f"cuda_graph={words}")
    assert one.question.job.software.cuda_graphs == "partial"
    assert f"cuda_graph {words} is taken as graphs of parts of a layer" in one.assumed


def test_formats_of_weights_may_say_more(tmp_path: Path) -> None:
    for words, quantised in (("fp8_e4m3", True), ("mxfp8", True), ("bf16", False)):
        software = asked(tmp_path, options=f"primary_weights={words}").question.job.software
        assert software.quantised_weights == quantised


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ("compile=no", "torch_compile=yes", "kernels"),
        ("compile=yes", "kernels=eager", "kernels"),
        ("cuda_graph=none", "cuda_graphs=full", "cuda_graphs"),
        ("overlap=moe_a2a_1f1b", "moe_a2a_1f1b=no", "overlap_ep"),
        ("overlap=p2p_scatter_gather", "split_transfers=no", "split_transfers"),
        ("moe_capacity_factor=1", "moe_capacity=no", "moe_capacity"),
        ("num_vocab_tiling=4", "fused_loss=no", "fused_loss"),
        ("primary_weights=fp8", "quantised_weights=no", "quantised_weights"),
        ("cuda_launch_blocking=yes", "blocking_launches=no", "blocking_launches"),
        ("recompute_layers=3", "recompute_num_layers=4", "recompute_num_layers"),
        ("cpu_activation_offload_layers=3", "offload_num_layers=4", "offload_num_layers"),
        ("remat_policy=minimal", "remat_tensors=context:device", "recompute"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path: Path, one: str, other: str, field: str) -> None:
    with pytest.raises(InputError) as refused:
        asked(tmp_path, options=f"{other};{one}")
    assert f"{one} and {other} both set {field}" in refused.value.message
    assert refused.value.rule == "options do not contradict each other"


def test_options_that_agree_are_taken(tmp_path: Path) -> None:
    """One field may be stated twice with one value, and a switch may be off that is named nowhere else."""
    one = asked(tmp_path, options="compile=no;kernels=eager;cuda_graph=none(unsupported);cuda_graphs=none")
    assert (one.question.job.software.kernels, one.question.job.software.cuda_graphs) == ("eager", "none")
    assert not asked(tmp_path, options="overlap=none,no_tp").plan.overlap_tp
    assert asked(tmp_path, options="overlap=none,p2p_scatter_gather").question.job.software.split_transfers


def test_exchanges_beside_backward_products_are_a_word_of_overlap(tmp_path: Path) -> None:
    """Megatron-LM of 2022 overlaps them, the stack of 2019 to 2022 does not say so."""
    old = {"framework": "megatron-lm", "attention": "unfused", "precision": "fp16"}
    assert not asked(tmp_path, **old).question.job.software.async_tp_backward
    assert asked(tmp_path, options="overlap=tp_backward", **old).question.job.software.async_tp_backward


def test_unknown_options_and_those_without_effect_are_reported(tmp_path: Path) -> None:
    one = asked(tmp_path, options="colour=blue;limit_all_gathers=true;overlap=tp,tides", weather="rain")
    assert "option colour=blue" in one.ignored
    assert "column weather" in one.ignored
    assert {text.partition(",")[0] for text in one.unknown} == {
        "option colour=blue", "option overlap=tides is not one of dp_grad", "column weather",
    }  # fmt: skip
    assert any(line.startswith("option limit_all_gathers=true: ") for line in one.ignored)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_stated_schedule_wins_over_the_usual_chunks(tmp_path: Path, schedule: str) -> None:
    """NeMo's stack interleaves where nothing else is said; vp that is stated interleaves whatever the schedule."""
    cells = {"framework": "nemo", "model": "llama-3.1-70b", "num_accelerators": "64", "tp": "4", "pp": "4"}
    assert asked(tmp_path, **cells).plan.vp > 1
    plain = asked(tmp_path, **cells, options=f"schedule={schedule}").plan
    assert (plain.vp, plain.effective_schedule) == (1, schedule)
    stated = asked(tmp_path, **cells, vp="5", options=f"schedule={schedule}")
    assert stated.plan.vp == 5
    assert any(text.startswith(f"schedule {schedule}: vp 5") for text in stated.ignored)
    cut = asked(tmp_path, **cells, vp="5", options="schedule=zb-v")
    assert (cut.plan.vp, cut.plan.schedule) == (2, "zb-v")
    assert "vp 5: schedule zb-v has 2 model chunks on each rank" in cut.ignored


@pytest.mark.parametrize(("sequences", "schedule"), [("48", "zb-h1"), ("56", "zb-h2")])
def test_zb_2p_of_few_micro_batches_is_zb_1p(tmp_path: Path, sequences: str, schedule: str) -> None:
    """ZB-H2 starts with 2 p - 1 = 7 forward passes on the first rank; with 6 micro-batches all are in flight anyway."""
    one = asked(tmp_path, tp="1", pp="4", num_accelerators="32", global_batch_size=sequences, options="schedule=zb-2p")
    assert one.plan.schedule == schedule
    assert bool(one.taken) == (schedule == "zb-h1")


def test_zero_bubble_schedules_wait_less_than_1f1b(tmp_path: Path) -> None:
    times = [
        predict([asked(tmp_path, tp="1", pp="8", options=f"schedule={word}")])[0].step_time
        for word in ("1f1b", "zb-1p", "zb-2p")
    ]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3


def test_a_schedule_says_nothing_without_a_pipeline(tmp_path: Path) -> None:
    assert asked(tmp_path, options="schedule=zb-v").plan == asked(tmp_path).plan


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("train=lora;lora_rank=8;lora_targets=q,v", ("lora", 8, "q,v")),
        ("train=QLoRA;lora_targets=linear_qkv,linear_proj;lora_alpha=32", ("lora", 16, "qkv,o")),
        ("train=peft;lora_targets=q_proj,k_proj,v_proj,o_proj", ("lora", 16, "q,k,v,o")),
        ("train=lora;lora_targets=all-linear", ("lora", 16, "all")),
        ("train=QLoRA;base_weights=nf4-dq", ("lora", 16, "q,v")),
        ("train=full", ("full", 16, "q,v")),
    ],
)
def test_adapters_in_the_words_of_frameworks(tmp_path: Path, options: str, expected: tuple[str, int, str]) -> None:
    one = asked(tmp_path, options=options)
    job = one.question.job
    assert (job.train, job.lora_rank, job.lora_targets) == expected
    assert job.base_weights == ("same" if "QLoRA" not in options else "nf4-dq" if "dq" in options else "nf4")
    assert one.unknown == ()


@pytest.mark.parametrize("options", ["train=some", "train=lora;lora_rank=0", "train=lora;lora_targets=banana"])
def test_adapters_that_are_not_understood_are_said(tmp_path: Path, options: str) -> None:
    assert asked(tmp_path, options=options).unknown


def test_kernels_of_norms_and_of_the_softmax(tmp_path: Path) -> None:
    plain = asked(tmp_path, options="norm_kernel=plain;softmax_kernel=eager;train=full;post_validation=no")
    assert plain.question.job.software.norm_kernel == "eager"
    assert plain.question.job.software.softmax_kernel == "eager"
    assert plain.unknown == ()
    fused = asked(tmp_path, options="norm_kernel=fused").question.job.software
    assert (fused.norm_kernel, fused.softmax_kernel) == ("fused", "fused")


def test_a_layout_says_how_many_chunks_there_are(tmp_path: Path) -> None:
    cells = {"framework": "nemo", "model": "llama-3.1-70b", "num_accelerators": "64", "tp": "4", "pp": "4"}
    layout = "|".join(["E" + "t" * 4, *["t" * 4] * 18, "t" * 4 + "L"])
    plan = asked(tmp_path, **cells, options=f"pp_layout={layout}").plan
    assert (plan.vp, plan.stage_layers) == (5, (4,) * 20)


def test_every_option_and_word_of_overlap_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "inputs" / "measured-runs.md").read_text(encoding="utf-8")
    own = {field.name for field in fields(Software)}  # "any field of software"
    missing = [name for name in (*OPTIONS, *OVERLAPS, *WITHOUT_EFFECT) if name not in own and f"`{name}`" not in page]
    assert missing == []


def test_no_option_is_both_known_and_without_effect() -> None:
    assert not set(OPTIONS) & set(WITHOUT_EFFECT)
