"""``shardplan rl`` as a user runs it."""

from pathlib import Path

import pytest
from tests.cli.commands import answer, refused, run, unwrapped

STEP = (
    *("rl", "llama-3.2-1b", "--cluster", "dgx-h100", "--prompts", "32", "--samples", "8"),
    *("--response-tokens", "mean=500,max=1500", "--limit", "pp=1", "--limit", "cp=1"),
)


def test_the_answer_is_a_page_of_text() -> None:
    text = unwrapped(run(*STEP, "--gpus", "16").stdout)
    for words in ("GRPO of llama-3.2-1b", "a step", "Placements", "two pools in turns", "Generation", "Trainer"):
        assert words in text


def test_the_record_has_every_placement() -> None:
    record = answer(*STEP, "--gpus", "16", "--observed", "step 100s")
    assert record["schema"] == "shardplan/rl/1"
    assert len(record["plans"]) == 5
    best = record["plans"][0]
    assert best["step_time_s"] == min(plan["step_time_s"] for plan in record["plans"])
    assert best["plan"]["plan"]["pp"] == 1
    assert record["observed"][0]["ratio"] == pytest.approx(100 / best["step_time_s"])
    assert record["rl"]["response_tokens_mean"] == 500


@pytest.mark.parametrize("placement", ["colocated", "in-turns"])
def test_memory_is_shown_by_phase_where_both_share_accelerators(placement: str) -> None:
    is_shared = placement == "colocated"
    asked = (*STEP, "--gpus", "16", "--placement", placement, "--limit", "sharding=zero1")
    phases = answer(*asked)["memory_by_phase_bytes"]
    assert (phases is not None) == is_shared
    assert ("while weights are sent" in unwrapped(run(*asked).stdout)) == is_shared
    if phases is not None:
        assert phases["training"] > phases["transfer"] > 0


def test_nothing_fits_is_an_answer() -> None:
    result = run("rl", "deepseek-v3", "--cluster", "dgx-h100", "--gpus", "8", *STEP[4:10], "--placement", "colocated")
    assert result.exit_code == 1
    assert "No placement has a plan that fits" in unwrapped(result.stdout)


def test_wrong_input_is_refused() -> None:
    assert "missing: --prompts 64" in refused("rl", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "8")
    assert "shardplan scale rl.json" in refused(*STEP, "--gpus", "8..16")
    assert "a node of dgx-h100 has 8" in refused(*STEP, "--gpus", "2x4+8")
    assert "coffee" in refused(*STEP, "--gpus", "8", "--placement", "colocated", "--observed", "coffee 3s")


def test_the_figure_shows_when_phases_run(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("rl.html", "rl.svg", "rl.csv")]
    flags = [part for file in files for part in (f"--{file.suffix[1:]}", file)]
    assert run(*STEP, "--gpus", "16", *flags).exit_code == 0
    assert "log-probabilities" in files[0].read_text()
    assert "<svg" in files[1].read_text()
    assert files[2].read_text().startswith("placement,num_train,num_rollout,step_time_s")
