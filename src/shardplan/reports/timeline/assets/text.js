// Numbers and sentences.
"use strict";

const element = (id) => document.getElementById(`t-${id}`);

function threeDigits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function timeText(seconds) {
  for (const [limit, factor, unit] of [[1e-6, 1e-9, "ns"], [1e-3, 1e-6, "us"], [1, 1e-3, "ms"]]) {
    if (seconds < limit * 0.9995) return `${threeDigits(seconds / factor)} ${unit}`;
  }
  return `${threeDigits(seconds)} s`;
}

// A moment, to a tenth of a duration.
function momentText(seconds, duration) {
  const [factor, unit] = seconds >= 20 ? [1, "s"] : seconds >= 1e-4 ? [1e-3, "ms"] : [1e-6, "us"];
  const digits = duration > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(duration / factor)), 0), 6) : 3;
  return `${(seconds / factor).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

function bytesText(bytes) {
  for (const [factor, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= factor) return `${threeDigits(bytes / factor)} ${unit}`;
  }
  return `${bytes.toFixed(0)} B`;
}

// Round moments from one to another, in seconds, and their texts in one unit.
function axisTicks(from, to, most) {
  const length = to - from;
  const [factor, unit] = to >= 20 && length >= 2 ? [1, "s"] : length >= 1e-4 ? [1e-3, "ms"] : [1e-6, "us"];
  const least = length / factor / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * (1 - 1e-9));
  const digits = Math.max(-Math.floor(Math.log10(step) + 1e-9), 0);
  const found = [];
  for (let n = Math.max(Math.ceil(from / factor / step - 1e-9), 0); n * step * factor <= to * (1 + 1e-12); n++) {
    const text = Math.abs(n * step).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    found.push([n * step * factor, found.length ? text : `${text} ${unit}`]);
  }
  return found;
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

function eventText(step, event, rank) {
  const kind = step.kinds[step.kind[event]].name;
  const lines = [`${sentence(kind)} on ${step.rank_names[rank]}`];
  if (step.microbatch[event] >= 0) lines.push(`micro-batch ${step.microbatch[event]}, chunk ${step.chunk[event]}`);
  const duration = step.duration[event] * step.tick_s;
  lines.push(timeText(duration));
  const [start, stop] = [step.start[event], step.stop[event]].map((moment) => momentText(moment * step.tick_s, duration));
  lines.push(`from ${start} to ${stop}`);
  if (step.critical[event]) lines.push("on the critical path");
  return lines;
}
