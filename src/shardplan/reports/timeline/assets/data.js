// The data of the page, as reports/timeline/page.py writes it:
//
//   title, step_time_s, tick_s        a moment or a duration is a whole number of ticks
//   rank_names, bubble_rates          of every rank
//   groups                            lists of ranks whose events are all the same; a rank alone is a list of one
//   lanes                             names of the resources of a rank; the first is computation
//   kinds                             what an event can be: {name, hue}
//   hues                              {label, hatched}; colours are in palettes
//   palettes.light, palettes.dark     shades: for every hue a colour for each chunk; ink: the colour of texts on it;
//                                     bounds: colours of the layer's operators; memory: of its parts; page: {panel, text,
//                                     quiet, line, ...}, which a style sheet of the app replaces
//   counts                            events of every lane of every rank, rank by rank
//   columns                           kind, chunk, microbatch, start, duration, critical: one integer for each event, sorted
//                                     by rank, lane and start; -1 where an event has no chunk or no micro-batch
//   memory                            null, or {unit_bytes, usable_bytes, counts, parts, columns: {times, allocated, and
//                                     one for each of parts}, peaks}; peaks holds {time, bytes, parts: [{name, bytes, note}]}
//                                     for every rank
//   layer                             operators of one layer: {name, direction, time_s, exposed_time_s, bound}
//
// A column is base64 of a zlib stream of 32-bit integers, low byte first, each the difference from the one before.
"use strict";

async function integers(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const found = new Int32Array(await new Response(stream).arrayBuffer());
  for (let i = 1; i < found.length; i++) found[i] += found[i - 1];
  return found;
}

async function unpacked(columns) {
  const names = Object.keys(columns);
  const found = await Promise.all(names.map((name) => integers(columns[name])));
  return Object.fromEntries(names.map((name, i) => [name, found[i]]));
}

// Where each run of so many begins, and the number of all.
function bounds(counts) {
  const found = new Int32Array(counts.length + 1);
  counts.forEach((count, i) => { found[i + 1] = found[i] + count; });
  return found;
}

async function loaded(raw) {
  const step = { ...raw, ...(await unpacked(raw.columns)), bounds: bounds(raw.counts) };
  const count = step.start.length;
  step.stop = new Int32Array(count);
  step.hue = new Uint8Array(count);
  step.longest = new Int32Array(raw.counts.length);
  step.last = 1;
  for (let i = 0; i < count; i++) {
    step.stop[i] = step.start[i] + step.duration[i];
    step.hue[i] = raw.kinds[step.kind[i]].hue;
    step.last = Math.max(step.last, step.stop[i]);
  }
  for (let lane = 0; lane < raw.counts.length; lane++) {
    for (let i = step.bounds[lane]; i < step.bounds[lane + 1]; i++) {
      step.longest[lane] = Math.max(step.longest[lane], step.duration[i]);
    }
  }
  const parts = new Set();
  for (let i = 0; i < count; i++) parts.add(2 * step.hue[i] + 1 - step.critical[i]);
  step.parts = [...parts].sort((one, other) => one - other); // hues that occur, critical (2 hue) and not (2 hue + 1)
  step.placeOf = Uint8Array.from({ length: 2 * raw.hues.length }, (_, part) => Math.max(step.parts.indexOf(part), 0));
  step.digits = String(step.microbatch.reduce((most, each) => Math.max(most, each), 0)).length;
  step.hasCritical = step.critical.includes(1);
  step.usedLanes = raw.lanes.map((_, lane) => lane).filter((lane) =>
    lane === 0 || raw.rank_names.some((_, rank) => raw.counts[rank * raw.lanes.length + lane] > 0));
  if (raw.memory) {
    step.memory = { ...raw.memory, ...(await unpacked(raw.memory.columns)), bounds: bounds(raw.memory.counts) };
  }
  return step;
}

// First index from low to high whose value is not below the one sought.
function lowerBound(values, sought, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < sought) low = middle + 1; else high = middle;
  }
  return low;
}

// Events of a lane of a rank that may lie between two moments: [first, end).
function visible(step, rank, lane, from, to) {
  const place = rank * step.lanes.length + lane;
  const [first, end] = [step.bounds[place], step.bounds[place + 1]];
  const begin = lowerBound(step.start, from - step.longest[place], first, end);
  return [begin, lowerBound(step.start, to, begin, end)];
}

// The event of a lane at a moment, or the nearest within some ticks; -1 where there is none.
function eventAt(step, rank, lane, moment, within) {
  const [begin, end] = visible(step, rank, lane, moment - within, moment + within + 1);
  let found = -1;
  let distance = within + 1;
  for (let i = begin; i < end; i++) {
    const away = Math.max(step.start[i] - moment, moment - step.stop[i], 0);
    if (away < distance) [found, distance] = [i, away];
  }
  return found;
}

// Bytes that a rank holds at a moment.
function heldAt(memory, rank, moment) {
  const [first, end] = [memory.bounds[rank], memory.bounds[rank + 1]];
  const place = lowerBound(memory.times, moment + 1, first, end) - 1;
  return memory.allocated[Math.max(place, first)] * memory.unit_bytes;
}

// The most that a rank holds between two moments.
function mostHeld(memory, rank, from, to) {
  const [first, end] = [memory.bounds[rank], memory.bounds[rank + 1]];
  const begin = Math.max(lowerBound(memory.times, from + 1, first, end) - 1, first);
  let most = memory.allocated[begin];
  for (let i = begin + 1; i < end && memory.times[i] < to; i++) most = Math.max(most, memory.allocated[i]);
  return most * memory.unit_bytes;
}
