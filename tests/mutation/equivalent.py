"""Mutants that change no result, each with the reason: no test can catch them."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "costs/groups.py", "largest: Numbers = 1", "largest: Numbers = 2",
    ): "what lies below the innermost tier is asked of the tiers around it only",
    (
        "costs/state_traffic.py",
        "for count, exchange in zip(times, self.exchanges, strict=True):",
        "for count, exchange in zip(times, self.exchanges, strict=False):",
    ): "both callers make a number of times for each exchange, so the two are never of unlike length",
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
        "schedules/longest_ways.py",
        "best, taken = [0.0] * (len(every) + pp), [False] * len(every)",
        "best, taken = [1.0] * (len(every) + pp), [False] * len(every)",
    ): "all ways are compared, which are longer by the same",
    (
        "schedules/longest_ways.py",
        "best, taken = [0.0] * (len(every) + pp), [False] * len(every)",
        "best, taken = [-1.0] * (len(every) + pp), [False] * len(every)",
    ): "all ways are compared, which are shorter by the same",
    (
        "schedules/longest_ways.py",
        "return [way for _, way in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]",
        "return [way for _, way in sorted(zip(order, found, strict=False), key=lambda pair: pair[0])]",
    ): "there is a way for each of the works that are in the order",
    (
        "schedules/longest_ways.py",
        "return [part.reshape(s) / s[1] for part, s in zip(np.split(counts, ends[:-1]), self.shapes, strict=True)]",
        "return [part.reshape(s) / s[1] for part, s in zip(np.split(counts, ends[:-1]), self.shapes, strict=False)]",
    ): "both are one for each pipeline",
    (
        "schedules/longest_ways.py",
        "last = [start + int(np.argmax(ends[1, start:stop])) for start, stop in zip(self.starts, stops, strict=True)]",
        "last = [start + int(np.argmax(ends[1, start:stop])) for start, stop in zip(self.starts, stops, strict=False)]",
    ): "every pipeline that starts stops",
    (
        "schedules/simulated/v_pattern.py",
        "for (kind, chunk), unit in zip(PATTERN, units, strict=True)",
        "for (kind, chunk), unit in zip(PATTERN, units, strict=False)",
    ): "a pattern has four passes, and a rank a unit for each",
    (
        "schedules/simulated/zero_bubble_search.py",
        'starts = (ends[0] - forward for ends, forward in zip(self.ends["F"], self.seconds["F"], strict=True))',
        'starts = (ends[0] - forward for ends, forward in zip(self.ends["F"], self.seconds["F"], strict=False))',
    ): "every rank has a time for its forward pass",
    (
        "schedules/simulated/zero_bubble_search.py",
        "return max(end - start for end, start in zip(self.clock, starts, strict=True))",
        "return max(end - start for end, start in zip(self.clock, starts, strict=False))",
    ): "every rank that ends starts",
    (
        "schedules/simulated/zero_bubble_search.py",
        "run = Search(times, num_microbatches, limit, OrderChoices(**dict(zip(names, choices, strict=True))))",
        "run = Search(times, num_microbatches, limit, OrderChoices(**dict(zip(names, choices, strict=False))))",
    ): "three names for three choices",
    (
        "schedules/zb_v.py",
        "for (each, more), out, held in zip(way, mean.parts, own.parts, strict=True)",
        "for (each, more), out, held in zip(way, mean.parts, own.parts, strict=False)",
    ): "a way and passes have three parts each",
    (
        "schedules/simulated/order_file.py",
        "self.least_vp = self.vp = len(self.stages[0]) # type: ignore[misc] # of this file",
        "self.least_vp = self.vp = len(self.stages[-1]) # type: ignore[misc] # of this file",
    ): "the rows have as many stages each",
    (
        "memory/states.py",
        "where(np.greater(numbers.expert_sharding_degree, 1), held.experts, 0.0) if any_holds(held.experts) else 0.0,",
        "(where(np.greater(numbers.expert_sharding_degree, 1), held.experts, 0.0)),",
    ): "no experts are as many whether they are shared or not: the condition saves work",
    (
        "memory/knobs.py",
        'return useful[0] if len(useful) == 1 else f"{\', \'.join(useful[:-1])}, or {useful[-1]}"',
        'return useful[-1] if len(useful) == 1 else f"{\', \'.join(useful[:-1])}, or {useful[-1]}"',
    ): "one word is the first and the last",
    (
        "schedules/simulated/zero_bubble_search.py",
        "return 0.0",
        "return -1.0",
    ): "no clock is below zero",
    (
        "schedules/simulated/zero_bubble_search.py",
        'arrival = 0.0 if kind == "W" else self.arrival(kind, rank)',
        'arrival = -1.0 if kind == "W" else self.arrival(kind, rank)',
    ): "no clock is below zero",
    (
        "memory/states.py",
        "both = both + _second_moments(held, job, numbers) if any_holds(held.by_adam) else both",
        "both = (both + _second_moments(held, job, numbers))",
    ): "what no parameter keeps takes nothing: the condition saves work",
    (
        "workload/op_sac.py",
        "if products and not products[-1].grouped:",
        "if products and not products[-2].grouped:",
    ): "a layer ends with the two products of one mixer or MLP, of which both are grouped or neither is",
}  # fmt: skip
"""Reason by file and by its lines before and after the change."""
