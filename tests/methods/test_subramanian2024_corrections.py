"""What changes when the errors of arXiv 2410.00273 are corrected, one by one and together."""

import csv
from pathlib import Path

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.methods.subramanian2024.inputs import CORRECTIONS, FAITHFUL, corrections_of, load_model, load_system
from shardplan.methods.subramanian2024.iteration import PaperSetting
from shardplan.methods.subramanian2024.search import SizeResult, search
from shardplan.methods.subramanian2024.strategies import STRATEGIES, strategy_of
from shardplan.methods.subramanian2024.study import SIZES

KNOWN = list(
    csv.DictReader((Path(__file__).parent / "data" / "subramanian2024_corrections.csv").read_text().splitlines())
)
SYSTEMS = (("H200", 8), ("B200", 64))
MODELS = ("gpt3_1T", "vit_era5")


def _best(
    model: str, strategy: str, system: str, nvs: int, sizes: tuple[int, ...], *, corrected: object = None
) -> list[SizeResult]:
    setting = PaperSetting(
        model=load_model(model),
        system=load_system(system, nvs),
        strategy=strategy_of(strategy),
        corrected=corrections_of(corrected),
    )
    return search(setting, sizes)


@pytest.mark.parametrize("known", KNOWN, ids=lambda row: "-".join(list(row.values())[:6]))
def test_effect_of_a_correction(known: dict[str, str]) -> None:
    where = (known["model"], known["strategy"], known["system"], int(known["nvs"]), (int(known["num_gpus"]),))
    (before,), (after,) = _best(*where), _best(*where, corrected=known["correction"])
    if known["change_percent"]:
        change = 100 * (after.throughputs[0] / before.throughputs[0] - 1)
        assert change == pytest.approx(float(known["change_percent"]), abs=float(known["tolerance"]))
    if known["change_of_fitting"]:
        assert after.num_fitting - before.num_fitting == int(known["change_of_fitting"])


def test_paying_for_slow_links_moves_six_of_twenty_optima() -> None:
    """Those of section 9: both systems, both sizes, every pair of model and strategy that fits."""
    moved = 0
    for system, nvs in SYSTEMS:
        for model in MODELS:
            for strategy in STRATEGIES:
                before = _best(model, strategy, system, nvs, (1024, 16384))
                after = _best(model, strategy, system, nvs, (1024, 16384), corrected="Q1")
                changed = [one.best[0] != two.best[0] for one, two in zip(before, after, strict=True) if one.best]
                assert len(changed) == (0 if (model, strategy) == ("vit_era5", "1d") else 2)
                moved += sum(changed)
    assert moved == 6


def test_an_all_reduce_hardly_matters() -> None:
    for system, nvs in SYSTEMS:
        for model in MODELS:
            before = _best(model, "2d", system, nvs, (1024, 16384))
            after = _best(model, "2d", system, nvs, (1024, 16384), corrected="Q3")
            for one, two in zip(before, after, strict=True):
                assert -1e-5 < two.throughputs[0] / one.throughputs[0] - 1 <= 0


def test_the_width_of_a_norm_decides_between_summa_and_context_parallelism() -> None:
    for nvs, shipped, corrected, other in ((8, 110.6, 140.3, 117.0), (64, 149.9, 170.2, 151.9)):
        ((before,), (after,)) = (_best("vit_era5", "2d", "H200", nvs, (16384,), corrected=q) for q in (None, "Q2"))
        (context,) = _best("vit_era5", "2d-seqp", "H200", nvs, (16384,))
        assert before.throughputs[0] == pytest.approx(shipped, abs=0.05)
        assert after.throughputs[0] == pytest.approx(corrected, abs=0.05)
        assert context.throughputs[0] == pytest.approx(other, abs=0.05)
        assert before.throughputs[0] < context.throughputs[0] < after.throughputs[0]


def test_the_vision_transformer_needs_two_dimensions_only_as_inputs_are_stored() -> None:
    """Section 9, Q11: 196.65 GB as published, 48.2 GB with the inputs of fc1 and qkv kept in shards."""
    published = _best("vit_era5", "1d", "B200", 8, SIZES)
    assert min(result.smallest_memory_bytes for result in published) / 1e9 == pytest.approx(196.65, abs=0.005)
    assert not any(result.best for result in published)
    corrected = _best("vit_era5", "1d", "B200", 8, SIZES, corrected="Q11")
    assert min(result.smallest_memory_bytes for result in corrected) / 1e9 == pytest.approx(48.2, abs=0.05)
    for system in ("A100", "H200", "B200"):
        results = _best("vit_era5", "1d", system, 8, (256, 1024, 4096, 16384), corrected="Q11")
        assert all(result.best for result in results)


def test_one_dimension_comes_close_to_two_once_all_is_corrected() -> None:
    (one,), *others = (_best("vit_era5", each, "H200", 8, (16384,), corrected="all") for each in STRATEGIES)
    best = max(result.throughputs[0] for (result,) in others)
    assert 0.85 < one.throughputs[0] / best < 1
    (shipped,) = _best("vit_era5", "2d-seqp", "H200", 8, (16384,))
    assert one.throughputs[0] > shipped.throughputs[0]


def test_corrections_touch_only_what_they_name() -> None:
    for correction, strategy in (("Q2", "1d"), ("Q3", "2d-seqp"), ("Q5", "1d"), ("Q11", "2d")):
        before = _best("gpt3_1T", strategy, "B200", 8, (1024,))
        assert _best("gpt3_1T", strategy, "B200", 8, (1024,), corrected=correction) == before


def test_names_of_corrections() -> None:
    assert corrections_of(None) == corrections_of(False) == FAITHFUL == frozenset()  # noqa: FBT003
    assert corrections_of(True) == corrections_of("all") == frozenset(CORRECTIONS)  # noqa: FBT003
    assert corrections_of("q2, Q11") == corrections_of("Q2+Q11") == corrections_of(["Q11", "q2"]) == {"Q2", "Q11"}


@pytest.mark.parametrize("given", [3, 1.5, [1], object(), {"Q2": 3.0, 4: 1}])
def test_corrections_of_the_wrong_type_are_refused(given: object) -> None:
    with pytest.raises(InputError):
        corrections_of(given)


@pytest.mark.parametrize("given", ["Q4", "Q12,Q2", ["nothing"], "x" * 10_000])
def test_what_cannot_be_corrected_is_refused(given: object) -> None:
    with pytest.raises(UnknownNameError):
        corrections_of(given)
