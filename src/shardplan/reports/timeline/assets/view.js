// What is shown: a window of time, a rank and a piece, on canvases with one axis, a cursor and a measured span over them.
"use strict";

const LEAST_TICKS = 200; // of the narrowest window
const TOKENS = ["panel", "text", "quiet", "line", "track", "bad", "accent"]; // colours that a style sheet gives

class View {
  constructor(step) {
    this.step = step;
    this.sheets = Object.fromEntries(["axis", "ranks", "rank", "memory"].map((id) => [id, new Sheet(id)]));
    [this.from, this.to] = [0, step.last];
    this.rank = step.memory ? this.fullest() : 0;
    this.event = -1;
    this.marksCritical = step.hasCritical;
    this.measured = null; // {from, to}: moments
    this.cursor = null; // a moment
    this.isFolded = true;
    this.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.frames = []; // milliseconds of the last drawings
    this.onChange = () => {};
    this.onPoint = () => {};
  }

  fullest() {
    const peaks = this.step.memory.peaks.map((peak) => peak.bytes);
    return peaks.indexOf(Math.max(...peaks));
  }

  get palette() {
    const palette = this.step.palettes[this.theme];
    const hatched = this.step.hues.findIndex((hue) => hue.hatched);
    palette.hatch ??= hatching(this.sheets.ranks.context, palette.shades[hatched][0], palette.pale);
    const style = getComputedStyle(document.documentElement);
    palette.own ??= Object.fromEntries(TOKENS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]).filter(([, colour]) => /^#\w{6}$/.test(colour)));
    Object.assign(palette.page, palette.own);
    return palette;
  }

  // Rows of the first canvas: a group of identical ranks, or every rank.
  get rows() {
    return this.isFolded ? this.step.groups : this.step.rank_names.map((_, rank) => [rank]);
  }

  // Width of the canvases: reading it lays the page out, so that it is read once until the page changes.
  get wide() {
    return (this.known ??= this.sheets.ranks.canvas.clientWidth);
  }

  resized() {
    this.known = undefined;
    this.changed();
  }

  get isNarrow() {
    return this.wide < 600;
  }

  get left() {
    return this.isNarrow ? 40 : 96;
  }

  get frame() {
    return { from: this.from, to: this.to, left: this.left, width: this.wide - this.left - 2 };
  }

  // Heights of a row of the first canvas.
  get sizes() {
    const rows = this.rows.length;
    const work = rows <= 8 ? 26 : rows <= 16 ? 18 : rows <= 32 ? 12 : 8;
    return { work, thin: rows <= 16 ? 4 : 2, space: rows <= 16 ? 6 : 3 };
  }

  get pitch() {
    const { work, thin, space } = this.sizes;
    return work + (this.step.usedLanes.length - 1) * (thin + 1) + space;
  }

  moment(x) {
    const frame = this.frame;
    return frame.from + ((x - frame.left) / frame.width) * (frame.to - frame.from);
  }

  x(moment) {
    const frame = this.frame;
    return frame.left + ((moment - frame.from) / (frame.to - frame.from)) * frame.width;
  }

  show(from, to) {
    const length = Math.min(Math.max(to - from, LEAST_TICKS), this.step.last);
    this.from = Math.min(Math.max(from, 0), this.step.last - length);
    this.to = this.from + length;
    this.changed();
  }

