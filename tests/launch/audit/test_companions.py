"""Several files at once: companions, the folder of the launch, and files that contradict one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.launch.audit.audits import audited

from shardplan.base.errors import InputError
from shardplan.cli.main import main

SCRIPT = """deepspeed src/train.py --deepspeed configs/zero3.json --model_name_or_path Qwen/Qwen2.5-7B-Instruct \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_max_length 4096 --bf16 True \\
  --gradient_checkpointing True
"""
UNNAMED = SCRIPT.replace("zero3.json", "ds.json")
"""The name of its file tells no stage."""
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
ZERO2 = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
RECIPE = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: full
cutoff_len: 4096
template: llama3
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true}
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""


def placed(folder: Path, **files: str) -> Path:
    """A repository with files at paths whose folders are written with two underscores."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json").replace("_sh", ".sh").replace(
            "_yaml", ".yaml"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read(*files: Path, **asked: Any) -> dict[str, object]:
    reading = audited(*files, **asked).reading
    return {key: fact.value for key, fact in reading.facts.items()}


def test_paths_start_at_the_root_of_the_repository(tmp_path: Path) -> None:
    repo = placed(tmp_path / "repo", scripts__train_sh=UNNAMED, configs__ds_json=ZERO3)
    script = repo / "scripts" / "train.sh"
    assert "sharding" not in read(script)
    (repo / "README.md").write_text("training")
    assert read(script)["sharding"] == "zero3"


def test_the_root_and_companions_are_looked_at_first(tmp_path: Path) -> None:
    repo = placed(tmp_path, a__train_sh=SCRIPT, b__configs__zero3_json=ZERO3, c__zero3_json=ZERO2)
    script = repo / "a" / "train.sh"
    assert read(script, root=repo / "b")["sharding"] == "zero3"
    assert read(script, repo / "c" / "zero3.json")["sharding"] == "zero2"
    assert read(script, repo / "c" / "zero3.json", root=repo / "b")["sharding"] == "zero2"


def test_no_file_outside_the_root_is_read(tmp_path: Path) -> None:
    script = UNNAMED.replace("configs/", "../../secret/")
    repo = placed(tmp_path / "repo", a__b__train_sh=script, README__x_sh="")
    placed(tmp_path / "repo" / "secret", ds_json=ZERO3)
    placed(tmp_path / "secret", ds_json=ZERO3)
    path = repo / "a" / "b" / "train.sh"
    assert "sharding" not in read(path)
    assert read(path, root=repo)["sharding"] == "zero3"
    deeper = placed(tmp_path / "repo" / "a", train_sh=script) / "train.sh"  # ../../secret leads out of the repository
    assert "sharding" not in read(deeper, root=repo / "a")


def test_an_estimate_of_a_usual_fine_tuning_needs_the_cluster_alone(tmp_path: Path) -> None:
    repo = placed(tmp_path, train_sh=SCRIPT, configs__zero3_json=ZERO3)
    found = audited(repo / "train.sh", cluster="dgx-h100")
    assert found.posed.missing == {}
    assert found.estimate is not None
    assert found.reading.value("num_accelerators") == 8
    assert found.reading.value("global_batch_size") == 64
    assert any("--gpus N for another number" in note for note in found.reading.notes)
    assert audited(repo / "train.sh", cluster="dgx-h100", num_accelerators=16).reading.value("dp") == 16


def test_a_configuration_that_is_given_too_holds(tmp_path: Path) -> None:
    repo = placed(tmp_path, sft_yaml=RECIPE, fsdp_yaml=FSDP)
    alone, both = read(repo / "sft.yaml"), read(repo / "sft.yaml", repo / "fsdp.yaml")
    assert (alone["sharding"], alone.get("num_accelerators")) == ("ddp", None)
    assert (both["sharding"], both["num_accelerators"], both["global_batch_size"]) == ("zero3", 16, 128)


def test_the_model_is_that_of_a_config_json(tmp_path: Path) -> None:
    config = (
        '{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 2560, "head_dim": 128, '
        '"intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, '
        '"vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": true}'
    )
    script = SCRIPT.replace("Qwen/Qwen2.5-7B-Instruct", "ckpt/my-model")
    repo = placed(
        tmp_path, train_sh=script, configs__zero3_json=ZERO3, ckpt__my__config_json="{}", x__config_json=config
    )
    found = audited(repo / "train.sh", repo / "x" / "config.json")
    assert found.posed.model is not None
    assert found.posed.model.num_parameters == 4_022_468_096
    placed(repo, **{"ckpt__my-model__config_json": config})
    own = audited(repo / "train.sh")
    assert own.posed.model is not None
    assert own.posed.model.num_hidden_layers == 36


WRONG = [
    (("train.sh", "gone.json"), {}, ("gone.json", "is not there", "train.sh")),
    (("train.sh", "configs"), {}, ("configs", "is a folder")),
    (("train.sh", "train.sh"), {}, ("which is given already",)),
    (("train.sh",), {"root": "train.sh"}, ("is a file", "--root")),
    (("train.sh",), {"root": "nowhere"}, ("is not there", "--root")),
    (("train.sh", "configs/zero3.json", "other/zero3.json"), {}, ("other/zero3.json", "says zero3", "says zero2")),
    (("loose.sh", "configs/zero3.json", "other/zero3.json"), {}, ("configs/zero3.json", "other/zero3.json", "differ")),
    (("sft.yaml", "wrong.yaml"), {}, ("sft.yaml:6", "wrong.yaml:6", "says 2", "says 8")),
    (("sft.yaml", "train.sh"), {}, ("train.sh", "sft.yaml", "script first")),
    (("recipe.py",), {"entry": "gone"}, ("gone", "pretrain")),
    (("train.sh",), {"entry": "pretrain"}, ("train.sh", "is not Python", "--entry")),
]


@pytest.mark.parametrize(("files", "asked", "said"), WRONG)
def test_wrong_companions_are_refused(
    files: tuple[str, ...], asked: dict[str, str], said: tuple[str, ...], tmp_path: Path
) -> None:
    repo = placed(
        tmp_path, train_sh=SCRIPT, configs__zero3_json=ZERO3, other__zero3_json=ZERO2, sft_yaml=RECIPE,
        loose_sh=SCRIPT.replace("configs/", "/data/"), wrong_yaml=RECIPE.replace("batch_size: 2", "batch_size: 8"),
    )  # fmt: skip
    (repo / "recipe.py").write_text("def pretrain():\n    return dict(a=1)\n")
    asked = {key: str(repo / value) if key == "root" else value for key, value in asked.items()}
    with pytest.raises(InputError) as error:
        audited(*(repo / each for each in files), **asked)
    text = f"{error.value} {error.value.rule} {error.value.hint}"
    assert all(each in text for each in said), text
    assert error.value.rule
    assert error.value.hint


def test_words_behind_two_hyphens_are_those_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = placed(tmp_path, train_sh=SCRIPT.replace("4096", "$1"), configs__zero3_json=ZERO3)
    monkeypatch.setattr("sys.argv", ["shardplan", "audit", str(repo / "train.sh"), "--json", "-", "--", "2048"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert '"sequence_length": 2048' in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["shardplan", "audit", str(repo / "train.sh"), "2048"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "go after --" in capsys.readouterr().err
