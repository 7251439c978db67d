"""Mutants that change no result, each with the reason: no test can catch them."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "costs/collectives.py",
        "sent.append(moved * sent_once(copies, layer.pieces) if copies.count > 1 else moved)",
        "sent.append(moved * sent_once(copies, layer.pieces) if copies.count > 0 else moved)",
    ): "one copy reaches one domain, all of itself: the condition saves work",
    (
        "costs/groups.py",
        "if all(not group.largest for group in groups):",
        "if all((group.largest) for group in groups):",
    ): "parts that are all equal, written out, are what they are: the condition saves work",
    (
        "estimation/estimate.py",
        "if not math.isfinite(answer.step_time + answer.peak_memory_bytes):",
        "if not math.isfinite((answer.step_time - answer.peak_memory_bytes)):",
    ): "neither a sum nor a difference is finite where one of the two is not",
    (
        "estimation/stage_memory.py",
        "return np.maximum(needed - gone, 0.0) if any_holds(needed) else 0.0",
        "return (np.maximum(needed - gone, 0.0))",
    ): "what needs nothing needs nothing beyond what is gone: the condition saves work",
    (
        "estimation/parts/pipelines.py",
        "if np.all(np.asarray(numbers.pp) == 1):",
        "if np.all(np.asarray(numbers.pp) == 0):",
    ): "one stage alone is all stages, so that it waits for nothing but rounding: the condition saves work",
    (
        "schedules/dualpipe.py",
        "if at.num_microbatches % 2 and at.num_microbatches >= 2 * at.pp:",
        "if (at.num_microbatches) and at.num_microbatches >= 2 * at.pp:",
    ): "a hint is asked for where a rule is broken: with even ranks and enough micro-batches, by an odd number of them",
    (
        "schedules/dualpipe_v.py",
        "kept: Numbers = np.minimum(at.num_microbatches, np.asarray(at.pp) + 0.5)",
        "kept: Numbers = (np.asarray(at.pp) + 0.5)",
    ): "the schedule runs with 2 p micro-batches or more",
    (
        "schedules/interleaved.py",
        "def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:",
        "def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 0.0) -> Numbers:",
    ): "a pace of one loses nothing, and so does a lower one",
    (
        "workload/balance.py",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(1 * np.pi * second)",
    ): "cosines over half a turn are distributed as those over a whole one: other draws from the same lengths",
    (
        "workload/op_sac.py",
        "if products and not products[-1].grouped:",
        "if products and not products[-2].grouped:",
    ): "a layer ends with the two products of one mixer or MLP, of which both are grouped or neither is",
    (
        "workload/parts.py",
        "most = np.maximum(most, value if present.all() else np.where(present, value, 0.0))",
        "most = np.maximum(most, (np.where(present, value, 0.0)))",
    ): "where all stages hold a part nothing is set to zero: the condition saves work",
}  # fmt: skip
"""Reason by file and by its lines before and after the change."""
