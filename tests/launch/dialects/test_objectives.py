"""What trains and for what: objectives, weights without a copy, launchers and calls of other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.dialects.test_fresh_samples import AXOLOTL, SWIFT, line
from tests.launch.dialects.test_unread_names import TRAINER, said
from tests.launch.scripts import read, values

from shardplan.base.errors import InputError
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

pytest.importorskip("tree_sitter_bash")

LLAMA_FACTORY = """
model_name_or_path: Qwen/Qwen3-8B
stage: {stage}
do_train: true
finetuning_type: full
template: qwen3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
bf16: true
"""


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("a.yaml", LLAMA_FACTORY.format(stage="dpo"), "pairs of answers"),
        ("a.yaml", LLAMA_FACTORY.format(stage="ppo"), "are generated"),
        ("a.yml", AXOLOTL + "rl: kto\n", "pairs of answers"),
        ("a.sh", SWIFT.replace("sft", "rlhf") + "--rlhf_type grpo", "are generated"),
        ("a.sh", SWIFT + "--task_type embedding", "a head of its own"),
        ("a.sh", TRAINER.replace("train.py", "scripts/dpo.py"), "pairs of answers"),
        ("a.sh", TRAINER + " loss=simpo", "pairs of answers"),
        ("a.sh", TRAINER.replace("train.py", "run_rlhf.py"), "are generated"),
    ],
)
def test_objectives_besides_the_next_token_are_said(tmp_path: Path, name: str, text: str, part: str) -> None:
    assert said(tmp_path, name, text, part)


@pytest.mark.parametrize("stage", ["sft", "pt"])
def test_the_next_token_needs_no_word(tmp_path: Path, stage: str) -> None:
    assert not said(tmp_path, "a.yaml", LLAMA_FACTORY.format(stage=stage), "priced as")


@pytest.mark.parametrize(
    ("more", "is_said"),
    [("", True), ("--fsdp full_shard", False), ("--deepspeed ds.json", False), ("--use_peft True", False)],
)
def test_weights_that_nothing_copies_are_said(tmp_path: Path, more: str, *, is_said: bool) -> None:
    text = f"{TRAINER} --torch_dtype bfloat16 {more}"
    assert said(tmp_path, "run.sh", text, "an fp32 copy of the weights is priced") is is_said


def test_msrun_states_every_worker(tmp_path: Path) -> None:
    text = line("").replace("torchrun --nproc_per_node 8", "msrun --worker_num 32 --local_worker_num 8")
    assert values(read(tmp_path, "run.sh", text), "num_accelerators", "nodes", "per_node") == (32, 4, 8)


def recipe(folder: Path, text: str) -> Reading:
    """The reading of the function ``run`` of a file with that text."""
    (folder / "config.py").write_text(text)
    return read_launch(Ask(path=folder / "config.py", entry="run"))


TITAN = """
python -m torchtitan.train --job.config_file=run.toml --parallelism.pipeline_parallel_degree=1 \\
    --activation_checkpoint.mode=$MODE --parallelism.expert_parallel_comm_backend={backend} --training.seq_len=2048
"""
TOML = """
[model]
name = "deepseek_v3"
flavor = "16B"
[training]
local_batch_size = 4
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "full"
"""


def test_what_an_unset_variable_decides_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    text = "MODE=${MODE:?}\n" + TITAN.format(backend="deepep")
    found = read(tmp_path, "run.sh", text)
    assert found.missing["recompute"] == ("env:MODE",)
    assert found.value("software.moe_dispatcher") == "deepep"
    assert read(tmp_path, "run.sh", text, env={"MODE": "none"}).value("recompute") == "none"


CONFIG = """
def run() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        optimizer=OptimizersContainer.Config({groups}),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4096, max_context_length=4096),
        parallelism=ParallelismConfig(),
        activation_checkpoint=FullAC.Config(),
    )
"""
GROUP = 'ParamGroupConfig(pattern=".*", optimizer_name="{}")'


@pytest.mark.parametrize(
    ("names", "kind"),
    [((), "adam"), (("DistMuon", "AdamW"), "muon"), (("AdamW",), "adam"), (("Muon", "Own"), None)],
)
def test_groups_of_torchtitan_name_the_optimizer(tmp_path: Path, names: tuple[str, ...], kind: str | None) -> None:
    groups = f"param_groups=[{', '.join(GROUP.format(name) for name in names)}]" if names else "lr=1e-4"
    found = recipe(tmp_path, CONFIG.format(groups=groups))
    assert found.value("optimizer") == kind
    assert ("optimizer" in found.missing) is (kind is None)


RECIPE = """
def run():
    cfg = _common()
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.expert_model_parallel_size = 8
    cfg.model.moe_token_dispatcher_type = "alltoall"
    cfg.model.moe_flex_dispatcher_backend = "hybridep"
    {call}
    return cfg
