"""Values that files drawn at random showed to be read wrong: each in a file of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError

pytest.importorskip("tree_sitter_bash")

LINE = """
torchrun --nproc_per_node 8 {program} --tensor-model-parallel-size 2 --num-layers 8 --hidden-size 512 \\
    --num-attention-heads 8 --seq-length 256 --max-position-embeddings 4096 --micro-batch-size 1 \\
    --global-batch-size 8 --vocab-size 1000 --bf16 {more}
"""


def line(more: str, program: str = "pretrain_gpt.py") -> str:
    return LINE.format(program=program, more=more)


EXPERTS = "--num-experts 8 --expert-model-parallel-size 4 --moe-grouped-gemm "


@pytest.mark.parametrize(
    ("options", "dispatcher", "severity"),
    [
        ("--moe-flex-dispatcher-backend hybridep", "alltoall", "notice"),
        ("--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep", "alltoall", "notice"),
        ("--moe-token-dispatcher-type allgather --moe-enable-deepep", "alltoall", "stops"),
        ("--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend ncclep", "alltoall", "stops"),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "hybridep", None),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", "deepep", None),
        ("--moe-token-dispatcher-type flex", "deepep", None),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep", None, None),
    ],
)
def test_the_type_of_a_dispatcher_decides_and_its_backend_needs_flex(
    tmp_path: Path, options: str, dispatcher: str | None, severity: str | None
) -> None:
    found = read(tmp_path, "run.sh", line(EXPERTS + options))
    assert found.value("software.moe_dispatcher") == dispatcher
    assert [each.severity for each in found.breaks] == ([] if severity is None else [severity])
    assert dispatcher is not None or "software.moe_dispatcher" in found.missing


def test_a_line_over_a_recipe_may_name_the_backend_alone(tmp_path: Path) -> None:
    text = "python run_recipe.py --recipe mine model.num_moe_experts=8 model.moe_flex_dispatcher_backend=hybridep"
    assert read(tmp_path, "run.sh", text).value("software.moe_dispatcher") == "hybridep"


def test_the_sequence_of_a_language_model_behind_a_vision_encoder(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", line("--img-h 336 --decoder-seq-length 2048 --freeze-ViT", "train.py"))
    assert found.value("sequence_length") == 2048
    assert "model" in found.missing
    assert read(tmp_path, "t5.sh", line("--decoder-seq-length 128")).value("sequence_length") == 256


def test_a_model_that_code_builds_is_asked_for(tmp_path: Path) -> None:
    assert "model" in read(tmp_path, "run.sh", line("--model-provider mine", "train.py")).missing


BY_DEEPSPEED = """
name="ds.$SLURM_JOB_ID.json"
cat <<EOF > ./$name
{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 3, "overlap_comm": {overlap},
  "offload_optimizer": {{"device": "cpu"}}}}, "fp16": {{"enabled": true}}}}
