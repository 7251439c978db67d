"""Mutants that change no result, each with the reason: no test can catch them."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "physics/costs/collectives.py",
        "sent.append(moved * sent_once(copies, layer.pieces) if copies.count > 1 else moved)",
        "sent.append(moved * sent_once(copies, layer.pieces) if copies.count > 0 else moved)",
    ): "one copy reaches one domain, all of itself: the condition saves work",
    (
        "physics/costs/collectives.py",
        "if all(not group.largest for group in groups):",
        "if all((group.largest) for group in groups):",
    ): "parts that are all equal, written out, are what they are: the condition saves work",
    (
        "estimation/band.py",
        "beyond = gaps_of(asked, part, known.quantity, (*known.runs, *own)) if own else _gaps(known, asked, part)",
        "beyond = (gaps_of(asked, part, known.quantity, (*known.runs, *own)))",
    ): "the same gaps: those of published runs alone are kept, which saves work",
    (
        "estimation/band.py",
        "told = told_of(own, known.quantity, (high - low) / max(high_without - low_without, 1e-9))",
        "told = told_of(own, known.quantity, (high - low) / max(high_without - low_without, 1.1000000000000001e-09))",
    ): "a band has a width of this size only where all errors are zero",
    (
        "estimation/band.py",
        "told = told_of(own, known.quantity, (high - low) / max(high_without - low_without, 1e-9))",
        "told = told_of(own, known.quantity, (high - low) / max(high_without - low_without, 9.000000000000001e-10))",
    ): "a band has a width of this size only where all errors are zero",
    (
        "estimation/band.py",
        "return (gap_of_plan(asked, known.table, KnownRuns(own) if own else None),)",
        "return (gap_of_plan(asked, known.table, (KnownRuns(own))),)",
    ): "a table without runs brings no run nearer: the condition saves work",
    (
        "estimation/band.py",
        '"accelerators": 1.0,',
        '"accelerators": 2.0,',
    ): "likeness does not read it: any one value lets answers be kept once",
    (
        "estimation/band.py",
        '"sequence_length": 1.0,',
        '"sequence_length": 2.0,',
    ): "likeness does not read it: any one value lets answers be kept once",
    (
        "estimation/band.py",
        '"global_batch_size": 1.0,',
        '"global_batch_size": 2.0,',
    ): "likeness does not read it: any one value lets answers be kept once",
    (
        "estimation/band.py",
        "mixed_in = max(FEW_RUNS - float(alike.sum()), 0.0) / max(float(same_kind.sum()), 1e-300)",
        "mixed_in = max(FEW_RUNS - float(alike.sum()), 0.0) / max(float(same_kind.sum()), 1.1000000000000002e-300)",
    ): "what weighs so little is nothing: the number guards a division by zero",
    (
        "estimation/band.py",
        "mixed_in = max(FEW_RUNS - float(alike.sum()), 0.0) / max(float(same_kind.sum()), 1e-300)",
        "mixed_in = max(FEW_RUNS - float(alike.sum()), 0.0) / max(float(same_kind.sum()), 9e-301)",
    ): "what weighs so little is nothing: the number guards a division by zero",
    (
        "estimation/parts/chunks.py",
        "chunks = counts.reshape(len(counts), -1).T.tolist()",
        "chunks = counts.reshape(len(counts), -2).T.tolist()",
    ): "NumPy takes any negative length as the one to be found",
    (
        "estimation/parts/chunks.py",
        "transfer=np.maximum(of_plan(work.around.handover_time) - exposed, 0.0),",
        "transfer=(of_plan(work.around.handover_time) - exposed),",
    ): "no more of a transfer shows than all of it, but for rounding",
    (
        "estimation/parts/chunks.py",
        "transfer=np.maximum(of_plan(work.around.handover_time) - exposed, 0.0),",
        "transfer=np.maximum(of_plan(work.around.handover_time) - exposed, -1.0),",
    ): "no more of a transfer shows than all of it, but for rounding",
    (
        "estimation/estimate.py",
        "return estimate_plans(question, (plan,))[0]",
        "return estimate_plans(question, (plan,))[-1]",
    ): "one plan is the first and the last",
    (
        "estimation/estimate.py",
        "if not math.isfinite(answer.step_time + answer.peak_memory_bytes):",
        "if not math.isfinite((answer.step_time - answer.peak_memory_bytes)):",
    ): "neither a sum nor a difference is finite where one of the two is not",
    (
        "estimation/evidence.py",
        "least = np.partition(of_known, number - 1)[number - 1] if len(known) > number else np.inf",
        "least = np.partition(of_known, number - 1)[(number)] if len(known) > number else np.inf",
    ): "of more runs than asked for the nearest are taken: a smaller choice saves work",
    (
        "estimation/evidence.py",
        "return [_number(value) if isinstance(value, str) else value for value in map(respect.value, things)]",
        "return [(_number(value)) for value in map(respect.value, things)]",
    ): "the number of a number is itself: the condition saves work",
    (
        "estimation/evidence.py",
        "SAME_DISTANCE = 12",
        "SAME_DISTANCE = 11",
    ): "distances are equal but for rounding, or differ by far more",
    (
        "estimation/gaps.py",
        "asked, terms, np.concatenate([published.sources, own.sources + published.sources.max(initial=-1) + 1])",
        "asked, terms, np.concatenate([published.sources, own.sources + published.sources.max(initial=(1)) + 1])",
    ): "numbers of own sources have to differ from the published ones, by how much says nothing",
    (
        "estimation/gaps.py",
        "asked, terms, np.concatenate([published.sources, own.sources + published.sources.max(initial=-1) + 1])",
        "asked, terms, np.concatenate([published.sources, own.sources + published.sources.max(initial=-1) + 2])",
    ): "numbers of own sources have to differ from the published ones, by how much says nothing",
    (
        "estimation/gaps.py",
        "bits=16,",
        "bits=17,",
    ): "the rarest respects of a plan are read of these features, of which this is none",
    (
        "estimation/gaps.py",
        "bits=16,",
        "bits=15,",
    ): "the rarest respects of a plan are read of these features, of which this is none",
    (
        "estimation/gaps.py",
        "parameters=1.0,",
        "parameters=2.0,",
    ): "the rarest respects of a plan are read of these features, of which this is none",
    (
        "estimation/gaps.py",
        "accelerators=1.0,",
        "accelerators=2.0,",
    ): "the rarest respects of a plan are read of these features, of which this is none",
    (
        "estimation/gaps.py",
        "if total <= most:",
        "if (total < most):",
    ): "gaps that are as large as allowed are scaled by one",
    (
        "estimation/gaps.py",
        'kind = _kind_of(asked) if alike[0].features.moe == asked.moe else ""',
        'kind = _kind_of(asked) if alike[-1].features.moe == asked.moe else ""',
    ): "the runs that are alike are all of one kind, or of the other",
    (
        "estimation/layout.py",
        "SAME: Final = 1e-9",
        "SAME: Final = 1.1000000000000001e-09",
    ): "the ways of whole layers are as long as the slowest rank but for rounding, or longer by far more",
    (
        "estimation/layout.py",
        "SAME: Final = 1e-9",
        "SAME: Final = 9.000000000000001e-10",
    ): "the ways of whole layers are as long as the slowest rank but for rounding, or longer by far more",
    (
        "estimation/layout.py",
        "return pipelines_of(model, [(pp, vp, layers, schedule)])[0]",
        "return pipelines_of(model, [(pp, vp, layers, schedule)])[-1]",
    ): "one pipeline is the first and the last",
    (
        "estimation/layout.py",
        "chunks, copies = counts.reshape(len(counts), -1), schedule.parameter_copies",
        "chunks, copies = counts.reshape(len(counts), -2), schedule.parameter_copies",
    ): "NumPy takes any negative length as the one to be found",
    (
        "estimation/layout.py",
        "parts = [_parts_of(model, held) if _is_uneven(held) else None for held in counts]",
        "parts = [(_parts_of(model, held)) for held in counts]",
    ): "heavier ends and single chunks make no way longer than the slowest rank: the condition saves work",
    (
        "estimation/layout.py",
        "slow = [pace_of(work, way) > 1 + SAME for work, way in zip(works, ways, strict=True)]",
        "slow = [(pace_of(work, way) >= 1 + SAME) for work, way in zip(works, ways, strict=True)]",
    ): "the ways of whole layers are as long as the slowest rank but for rounding, or longer by far more",
    (
        "estimation/layout.py",
        "slow = [pace_of(work, way) > 1 + SAME for work, way in zip(works, ways, strict=True)]",
        "slow = [pace_of(work, way) > (1) for work, way in zip(works, ways, strict=True)]",
    ): "the ways of whole layers are as long as the slowest rank but for rounding, or longer by far more",
    (
        "estimation/layout.py",
        "_group([(_in_rows(held) @ ways[one].ravel()).round(9).tolist() for one in own if slow[one]])",
        "_group([(_in_rows(held) @ ways[one].ravel()).round(10).tolist() for one in own if slow[one]])",
    ): "counts are fractions with denominators of a few hundred at most, wrong by rounding alone",
    (
        "estimation/layout.py",
        "_group([(_in_rows(held) @ ways[one].ravel()).round(9).tolist() for one in own if slow[one]])",
        "_group([(_in_rows(held) @ ways[one].ravel()).round(8).tolist() for one in own if slow[one]])",
    ): "counts are fractions with denominators of a few hundred at most, wrong by rounding alone",
    (
        "estimation/layout.py",
        "if len(_KNOWN) > MOST_KNOWN:",
        "if (len(_KNOWN) >= MOST_KNOWN):",
    ): "ways that are not kept are found again",
    (
        "estimation/layout.py",
        "if len(_KNOWN) > MOST_KNOWN:",
        "if (len(_KNOWN) <= MOST_KNOWN):",
    ): "ways that are not kept are found again",
    (
        "estimation/layout.py",
        "MOST_KNOWN: Final = 4096",
        "MOST_KNOWN: Final = 4097",
    ): "ways that are not kept are found again",
    (
        "estimation/layout.py",
        "MOST_KNOWN: Final = 4096",
        "MOST_KNOWN: Final = 4095",
    ): "ways that are not kept are found again",
    (
        "estimation/layout.py",
        "return parts.reshape(len(parts), -1)",
        "return parts.reshape(len(parts), -2)",
    ): "NumPy takes any negative length as the one to be found",
    (
        "estimation/layout.py",
        "chunks = counts.reshape(len(counts), -1)",
        "chunks = counts.reshape(len(counts), -2)",
    ): "NumPy takes any negative length as the one to be found",
    (
        "estimation/layout.py",
        "return 1 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))",
        "return (1 not in counts.shape[1:] or bool(np.any(chunks != chunks[:, :1])))",
    ): "heavier ends and single chunks make no way longer than the slowest rank: the condition saves work",
    (
        "estimation/layout.py",
        "return 1 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))",
        "return 0 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))",
    ): "heavier ends and single chunks make no way longer than the slowest rank: the condition saves work",
    (
        "estimation/layout.py",
        "return 1 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))",
        "return 1 not in counts.shape[2:] and bool(np.any(chunks != chunks[:, :1]))",
    ): "heavier ends and single chunks make no way longer than the slowest rank: the condition saves work",
    (
        "estimation/layout.py",
        "return 1 not in counts.shape[1:] and bool(np.any(chunks != chunks[:, :1]))",
        "return 1 not in counts.shape[1:] and bool(np.any((chunks == chunks[:, :1])))",
    ): "heavier ends and single chunks make no way longer than the slowest rank: the condition saves work",
    (
        "estimation/layout.py",
        "return stages(model, 1, 1)[0]",
        "return stages(model, 1, 2)[0]",
    ): "all chunks of one rank are one stage",
    (
        "estimation/layout.py",
        "return stages(model, 1, 1)[0]",
        "return stages(model, 1, 1)[-1]",
    ): "one stage is the first and the last",
    (
        "estimation/gaps.py",
        'change = "as wide as" if abs(width - 1) <= SAME else "wider than" if width > 1 else "narrower than"',
        'change = "as wide as" if (abs(width - 1) < SAME) else "wider than" if width > 1 else "narrower than"',
    ): "no number is 0.05 from one: floats next to 1.05 and 0.95 are a little nearer or further",
    (
        "estimation/gaps.py",
        'change = "as wide as" if abs(width - 1) <= SAME else "wider than" if width > 1 else "narrower than"',
        'change = "as wide as" if abs(width - 1) <= SAME else "wider than" if (width >= 1) else "narrower than"',
    ): "a width of one is as wide",
    (
        "estimation/parts/pipelines.py",
        "if np.all(np.asarray(numbers.pp) == 1):",
        "if np.all(np.asarray(numbers.pp) == 0):",
    ): "one stage alone is all stages, so that it waits for nothing but rounding: the condition saves work",
    (
        "estimation/parts/pipelines.py",
        "if is_zero(stage.rank) or np.all(np.asarray(numbers.pp) == 1):",
        "if (is_zero(stage.rank) and np.all(np.asarray(numbers.pp) == 1)):",
    ): "the first rank has no way in front of it, one rank has no others: the condition saves work",
    (
        "estimation/parts/pipelines.py",
        "if is_zero(stage.rank) or np.all(np.asarray(numbers.pp) == 1):",
        "if is_zero(stage.rank) or np.all(np.asarray(numbers.pp) == 0):",
    ): "the first rank has no way in front of it, one rank has no others: the condition saves work",
    (
        "estimation/priced.py",
        "return cls.of_all(question, (plan,))[0]",
        "return cls.of_all(question, (plan,))[-1]",
    ): "one plan is the first and the last",
    (
        "estimation/stage_memory.py",
        "return np.maximum(peak - gone, 0.0) if any_holds(peak) else 0.0",
        "return (np.maximum(peak - gone, 0.0))",
    ): "what has no peak needs nothing beyond what is gone: the condition saves work",
    (
        "estimation/times.py",
        "return 1 / np.maximum(self.free, 1e-30)",
        "return 1 / np.maximum(self.free, 1.1000000000000003e-30)",
    ): "no work takes so little time: the number guards a division by zero",
    (
        "estimation/times.py",
        "return 1 / np.maximum(self.free, 1e-30)",
        "return 1 / np.maximum(self.free, 9e-31)",
    ): "no work takes so little time: the number guards a division by zero",
    (
        "estimation/times.py",
        "return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)",
        "return transfer, offload, (rest / np.maximum(free, 1e-30))",
    ): "all that is left is the share one: the condition saves work",
    (
        "estimation/times.py",
        "return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)",
        "return transfer, offload, None if rest is free else rest / np.maximum(free, 1.1000000000000003e-30)",
    ): "no work takes so little time: the number guards a division by zero",
    (
        "estimation/times.py",
        "return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)",
        "return transfer, offload, None if rest is free else rest / np.maximum(free, 9e-31)",
    ): "no work takes so little time: the number guards a division by zero",
    (
        "estimation/times.py",
        "if not (is_zero(sharded) or (is_zero(load.reduce_time) and is_zero(load.gather_time))):",
        "if not ((is_zero(sharded) and (is_zero(load.reduce_time) and is_zero(load.gather_time)))):",
    ): "where nothing is hidden all is left: the condition saves work",
    (
        "physics/memory.py",
        'return useful[0] if len(useful) == 1 else f"{\', \'.join(useful[:-1])}, or {useful[-1]}"',
        'return useful[-1] if len(useful) == 1 else f"{\', \'.join(useful[:-1])}, or {useful[-1]}"',
    ): "one word is the first and the last",
    (
        "physics/memory.py",
        "where(np.greater(numbers.expert_sharding_degree, 1), held.experts, 0.0) if any_holds(held.experts) else 0.0,",
        "(where(np.greater(numbers.expert_sharding_degree, 1), held.experts, 0.0)),",
    ): "no experts are as many whether they are shared or not: the condition saves work",
    (
        "physics/memory.py",
        "both = both + _second_moments(held, job, numbers) if any_holds(held.by_adam) else both",
        "both = (both + _second_moments(held, job, numbers))",
    ): "what no parameter keeps takes nothing: the condition saves work",
    (
        "physics/schedules/dualpipe.py",
        "if at.num_microbatches % 2 and at.num_microbatches >= 2 * at.pp:",
        "if (at.num_microbatches) and at.num_microbatches >= 2 * at.pp:",
    ): "a hint is asked for where a rule is broken: with even ranks and enough micro-batches, by an odd number of them",
    (
        "physics/schedules/dualpipe.py",
        "kept: Numbers = np.minimum(at.num_microbatches, np.asarray(at.pp) + 0.5)",
        "kept: Numbers = (np.asarray(at.pp) + 0.5)",
    ): "the schedule runs with 2 p micro-batches or more",
    (
        "physics/schedules/interleaved.py",
        "def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 1.0) -> Numbers:",
        "def idle_time(self, at: Pipeline, own: Passes, everyone: Passes, pace: Numbers = 0.0) -> Numbers:",
    ): "a pace of one loses nothing, and so does a lower one",
    (
        "physics/schedules/longest_ways.py",
        "best, taken = [0.0] * (len(every) + pp), [False] * len(every)",
        "best, taken = [1.0] * (len(every) + pp), [False] * len(every)",
    ): "all ways are compared, which are longer by the same",
    (
        "physics/schedules/longest_ways.py",
        "best, taken = [0.0] * (len(every) + pp), [False] * len(every)",
        "best, taken = [-1.0] * (len(every) + pp), [False] * len(every)",
    ): "all ways are compared, which are shorter by the same",
    (
        "physics/schedules/order_file.py",
        "self.least_vp = self.vp = len(self.stages[0]) # type: ignore[misc] # of this file",
        "self.least_vp = self.vp = len(self.stages[-1]) # type: ignore[misc] # of this file",
    ): "the rows have as many stages each",
    (
        "physics/schedules/zero_bubble_search.py",
        "return 0.0",
        "return -1.0",
    ): "no clock is below zero",
    (
        "physics/schedules/zero_bubble_search.py",
        'arrival = 0.0 if kind == "W" else self.arrival(kind, rank)',
        'arrival = -1.0 if kind == "W" else self.arrival(kind, rank)',
    ): "no clock is below zero",
    (
        "physics/workload/layer.py",
        "one = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))",
        "one = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 2, job))",
    ): "replicas leave every matrix as large as it is",
    (
        "physics/workload/stage.py",
        "counts=(0,) * len(all_stages[0].counts),",
        "counts=(0,) * len(all_stages[-1].counts),",
    ): "all stages of a model have as many kinds of layers",
    (
        "physics/workload/attention.py",
        "return found[0] if np.ndim(ranks) == 0 else np.asarray(found)[at].reshape(np.shape(ranks))",
        "return found[-1] if np.ndim(ranks) == 0 else np.asarray(found)[at].reshape(np.shape(ranks))",
    ): "ranks that are one number are one distinct number, the first and the last",
    (
        "physics/workload/attention.py",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(1 * np.pi * second)",
    ): "cosines over half a turn are distributed as those over a whole one: other draws from the same lengths",
    (
        "physics/workload/training.py",
        "if products and not products[-1].grouped:",
        "if products and not products[-2].grouped:",
    ): "a layer ends with the two products of one mixer or MLP, of which both are grouped or neither is",
    (
        "physics/workload/stage.py",
        "most = np.maximum(most, value if present.all() else np.where(present, value, 0.0))",
        "most = np.maximum(most, (np.where(present, value, 0.0)))",
    ): "where all stages hold a part nothing is set to zero: the condition saves work",
    (
        "physics/workload/attention.py",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)",
        "normal = np.sqrt(-2 * np.log1p(-first)) * np.cos((np.pi) * second)",
    ): "cosines of angles drawn from half a circle have the distribution of those from the whole: another fair draw",
    (
        "physics/costs/network.py",
        "busiest: Numbers = 0.0",
        "busiest: Numbers = -1.0",
    ): "no axis carries less than nothing, and a torus has axes",
    (
        "physics/workload/attention.py",
        "while lengths.sum() < total:",
        "while (lengths.sum() <= total):",
    ): "a sum of drawn lengths is never the number itself",
}  # fmt: skip
"""Reason by file and by its lines before and after the change."""