"""


@pytest.mark.parametrize(
    ("call", "dispatcher"),
    [
        ("pass", "alltoall"),
        ("apply_flex_dispatcher_backend(cfg.model, cfg.model.moe_flex_dispatcher_backend)", "hybridep"),
    ],
)
def test_functions_of_other_files_may_set_more(tmp_path: Path, call: str, dispatcher: str) -> None:
    found = recipe(tmp_path, RECIPE.format(call=call))
    assert found.value("software.moe_dispatcher") == dispatcher
    assert any("of another file may set more in cfg.model" in note for note in found.notes) is ("(" in call)


def test_a_layout_that_a_function_sets_is_asked_for(tmp_path: Path) -> None:
    text = RECIPE.format(call="set_own_pipeline_model_parallel_layout(cfg.model)")
    assert "stage_layers" in recipe(tmp_path, text).missing


def test_a_script_that_generates_is_refused(tmp_path: Path) -> None:
    text = "accelerate launch --num_processes 1 app.py --model_name_or_path gpt2 --max_new_tokens 200"
    with pytest.raises(InputError, match="generates text, and trains nothing"):
        read(tmp_path, "run.sh", text)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("a.sh", TRAINER + "--num_samples_per_prompt_rollout 16", "are generated"),
        ("a.sh", line("--task QQP", "tasks/main.py"), "a head of its own"),
    ],
)
def test_other_marks_of_objectives_are_said(tmp_path: Path, name: str, text: str, part: str) -> None:
    assert said(tmp_path, name, text, part)


@pytest.mark.parametrize(("more", "kind"), [("--checkpoint-activations", "full"), ("", "none")])
def test_deepspeed_recomputes_with_the_option_of_megatron_alone(tmp_path: Path, more: str, kind: str) -> None:
    text = line(f"--deepspeed --zero-stage 1 --no-pipeline-parallel --deepspeed-activation-checkpointing {more}")
    assert read(tmp_path, "run.sh", text).value("recompute") == kind
    assert said(tmp_path, "run.sh", text, "nothing is recomputed") is (kind == "none")


@pytest.mark.parametrize("degree", [True, False])
def test_degrees_of_a_file_of_options_are_asked_for_unless_it_has_some(tmp_path: Path, *, degree: bool) -> None:
    options = line("").split("pretrain_gpt.py")[1].replace("\\\n", " ").strip()
    if not degree:
        options = options.replace("--tensor-model-parallel-size 2", "--sequence-parallel")
    found = read(tmp_path, "part.sh", f'OPTIONS="{options}"\n')
    assert {"pp", "sharding"} <= (found.facts if degree else found.missing).keys()
    assert not found.breaks


TUNE = """
model:
  _component_: torchtune.models.gemma.{builder}
  lora_attn_modules: [q_proj, v_proj]
  apply_lora_to_mlp: true
  lora_rank: 64
tokenizer: {{_component_: torchtune.models.gemma.gemma_tokenizer}}
checkpointer: {{_component_: torchtune.training.FullModelHFCheckpointer}}
optimizer: {{_component_: torch.optim.AdamW}}
loss: {{_component_: torchtune.modules.loss.LinearCrossEntropyLoss}}
batch_size: 4
dtype: bf16
"""


@pytest.mark.parametrize(
    ("builder", "trained"),
    [("lora_gemma_2b", ("lora", 64, "q,v,gate,up,down")), ("gemma_2b", ("full", None, None))],
)
def test_builders_of_any_name_tell_adapters(tmp_path: Path, builder: str, trained: tuple[object, ...]) -> None:
    found = read(tmp_path, "run.yaml", TUNE.format(builder=builder))
    assert found.framework == "torchtune"
    assert values(found, "train", "lora_rank", "lora_targets") == trained


@pytest.mark.parametrize("between", ["    # the batch\n", "\n"])
def test_options_after_the_end_of_the_line_are_a_command_of_their_own(tmp_path: Path, between: str) -> None:
    text = line("").rstrip() + " \\\n" + between + "    --recompute-granularity full\n"
    found = read(tmp_path, "run.sh", text)
    assert found.value("recompute") == "none"
    rules = {each.rule: each.values for each in found.breaks}
    assert "--recompute-granularity begins a command" in rules["options stand on the line of their program"]


def test_options_on_their_line_are_no_command(tmp_path: Path) -> None:
    assert not read(tmp_path, "run.sh", line("\\\n    --recompute-granularity full")).breaks
