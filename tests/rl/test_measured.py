"""Measured RL steps: what a file may say, what a row costs, and what the published ones say of the predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import generate_rl_accuracy
import pytest
from generate_accuracy import is_current

from shardplan.base.errors import InputError
from shardplan.base.fields import replace
from shardplan.inputs.plan import Plan
from shardplan.rl.accuracy import WIDER, band_of, in_order, left_out, left_out_errors, nearest, validate_rl
from shardplan.rl.engine import constant
from shardplan.rl.fit import measured_transfers
from shardplan.rl.measured import is_rl, price, repriced, shipped_steps, steps_of
from shardplan.rl.programs import Framework, framework_of
from shardplan.rl.trainer import Trained

HEAD = "id,model,cluster,num_train,num_rollout,placement,step_time_s,tier"
ROW = "one,llama-3.1-8b,dgx-h100,8,8,colocated,112,A"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,model", "no column cluster and step_time_s"),
        (f"{HEAD},colour\n{ROW},red", "colour"),
        (f"{HEAD},tier\n{ROW},A", "a column comes twice"),
        (f"{HEAD}\n{ROW},more", "line 2: 9 cells"),
        (f"{HEAD}\n{ROW.replace('112', '-3')}", "step_time_s is '-3'"),
        (f"{HEAD}\n{ROW.replace('112', '')}", "step_time_s is ''"),
        (f"{HEAD}\n{ROW.replace('colocated', 'beside')}", "line 2, run 'one': placement is"),
        (f"{HEAD}\n{ROW.replace(',8,8', ',8.5,8')}", "num_train is '8.5'"),
        (f"{HEAD}\n{ROW[:-1]}C", "tier is 'C'"),
        (f"{HEAD}\n{ROW}\n{ROW}", "line 3: id is"),
    ],
)
def test_errors_name_line_rule_and_fix(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        steps_of(text, "mine.csv")
    assert said in str(caught.value)
    assert caught.value.rule is not None
    assert caught.value.hint is not None


def test_a_header_tells_rl_steps_from_training_runs() -> None:
    assert is_rl(HEAD)
    assert not is_rl("id,model,accelerator,num_accelerators,step_time_s")


def test_empty_cells_are_not_stated_and_a_row_without_lengths_has_no_price() -> None:
    (step,) = steps_of(f"{HEAD},notes\n{ROW},", "mine.csv")
    assert step.prompts is None
    assert step.notes == ""
    found = validate_rl([step])
    assert not found.priced
    assert "mean length of answers" in found.unpriced[0].reason


def test_what_a_row_does_not_state_is_assumed_and_said() -> None:
    text = (
        f"{HEAD},prompts,samples,trained_tokens,response_tokens_max,train_tp,rollout_tp\n{ROW},64,32,2000000,4000,1,1"
    )
    priced = price(steps_of(text, "mine.csv")[0])
    assert [text for text in priced.assumed if "prompts of 256 tokens" in text]
    assert [text for text in priced.assumed if "from the tokens of the step" in text]
    assert priced.plan.pool.answers.tokens == pytest.approx(2_000_000)


def test_a_part_that_is_stated_has_an_error_of_its_own() -> None:
    (step,) = [step for step in shipped_steps() if step.id == "nemo-959-00"]
    priced = price(step)
    predicted = priced.plan.cycle.time_of("generation")
    assert priced.error_of("generation") == pytest.approx(math.log(predicted / 58))
    assert repriced(priced).plan.step_time == pytest.approx(priced.plan.step_time)
    assert {row.step.model for row in nearest(priced.plan)} == {"llama-3.1-8b"}
    band = band_of(priced.plan)
    assert band.low < 1 < band.high


def test_bands_are_wider_in_every_respect_that_no_measured_step_has() -> None:
    (step,) = [step for step in shipped_steps() if step.id == "nemo-959-00"]
    plan = price(step).plan

    def width(software: str, **of_plan: Any) -> float:
        trained = of_plan.get("trained", plan.trained)
        packing = replace(trained.packing, framework=framework_of(software))
        band = band_of(replace(plan, trained=replace(trained, packing=packing)))
        return math.log(band.high / band.low)

    usual = width("nemo-rl")
    assert width("verl") == width("") == pytest.approx(WIDER * usual)
    asked = plan.trained.priced.question
    lora = Trained.of(replace(asked, job=replace(asked.job, train="lora")), Plan(), plan.trained.packing)
    assert width("nemo-rl", trained=lora) == pytest.approx(WIDER * usual)
    assert "wider" not in band_of(plan).text
    for software, said in (("", "none has another framework"), ("verl", "none has verl")):
        packing = replace(plan.trained.packing, framework=framework_of(software))
        assert said in band_of(replace(plan, trained=replace(plan.trained, packing=packing))).text


def test_bands_without_the_family_hold_eight_of_ten() -> None:
    inside = validate_rl(shipped_steps()).coverage
    assert inside is not None
    assert inside.low < 0.8 < inside.high
    assert inside.share > 0.78


def test_left_out_errors_are_those_of_the_aim() -> None:
    found = left_out()
    assert found.all.n > 50
    assert (found.all.median or 1) <= 0.15
    assert (found.all.p90 or 1) <= 0.35
    assert (found.order.share or 0) >= 0.85
    known = {step.id for step in shipped_steps()} | {row.id for row in measured_transfers()}
    assert set(left_out_errors()) <= known


def test_pairs_are_of_one_family_and_differ_clearly() -> None:
    rows = [("a", 100.0, 0.0), ("a", 103.0, 0.0), ("a", 200.0, -1.0), ("b", 50.0, 0.0)]
    assert in_order(rows) == (2, 0)
    assert in_order([*rows[:2], ("a", 200.0, 0.5)]) == (2, 2)


def test_the_page_is_what_the_program_would_write() -> None:
    folder = Path(generate_rl_accuracy.__file__).parent
    written = {generate_rl_accuracy.PAGE: generate_rl_accuracy.text()}
    assert is_current(written, folder), "run docs/generate_rl_accuracy.py"


def test_a_loss_answer_by_answer_takes_longer_with_shorter_answers() -> None:
    """NeMo RL: as many tokens in more answers need more slices of the logits; without a program nothing is added."""
    (row,) = (step for step in shipped_steps() if step.id == "nemo-959-00")
    added = {}
    for factor in (1, 2):
        mean = (row.response_tokens_mean or 0.0) / factor
        step = replace(row, samples=(row.samples or 0) * factor, prompt_tokens=64, response_tokens_mean=mean - 64)
        around = price(step).plan.trained
        alone = replace(around, packing=replace(around.packing, framework=Framework()))
        added[factor] = around.update_time - alone.update_time
        assert alone.reference_time == 0 < around.reference_time
        assert around.forward_time > alone.forward_time
    assert 1.3 < added[2] / added[1] < 2


def test_batches_are_sent_by_one_driver_until_ranks_share_a_copy() -> None:
    """NeMo RL: a copy for each of the 16 ranks of a replica takes 16 times as long to pickle as one since v0.7."""
    (row,) = (step for step in shipped_steps() if step.id == "nemo-959-04")
    sent = {}
    for release in ("0.6", "0.7"):
        around = price(replace(row, release=release)).plan.trained
        least = (row.prompts or 0) * (row.samples or 0) * constant("packing_time")
        sent[release] = around.sending_time(32.0) - least
        assert around.sending_time(0.0) == 0
    assert sent["0.6"] == pytest.approx(16 * sent["0.7"])
    assert 2 * sent["0.7"] == pytest.approx(2048 * (128 + 3968) * 32 * 2 / constant("pickle_rate"), rel=0.02)


def test_what_no_layer_of_fsdp_hides_and_a_loop_over_tensors() -> None:
    """Two tables of 128,256 x 4,096 are gathered in 16 bits before the layers and reduced in fp32 after them: 7/8 of
    6.3 GB at some 300 GB/s take 18 ms, 15 % of which count with the exchanges of layers."""
    (row,) = (step for step in shipped_steps() if step.id == "nemo-959-02")
    loop = 0.00036 * 258
    around = price(row).plan.trained
    assert (around.state_time - loop) / 15 == pytest.approx(0.85 * 0.018, rel=0.1)
    of_verl = price(replace(row, software="verl", release="")).plan.trained  # whose AdamW takes many tensors at once
    assert of_verl.state_time == pytest.approx(around.state_time - loop)


def test_a_pass_without_gradients_gathers_weights_once() -> None:
    """Passes of twice the tokens gather half as often; 16 GB over eight accelerators and to memory take at least their
    copies, 4 bytes of traffic for each of 8.03 billion weights."""
    (row,) = (step for step in shipped_steps() if step.id == "nemo-959-02")
    one, two = (price(replace(row, pass_packs=packs)).plan.trained for packs in (1, 2))
    rate = float(one.priced.question.machine.memory_rate)
    assert one.forward_time - two.forward_time > 30 * 4 * 8.03e9 / rate


def test_log_probabilities_of_verl_are_one_kernel_with_fsdp_and_have_the_entropy_with_megatron() -> None:
    """FSDP2: 24 bytes less for each of 128,256 logits of a token than a softmax of several kernels, forward, 2 more for
    half an entropy. Megatron: half of 24 bytes of an entropy in the mean of two passes, 4 of a division by the
    temperature."""
    rows = {step.id: replace(step, software="verl", release="") for step in shipped_steps()}
    added = {}
    for name in ("nemo-959-02", "nemo-959-00"):
        around = price(rows[name]).plan.trained
        alone = replace(around.packing, framework=Framework(backend=around.packing.framework.backend))
        bare = Trained.of(around.priced.question, around.priced.plan, alone)
        tokens = 4096 * float(around.priced.numbers.num_microbatches) * around.packing.updates
        rate = float(around.priced.question.machine.memory_rate)
        added[name] = (around.forward_time - bare.forward_time) * rate / tokens / 128256
    assert added["nemo-959-02"] == pytest.approx(2 - 24, rel=0.02)
    assert added["nemo-959-00"] == pytest.approx(16, rel=0.02)
