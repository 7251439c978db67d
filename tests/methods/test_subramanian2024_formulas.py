"""Formulas of arXiv 2410.00273 at their limits, and one code path for one configuration and for a million."""

import numpy as np
import pytest

from shardplan.base.errors import InputError
from shardplan.methods.subramanian2024.candidates import candidates_of, places_of
from shardplan.methods.subramanian2024.inputs import (
    CORRECTIONS,
    FAITHFUL,
    System,
    Transformer,
    corrections_of,
    load_model,
    load_system,
)
from shardplan.methods.subramanian2024.iteration import (
    Configuration,
    PaperSetting,
    gradient_time,
    price,
    stage_link_shares,
    summa_time,
)
from shardplan.methods.subramanian2024.operators import CollectiveKind, PaperCollective, collective_time
from shardplan.methods.subramanian2024.search import price_candidates, search
from shardplan.methods.subramanian2024.strategies import STRATEGIES, strategy_of

H200 = load_system("H200", 8)
BF, BS = 450e9 * 0.7, 50e9 * 0.7
ODD = Transformer(name="odd", l=3000, e=5376, h=42, depth=36)
RACK = System(
    name="rack",
    matrix_flops=1.3e15,
    vector_flops=9e13,
    hbm_bandwidth=5e12,
    hbm_capacity=150e9,
    nvlink_bandwidth=700e9,
    ib_bandwidth=40e9,
    nvlink_latency=1e-6,
    ib_latency=7e-6,
    nic_factor=0.5,
    nvlink_size=72,
)


def _time(kind: CollectiveKind, volume: float, size: int, inside: int, **correct: object) -> float:
    corrected = frozenset(CORRECTIONS) if correct else FAITHFUL
    return float(collective_time(PaperCollective(kind, volume, size, inside, "tp1"), H200, corrected))


def test_a_collective_of_one_or_of_nothing_is_free() -> None:
    assert _time("all_gather", 1e9, 1, 1) == 0
    assert _time("all_reduce", 0.0, 16, 4) == 0


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_a_ring_in_one_domain_between_domains_and_across_both(kind: CollectiveKind) -> None:
    part = 15 / 16
    assert _time(kind, 1e9, 16, 16) == pytest.approx(15 * 2.5e-6 + part * 1e9 / BF, rel=1e-14)
    assert _time(kind, 1e9, 16, 1) == pytest.approx(15 * 5e-6 + part * 1e9 / BS, rel=1e-14)
    across = 3 * 5e-6 + 12 * 2.5e-6 + part * 1e9 / min(4 * BS, BF)
    assert _time(kind, 1e9, 16, 4) == pytest.approx(across, rel=1e-14)


def test_a_broadcast_sends_the_whole_tensor() -> None:
    assert _time("broadcast", 1e9, 8, 8) == pytest.approx(7 * 2.5e-6 + 1e9 / BF, rel=1e-14)
    assert _time("reduce", 1e9, 8, 8) == _time("broadcast", 1e9, 8, 8)


def test_an_all_reduce_is_two_passes_across_domains_only_unless_corrected() -> None:
    latency = {(16, 16): 15 * 2.5e-6, (16, 1): 15 * 5e-6, (16, 4): 3 * 5e-6 + 12 * 2.5e-6}
    for (size, inside), extra in latency.items():
        once = _time("all_gather", 1e9, size, inside) - extra
        published = _time("all_reduce", 1e9, size, inside) - extra
        corrected = _time("all_reduce", 1e9, size, inside, all=True) - extra
        assert published == pytest.approx(once * (2 if inside == 4 else 1), rel=1e-12)
        assert corrected == pytest.approx(2 * once, rel=1e-12)


def test_summa_hides_all_but_one_round_behind_a_long_product() -> None:
    assert summa_time(1.0, 100.0, 8) == 1.0
    assert 10.0 + summa_time(2.0, 10.0, 8) == 9 * 2.0  # nine rounds for eight blocks: Q5
    assert 10.0 + summa_time(2.0, 10.0, 7) == 8 * 2.0


def test_one_collective_of_the_gradients_is_never_hidden() -> None:
    assert gradient_time(one=1.0, forward=9.0, backward=9.0, num_layers=4) == 2.0
    assert gradient_time(one=5.0, forward=2.0, backward=4.0, num_layers=3) == 10.0 + 2 * (1.0 + 3.0)
    assert gradient_time(one=5.0, forward=2.0, backward=4.0, num_layers=1) == 10.0


def test_links_between_stages() -> None:
    assert stage_link_shares(1, 1, FAITHFUL) == (0, 0)
    assert stage_link_shares(8, 1, FAITHFUL) == (1, 0)
    assert stage_link_shares(8, 8, FAITHFUL) == (0, 1)
    assert [float(share) for share in stage_link_shares(8, 4, FAITHFUL)] == pytest.approx([0, 6 / 7])
    assert [float(share) for share in stage_link_shares(8, 4, frozenset({"Q1"}))] == pytest.approx([1 / 7, 6 / 7])