EOF
""" + LINE.replace("{more}", "--deepspeed --deepspeed_config ./$name")


@pytest.mark.parametrize("overlap", ["true", "false"])
def test_what_deepspeed_decides_is_not_at_megatrons_default(tmp_path: Path, overlap: str) -> None:
    """The name of the file is open, and the same where it is written and where it is read."""
    found = read(tmp_path, "run.sh", BY_DEEPSPEED.format(overlap=overlap, program="pretrain_gpt.py"))
    assert values(found, "overlap_dp", "offload", "sharding") == (overlap == "true", "optimizer", "zero3")


def test_what_an_unread_file_of_deepspeed_decides_is_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", line("--checkpoint-activations --deepspeed --deepspeed_config far.json"))
    assert {"overlap_dp", "offload", "sharding"} <= found.missing.keys()
    assert found.breaks == ()  # the fork knows --checkpoint-activations


TEMPLATE = """{
  "train_batch_size": GBS,
  "train_micro_batch_size_per_gpu": MBS,
  "zero_optimization": {"stage": STAGE, "overlap_comm": true},
  "fp16": {"enabled": FP, "loss_scale_window": STAGE},
  "steps_per_print": STEPS
}"""
FILLED = """
stage=2
sed "s/GBS/8/" template.json | sed 's/MBS/1/' | sed -e "s/STAGE/$stage/" -e "s/FP/true/;s/STEPS/$UNKNOWN/" > ds.json
""" + line("--deepspeed --deepspeed_config ds.json")


def test_templates_that_sed_fills_are_read(tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text(TEMPLATE)
    found = read(tmp_path, "run.sh", FILLED)
    assert values(found, "sharding", "overlap_dp", "gradient_accumulation") == ("zero2", True, 2)


@pytest.mark.parametrize("edit", ["s/ST.*E/2/", "s/STAGE/&2/", "s/STAGE/2/p", "/STAGE/d", "s/STAGE"])
def test_other_edits_of_templates_are_asked_for(tmp_path: Path, edit: str) -> None:
    (tmp_path / "template.json").write_text(TEMPLATE)
    found = read(tmp_path, "run.sh", FILLED.replace("s/STAGE/$stage/", edit))
    assert "sharding" in found.missing


@pytest.mark.parametrize(
    "program",
    [
        "python -m maxtext.inference.decode base.yml model_name=llama3.1-8b per_device_batch_size=1",
        "python3 tools/convert_weights.py --model_name_or_path x --per_device_train_batch_size 1",
        "python3 -m maxtext.trainers.post_train.rl.train_rl rl.yml model_name=llama3.1-8b",
    ],
)
def test_programs_that_train_nothing_or_by_reinforcement_are_refused(tmp_path: Path, program: str) -> None:
    with pytest.raises(InputError, match=r"trains nothing|recognised but not read"):
        read(tmp_path, "run.sh", program)


def test_a_script_that_ends_before_its_launch_says_so(tmp_path: Path) -> None:
    text = "IMAGE=''\nif [ -z \"$IMAGE\" ]; then\n  echo 'set IMAGE'\n  exit 1\nfi\n" + line("")
    with pytest.raises(InputError, match="line 4: the script ends here with status 1"):
        read(tmp_path, "run.sh", text)


def test_a_script_that_srun_starts_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(line(""))
    assert read(tmp_path, "outer.sh", "#SBATCH --nodes=2\nsrun ./scripts/inner.sh").value("tp") == 2


MAMBA = """
parallelism: {dp: 2, tp: 1, pp: 1, tp_mode: ALL_REDUCE}
tokens: {micro_batch_size: 1, sequence_length: 128, batch_accumulation_per_replica: 1}
model: {dtype: bfloat16, model_config: {is_mamba_config: true, num_hidden_layers: 4, hidden_size: 64, vocab_size: 100,
  intermediate_size: 256, num_attention_heads: 4}}
"""


def test_layers_of_another_kind_are_asked_for(tmp_path: Path) -> None:
    assert "model" in read(tmp_path, "mamba.yaml", MAMBA).missing
    llama = read(tmp_path, "llama.yaml", MAMBA.replace("is_mamba_config", "is_llama_config"))
    assert "model" not in llama.missing
    lingua = """
    model: {dim: 64, n_layers: 2, n_heads: 4, conv_size: 4}
    distributed: {fsdp_type: full_shard, model_dtype: bf16}
    data: {seq_len: 128, batch_size: 2}
    """
    assert "model" in read(tmp_path, "other.yaml", lingua).missing
    assert "model" not in read(tmp_path, "main.yaml", lingua.replace(", conv_size: 4", "")).missing


PART_OF_NEOX = """
{"train_iters": 100, "lr_decay_iters": 100, "lr_decay_style": "cosine", "checkpoint_activations": true,
 "checkpoint_num_layers": 1, "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4,
 "fp16": {"enabled": true, "type": "bfloat16"}}
"""


def test_a_part_of_a_configuration_of_neox(tmp_path: Path) -> None:
    found = read(tmp_path, "train.yml", PART_OF_NEOX)
    assert found.framework == "gpt-neox"
    assert values(found, "recompute", "sharding", "micro_batch_size", "precision") == ("full", "zero1", 4, "fp16")
    assert {"tp", "pp", "sequence_length"} <= found.missing.keys()
    assert any("fp16.type" in note for note in found.notes)


SWIFT = "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B --max_length 4096 "
AXOLOTL = "base_model: x/y\nsequence_len: 64\nmicro_batch_size: 1\ndatasets: []\nadapter: lora\nlora_r: 4\nbf16: true\n"
FACTORY = "model_name_or_path: x/y\nstage: sft\nfinetuning_type: lora\ncutoff_len: 64\nbf16: true\n"
TUNE = """
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 4, lora_attn_modules: [q_proj, output_proj],
  apply_lora_to_mlp: true}
