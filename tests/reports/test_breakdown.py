"""Parts of the step and of the memory add up to the whole."""

from __future__ import annotations

import math

from hypothesis import given
from tests.few import few
from tests.strategies import Case, cases

from shardplan.estimation.estimate import estimate_plan
from shardplan.reports.breakdown import memory_bar, step_split


@given(cases())
@few(10)
def test_parts_add_up(case: Case) -> None:
    estimate = estimate_plan(case.question, case.plan)
    split, bar = step_split(estimate), memory_bar(estimate)
    assert math.isclose(sum(share.value for share in split), estimate.step_time, rel_tol=1e-3)
    assert [share.value for share in split] == sorted((share.value for share in split), reverse=True)
    assert math.isclose(sum(part.value for part in bar.parts), estimate.peak_memory_bytes, rel_tol=1e-9)
    assert math.isclose(sum(part.share for part in bar.parts), bar.used_bytes / bar.usable_bytes, rel_tol=1e-9)
    assert (bar.free_bytes >= 0) == estimate.feasible
    assert bar.num_stages == case.plan.pp
