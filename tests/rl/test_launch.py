"""Launch files of post-training as RL steps: what is read, asked for and refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.commands import run, unwrapped

import shardplan
from shardplan import RlAuditAnswer
from shardplan.base.errors import InputError
from shardplan.base.fields import replace
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.rl.launches.audit import OpenStepError
from shardplan.rl.launches.reading import read_rl_launch
from shardplan.rl.measured import price, shipped_steps

OWN = "actor_rollout_ref"
VERL = f"""python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False \\
  data.train_batch_size=128 data.max_prompt_length=512 data.max_response_length=1024 \\
  {OWN}.model.path=Qwen/Qwen3-8B {OWN}.model.enable_gradient_checkpointing=True {OWN}.model.use_remove_padding=True \\
  {OWN}.actor.ppo_mini_batch_size=64 {OWN}.actor.use_dynamic_bsz=True {OWN}.actor.ppo_max_token_len_per_gpu=8192 \\
  {OWN}.actor.use_kl_loss=True {OWN}.actor.fsdp_config.param_offload=True \\
  {OWN}.actor.fsdp_config.optimizer_offload=True {OWN}.rollout.n=8 {OWN}.rollout.name=vllm \\
  {OWN}.rollout.tensor_model_parallel_size=2 {OWN}.rollout.gpu_memory_utilization=0.6 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 """
NEMO = """defaults: grpo_math_1B.yaml
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 16}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 512
  train_micro_batch_size: 1
  max_total_sequence_length: 2048
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, sequence_parallel: true}
  generation:
    vllm_cfg: {tensor_parallel_size: 4}
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}
cluster: {gpus_per_node: 8, num_nodes: 3}
"""
SLIME = """python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-num-gpus 8 \\
  --hf-checkpoint qwen3-8b --rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 2048 \\
  --global-batch-size 128 --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 \\
  --use-dynamic-batch-size --max-tokens-per-gpu 4096 --recompute-granularity full --recompute-method uniform \\
  --advantage-estimator grpo --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.8 """
OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 8 \\
  --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models \\
  --vllm_gpu_memory_utilization 0.5 --vllm_enable_sleep \\
  --deepspeed_enable_sleep --pretrain qwen3-8b --micro_train_batch_size 4 --train_batch_size 128 \\
  --rollout_batch_size 64 --n_samples_per_prompt 4 --prompt_max_len 512 --generate_max_len 1024 --zero_stage 3 \\
  --packing_samples --gradient_checkpointing --advantage_estimator gae """
SWIFT = """NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --train_type full --use_vllm true \\
  --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --max_completion_length 1024 --deepspeed zero3 \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --num_generations 8 --beta 0 \\
  --offload_model true --offload_optimizer true """
TRL = """accelerate launch --num_processes 8 --use_fsdp --fsdp_reshard_after_forward FULL_SHARD src/grpo.py \\
  --model_name_or_path qwen3-8b --use_vllm true --vllm_mode server --num_generations 8 --max_completion_length 1024 \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --beta 0.0 --gradient_checkpointing true """