SPACES = {
    "vit_era5": (load_model("vit_era5"), H200, (4, 8, 256, 4096), 4096),
    "gpt3": (load_model("gpt3"), load_system("B200-next", 4), (1, 2, 1024), 1536),
    "odd": (ODD, RACK, (1, 6, 64, 72, 144, 1728), 720),
}


@pytest.mark.parametrize("corrected", [False, True], ids=["published", "corrected"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("space", SPACES)
def test_a_candidate_costs_the_same_alone_and_among_all(space: str, strategy: str, *, corrected: bool) -> None:
    (model, system, sizes, batch), form, changes = SPACES[space], strategy_of(strategy), corrections_of(corrected)
    found = candidates_of(form, model, sizes=sizes, nvlink_size=system.nvlink_size, global_batch_size=batch)
    prices = price_candidates(found, system, changes)
    setting = PaperSetting(model=model, system=system, strategy=form, global_batch_size=batch, corrected=changes)
    memory = np.asarray(prices.memory.total)
    assert found.num_candidates > 0
    for index in np.random.default_rng(0).integers(found.num_candidates, size=12).tolist():
        alone = price(setting, [found.configuration(index)])
        assert float(np.max(alone.time)) == pytest.approx(float(prices.time[index]), rel=1e-13)
        assert float(np.max(alone.memory.total)) == pytest.approx(float(memory[found.point[index]]), rel=1e-13)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_candidate_keeps_to_the_rules_and_comes_once(strategy: str) -> None:
    """Against plain loops over all degrees, on numbers that are no powers of two."""
    model, batch, nvs = ODD, 24, 6
    for size in (6, 12, 36):
        space = candidates_of(strategy_of(strategy), model, sizes=[size], nvlink_size=nvs, global_batch_size=batch)
        found = [space.configuration(index) for index in range(space.num_candidates)]
        assert len(set(found)) == len(found)
        assert set(found) == set(_enumerated(strategy, model, size, nvs, batch))


def _enumerated(strategy: str, model: Transformer, size: int, nvs: int, batch: int) -> list[Configuration]:
    """The paper's rules, read off section 7 of the specification of its programme."""
    found = []
    for tp1 in range(1, size + 1):
        for tp2 in range(1, size + 1 if strategy != "1d" else 2):
            if size % (tp1 * tp2) or not _is_tensor_degree(strategy, model, tp1, tp2):
                continue
            left = size // (tp1 * tp2)
            for pp in range(1, model.depth + 1):
                if min(left, model.depth) % pp or model.depth % pp or left % pp or batch % (left // pp):
                    continue
                dp = left // pp
                shared = {"1d": tp1, "2d-seqp": tp1 * tp2, "2d": tp2}[strategy]
                for mbs in range(1, batch // dp + 1):
                    if (batch // dp) % mbs or mbs * model.l % shared:
                        continue
                    for nb in _blocks(strategy, model, max(tp1, tp2)):
                        one = Configuration(dp=dp, tp1=tp1, tp2=tp2, pp=pp, mbs=mbs, nb=nb)
                        found += places_of(one, nvs)
    return found


def _is_tensor_degree(strategy: str, model: Transformer, tp1: int, tp2: int) -> bool:
    if model.h % tp1 or model.e % tp1:
        return False
    if strategy == "1d":
        return 3 * model.e // tp1 >= 128
    return model.e // tp1 >= 128 and model.l // tp2 >= 128 and (strategy == "2d-seqp" or model.e % tp2 == 0)


def _blocks(strategy: str, model: Transformer, least: int) -> list[int]:
    if strategy != "2d":
        return [1]
    if model.e / least < 512:
        return [least]
    count = int(np.ceil(np.log2(model.e // least)))
    doubled = [least * 2**power for power in range(count)]
    return [nb for nb in doubled if model.e % nb == 0 and model.e // nb >= 512]


def test_a_search_too_large_for_memory_is_refused() -> None:
    size = 8_648_640
    model = Transformer(name="large", l=720_720, e=720_720, h=720_720, depth=720_720)
    system = load_system("B200", 83_160)
    with pytest.raises(InputError, match="combinations"):
        search(PaperSetting(model=model, system=system, strategy=strategy_of("2d"), global_batch_size=size), [size])


def test_more_memory_never_makes_the_best_slower() -> None:
    model, last = load_model("gpt3_1T"), 0.0
    space = candidates_of(strategy_of("1d"), model, sizes=[2048], nvlink_size=8, global_batch_size=4096)
    prices = price_candidates(space, H200)
    for capacity in (40e9, 80e9, 141e9, 192e9, 1e12):
        (result,) = prices.results(capacity, 3)
        throughput = result.throughputs[0] if result.best else 0.0
        assert throughput >= last
        last = throughput
