"""How many domains the copies of a token reach, against limits, published numbers and draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.costs.collectives import collective_bytes
from shardplan.costs.groups import Group
from shardplan.workload.copies import domains_reached
from shardplan.workload.ops import Copies

DEEPSEEK_V3 = Copies(8, 8, 4)
DEEPSEEK_V2 = Copies(6, 8, 3)

groups = st.integers(1, 16).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
copies_of = st.builds(lambda k, of: Copies(k, *of), st.integers(1, 22), groups)
domains = st.sampled_from((1, 2, 3, 4, 6, 7, 8, 12, 16, 32, 64, 256))


def drawn(copies: Copies, num_domains: int, num_experts: int, *, draws: int = 20_000) -> float:
    """Mean number of domains over tokens whose different experts are drawn from groups that are drawn first."""
    rng = np.random.default_rng(0)
    per_group = num_experts // copies.num_groups
    allowed = np.argsort(rng.random((draws, copies.num_groups)), axis=1)[:, : copies.groups_reached]
    inside = np.argsort(rng.random((draws, per_group * copies.groups_reached)), axis=1)[:, : copies.count]
    experts = np.take_along_axis(allowed, inside // per_group, axis=1) * per_group + inside % per_group
    reached = np.sort(experts * num_domains // num_experts, axis=1)
    return float(np.mean(1 + np.count_nonzero(np.diff(reached, axis=1), axis=1)))


@given(st.integers(1, 22), domains)
def test_without_groups_copies_fall_anywhere(k: int, num_domains: int) -> None:
    expected = num_domains * (1 - (1 - 1 / num_domains) ** k)
    assert domains_reached(Copies(k), num_domains) == pytest.approx(expected, rel=1e-12)


def test_deepseek_v3_reaches_at_most_four_of_eight_nodes() -> None:
    """Arxiv 2412.19437, section 2.1.2: each token goes to at most 4 nodes; without the limit 5.25 on average."""
    assert domains_reached(DEEPSEEK_V3, 8) == pytest.approx(4 * (1 - 0.75**8))
    assert domains_reached(DEEPSEEK_V3, 8) < 4
    assert domains_reached(Copies(8), 8) == pytest.approx(5.25, abs=0.01)


def test_two_domains_of_two_groups_each() -> None:
    """By hand: of the six pairs of groups two lie in one domain, four in both; then 1 of 2 pairs of copies is apart."""
    assert domains_reached(Copies(2, 4, 2), 2) == pytest.approx((2 * 1 + 4 * 1.5) / 6)


@given(copies_of)
def test_one_domain_holds_all(copies: Copies) -> None:
    assert domains_reached(copies, 1) == pytest.approx(1)


@given(copies_of)
def test_of_many_domains_every_copy_has_its_own(copies: Copies) -> None:
    """But for pairs that meet: k (k - 1) / 2 pairs, each in one of the D t / G domains within reach."""
    within_reach = 1024 * copies.groups_reached / copies.num_groups
    meeting = copies.count * (copies.count - 1) / 2 / within_reach
    assert copies.count - meeting - 1e-9 <= domains_reached(copies, 1024) <= copies.count + 1e-9


@given(copies_of, domains)
def test_never_more_domains_than_there_are_or_than_copies(copies: Copies, num_domains: int) -> None:
    reached = float(domains_reached(copies, num_domains))
    assert 1 - 1e-9 <= reached <= min(num_domains, copies.count) * (1 + 1e-9)


@given(copies_of, st.sampled_from((1, 2, 4)))
def test_domains_of_whole_groups_are_no_more_than_the_groups_of_a_token(copies: Copies, each: int) -> None:
    if copies.num_groups % each == 0:
        assert domains_reached(copies, copies.num_groups // each) <= copies.groups_reached + 1e-9


@given(copies_of, domains)
def test_a_limit_never_reaches_more(copies: Copies, num_domains: int) -> None:
    assert domains_reached(copies, num_domains) <= domains_reached(Copies(copies.count), num_domains) * 1.0000001


@given(st.integers(1, 22), st.sampled_from((2, 4, 8, 16)), st.sampled_from((1, 2, 4, 8, 16, 64)))
def test_a_limit_of_all_groups_is_none(k: int, num_groups: int, num_domains: int) -> None:
    limited = domains_reached(Copies(k, num_groups, num_groups), num_domains)
    assert limited == pytest.approx(domains_reached(Copies(k), num_domains), rel=1e-12)


@pytest.mark.parametrize("num_domains", [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64])
@pytest.mark.parametrize(("copies", "num_experts"), [(DEEPSEEK_V3, 256), (DEEPSEEK_V3, 240), (DEEPSEEK_V2, 160)])
def test_draws_of_tokens_agree(copies: Copies, num_experts: int, num_domains: int) -> None:
    """Draws choose different experts, the formula may choose one twice: it is at most 4 % below."""
    if num_experts % num_domains == 0:
        real = drawn(copies, num_domains, num_experts)
        assert real * 0.96 <= domains_reached(copies, num_domains) <= real * 1.005


def test_a_number_that_is_not_whole_lies_between_its_neighbours() -> None:
    four, half, five = (float(domains_reached(DEEPSEEK_V3, each)) for each in (4, 4.5, 5))
    assert half == pytest.approx((four + five) / 2)


@given(copies_of)
def test_arrays_equal_numbers(copies: Copies) -> None:
    several = np.array([1, 2, 6, 8, 64])
    singly = [float(domains_reached(copies, int(each))) for each in several]
    assert np.asarray(domains_reached(copies, several)).tolist() == pytest.approx(singly, rel=1e-12)


def test_the_network_carries_one_copy_for_each_domain() -> None:
    """64 ranks in nodes of eight: of eight copies 4 (1 - 0.75^8) cross, seven eighths of them to other nodes."""
    _, outer = collective_bytes("all_to_all", 8.0, Group(64, (8, 64)), copies=DEEPSEEK_V3)
    assert outer == pytest.approx(4 * (1 - 0.75**8) * 7 / 8)


@pytest.mark.parametrize("num_domains", [1.5, 2.5, 7.25])
def test_without_groups_a_number_that_is_not_whole_is_one_of_the_closed_form(num_domains: float) -> None:
    assert domains_reached(Copies(8), num_domains) == num_domains * (1 - (1 - 1 / num_domains) ** 8)
