"""Decisions about an RL step: sizes, changes, hardware and runs, of a question and of its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, refused, run, unwrapped
from tests.rl.steps import FEW, QUESTION, STEP

import shardplan
from shardplan.api.rl import RlAnswer
from shardplan.base.errors import InputError, ShardplanError
from shardplan.rl.decisions import RlBudget, RlChanges, RlElasticities, RlSizes
from shardplan.rl.lengths import Lengths
from shardplan.rl.question import RlQuestion, read_rl_question

SMALL: dict[str, Any] = {**STEP, "placement": "colocated"}


@pytest.fixture(scope="module")
def found() -> RlAnswer:
    """A small step on 16 accelerators."""
    return shardplan.rl("llama-3.2-1b", "dgx-h100", 16, **SMALL, **FEW)


@pytest.fixture(scope="module")
def file(found: RlAnswer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its file."""
    return found.save(tmp_path_factory.mktemp("rl") / "rl.json")


def test_a_file_asks_the_same_question(found: RlAnswer, file: Path) -> None:
    again = shardplan.load_rl(file).question.result()
    assert again.best is not None
    assert found.best is not None
    assert again.best.step_time == found.best.step_time
    assert again.best.trained.priced.plan == found.best.trained.priced.plan


@pytest.mark.parametrize(
    ("question", "step"),
    [
        ({"num_accelerators": "8+16"}, {"rollout_cluster": "hgx-h20"}),
        ({"overrides": {"memory": "60GB"}, "fix": {"rollout.tp": [2]}}, {"algorithm": "ppo", "critic": "llama-3.2-1b"}),
        ({"job": {"precision": "fp8"}, "stack": "torchtitan"}, {"response_tokens": Lengths(mean=300, cap=900)}),
        ({"profile": "blackwell"}, {"response_tokens": Lengths.of_file([3, 900, 500])}),
        ({"nodes": 2, "num_accelerators": None}, {"reference": False}),
    ],
    ids=["another cluster", "overrides and a critic", "job and lengths", "measured lengths", "nodes"],
)
def test_all_that_is_asked_is_kept(question: Mapping[str, Any], step: Mapping[str, Any], tmp_path: Path) -> None:
    from shardplan.rl.question import checked_step, inputs_of

    record = {name: value for name, value in {**QUESTION, **FEW, **question}.items() if value is not None}
    asked = RlQuestion(record=record, step=checked_step({**STEP, **step}))
    before = asked.posed()
    path = tmp_path / "rl.json"
    kept = {"schema": "shardplan/rl/1", "inputs": inputs_of(before.task), "asked": asked.as_record(before.task)}
    path.write_text(json.dumps(kept))
    after = read_rl_question(path).posed()
    assert after.task == before.task
    assert after.searches == before.searches


def test_sizes_are_compared_with_the_smallest(found: RlAnswer) -> None:
    decision = found.scale([8, 16]).decision
    assert isinstance(decision, RlSizes)
    small, large = decision.variants
    assert small.efficiency == 1
    assert large.change is not None
    assert large.change < 0
    assert large.efficiency is not None
    assert large.efficiency <= 1.01
    assert large.marginal == pytest.approx(2 * large.efficiency - 1)  # of twice the size, by both definitions
    assert large.best is not None
    assert found.best is not None
    assert large.best.step_time == found.best.step_time


def test_changes_are_made_one_after_the_other(found: RlAnswer) -> None:
    decision = found.whatif({"samples": 16, "memory_bandwidth": "4.8TB/s"}).decision
    assert isinstance(decision, RlChanges)
    answers = [each.best.pool.answers.num_answers for each in decision.variants if each.best is not None]
    assert answers == [256, 512, 512]
    before, more, faster = (each.best.step_time for each in decision.variants if each.best is not None)
    assert before < more > faster
    assert decision.variants[2].change == pytest.approx(faster / before - 1)


def test_elasticities_have_the_signs_of_physics(found: RlAnswer) -> None:
    decision = found.sensitivity(factor=1.5).decision
    assert isinstance(decision, RlElasticities)
    signs = {each.name: each.elasticity or 0.0 for each in decision.parameters}
    assert signs["memory bandwidth"] < 0
    assert signs["mean length of answers"] > 0
    assert min(signs.values()) > -1.01
    shares = [abs(each.elasticity or 0.0) for each in decision.parameters]
    assert shares == sorted(shares, reverse=True)


