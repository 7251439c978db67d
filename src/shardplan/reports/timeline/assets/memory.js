// Memory of a rank over the step: parts on top of each other, what can be used as a line.
"use strict";

const MANY = 40000; // changes of all ranks from which the other ranks are left out
const [MEMORY_TOP, MEMORY_HIGH] = [14, 170];

function drawMemory(view) {
  const { memory: sheet } = view.sheets;
  const { memory, rank_names: names } = view.step;
  const { palette, left, frame } = view;
  sheet.clear(MEMORY_TOP + MEMORY_HIGH + 6);
  const peak = memory.peaks[view.rank];
  const most = Math.max(...memory.peaks.map((each) => each.bytes), memory.usable_bytes ?? 0) * 1.02;
  const place = (bytes) => MEMORY_TOP + MEMORY_HIGH - (bytes / most) * MEMORY_HIGH;
  if (memory.times.length < MANY) names.forEach((_, rank) => { if (rank !== view.rank) outlineMemory(view, rank, place, palette.page.quiet, 0.5); });
  stackMemory(view, place);
  outlineMemory(view, view.rank, place, palette.page.text, 1.5);
  sheet.text(`memory of ${names[view.rank]}`, left + 4, 8, palette.page.quiet, { size: 11 });
  const label = (bytes, colour) => {
    const text = bytes ? bytesText(bytes) : "0 GB";
    sheet.text(view.isNarrow ? text.split(" ")[0] : text, left - 8, place(bytes), colour, { align: "right", size: 11 });
  };
  label(0, palette.page.quiet);
  if (memory.usable_bytes) {
    sheet.context.fillStyle = palette.page.bad;
    for (let x = left; x < left + frame.width; x += 9) sheet.context.fillRect(x, place(memory.usable_bytes) - 0.75, 5, 1.5);
    label(memory.usable_bytes, palette.page.bad);
    sheet.text("usable", left + frame.width, place(memory.usable_bytes) - 7, palette.page.bad, { align: "right", size: 11 });
  }
  if (!memory.usable_bytes || Math.abs(place(peak.bytes) - place(memory.usable_bytes)) > 14) label(peak.bytes, palette.page.quiet);
  const x = view.x(peak.time);
  if (x < left || x > left + frame.width) return;
  sheet.context.fillStyle = palette.page.text;
  sheet.context.beginPath();
  sheet.context.arc(x, place(peak.bytes), 3.5, 0, 7);
  sheet.context.fill();
  const end = x > left + frame.width - 140;
  sheet.text(`peak ${bytesText(peak.bytes)}`, x + (end ? -8 : 8), Math.max(place(peak.bytes) - 9, 6), palette.page.text, { align: end ? "right" : "left" });
}

// Pixels at which the memory of a rank changes, with the entry that is drawn from each: of several in a pixel the highest.
function changesOf(view, rank) {
  const { memory } = view.step;
  const [first, end] = [memory.bounds[rank], memory.bounds[rank + 1]];
  const begin = Math.max(lowerBound(memory.times, view.from, first, end) - 1, first);
  const stop = Math.min(lowerBound(memory.times, view.to, begin, end) + 1, end);
  const { left, width, from, to } = view.frame;
  const scale = width / (to - from);
  const { times, allocated } = memory;
  const found = [[left, begin]];
  for (let i = begin + 1; i < stop; i++) {
    let highest = i;
    const here = Math.min(Math.max(left + (times[i] - from) * scale, left), left + width);
    const until = from + (here + 0.5 - left) / scale; // what changes before this is in the same pixel
    while (i + 1 < stop && times[i + 1] < until) {
      i += 1;
      if (allocated[i] > allocated[highest]) highest = i;
    }
    found.push([here, highest]);
  }
  return [found, Math.min(left + width, Math.max(left + (times[end - 1] - from) * scale, found.at(-1)[0]))];
}

// A line in steps through the changes; height gives the place of an entry.
function stepped([changes, last], height, path = new Path2D()) {
  let before = height(changes[0][1]);
  path.moveTo(changes[0][0], before);
  for (const [x, entry] of changes) {
    const y = height(entry);
    if (y === before) continue;
    path.lineTo(x, before);
    path.lineTo(x, y);
    before = y;
  }
  path.lineTo(last, before);
  return path;
}

function outlineMemory(view, rank, place, colour, wide) {
  const { memory } = view.step;
  const { context } = view.sheets.memory;
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.stroke(stepped(changesOf(view, rank), (entry) => place(memory.allocated[entry] * memory.unit_bytes)));
}

// The parts of the memory of the rank, each an area on those before: from the top down, so that each covers what is below.
function stackMemory(view, place) {
  const { memory } = view.step;
  const { context } = view.sheets.memory;
  const changes = changesOf(view, view.rank);
  const parts = memory.parts.length ? memory.parts : ["allocated"];
  const sums = new Map(changes[0].map(([, entry]) => [entry, parts.map(((sum) => (part) => (sum += memory[part][entry]))(0))]));
  for (let part = parts.length - 1; part >= 0; part--) {
    const area = stepped(changes, (entry) => place(sums.get(entry)[part] * memory.unit_bytes));
    area.lineTo(changes[1], MEMORY_TOP + MEMORY_HIGH);
    area.lineTo(view.left, MEMORY_TOP + MEMORY_HIGH);
    context.fillStyle = view.palette.memory[parts[part]] ?? view.palette.page.line;
    context.fill(area);
  }
}

// The parts of the memory of a rank at a moment, the largest first.
function partsAt(memory, rank, moment) {
  const [first, end] = [memory.bounds[rank], memory.bounds[rank + 1]];
  const entry = Math.max(lowerBound(memory.times, moment + 1, first, end) - 1, first);
  return memory.parts.map((part) => [part, memory[part][entry] * memory.unit_bytes]).filter(([, bytes]) => bytes > 0).sort((one, other) => other[1] - one[1]);
}
