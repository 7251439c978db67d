"""Changes that an audit proposes are in the words of the file, and nothing that it lacks is taken out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.audit.audits import audited
from tests.launch.scripts import ask

from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.launch.audit.improve import Improvement
from shardplan.launch.audit.nearby import changes

pytest.importorskip("tree_sitter_bash")
SCRIPT = """
    torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
      --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu \\
      --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --tokenizer-type NullTokenizer --bf16 \\
      --disable-bias-linear --untie-embeddings-and-output-weights --use-distributed-optimizer \\
      --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 \\
      --num-layers-per-virtual-pipeline-stage 8 --recompute-activations \\
      --micro-batch-size 1 --global-batch-size 256 {more}
"""


def proposed(folder: Path, more: str = "") -> tuple[Improvement, ...]:
    question = ask(folder, "launch.sh", SCRIPT.format(more=more))
    return audited(question.path, cluster="dgx-h100").improvements


def test_options_of_the_file_are_taken_out_as_it_has_them(tmp_path: Path) -> None:
    found = proposed(tmp_path)
    removed = {option for each in found for option in each.removed}
    assert any("vp" in each.change or "recompute" in each.change for each in found)
    assert "--num-layers-per-virtual-pipeline-stage (launch.sh:6)" in removed
    assert "--recompute-activations (launch.sh:6)" in removed
    assert not any("num-virtual-stages" in each or "recompute-granularity" in each for each in removed)


def test_what_the_file_must_mend_leaves_the_gain_against_the_plan(tmp_path: Path) -> None:
    gains = [each.gain for each in proposed(tmp_path)]
    assert [each.gain for each in proposed(tmp_path, more="\n    DATA=<your data>")] == pytest.approx(gains)


def test_a_placement_of_dimensions_with_one_rank_is_no_change() -> None:
    plan = Plan(tp=2, pp=2, placement="tp-cp-ep-dp-pp")
    assert changes(plan, replace(plan, placement="tp-cp-dp-pp-ep")) == {}
    assert "placement" in changes(replace(plan, ep=2), replace(plan, ep=2, placement="tp-cp-dp-pp-ep"))


def test_another_field_is_changed_only_where_it_pays(tmp_path: Path) -> None:
    """No other candidate with fewer changes comes within 2 % a field; none fits by chance alone."""
    found = proposed(tmp_path)
    for each in found:
        assert each.estimate.peak_memory_p90_bytes <= each.estimate.usable_memory_bytes
        for other in found:
            fewer = len(each.change.keys() - {"schedule"}) - len(other.change.keys() - {"schedule"})
            assert fewer <= 0 or each.estimate.step_time < other.estimate.step_time / (1 + 0.02 * fewer)


NEMO_1 = """
trainer: {num_nodes: 2, devices: 8, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 512
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 1
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  override_vocab_size: 32000
  activation: fast-swiglu
  normalization: rmsnorm
  bias: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  optim: {name: mcore_distributed_optim}
"""


def test_files_of_other_names_than_the_record_are_changed_by_their_own(tmp_path: Path) -> None:
    question = ask(tmp_path, "model.yaml", NEMO_1)
    found = audited(question.path, cluster="dgx-h100")
    assert found.reading.version.startswith("1.x")
    words = {each for one in found.improvements for each in (*one.removed, *one.added)}
    assert any(each.startswith("model.tensor_model_parallel_size: ") for each in words)
    assert all(each.startswith("model.") for each in words)


def test_a_default_that_the_file_may_contradict_is_not_changed(tmp_path: Path) -> None:
    """Nobody knows whether an option of a fork overlaps already: that overlapping would save time is not known."""
    assert any("overlap_dp" in each.change for each in proposed(tmp_path))
    assert not any("overlap_dp" in each.change for each in proposed(tmp_path, more="--overlap-my-shards"))


def test_what_is_given_stays(tmp_path: Path) -> None:
    question = ask(tmp_path, "launch.sh", SCRIPT.format(more=""))
    assert any("recompute" in each.change for each in proposed(tmp_path))
    found = audited(question.path, cluster="dgx-h100", given={"recompute": "selective"})
    assert found.improvements
    assert not any("recompute" in each.change for each in found.improvements)


def test_a_gain_has_a_range(tmp_path: Path) -> None:
    """8 in 10 pairs of measured configurations: the range of a ratio that ties have too."""
    for each in proposed(tmp_path):
        low, high = each.gain_band or (0.0, 0.0)
        assert (1 - low) / (1 - (each.gain or 0)) == pytest.approx(tie_factor())
        assert (1 - (each.gain or 0)) / (1 - high) == pytest.approx(tie_factor())
        assert f"({100 * low:.0f} to {100 * high:.0f} %)".replace("-0 ", "0 ") in each.gain_text


def test_an_option_of_the_line_goes_where_it_stands(tmp_path: Path) -> None:
    """A value of a file beside the script is changed in that file, and the batch stays where the trainer multiplies."""
    zero = {"stage": 3, "overlap_comm": True}
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}}))
    line = """
        torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --deepspeed ds.json \\
          --bf16 True --model_max_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 8 \\
          --gradient_checkpointing True
    """
    path = ask(tmp_path, "run.sh", line).path
    keeps = ((), ("recompute", "micro_batch_size"))
    found = [each for keep in keeps for each in audited(path, cluster="dgx-b200", keep=keep).improvements]
    for each in found:
        batch = [text for text in each.added if "gradient_accumulation_steps" in text]
        assert bool(batch) == ("micro_batch_size" in each.change)
        assert all(text.endswith("(ds.json)") for text in each.added if text.startswith("zero_optimization"))
    assert {name for each in found for name in each.change} >= {"micro_batch_size", "sharding"}