EASYR1 = """data: {rollout_batch_size: 128, max_prompt_length: 512, max_response_length: 1024}
algorithm: {adv_estimator: grpo, disable_kl: true}
worker:
  actor:
    global_batch_size: 64
    micro_batch_size_per_device_for_update: 4
    padding_free: true
    model: {model_path: Qwen/Qwen3-8B, enable_gradient_checkpointing: true}
    fsdp: {enable_full_shard: true}
    offload: {offload_params: true, offload_optimizer: true}
  rollout: {n: 5, tensor_parallel_size: 4, gpu_memory_utilization: 0.6}
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""
SKYRL = """uv run --isolated --extra fsdp --with vllm -m examples.train.algorithms.dapo.main_dapo \\
  trainer.policy.model.path=Qwen/Qwen3-8B trainer.strategy=fsdp2 trainer.placement.colocate_all=false \\
  trainer.placement.policy_num_nodes=2 trainer.placement.policy_num_gpus_per_node=8 trainer.train_batch_size=128 \\
  trainer.policy_mini_batch_size=32 trainer.micro_train_batch_size_per_gpu=2 trainer.max_prompt_length=512 \\
  generator.sampling_params.max_generate_length=1024 generator.n_samples_per_prompt=8 \\
  generator.inference_engine.num_engines=4 generator.inference_engine.tensor_parallel_size=2 \\
  trainer.algorithm.use_kl_loss=false trainer.policy.sequence_parallel_size=2 """
OAT = """python train_zero_math.py --critic_type drgrpo --gpus 8 --collocate --vllm_sleep --vllm_gpu_ratio 0.35 \\
  --gradient-checkpointing --bf16 --num_ppo_epochs 1 --beta 0 --oracle_type reward --oracle math --pretrain qwen3-8b \\
  --zero-stage 2 --prompt_max_length 1024 --num_samples 8 --generate_max_length 3000 --train_batch_size 256 \\
  --train_batch_size_per_device 1 --rollout_batch_size 128 --rollout_batch_size_per_device 16 --num_prompt_epoch 20 """
FILES = {
    "skyrl": ("run.sh", SKYRL),
    "oat": ("run.sh", OAT),
    "easyr1": ("config.yaml", EASYR1),
    "verl": ("run.sh", VERL),
    "nemo-rl": ("grpo.yaml", NEMO),
    "slime": ("run.sh", SLIME),
    "openrlhf": ("run.sh", OPENRLHF),
    "ms-swift": ("run.sh", SWIFT),
    "trl": ("run.sh", TRL),
}


def read(folder: Path, name: str, text: str, given: Mapping[str, object] | None = None) -> RlAuditAnswer:
    path = folder / name
    path.write_text(text)
    found = shardplan.audit(path, cluster="dgx-h100", given={"response_mean": 400, **(given or {})})
    assert isinstance(found, RlAuditAnswer)
    return found


@pytest.mark.parametrize(
    ("name", "pools", "batch", "degrees"),
    [
        ("verl", ("colocated", 16, 16), (128, 8, 2), (1, 1, 1, "zero3", "full", 2)),
        ("skyrl", ("in-turns", 16, 8), (128, 8, 4), (1, 1, 2, "zero3", "full", 2)),
        ("oat", ("colocated", 8, 8), (128, 8, 4), (1, 1, 1, "zero2", "full", 1)),
        ("easyr1", ("colocated", 8, 8), (128, 5, 2), (1, 1, 1, "zero3", "full", 4)),
        ("nemo-rl", ("in-turns", 16, 8), (64, 16, 2), (2, 1, 1, "zero1", "none", 4)),
        ("slime", ("in-turns", 8, 8), (32, 8, 2), (2, 1, 2, "zero1", "full", 2)),
        ("openrlhf", ("colocated", 8, 8), (64, 4, 2), (1, 1, 1, "zero3", "full", 2)),
        ("ms-swift", ("colocated", 8, 8), (16, 8, 1), (1, 1, 1, "zero3", "full", 1)),
        ("trl", ("in-turns", 8, 8), (16, 8, 1), (1, 1, 1, "zero3", "full", 1)),
    ],
)
def test_a_file_is_two_pools(
    tmp_path: Path, name: str, pools: tuple[str, int, int], batch: tuple[int, int, int], degrees: tuple[object, ...]
) -> None:
    given = {"rollout_accelerators": 8} if name == "trl" else {}
    found = read(tmp_path, *FILES[name], given)
    plan, task = found.plan, found.result.task
    assert found.launch.name == name
    assert (plan.placement, plan.num_train, plan.num_rollout) == pools
    assert (task.answers.prompts, task.answers.samples, task.packing.updates) == batch
    own = plan.trained.priced.plan
    assert (own.tp, own.pp, own.cp, own.sharding, own.recompute, plan.pool.engine.replica.tp) == degrees
    assert plan.step_time > plan.trained.update_time


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("verl", "pack_tokens", 8192),
        ("slime", "pack_tokens", 8192),  # 4,096 tokens on each of two context-parallel ranks
        ("nemo-rl", "pack_tokens", 2048),
        ("openrlhf", "pack_tokens", 4 * (256 + 400)),
    ],
)
def test_tokens_of_a_micro_batch(tmp_path: Path, name: str, key: str, value: int) -> None:
    assert getattr(read(tmp_path, *FILES[name]).result.task.packing, key) == value


def test_a_line_of_easyr1_stands_over_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(EASYR1)
    line = "python3 -m verl.trainer.main config=base.yaml worker.rollout.n=8 algorithm.disable_kl=false {}\n"
    step = read(tmp_path, "run.sh", line.format("")).result.task
    assert (step.answers.samples, step.reference, step.answers.prompts) == (8, True, 128)
    assert read(tmp_path, "config.yaml", EASYR1).result.task.reference is False
    both = EASYR1.replace("adv_estimator: grpo", "adv_estimator: grpo, use_kl_loss: true")
    assert both != EASYR1
    assert read(tmp_path, "both.yaml", both).result.task.reference is False  # disable_kl goes before use_kl_loss
    noted = read(tmp_path, "run.sh", line.format("worker.actor.optim.strategy=adamw_bf16")).launch.facts.not_understood
    assert any("bf16 are priced as fp32" in text for text in noted)


def test_a_mini_batch_of_all_answers_is_one_update(tmp_path: Path) -> None:
    """Verl of 2024 and 2025 counts ``ppo_mini_batch_size`` in answers or in prompts: here both are all of them."""
    name, text = FILES["verl"]
    found = read(tmp_path, name, text.replace("ppo_mini_batch_size=64", "ppo_mini_batch_size=1024"))
    assert found.result.task.packing.updates == 1
    assert any("newer versions refuse" in note for note in found.notes)


def test_a_fork_s_program_has_a_configuration_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own" / "config").mkdir(parents=True)
    program = "@hydra.main(config_path='config', config_name='mine', version_base=None)\ndef main(c): ...\n"
    (tmp_path / "own" / "main_ppo.py").write_text(program)
    (tmp_path / "own" / "config" / "mine.yaml").write_text("actor_rollout_ref: {rollout: {n: 3}}\n")
    (tmp_path / "own" / "config" / "other.yaml").write_text("actor_rollout_ref: {rollout: {n: 5}}\n")
    line = VERL.replace("verl.trainer.main_ppo", "own.main_ppo").replace(f"{OWN}.rollout.n=8 ", "")
    assert read(tmp_path, "run.sh", line).result.task.answers.samples == 3
    assert read(tmp_path, "run.sh", f"{line} --config-name other").result.task.answers.samples == 5
    assert "several turns" in read(tmp_path, "run.sh", f"{line} {OWN}.rollout.max_turns=3").taken["turns_number"][1]


def test_a_configuration_of_trl_is_as_its_repository_starts_it(tmp_path: Path) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in {
        "model_name_or_path": "qwen3-8b", "use_vllm": "true", "vllm_mode": "colocate", "num_generations": 8,
        "max_completion_length": 1024, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "beta": 0.0,
        "gradient_checkpointing": "true", "learning_rate": 1e-6,
    }.items())  # fmt: skip
    (tmp_path / ".git").mkdir()
    (tmp_path / "recipes").mkdir()
    line = TRL.partition(" src/grpo.py")[0]
    (tmp_path / "README.md").write_text(f"Train\n```\n{line} src/grpo.py --config recipes/grpo.yaml\n```\n")
    found = read(tmp_path / "recipes", "grpo.yaml", text)
    assert (found.plan.num_train, found.plan.trained.priced.plan.sharding) == (8, "zero3")
    assert any("README.md:3 starts it" in note for note in found.notes)


def test_memory_algorithm_and_passes(tmp_path: Path) -> None:
    step = read(tmp_path, *FILES["verl"]).result.task
    assert (step.memory_share, step.reference, step.old_pass, step.critic) == (0.6, True, True, None)
    assert read(tmp_path, *FILES["slime"]).result.task.reference is False
    ppo = read(tmp_path, *FILES["openrlhf"]).result.task
    assert (ppo.algorithm, ppo.critic is not None) == ("ppo", True)


def test_micro_batches_of_answers_are_as_many_as_the_file_has(tmp_path: Path) -> None:
    few = read(tmp_path, "a.sh", OPENRLHF.replace("--micro_train_batch_size 4", "--micro_train_batch_size 1"))
    assert few.plan.trained.priced.numbers.num_microbatches == 16  # 128 answers of a batch on 8 replicas
    padded = read(tmp_path, "b.sh", OPENRLHF.replace("--packing_samples", ""))
    usual = read(tmp_path, "c.sh", OPENRLHF)
    assert padded.plan.trained.update_time > usual.plan.trained.update_time
    assert padded.plan.trainer_memory > usual.plan.trainer_memory > few.plan.trainer_memory


def test_states_and_engines_that_stay_need_their_memory(tmp_path: Path) -> None:
    asleep = read(tmp_path, "a.sh", VERL)
    stay = read(tmp_path, "b.sh", VERL.replace("_offload=True", "_offload=False"))
    awake = read(tmp_path, "c.sh", f"{VERL} {OWN}.rollout.free_cache_engine=False")
    assert stay.plan.trainer_memory > asleep.plan.trainer_memory
    assert awake.plan.trainer_memory > stay.plan.trainer_memory
    assert stay.plan.cycle.time_of("sleep", "wake") < asleep.plan.cycle.time_of("sleep", "wake")


def test_the_mean_length_is_taken_and_said_where_no_file_states_it(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(VERL)
    found = shardplan.audit(path, cluster="dgx-h100")
    assert isinstance(found, RlAuditAnswer)
    least, most = found.range or (0, 0)
    assert 0 < least < found.plan.step_time < most
    text = unwrapped(run("audit", str(path), "--cluster", "dgx-h100").stdout)
    assert "Assumed response mean 512: mean tokens of an answer, at most 1,024" in text
    assert "--given response_mean=... says otherwise" in text
    given = shardplan.audit(path, cluster="dgx-h100", given={"response_mean": 512})
    assert isinstance(given, RlAuditAnswer)
    assert (given.plan.step_time, given.taken, given.range) == (found.plan.step_time, {}, None)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("verl", f"{OWN}.model.use_remove_padding=True", "", None),
        ("verl", f"{OWN}.model.enable_gradient_checkpointing=True", "", "recompute=full"),
        ("verl", f"{OWN}.model.path=Qwen/Qwen3-8B", f"{OWN}.model.path=/data/mine", "--model NAME"),
        ("trl", "--vllm_mode server", "", "mode=colocate"),
        ("trl", "--beta 0.0", "", "kl=0"),
    ],
)
def test_defaults_that_differ_by_version_are_asked_for(
    tmp_path: Path, name: str, old: str, new: str, said: str | None
) -> None:
    given = {"rollout_accelerators": 8} if name == "trl" else {}
    file, text = FILES[name]
    assert old in text
    if said is None:  # packs of a number of tokens have no padding
        read(tmp_path, file, text.replace(old, new), given)
        return
    with pytest.raises(InputError) as raised:
        read(tmp_path, file, text.replace(old, new), given)
    assert said in raised.value.hint


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("verl", "ppo_mini_batch_size=64", "ppo_mini_batch_size=48", "divides the answers"),
        ("verl", "rollout.tensor_model_parallel_size=2", "rollout.tensor_model_parallel_size=3", "engines fill"),
        ("verl", "ppo_max_token_len_per_gpu=8192", "ppo_max_token_len_per_gpu=1024", "hold the longest prompt"),
        ("verl", "gpu_memory_utilization=0.6", "gpu_memory_utilization=60", "share of the memory"),
        ("nemo-rl", "num_nodes: 3", "num_nodes: 1", "leaves accelerators"),
        ("nemo-rl", "{enabled: false, resources", "{enabled: true, resources", None),
        ("skyrl", "trainer.strategy=fsdp2", "trainer.strategy=fsdp2 trainer.fully_async.simulate_training=true",
         "the trainer of a step that is priced trains"),
        ("slime", "--global-batch-size 128", "--global-batch-size 128 --num-steps-per-rollout 4", "make the answers"),
        ("slime", "--rollout-num-gpus 8", "--rollout-num-gpus 16 --colocate", "the same number"),
        ("slime", "tensor-model-parallel-size 2", "tensor-model-parallel-size 3", "divides the accelerators"),
        ("slime", "context-parallel-size 2", "context-parallel-size 16", "divides the accelerators"),
        ("openrlhf", "--colocate_all_models", "", "share the accelerators"),
        ("ms-swift", "--num_generations 8", "--num_generations 7", "whole prompts"),
        ("verl", "Qwen/Qwen3-8B", "GSAI-ML/LLaDA-8B-Base", "autoregressive"),
        ("trl", "--num_generations 8", "--num_generations 8 --diffusion_steps 256", "autoregressive"),
        ("slime", "--rollout-num-gpus 8", "--rollout-num-gpus 8 --sglang-speculative-num-steps 3", "the model has"),
    ],
)  # fmt: skip
def test_what_contradicts_or_is_not_priced(tmp_path: Path, name: str, old: str, new: str, rule: str | None) -> None:
    file, text = FILES[name]
    assert old in text
    if rule is None:
        assert read(tmp_path, file, text.replace(old, new)).plan.placement == "colocated"
        return
    with pytest.raises(InputError) as raised:
        read(tmp_path, file, text.replace(old, new))
    assert rule in raised.value.rule
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "old", "new", "given"),
    [
        ("verl", "adv_estimator=grpo", "adv_estimator=mine", {"advantage": "grpo"}),
        ("verl", "rollout.name=vllm", "rollout.name=hf", {"engine": "vllm"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.model.lora_rank=32", {"lora": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.rollout.multi_turn.enable=True reward_model.enable=True",
         {"turns": "no", "reward_model": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.rollout.agent.activate_agent=True", {"agent": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.agent.max_turns=3", {"agent": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.traj_sampler.agent.run.max_steps=8", {"agent": "no"}),
        ("verl", "rollout.n=8", "rollout.n=8 recurrent.enable=memory", {"agent": "no"}),
        ("verl", "rollout.n=8", "rollout.n=8 algorithm.rounds_ctrl.rounds=20", {"agent": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.agent.tool_server_url=http://$HOST:80 {OWN}.agent.max_turns=1",
         {"agent": "no"}),
        ("verl", "rollout.n=8", f"rollout.n=8 {OWN}.rollout.tools.tool_instances.search.class_path=x.Search",
         {"agent": "no"}),
        ("verl", "verl.trainer.main_ppo", "verl.agent_trainer.main_ppo", {"agent": "no"}),
        ("trl", "per_device_train_batch_size 4", "batch_size_per_device 4",
         {"micro_answers": "4", "rollout_accelerators": "8"}),
        ("openrlhf", "train_ppo_ray", "multi_agent_train_ppo_ray", {"agent": "no"}),
        ("ms-swift", "--use_vllm true", "--use_vllm false", {"uses_engine": "yes"}),
        ("openrlhf", "--vllm_num_engines 4", "", {"engines": "4"}),
    ],
)  # fmt: skip
def test_what_is_not_priced_is_said_or_asked_with_all_that_is_open(
    tmp_path: Path, name: str, old: str, new: str, given: dict[str, str]
) -> None:
    """One answer to everything that is named gives an estimate."""
    file, text = FILES[name]
    assert old in text
    path = tmp_path / file
    path.write_text(text.replace(old, new))
    said = said_of(path)
    assert all(f"{key}=" in said for key in (*given, "response_mean"))
    found = shardplan.audit(path, cluster="dgx-h100", given={"response_mean": "100", **given})
    assert isinstance(found, RlAuditAnswer)
    assert found.plan.step_time > 0


def said_of(path: Path) -> str:
    """What is taken for what is not priced; where something else is open, how all of it is given."""
    try:
        answer = shardplan.audit(path, cluster="dgx-h100")
    except OpenStepError as error:
        return error.hint
    assert isinstance(answer, RlAuditAnswer)
    return " ".join(f"{key}={value}" for key, (value, _) in answer.taken.items())


@pytest.mark.parametrize("off", ["agent.activate_agent=False", "agent.max_turns=1", "agent.num_workers=8"])
def test_an_agent_that_is_off_asks_nothing(tmp_path: Path, off: str) -> None:
    assert read(tmp_path, "run.sh", VERL.replace("rollout.n=8", f"rollout.n=8 {OWN}.{off}")).plan.step_time > 0


@pytest.mark.parametrize(
    ("file", "sharding"), [("$HOME/zero2.json", "zero2"), ("ds_z3_config.json", "zero3"), ("mine.json", None)]
)
def test_a_file_of_deepspeed_decides_the_sharding_of_trl(tmp_path: Path, file: str, sharding: str | None) -> None:
    line = TRL.replace("accelerate launch --num_processes 8 --use_fsdp --fsdp_reshard_after_forward FULL_SHARD",
                       "torchrun --nproc_per_node 8").replace("server", "colocate")  # fmt: skip
    (tmp_path / "run.sh").write_text(f"{line} --deepspeed {file}")
    launch = read_rl_launch(Ask(path=tmp_path / "run.sh"))
    assert launch is not None
    assert launch.facts.value("sharding") == sharding
    assert sharding is not None or file in launch.facts.missing["sharding"][0]


def test_answers_without_an_engine_are_generated_where_the_policy_trains(tmp_path: Path) -> None:
    line = TRL.replace("--use_vllm true --vllm_mode server", "--use_vllm false")
    found = read(tmp_path, "run.sh", line)
    assert found.plan.placement == "colocated"
    assert "generate() of transformers" in found.taken["uses_engine"][1]


def test_supervised_training_by_slime_is_no_step(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{SLIME} --loss-type sft_loss --bf16")
    assert read_rl_launch(Ask(path=tmp_path / "run.sh")) is None
    assert (found := read_launch(Ask(path=tmp_path / "run.sh"))).framework == "megatron-lm"
    assert (found.value("tp"), found.value("cp"), found.value("global_batch_size")) == (2, 2, 128)


def test_a_configuration_of_verl_in_its_own_folder_is_the_one_on_record(tmp_path: Path) -> None:
    own = VERL.replace("main_ppo", "main_ppo --config-path=config --config-name=ppo_trainer.yaml", 1)
    assert read(tmp_path, "run.sh", own).result.task.answers.samples == 8
    with pytest.raises(InputError, match="not at hand"):
        read(tmp_path, "run.sh", own.replace("--config-path=config", "--config-path=/mine"))


def test_a_fork_s_own_word_for_answers_is_named(tmp_path: Path) -> None:
    own = VERL.replace("rollout.n=8", f"rollout.n=8 {OWN}.rollout.n_vote=64 algorithm.step_adv_estimator=gae")
    own += " gen.n=4"
    text = " ".join(read(tmp_path, "run.sh", own).launch.facts.not_understood)
    assert "gen.n = 4" in text
    assert "n_vote = 64" in text
    assert "step_adv_estimator = gae" in text


def test_what_evaluates_or_generates_is_no_step(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="evaluates"):
        read(tmp_path, "run.sh", f"{VERL} trainer.val_only=True")
    with pytest.raises(InputError, match="main_generate"):
        read(tmp_path, "run.sh", SKYRL.replace("main_dapo", "main_generate"))


def test_a_script_that_passes_arguments_on_to_another_is_read_with_them(tmp_path: Path) -> None:
    (tmp_path / "base.sh").write_text(f"{VERL} $@")
    found = read(tmp_path, "run.sh", f"bash base.sh {OWN}.rollout.n=4")
    assert found.result.task.answers.samples == 4
    assert any("base.sh, which was read too" in note for note in found.notes)


def test_the_command_shows_the_phases(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(VERL)
    text = unwrapped(run("audit", str(path), "--cluster", "dgx-h100", "--given", "response_mean=400").stdout)
    for words in ("verl", "a step", "generation", "log-probabilities", "weights to engines", "What the file says"):
        assert words in text


@pytest.mark.parametrize(
    "text", ["training: {trainer_type: VERL_GRPO}\nmodel: {model_name: x}", "experiment: {task: {type: rl}}"]
)
def test_steps_of_other_frameworks_are_not_priced_as_updates(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="reinforcement learning"):
        read(tmp_path, "a.yaml", text)


COPY = """
algorithm: {adv_estimator: gae}
actor_rollout_ref:
  model: {enable_gradient_checkpointing: false, use_remove_padding: true}
  actor: {use_kl_loss: false}
