// Why a rank waits: what ends when the wait does.
"use strict";

const MOST_GAPS = 50; // of a rank
const TOUCH = 64; // ticks within which one event ends as the next begins: moments are rounded

// Events by micro-batch, each list in the order of their ends.
function byMicrobatch(step) {
  if (step.ofMicrobatch) return step.ofMicrobatch;
  step.ofMicrobatch = [];
  for (let i = 0; i < step.start.length; i++) if (step.microbatch[i] >= 0) (step.ofMicrobatch[step.microbatch[i]] ??= []).push(i);
  for (const events of step.ofMicrobatch) events?.sort((one, other) => step.stop[one] - step.stop[other]);
  return step.ofMicrobatch;
}

// The rank and the lane of an event.
function placeOf(step, event) {
  const place = lowerBound(step.bounds, event + 1, 0, step.bounds.length) - 1;
  return [Math.floor(place / step.lanes.length), place % step.lanes.length];
}

// What of the same micro-batch is the last to end before an event of a rank's computation begins; -1 where it is the
// rank's own piece before.
function lastBefore(step, rank, event) {
  const events = byMicrobatch(step)[step.microbatch[event]];
  const until = step.start[event] + TOUCH;
  let [low, high] = [0, events.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (step.stop[events[middle]] <= until) low = middle + 1; else high = middle;
  }
  for (let at = low - 1; at >= 0; at--) {
    const [other, lane] = placeOf(step, events[at]);
    if (events[at] !== event && (other !== rank || lane !== 0)) return step.stop[events[at]] >= step.start[event] - TOUCH ? events[at] : -1;
  }
  return -1;
}

// The wait of a rank before an event of its computation, or after the last one (its end), from the longest text to the
// shortest. Waits before the first and after the last piece of a micro-batch fill and drain the pipeline.
function causeOf(step, rank, event) {
  const place = rank * step.lanes.length;
  const [first, end] = [step.bounds[place], step.bounds[place + 1]];
  if (event >= end) return ["the step ends on another rank", "done"];
  if (step.microbatch[event] < 0) return [`drain: before ${step.kinds[step.kind[event]].name}`, "drain"];
  const phase = event === first || step.microbatch[event - 1] < 0 ? "fill" : "";
  const found = lastBefore(step, rank, event);
  if (found < 0) return phase ? ["fill"] : ["waits for its turn", "waits"];
  const [other] = placeOf(step, found);
  const [kind, number] = [step.kinds[step.kind[found]].name, step.microbatch[found]];
  const from = step.rank_names[other];
  const long = kind.startsWith("send") ? `waits for micro-batch ${number} from ${from}` : `waits for the ${kind} of micro-batch ${number} on ${from}`;
  return [phase ? `${phase}: ${long}` : long, phase || `${number} from ${from}`, phase || `for ${from}`, phase || "waits"];
}

// The gaps of a rank's computation that may lie between two moments: {from, to, event} with the event behind each.
function gapsOf(step, rank, from, to) {
  const place = rank * step.lanes.length;
  const [first, end] = [step.bounds[place], step.bounds[place + 1]];
  const [begin, stop] = visible(step, rank, 0, from, to);
  const found = [];
  for (let i = begin; i <= Math.min(stop, end); i++) {
    const gap = { from: i > first ? step.stop[i - 1] : 0, to: i < end ? step.start[i] : step.last, event: i };
    if (gap.to - gap.from > TOUCH && gap.to > from && gap.from < to) found.push(gap);
  }
  return found;
}

// The longest gaps of a rank in the whole step: those that may be labelled where pieces are too dense to be drawn.
function longestGaps(step, rank) {
  step.longestGaps ??= [];
  return (step.longestGaps[rank] ??= gapsOf(step, rank, 0, step.last).sort((one, other) => other.to - other.from - (one.to - one.from)).slice(0, MOST_GAPS));
}