  zoom(factor, about = (this.from + this.to) / 2) {
    this.show(about - (about - this.from) * factor, about + (this.to - about) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  select(rank, event = -1) {
    [this.rank, this.event] = [rank, event];
    this.onChange();
    if (event < 0) return this.changed();
    const [start, stop] = [this.step.start[event], this.step.stop[event]];
    if (start >= this.to || stop <= this.from) {
      const half = (this.to - this.from) / 2;
      return this.show((start + stop) / 2 - half, (start + stop) / 2 + half);
    }
    return this.changed();
  }

  // Draws at the next frame, once.
  changed() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = undefined;
      if (this.sheets.ranks.canvas.isConnected) this.draw();
    });
  }

  draw() {
    const begin = performance.now();
    this.drawAxis();
    this.drawRanks();
    this.drawRank();
    element("merged").hidden = this.sheets.ranks.merged.length + this.sheets.rank.merged.length === 0;
    if (this.step.memory) drawMemory(this);
    this.place();
    this.frames.push(performance.now() - begin);
    if (this.frames.length > 200) this.frames.shift();
  }

  // The cursor and the measured span, which lie over the canvases: nothing is drawn again as they move.
  place() {
    const { left, width } = this.frame;
    const within = (moment) => Math.min(Math.max(this.x(moment), left), left + width);
    const cursor = element("cursor");
    cursor.hidden = this.cursor === null || this.cursor < this.from || this.cursor > this.to;
    cursor.style.left = `${within(this.cursor ?? 0)}px`;
    const span = element("measure");
    span.hidden = !this.measured || this.measured.to < this.from || this.measured.from > this.to;
    if (span.hidden) return;
    span.style.left = `${within(this.measured.from)}px`;
    span.style.width = `${within(this.measured.to) - within(this.measured.from)}px`;
    span.firstElementChild.textContent = timeText((this.measured.to - this.measured.from) * this.step.tick_s);
  }

  measure(span) {
    this.measured = span && span.to > span.from ? span : null;
    this.place();
    this.onChange();
  }

  point(moment) {
    this.cursor = moment;
    this.place();
    this.onPoint(moment);
  }

  drawAxis() {
    const { axis } = this.sheets;
    const { page } = this.palette;
    axis.clear(30);
    const { left, width } = this.frame;
    const tick = this.step.tick_s;
    for (const [moment, text] of axisTicks(this.from * tick, this.to * tick, Math.max(width / 90, 4))) {
      const x = this.x(moment / tick);
      axis.context.fillStyle = page.line;
      axis.context.fillRect(x, 20, 1, 6);
      const half = text.length * 3.4;
      axis.text(text, Math.min(x, left + width - half), 12, page.quiet, { align: "center" });
    }
    axis.context.fillStyle = page.track;
    axis.context.fillRect(left, 26, width, 3);
    axis.context.fillStyle = page.quiet;
    axis.context.fillRect(left + (this.from / this.step.last) * width, 26, Math.max(((this.to - this.from) / this.step.last) * width, 3), 3);
  }

  drawRanks() {
    const { ranks } = this.sheets;
    const { step, palette, sizes, pitch, left, frame } = this;
    ranks.clear(this.rows.length * pitch + 4);
    const every = Math.ceil(13 / pitch);
    this.rows.forEach(([rank, ...same], row) => {
      const y = 2 + row * pitch;
      ranks.context.fillStyle = palette.page.track;
      ranks.context.fillRect(left, y, frame.width, sizes.work);
      for (const [place, lane] of step.usedLanes.entries()) {
        const top = place ? y + sizes.work + 1 + (place - 1) * (sizes.thin + 1) : y;
        const high = place ? sizes.thin : sizes.work;
        drawLane(ranks, step, frame, palette, rank, lane, top, high, this.marksCritical);
      }
    });
    drawMerged(ranks, step, frame, palette, this.marksCritical);
    this.rows.forEach(([rank, ...same], row) => {
      const y = 2 + row * pitch;
      const isSelected = rank === this.rank || same.includes(this.rank);
      if (isSelected) this.outline(ranks, left - 1, y - 1.5, frame.width + 2, pitch - sizes.space + 3);
      if (row % every === 0 || isSelected) this.name(ranks, rank, same, y + sizes.work / 2, isSelected);
    });
    this.markEvent(ranks, (rank) => this.rows.findIndex((row) => row.includes(rank)) * pitch + 2, sizes.work, sizes.thin);
  }

  name(sheet, rank, same, middle, isSelected) {
    const colour = isSelected ? this.palette.page.text : this.palette.page.quiet;
    const more = same.length ? ` +${same.length}` : "";
    const most = Math.floor((this.left - 10) / 6.4);
    const whole = this.step.rank_names[rank] + more;
    const short = this.isNarrow ? `${rank}${more}` : whole.length <= most ? whole : `${whole.slice(0, most - 1)}…`;
    sheet.text(short, this.left - 8, middle, colour, { align: "right" });
  }

  outline(sheet, x, y, wide, high) {
    sheet.context.strokeStyle = this.palette.page.text;
    sheet.context.lineWidth = 1;
    sheet.context.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, wide - 1, high - 1);
  }

  // A frame around the selected piece.
  markEvent(sheet, top, work, thin, gap = 1) {
    if (this.event < 0) return;
    const { step } = this;
    const lane = this.laneOf(this.event);
    const place = step.usedLanes.indexOf(lane);
    const y = top(this.rank) + (place ? work + gap + (place - 1) * (thin + gap) : 0);
    const [x, stop] = [Math.max(this.x(step.start[this.event]), this.left), Math.min(this.x(step.stop[this.event]), sheet.width)];
    if (stop < this.left || x > sheet.width) return;
    sheet.context.strokeStyle = this.palette.page.text;
    sheet.context.lineWidth = 2;
    sheet.context.strokeRect(x, y, Math.max(stop - x, 2), place ? thin : work);
  }

  laneOf(event) {
    const first = this.rank * this.step.lanes.length;
    return this.step.lanes.findIndex((_, lane) => event < this.step.bounds[first + lane + 1]);
  }

  drawRank() {
    const { rank: sheet } = this.sheets;
    const { step, palette, left, frame } = this;
    const [work, thin, gap] = [46, 14, 20];
    sheet.clear(18 + work + (step.usedLanes.length - 1) * (thin + gap) + 4);
    for (const [place, lane] of step.usedLanes.entries()) {
      const y = 18 + (place ? work + gap + (place - 1) * (thin + gap) : 0);
      const high = place ? thin : work;
      sheet.text(step.lanes[lane], left, y - 8, palette.page.quiet, { size: 11 });
      sheet.context.fillStyle = palette.page.track;
      sheet.context.fillRect(left, y, frame.width, high);
      drawLane(sheet, step, frame, palette, this.rank, lane, y, high, this.marksCritical);
    }
    drawMerged(sheet, step, frame, palette, this.marksCritical);
    this.name(sheet, this.rank, [], 18 + work / 2, true);
    this.markEvent(sheet, () => 18, work, thin, gap);
  }
}
