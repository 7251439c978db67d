"""Pipelines as columns against the same pipelines laid out one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from tests.examples import LLAMA_405B, cluster, deepseek_v3
from tests.few import few
from tests.planner.small import families_of, questions

from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.planner.family import Family
from shardplan.planner.layouts import KnownPipelines, Layouts
from shardplan.planner.points import families
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import declare
from shardplan.workload.stage import Stage, kinds_of_stage, stages


def laid_out(model: ModelConfig, num_accelerators: int, **limit: list[int]) -> tuple[Family, Layouts]:
    job = Job(sequence_length=4096, global_batch_size=2048)
    question = Question(model=model, cluster=cluster(), num_accelerators=num_accelerators, job=job)
    (family,) = families(question, declare(question, Restrictions(limit=limit)), Counter())
    return family, Layouts.of(question, family, KnownPipelines())


def parts_of(stage: Stage) -> list[float]:
    """Everything that a single stage holds."""
    parts = (stage.num_layers, *stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)
    return [float(part) for part in parts]


def columns_of(stage: Stage, length: int) -> list[list[float]]:
    """The same of each stage of an array."""
    parts = (stage.num_layers, *stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)
    return np.stack([np.broadcast_to(np.asarray(part, dtype=float), (length,)) for part in parts], axis=1).tolist()


def ranks_of(stage: Stage, length: int) -> list[float]:
    ranks: list[float] = np.broadcast_to(np.asarray(stage.rank, dtype=float), (length,)).tolist()
    return ranks


@few(10)
@given(questions())
def test_every_layout_has_the_kinds_of_stage_of_its_pipeline(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        layouts = Layouts.of(question, family, KnownPipelines())
        pipelines = [(pp, vp) for pp, vps in zip(family.depths, family.vps, strict=True) for vp in vps]
        assert layouts.vp.tolist() == [vp for _, vp in pipelines]
        for layout, (pp, vp) in enumerate(pipelines):
            kinds = kinds_of_stage(stages(question.model, pp, vp))
            assert layouts.num_kinds[layout] == len(kinds)
            for kind, single in enumerate(kinds):
                among = np.asarray([layout])
                composed = layouts.composed(layouts.composition[among, kind])
                assert columns_of(composed, 1) == [parts_of(single)]
                stage = layouts.stage(among, kind)
                assert ranks_of(stage, 1) == [single.rank]
                assert (stage.num_layers, stage.has_head) == (single.num_layers, single.has_head)


@few(10)
@given(questions())
def test_layouts_of_one_depth_lie_together(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        layouts = Layouts.of(question, family, KnownPipelines())
        for depth, vps in enumerate(family.vps):
            first = int(layouts.first[depth])
            assert layouts.vp[first : first + len(vps)].tolist() == sorted(vps)
        assert len(layouts.vp) == sum(map(len, family.vps))


@few(10)
@given(questions())
def test_no_composition_is_there_twice(question: Question) -> None:
    for family in families_of(question, declare(question, Restrictions())):
        compositions = Layouts.of(question, family, KnownPipelines()).compositions
        assert len(np.unique(compositions, axis=1).T) == compositions.shape[1]


def test_llama_405b_on_16_stages_has_three_kinds() -> None:
    """arXiv 2407.21783, section 3.3.2: the first and the last stage hold a layer less, and embedding or head."""
    _, layouts = laid_out(LLAMA_405B, 128, pp=[16], vp=[1], tp=[8])
    (row,) = layouts.composition
    assert layouts.num_kinds.tolist() == [3]
    assert layouts.rank.tolist() == [[0, 1, 15]]
    assert columns_of(layouts.composed(row), 3) == [[7, 7, 1, 0, 0], [8, 8, 0, 0, 0], [7, 7, 0, 1, 0]]


def test_stages_of_different_pipelines_share_a_composition() -> None:
    """Eight stages of 7 or 8 layers with experts: the middle ones of DeepSeek-V3 on 8 stages are all alike."""
    family, layouts = laid_out(deepseek_v3(), 64, pp=[4, 8], vp=[1], tp=[1])
    assert family.depths == (4, 8)
    used = np.unique(layouts.composition)
    assert len(used) <= int(layouts.num_kinds.sum())
    held = layouts.composed(used)
    assert np.asarray(held.has_head).sum() == np.asarray(held.has_embedding).sum() == 2


def test_what_all_listed_stages_share_is_a_number() -> None:
    _, layouts = laid_out(LLAMA_405B, 128, pp=[8, 16], vp=[1], tp=[8])
    first = layouts.stage(np.asarray([0, 1, 0]), 0)
    assert first.rank == 0
    assert first.has_embedding == 1
    assert isinstance(first.has_head, float)
    assert np.asarray(first.num_layers).tolist() == [15, 7, 15]