"""


def of_copy(folder: Path, text: str, copy: str = COPY) -> RlAuditAnswer:
    (folder / "LICENSE").touch()
    config = folder / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (config / "ppo_trainer.yaml").write_text(copy)
    (folder / "scripts").mkdir()
    return read(folder / "scripts", "run.sh", text)


def test_what_a_line_leaves_out_is_that_of_the_verl_in_its_repository(tmp_path: Path) -> None:
    """Before ``use_kl_in_reward`` the penalty was in the reward unless it was in the loss."""
    left_out = ("algorithm.use_kl_in_reward=False", f"{OWN}.model.use_remove_padding=True",
                f"{OWN}.actor.use_kl_loss=True", f"{OWN}.model.enable_gradient_checkpointing=True")  # fmt: skip
    text = VERL
    for each in left_out:
        text = text.replace(each, "")
    found = of_copy(tmp_path, text)
    assert found.result.task.reference is True
    assert found.plan.trained.priced.plan.recompute == "none"
    (tmp_path / "verl").rename(tmp_path / "other")
    with pytest.raises(InputError, match="kl_reward"):
        read(tmp_path, "run.sh", text)


def test_forks_of_verl_repeat_prompts_by_agents_and_turns(tmp_path: Path) -> None:
    forked = VERL.replace(f"{OWN}.rollout.n=8", f"{OWN}.rollout.n=1 {OWN}.rollout.n_agent=5 max_turns=1")
    found = read(tmp_path, "run.sh", forked)
    assert found.result.task.answers.samples == 5
    mini = found.launch.facts.facts["updates"]
    assert "in answers" in mini.why  # 128 prompts x 5 answers, cut by a mini-batch of answers
    fewer = read(tmp_path, "few.sh", forked.replace("mini_batch_size=64", "mini_batch_size=512"))
    assert fewer.launch.facts.value("updates") == 2  # 512 answers and the other 128, as ``split`` cuts them
    assert (
        "several turns"
        in read(tmp_path, "run.sh", forked.replace("max_turns=1", "max_turns=4")).taken["turns_number"][1]
    )


def test_a_script_that_goes_to_a_folder_has_the_verl_that_lies_there(tmp_path: Path) -> None:
    text = VERL.replace(f"{OWN}.model.enable_gradient_checkpointing=True", "")
    (tmp_path / "inner").mkdir()
    of_copy(tmp_path / "inner", text)
    (tmp_path / "LICENSE").touch()
    (tmp_path / "inner" / "LICENSE").unlink()
    (tmp_path / "scripts").mkdir()
    found = read(tmp_path / "scripts", "run.sh", f"cd inner\n{text}")
    assert found.plan.trained.priced.plan.recompute == "none"


def test_a_fork_that_rejects_prompts_says_that_they_are_not_counted(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", f"{VERL} trainer.rejection_sample=True")
    assert any("dropped and generated again" in note for note in found.notes)


def test_prompts_that_are_generated_beyond_those_that_train_are_said(tmp_path: Path) -> None:
    """A batch of generation that is larger than that of training, of which whole groups are dropped."""
    found = read(tmp_path, "run.sh", f"{VERL} algorithm.filter_groups.enable=True data.gen_batch_size=384")
    assert found.taken["generated"][0] == 128
    assert "384" in found.taken["generated"][1]


def test_a_configuration_over_one_that_is_not_at_hand_asks_for_what_that_decides(tmp_path: Path) -> None:
    """That of verl itself is on record; another one may say anything."""
    text = f"""defaults: [BASE, _self_]