def test_the_fewest_accelerators_that_are_done_in_time(found: RlAnswer) -> None:
    times = {}
    for size in (8, 16):
        decision = found.budget(1000, num_accelerators=size).decision
        assert isinstance(decision, RlBudget)
        assert decision.best is not None
        assert decision.best.wall_time == pytest.approx(1000 * decision.best.plan.step_time)
        assert decision.best.money == pytest.approx(size * 4.0 * decision.best.wall_time / 3600, rel=0.5)
        times[size] = decision.best.days
    within = found.budget(1000, days=(times[8] + times[16]) / 2).decision
    assert isinstance(within, RlBudget)
    assert within.best is not None
    assert within.best.num_accelerators == 16
    nobody = found.budget(1000, days=times[16] / 2, num_accelerators=16)
    assert not nobody.document().is_yes


def test_commands_take_the_file(file: Path) -> None:
    scaled = answer("scale", file, "--gpus", "8,16")
    assert scaled["schema"] == "shardplan/rl-scale/1"
    assert [row["variant"] for row in scaled["sizes"]] == ["8", "16"]
    changed = answer("whatif", file, "--change", "samples=16")
    assert changed["changes"][1]["change"] > 0
    assert answer("budget", file, "--steps", "100", "--gpus", "8")["run"]["best"]["num_accelerators"] == 8
    assert "What the step follows" in unwrapped(run("sensitivity", file).stdout)


def test_the_figures_show_sizes_and_parameters(file: Path, tmp_path: Path) -> None:
    for name, words in (("scale", ("--gpus", "8,16")), ("whatif", ("--change", "samples=4"))):
        page, table = tmp_path / f"{name}.html", tmp_path / f"{name}.csv"
        assert run(name, file, *words, "--html", page, "--csv", table).exit_code == 0
        assert "log-probabilities" in page.read_text()
        assert table.read_text().startswith("variant,placement,num_train,num_rollout,step_time_s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scale",), "--gpus is not given"),
        (("scale", "--gpus", "8,16", "--cluster", "dgx-b200"), "--cluster is given with"),
        (("scale", "--gpus", "8,16", "--precision", "fp8"), "--precision is given with"),
        (("scale", "--gpus", "8,16", "--fix", "train.tp=2"), "--fix is given with"),
        (("sensitivity", "--gpus", "8"), "--gpus is given with"),
        (("sensitivity", "--memory", "80GB"), "--memory is given with"),
        (("budget",), "--steps is not given"),
        (("budget", "--days", "3"), "--days is 3 and --steps is not given"),
        (("budget", "--steps", "10", "--tokens", "1T"), "--tokens is given with"),
        (("budget", "--steps", "10", "--energy", "1GWh"), "--energy is given with"),
        (("budget", "--steps", "10", "--spares", "4"), "--spares is given with"),
        (("whatif",), "no change is given"),
        (("whatif", "--change", "moon=full"), "moon"),
        (("whatif", "--change", "samples=many"), "samples"),
        (("whatif", "--change", "samples=4", "--pick", "2"), "--pick is given with"),
    ],
    ids=" ".join,
)
def test_what_is_of_another_question_is_refused(file: Path, words: tuple[str, ...], said: str) -> None:
    assert said in refused(words[0], file, *words[1:])


def test_steps_are_of_rl() -> None:
    text = refused("budget", "llama-3.2-1b", "--cluster", "dgx-h100", "--tokens", "1T", "--steps", "100")
    assert "--steps is given without" in text


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda record: record.pop("asked"), "does not say what was asked"),
        (lambda record: record.update(asked=7), "does not say what was asked"),
        (lambda record: record.pop("inputs"), "has the schema"),
        (lambda record: record["asked"]["step"].update(prompts="many"), "prompts"),
        (lambda record: record["asked"]["step"].update(luck=1), "luck"),
        (lambda record: record["asked"]["question"].update(luck=1), "luck"),
        (lambda record: record["asked"]["question"].update(num_accelerators={}), "num_accelerators"),
        (lambda record: record["asked"]["step"].update(response_tokens={"mean": 3}), "response_tokens"),
    ],
    ids=["not asked", "a number", "no inputs", "prompts", "step", "question", "accelerators", "lengths"],
)
def test_a_file_that_is_no_question_is_refused(file: Path, tmp_path: Path, break_it: Any, said: str) -> None:
    record = json.loads(file.read_text())
    break_it(record)
    broken = tmp_path / "rl.json"
    broken.write_text(json.dumps(record))
    with pytest.raises(ShardplanError) as error:
        shardplan.load_rl(broken).question.posed()
    assert said in str(error.value)


def test_a_wrong_change_is_refused_in_python(found: RlAnswer) -> None:
    with pytest.raises(InputError, match="moon"):
        found.whatif({"moon": "full"})