tokenizer: {_component_: x}
checkpointer: {_component_: x}
dtype: bf16
"""


OWN = "torchrun --nproc_per_node 2 mine.py --model_name_or_path x --bf16 true"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("run.sh", SWIFT, (8, "all")),
        ("run.sh", SWIFT + "--lora_rank 4 --target_modules q_proj k_proj", (4, "q,k")),
        ("a.yaml", AXOLOTL + "lora_target_linear: true\n", (4, "all")),
        ("a.yaml", AXOLOTL + "lora_target_modules: [q_proj, v_proj, o_proj]\n", (4, "q,v,o")),
        ("a.yaml", AXOLOTL + "lora_target_modules: [mystery]\n", (4, None)),
        ("f.yaml", FACTORY, (8, "all")),
        ("f.yaml", FACTORY + "lora_target: q_proj,v_proj\nlora_rank: 2\n", (2, "q,v")),
        ("t.yaml", TUNE, (4, "q,o,gate,up,down")),
        ("run.sh", f"{OWN} --use_lora true", (None, None)),
    ],
)
def test_matrices_of_adapters_are_read_or_asked_for(
    tmp_path: Path, name: str, text: str, expected: tuple[int | None, str | None]
) -> None:
    found = read(tmp_path, name, text)
    assert values(found, "train", "lora_rank", "lora_targets") == ("lora", *expected)
    for key, value in zip(("lora_rank", "lora_targets"), expected, strict=True):
        assert (key in found.missing) == (value is None)


@pytest.mark.parametrize(
    "text",
    [
        "NPROC_PER_NODE=2 megatron sft --model a/b --freeze_vit true --freeze_llm false",
        f"{OWN} --freeze_backbone",
    ],
)
def test_frozen_parts_are_listed(tmp_path: Path, text: str) -> None:
    listed = [each for each in read(tmp_path, "run.sh", text).not_understood if "frozen" in each]
    assert len(listed) == 1


def test_adapters_in_a_part_of_a_model_are_asked_for(tmp_path: Path) -> None:
    assert "train" in read(tmp_path, "run.sh", f"{OWN} --use_llm_lora 16").missing


def test_torchtune_has_no_copy_of_the_weights(tmp_path: Path) -> None:
    found = read(tmp_path, "t.yaml", TUNE + "optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit}\n")
    assert values(found, "grad_dtype", "moment_dtype", "optimizer") == ("bf16", "bf16", "adam")
    assert any("fp32 copy" in each for each in found.not_understood)
    assert any("few bits" in each for each in found.not_understood)


def test_compression_while_training_is_listed(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"stage": 0}, "compression_training": {"weight_quantization": {"enabled": true}}}'
    assert any("compression" in each for each in read(tmp_path, "ds.json", text).not_understood)


@pytest.mark.parametrize(("file", "size"), [("/data/gpt2-vocab.json", 50257), ("/data/own-vocab.json", None)])
def test_a_vocabulary_s_file_needs_no_kind_of_tokenizer(tmp_path: Path, file: str, size: int | None) -> None:
    text = line(f"--vocab-file {file}").replace("--vocab-size 1000", "")
    assert values(read(tmp_path, "run.sh", text), "vocab_size") == (size,)


TRAINER = """
deepspeed --num_gpus 8 sft.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --bf16 True \\
    --gradient_accumulation_steps 4 --deepspeed {file}
"""


@pytest.mark.parametrize(
    ("file", "sharding", "opens"),
    [
        ("configs/ds_zero2_no_offload.json", "zero2", set()),
        ("configs/zero3.json", "zero3", {"offload"}),
        ("configs/own.json", None, {"offload"}),
    ],
)
def test_a_file_that_is_not_at_hand_has_the_stage_of_its_name(
    tmp_path: Path, file: str, sharding: str | None, opens: set[str]
) -> None:
    """Whether it offloads is asked for: files of ZeRO 3 often do, whatever their name."""
    found = read(tmp_path, "run.sh", TRAINER.format(file=file))
    assert values(found, "sharding") == (sharding,)
    assert {"offload"} & {*found.missing} == opens
    assert any("by its name" in note for note in found.notes) is (sharding is not None)


def test_arguments_of_argparse_in_a_folder_above_are_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("")
    (tmp_path / "app" / "scripts").mkdir(parents=True)
    (tmp_path / "app" / "sft.py").write_text(
        "import argparse\nfrom transformers import Trainer\np = argparse.ArgumentParser()\n"
        "p.add_argument('--max_length', type=int, default=4096)\n"
        "p.add_argument('--gradient_checkpointing', action='store_true')\n"
    )
    found = read(tmp_path / "app" / "scripts", "run.sh", TRAINER.format(file="zero2_no_offload.json"))
    assert values(found, "sequence_length", "recompute") == (4096, "none")
    (tmp_path / "app" / "sft.py").unlink()
    assert "sequence_length" in read(tmp_path / "app" / "scripts", "run.sh", TRAINER.format(file="z.json")).missing


def test_a_trainer_that_turns_deepspeed_on_is_priced_by_its_record(tmp_path: Path) -> None:
    (tmp_path / "ds_z3_config.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    text = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ntemplate: qwen3\ncutoff_len: 2048\n"
    with_file = read(tmp_path, "a.yaml", f"{text}deepspeed: ds_z3_config.json\n")
    assert (with_file.framework, with_file.priced_by) == ("llama-factory", "deepspeed")
    assert read(tmp_path, "b.yaml", text).priced_by is None