data: {{train_batch_size: 128, max_prompt_length: 512, max_response_length: 1024}}
{OWN}:
  model: {{path: Qwen/Qwen3-8B, use_remove_padding: True, enable_gradient_checkpointing: True}}
  rollout: {{n: 4, name: vllm}}
  actor: {{ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 2, use_kl_loss: True}}
algorithm: {{adv_estimator: rloo}}
"""
    assert read(tmp_path, "own.yaml", text.replace("BASE", "ppo_trainer")).result.task.answers.samples == 4
    with pytest.raises(InputError, match="memory_share: file:other_trainer"):
        read(tmp_path, "other.yaml", text.replace("BASE", "other_trainer"))


def test_a_mini_batch_above_the_batch_is_asked_for(tmp_path: Path) -> None:
    """Forks of verl count it in answers or in prompts: 128 prompts of 8 answers are cut by 512 into one step or two."""
    text = VERL.replace("mini_batch_size=64", "mini_batch_size=512")
    with pytest.raises(InputError, match="updates"):
        read(tmp_path, "run.sh", text)
    assert read(tmp_path, "run.sh", text, {"updates": 2}).launch.facts.value("updates") == 2


def test_what_openrlhf_does_beside_the_policy_loss_is_said(tmp_path: Path) -> None:
    """A supervised loss on other data, and a reference that only old versions ask where the penalty is zero."""
    text = (
        OPENRLHF.replace("gae", "group_norm") + "--pretrain_data x --ptx_coef 1 --colocate_actor_ref --init_kl_coef 0"
    )
    found = read(tmp_path, "run.sh", text)
    doubts = found.launch.facts.not_understood
    assert sum("pretrain_data" in each or "ptx_coef" in each for each in doubts) == 2
    assert any("no pass of a reference" in note for note in found.notes)


def test_only_values_are_open_where_keys_are_known(tmp_path: Path) -> None:
    """A line of ``key=value`` asks for what is open in it, and accelerators that are counted are those of a node."""
    counted = "N=$(nvidia-smi -L | wc -l)\n" + VERL.replace("n_gpus_per_node=8", "n_gpus_per_node=$N")
    counted = counted.replace("ppo_mini_batch_size=64", "ppo_mini_batch_size=$((N * 4))")
    assert read(tmp_path, "run.sh", counted).plan.num_train == 16
    with pytest.raises(InputError) as caught:
        read(tmp_path, "run.sh", VERL.replace("model.path=Qwen/Qwen3-8B", "model.path=$BASE"))
    assert "BASE" in caught.value.message
    assert "rollout_tp" not in caught.value.message
    with pytest.raises(OpenStepError) as caught:
        read(tmp_path, "run.sh", VERL.replace("trainer.nnodes=2", "trainer.nnodes=$NODES"))
    assert "--gpus" in caught.value.hint
    assert "nodes=" not in caught.value.hint  # one answer for both


def test_a_configuration_with_an_open_accumulation_asks_for_it(tmp_path: Path) -> None:
    text = TRL.replace("--gradient_accumulation_steps 4", "--gradient_accumulation_steps $STEPS")
    with pytest.raises(InputError, match="accumulation"):
        read(tmp_path, "run.sh", text)


RECIPE = """defaults: grpo_math_1B.yaml
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 32}
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  train_global_batch_size: 512
  train_micro_batch_size: 1
  logprob_batch_size: 2
  max_total_sequence_length: 4096
  megatron_cfg: {enabled: true, pipeline_model_parallel_size: 2, activation_checkpointing: true}
  dtensor_cfg: {enabled: false}
  generation: {max_new_tokens: 4096, vllm_cfg: {gpu_memory_utilization: 0.6}}
cluster: {num_nodes: 2, gpus_per_node: 8}
"""


@pytest.mark.parametrize("release", ["0.5", "0.7"])
def test_a_recipe_takes_as_long_as_the_measured_run_of_it_is_predicted_to(tmp_path: Path, release: str) -> None:
    """NeMo RL's grpo-llama3.1-8b-instruct-2n8g.yaml, of which v0.5 has a measured step: one way to price both."""
    (row,) = (step for step in shipped_steps() if step.id == "nemo-v0.5-00")
    predicted = price(replace(row, release=release)).plan
    given = {"response_mean": 1019, "prompt_mean": 128, "release": release}
    found = read(tmp_path, "grpo.yaml", RECIPE, given).plan
    assert found.step_time == pytest.approx(predicted.step_time, rel=1e-6)
    assert found.trained.around_update > 0
