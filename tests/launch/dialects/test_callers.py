"""A launch file as its repository starts it, beside files of arguments, and models that a name holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.scripts import ask, read, values

from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.callers import started
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

pytest.importorskip("tree_sitter_bash")

SCRIPT = """
torchrun --nproc_per_node $1 train.py --model_name_or_path $2 --per_device_train_batch_size ${3:-2} \\
    --model_max_length $LENGTH --bf16 True --gradient_checkpointing True --deepspeed ds.json
"""
ZERO = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
ARGUMENTS = """
model_name_or_path: {model}
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
learning_rate: 1.0e-5
max_length: 1024
bf16: true
"""


def repository(folder: Path, readme: str, *, callers: dict[str, str] | None = None) -> Path:
    """A repository with scripts and documentation; its script is ``scripts/run.sh``."""
    (folder / ".git").mkdir()
    (folder / "scripts").mkdir()
    for name, text in {
        "README.md": readme,
        "scripts/ds.json": ZERO,
        "scripts/run.sh": SCRIPT,
        **(callers or {}),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "scripts" / "run.sh"


KEYS = ("num_accelerators", "model", "micro_batch_size", "sequence_length")
LINE = "LENGTH=4096 bash scripts/run.sh 4 Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        (f"Run\n```bash\n{LINE}\n```\n", (4, "Qwen/Qwen3-8B", 2, 4096)),
        (
            f"Run\n```\n$ cd repository\n$ {LINE} 8\n```\nor `bash scripts/run.sh 2 other`\n",
            (4, "Qwen/Qwen3-8B", 8, 4096),
        ),
        (f"Run `{LINE}`.\n", (4, "Qwen/Qwen3-8B", 2, 4096)),
        (
            "```\nexport LENGTH=512\nMODEL=Qwen/Qwen3-8B\nbash ./scripts/run.sh 4 $MODEL\n```\n",
            (4, "Qwen/Qwen3-8B", 2, 512),
        ),
        ("```\nbash scripts/run.sh 4 $MODEL\n```\n", (None, None, 2, None)),  # what is open there stays open
        ("```\nbash run.sh 4 Qwen/Qwen3-8B\n```\n", (None, None, 2, None)),  # of another folder
        ("```\nbash other/scripts/run.sh 4 Qwen/Qwen3-8B\n```\n", (None, None, 2, None)),
        ("", (None, None, 2, None)),
    ],
)
def test_what_a_script_leaves_open_is_as_its_repository_starts_it(
    readme: str, expected: tuple[object, ...], tmp_path: Path
) -> None:
    found = read_launch(started(Ask(path=repository(tmp_path, readme))))
    assert values(found, *KEYS) == expected
    assert any("README.md:" in note for note in found.notes) == (expected[0] is not None)


def test_a_script_that_starts_another_gives_its_arguments(tmp_path: Path) -> None:
    callers = {"scripts/big.sh": "LENGTH=8192\nexport LENGTH\nsh run.sh 16 Qwen/Qwen3-14B 1\n"}
    found = read_launch(started(Ask(path=repository(tmp_path, "", callers=callers))))
    assert values(found, *KEYS) == (16, "Qwen/Qwen3-14B", 1, 8192)


def test_what_the_user_gives_comes_first(tmp_path: Path) -> None:
    path = repository(tmp_path, f"`{LINE}`\n")
    of_user = started(Ask(path=path, env={"LENGTH": "256"}))
    assert values(read_launch(of_user), *KEYS) == (4, "Qwen/Qwen3-8B", 2, 256)
    of_user = started(Ask(path=path, arguments=("8", "gpt2")))
    assert values(read_launch(of_user), *KEYS) == (8, "gpt2", 2, None)


def test_a_script_that_leaves_nothing_open_is_read_as_it_is(tmp_path: Path) -> None:
    path = repository(tmp_path, f"`{LINE}`\n")
    path.write_text(SCRIPT.replace("$1", "${1:-2}").replace("$2", "gpt2").replace("$LENGTH", "128"), encoding="utf-8")
    assert started(Ask(path=path)) == Ask(path=path)
    assert values(read_launch(Ask(path=path)), *KEYS) == (2, "gpt2", 2, 128)


ACCELERATE = (
    "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: {}\n"
)


def recipe(folder: Path, readme: str) -> Reading:
    """A file of arguments whose repository says how it is started."""
    callers = {
        "scripts/sft.yaml": ARGUMENTS.format(model="Qwen/Qwen3-8B"),
        "zero3.yaml": ACCELERATE.format(3),
        "zero1.yaml": ACCELERATE.format(1),
    }
    repository(folder, readme, callers=callers)
    return read_launch(Ask(path=folder / "scripts" / "sft.yaml"))


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("`accelerate launch --config_file zero3.yaml sft.py --config scripts/sft.yaml`", (4, "zero3", 32)),
        ("```\naccelerate launch --config_file zero1.yaml sft.py scripts/sft.yaml\n```\n", (4, "zero1", 32)),
        (
            "`torchrun --nproc_per_node=8 sft.py scripts/sft.yaml --deepspeed=scripts/ds.json`",
            (8, "zero2", 64),
        ),
        ("`python edit.py scripts/sft.yaml`", (None, None, None)),
        ("`accelerate launch --config_file zero3.yaml sft.py --config other/sft.yaml`", (None, None, None)),
    ],
)
def test_a_file_of_arguments_is_as_its_repository_starts_it(
    readme: str, expected: tuple[object, ...], tmp_path: Path
) -> None:
    found = recipe(tmp_path, readme)
    assert values(found, "num_accelerators", "sharding", "global_batch_size") == expected


def test_options_of_a_line_stand_over_the_file_of_arguments_beside_them(tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(ARGUMENTS.format(model=""), encoding="utf-8")
    text = (
        "accelerate launch --multi_gpu --num_processes 4 dpo.py full.yaml --model_name_or_path=Qwen/Qwen3-8B "
        "--per_device_train_batch_size=4 --gradient_accumulation_steps=1 --bf16=True\n"
    )
    found = read(tmp_path, "a.sh", text)
    assert values(found, "sequence_length", "recompute", "micro_batch_size", "global_batch_size") == (
        1024,
        "full",
        4,
        16,
    )
    text = text.replace("full.yaml", "absent.yaml")
    assert {"recompute", "sequence_length"} <= read(tmp_path, "b.sh", text).missing.keys()


def test_configurations_of_trl_are_taken_as_it_ships_them(tmp_path: Path) -> None:
    text = (
        "accelerate launch --config_file examples/accelerate_configs/deepspeed_zero{}.yaml --num_processes 2 sft.py "
        "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --gradient_accumulation_steps 1\n"
    )
    found = read(tmp_path, "a.sh", text.format(3))
    assert values(found, "sharding", "precision", "num_accelerators") == ("zero3", "bf16", 2)
    assert (found.facts["sharding"].origin, found.facts["num_accelerators"].origin) == ("assumed", "stated")
    assert "sharding" in read(tmp_path, "b.sh", text.format(4)).missing


def test_slots_of_a_file_of_hosts_are_counted(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# all\nfirst slots=8\nsecond slots = 4\n", encoding="utf-8")
    text = "deepspeed --hostfile hosts train.py --deepspeed ds.json --model_name_or_path gpt2 --bf16 True\n"
    assert read_launch(replace(ask(tmp_path, "run.sh", text), node=8)).value("num_accelerators") == 12


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("someone/Llama-3-8B-Magpie-Align-SFT-v0.1", "llama-3-8b"),
        ("/data/out/Qwen2.5-7B-mine/checkpoint-500", "qwen2.5-7b"),
        ("llama_hf_13b", "llama-13b"),
        ("org/deepseek-r1-distill-qwen-7b-mine", "deepseek-r1-distill-qwen-7b"),
        *((name, None) for name in (
            "org/Llama-3-8B-MoE", "llama2_7B-16Select4-up_proj", "chinese-llama-2-7b", "Qwen2.5-7B-to-3B", "7b",
            "gemma-7b-addtoken", "org/llava-llama-3-8b", "Llama-3-8B-GPTQ", "Qwen2.5-7B-pruned/checkpoint-9",
        )),
    ],
)  # fmt: skip
def test_a_model_is_that_which_its_name_holds_unless_another_word_may_change_it(
    name: str, base: str | None, tmp_path: Path
) -> None:
    found = read(tmp_path, "sft.yaml", ARGUMENTS.format(model=name))
    assert found.value("model") == (base or name)
    assert found.facts["model"].origin == ("stated" if base is None else "assumed")


def test_lengths_of_source_and_target_add_up_as_qlora_pads_them(tmp_path: Path) -> None:
    text = (
        "python qlora.py --model_name_or_path Qwen/Qwen3-8B --source_max_len 128 --target_max_len 384 --bf16 "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 1 --optim paged_adamw_32bit\n"
    )
    assert values(read(tmp_path, "a.sh", text), "sequence_length", "optimizer") == (512, "adam")
    assert read(tmp_path, "b.sh", text.replace("--source_max_len 128", "")).value("sequence_length") is None


def test_the_program_behind_a_command_of_ms_swift_is_read_as_that(tmp_path: Path) -> None:
    text = "{} --model Qwen/Qwen3-8B --train_type full --torch_dtype bfloat16 --max_length 2048 --deepspeed zero3\n"
    by_command = read(tmp_path, "a.sh", text.format("NPROC_PER_NODE=4 swift sft"))
    by_program = read(tmp_path, "b.sh", text.format("torchrun --nproc_per_node 4 ../ms-swift/swift/cli/sft.py"))
    assert by_command.framework == by_program.framework == "ms-swift"
    keys = ("num_accelerators", "sharding", "sequence_length", "precision", "recompute", "micro_batch_size")
    assert values(by_command, *keys) == values(by_program, *keys)
    assert by_program.value("num_accelerators") == 4


def test_a_program_s_own_default_of_accumulation_counts(tmp_path: Path) -> None:
    program = (
        "from dataclasses import dataclass, field\nimport transformers\n@dataclass\n"
        "class Arguments(transformers.TrainingArguments):\n    gradient_accumulation_steps: int = field(default=16)\n"
        "    model_max_length: int = 512\nparser = transformers.HfArgumentParser(Arguments)\n"
    )
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    text = "torchrun --nproc_per_node 2 train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 4\n"
    found = read(tmp_path, "a.sh", text)
    assert values(found, "gradient_accumulation", "global_batch_size", "sequence_length") == (16, 128, 512)


def test_a_path_from_a_folder_between_script_and_root_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "scripts").mkdir(parents=True)
    (tmp_path / "src" / "configs").mkdir()
    (tmp_path / "src" / "configs" / "ds.json").write_text(ZERO, encoding="utf-8")
    text = "deepspeed --num_gpus 2 train.py --model_name_or_path gpt2 --bf16 True --deepspeed {}/ds.json\n"
    assert read(tmp_path / "src" / "scripts", "a.sh", text.format("configs")).value("sharding") == "zero2"
    assert read(tmp_path / "src" / "scripts", "b.sh", text.format("other")).value("sharding") is None


@pytest.mark.parametrize(
    ("more", "train"), [("", "lora"), ("--full_finetune True", "full"), ("--full_finetune", "full")]
)
def test_a_program_that_trains_adapters_unless_it_is_told_otherwise(more: str, train: str, tmp_path: Path) -> None:
    program = (
        "from dataclasses import dataclass, field\nimport transformers\nfrom peft import LoraConfig\n@dataclass\n"
        "class Arguments(transformers.TrainingArguments):\n    full_finetune: bool = field(default=False)\n"
        "    lora_r: int = 64\nparser = transformers.HfArgumentParser(Arguments)\n"
        "if not args.full_finetune:\n    model = LoraConfig(r=args.lora_r, target_modules=['q_proj'])\n"
    )
    (tmp_path / "qlora.py").write_text(program, encoding="utf-8")
    text = "torchrun --nproc_per_node 2 qlora.py --model_name_or_path gpt2 --lora_r 64 --gradient_accumulation_steps 1 "
    assert read(tmp_path, "a.sh", f"{text} {more}\n").value("train") == train


def test_one_process_without_a_launcher_is_said(tmp_path: Path) -> None:
    text = "python train.py --model_name_or_path gpt2 --gradient_accumulation_steps 1 --bf16\n"
    needs = read(tmp_path, "a.sh", text).missing["num_accelerators"]
    assert needs == ("no launcher starts more than one process: --gpus",)
