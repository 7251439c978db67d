// Drawing on a canvas: pieces one by one where they can be seen, else shares of time, a column of pixels at a time.
"use strict";

const DENSE = 3; // pixels of a typical piece below which shares are drawn
const IN_COLUMN = 8; // pieces in a column of shares
const [NARROWEST, WIDEST] = [2, 6]; // pixels of such a column
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
const LEAST_GAP = 30; // pixels of a wait that is labelled
const DIM = 0.5; // of what is off the critical path

// A canvas that is as wide as its place in the page, sharp on any display.
class Sheet {
  constructor(id) {
    this.canvas = element(id);
    this.context = this.canvas.getContext("2d");
  }

  // Clears the sheet for a new drawing; the height is in CSS pixels.
  clear(height) {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = height;
    const [wide, high] = [Math.round(this.width * this.ratio), Math.round(height * this.ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.style.height = `${height}px`;
      [this.canvas.width, this.canvas.height] = [wide, high];
    }
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, height);
    this.merged = []; // lanes to draw as shares
  }

  text(text, x, y, colour, { align = "left", size = 12 } = {}) {
    this.context.font = `${size}px ${FONT}`;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillStyle = colour;
    this.context.fillText(text, x, y);
  }
}

// "#rrggbb" as a pixel of ImageData.
function pixel(colour, opacity = 1) {
  const value = parseInt(colour.slice(1), 16);
  return ((Math.round(255 * opacity) << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

function hatching(context, colour, paper) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const draw = tile.getContext("2d");
  draw.fillStyle = paper;
  draw.fillRect(0, 0, 6, 6);
  draw.strokeStyle = colour;
  draw.lineWidth = 2;
  for (const shift of [-6, 0, 6]) {
    draw.beginPath();
    draw.moveTo(shift - 1, 7);
    draw.lineTo(shift + 7, -1);
    draw.stroke();
  }
  return context.createPattern(tile, "repeat");
}

// One lane of one rank between y and y + height. view: {from, to, left, width} with moments in ticks.
// What is too dense to be drawn piece by piece is left to drawMerged.
function drawLane(sheet, step, view, palette, rank, lane, y, height, marksCritical) {
  const [begin, end] = visible(step, rank, lane, view.from, view.to);
  if ((end - begin) * DENSE > view.width) {
    sheet.merged.push({ begin, end, y, height, rank, lane });
    return;
  }
  drawPieces(sheet, step, view, palette, lane, begin, end, y, height, marksCritical);
  if (lane === 0) labelGaps(sheet, step, view, palette, rank, y, height, gapsOf(step, rank, view.from, view.to));
}

// Why a rank waits, where there is room for the words.
function labelGaps(sheet, step, view, palette, rank, y, height, gaps) {
  if (height < 11) return;
  const scale = view.width / (view.to - view.from);
  const at = (moment) => view.left + (Math.min(Math.max(moment, view.from), view.to) - view.from) * scale;
  for (const gap of gaps) {
    const [x, stop] = [at(gap.from), at(gap.to)];
    if (stop - x < LEAST_GAP) continue;
    const text = causeOf(step, rank, gap.event).find((words) => words.length * 5.4 + 8 < stop - x);
    if (text) sheet.text(text, (x + stop) / 2, y + height / 2, palette.page.quiet, { align: "center", size: height >= 14 ? 11 : 9 });
  }
}

function drawPieces(sheet, step, view, palette, lane, begin, end, y, height, marksCritical) {
  const { context } = sheet;
  const scale = view.width / (view.to - view.from);
  const right = view.left + view.width;
  for (let i = begin; i < end; i++) {
    const x = Math.max(view.left + (step.start[i] - view.from) * scale, view.left);
    const stop = Math.min(view.left + (step.stop[i] - view.from) * scale, right);
    if (stop < view.left || x > right) continue;
    const wide = Math.max(stop - x - (stop - x > 3 ? 1 : 0), 0.5);
    const hue = step.hue[i];
    const chunk = lane === 0 ? Math.max(step.chunk[i], 0) : 0;
    context.globalAlpha = marksCritical && !step.critical[i] ? DIM : 1;
    context.fillStyle = step.hues[hue].hatched ? palette.hatch : palette.shades[hue][chunk];
    context.fillRect(x, y, wide, height);
    if (marksCritical && lane === 0 && step.critical[i]) {
      context.fillStyle = palette.page.text;
      context.fillRect(x, y + height - 2, wide, 2);
    }
    if (height >= 11 && step.microbatch[i] >= 0 && !step.hues[hue].hatched) {
      label(sheet, step, i, x, wide, y + height / 2, palette.ink[hue][chunk], height);
    }
  }
  context.globalAlpha = 1;
}

// The number of the micro-batch where every number would fit; the work too where there is room.
function label(sheet, step, event, x, wide, middle, ink, height) {
  const number = String(step.microbatch[event]);
  const long = `${step.kinds[step.kind[event]].name} ${number}`;
  const text = height >= 20 && wide > long.length * 6.2 + 8 ? long : number;
  const most = text === number ? step.digits : text.length;
  const size = [height >= 14 ? 11 : 9, 9].find((each) => wide >= most * each * 0.58 + 3);
  if (size) sheet.text(text, x + wide / 2, middle, ink, { align: "center", size });
}

const scratch = document.createElement("canvas").getContext("2d");

// The lanes that are drawn as shares, all in one image in which a column is a pixel, and then each stretched to its place.
function drawMerged(sheet, step, view, palette, marksCritical) {
  if (sheet.merged.length === 0) return;
  const wide = view.width * sheet.ratio;
  const colours = partColours(step, palette, marksCritical);
  let rows = 0;
  for (const lane of sheet.merged) {
    const column = Math.min(Math.max((IN_COLUMN * wide) / (lane.end - lane.begin), NARROWEST * sheet.ratio), WIDEST * sheet.ratio);
    lane.columns = wide / column;
    lane.top = rows;
    lane.high = Math.max(Math.round(lane.height * sheet.ratio), 1);
    rows += lane.high;
  }
  const across = Math.ceil(Math.max(...sheet.merged.map((lane) => lane.columns)));
  const image = new ImageData(across, rows);
  const pixels = new Uint32Array(image.data.buffer).fill(pixel(palette.page.track));
  for (const lane of sheet.merged) stackShares(step, view, lane, colours, pixels, across);
  if (scratch.canvas.width < across) scratch.canvas.width = across;
  if (scratch.canvas.height < rows) scratch.canvas.height = rows;
  scratch.putImageData(image, 0, 0);
  sheet.context.imageSmoothingEnabled = false;
  for (const lane of sheet.merged) {
    sheet.context.drawImage(scratch.canvas, 0, lane.top, lane.columns, lane.high, view.left, lane.y, view.width, lane.height);
    if (lane.lane === 0) labelGaps(sheet, step, view, palette, lane.rank, lane.y, lane.height, longestGaps(step, lane.rank));
  }
}

// Shares of the time of each column, stacked from below; critical pieces first.
function stackShares(step, view, { begin, end, columns, top, high }, colours, pixels, across) {
  const shares = sharesOf(step, view, begin, end, columns);
  const number = step.parts.length;
  for (let x = 0; x < columns; x++) {
    const whole = Math.min(columns - x, 1); // the last column may be cut
    let row = top + high;
    let sum = 0;
    for (let part = 0; part < number; part++) {
      sum += shares[x * number + part] / whole;
      const upper = Math.max(top + high - Math.round(sum * high), top);
      while (row > upper) pixels[--row * across + x] = colours[part];
    }
  }
}

// Colours of the parts of a column.
function partColours(step, palette, dims) {
  return step.parts.map((part) => {
    const colour = palette.shades[part >> 1][0];
    return pixel(dims && part % 2 ? blend(colour, palette.page.track, DIM) : colour);
  });
}

// For each column the share of each of step.parts.
function sharesOf(step, view, begin, end, columns) {
  const { start, stop, hue, critical, placeOf } = step;
  const number = step.parts.length;
  const shares = new Float32Array(Math.ceil(columns) * number);
  const [origin, scale] = [view.from, columns / (view.to - view.from)];
  for (let i = begin; i < end; i++) {
    const from = Math.max((start[i] - origin) * scale, 0);
    const to = Math.min((stop[i] - origin) * scale, columns);
    const part = placeOf[2 * hue[i] + 1 - critical[i]];
    let x = Math.floor(from);
    if (to <= x + 1) {
      if (to > from) shares[x * number + part] += to - from;
      continue;
    }
    for (; x < to; x++) shares[x * number + part] += Math.min(to, x + 1) - Math.max(from, x);
  }
  return shares;
}

function blend(colour, other, share) {
  const channels = [1, 3, 5].map((place) => [colour, other].map((each) => parseInt(each.slice(place, place + 2), 16)));
  return "#" + channels.map(([one, two]) => Math.round(share * one + (1 - share) * two).toString(16).padStart(2, "0")).join("");
}
