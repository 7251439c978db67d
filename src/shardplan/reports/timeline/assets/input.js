// Mouse, touch and keys.
"use strict";

const DRAG = 4; // pixels from which a press is a drag

// The rank and the event under a point of one of the canvases.
function under(view, id, x, y) {
  const { step } = view;
  const moment = view.moment(x);
  const within = ((view.to - view.from) / view.frame.width) * 3;
  let rank = view.rank;
  let lane = 0;
  if (id === "ranks") {
    const row = Math.min(Math.max(Math.floor((y - 2) / view.pitch), 0), view.rows.length - 1);
    rank = view.rows[row][0];
    const down = y - 2 - row * view.pitch - view.sizes.work;
    const place = down < 0 ? 0 : Math.min(1 + Math.floor(down / (view.sizes.thin + 1)), step.usedLanes.length - 1);
    lane = step.usedLanes[place];
  } else {
    const place = y < 18 + 46 + 4 ? 0 : Math.min(1 + Math.floor((y - 68) / 34), step.usedLanes.length - 1);
    lane = step.usedLanes[place];
  }
  return { rank, moment, event: x < view.left ? -1 : eventAt(step, rank, lane, moment, within) };
}

class Tip {
  constructor() {
    this.box = element("tip");
  }

  show(text, x, y) {
    this.box.hidden = !text;
    this.box.textContent = text;
    const { offsetWidth: wide, offsetHeight: high } = this.box;
    this.box.style.left = `${Math.max(Math.min(x + 14, innerWidth - wide - 6), 6)}px`;
    this.box.style.top = `${y + 18 + high > innerHeight ? Math.max(y - high - 10, 6) : y + 18}px`;
  }
}

function tipText(view, id, x, y) {
  const { step } = view;
  if (id === "memory" || id === "axis") return "";
  const { rank, moment, event } = under(view, id, x, y);
  if (event >= 0) return eventText(step, event, rank).join("\n");
  if (x < view.left) return `${step.rank_names[rank]}\nbubble ${(100 * step.bubble_rates[rank]).toFixed(1)} % of its time`;
  return waitText(view, rank, moment).join("\n");
}

// The wait of a rank at a moment, and its cause.
function waitText(view, rank, moment) {
  const { step } = view;
  const [gap] = gapsOf(step, rank, moment, moment + 1);
  if (!gap) return [`${step.rank_names[rank]} waits`];
  const ends = [gap.from, gap.to].map((each) => momentText(each * step.tick_s, (gap.to - gap.from) * step.tick_s));
  return [`${sentence(step.rank_names[rank])} ${causeOf(step, rank, gap.event)[0]}`, timeText((gap.to - gap.from) * step.tick_s), `from ${ends.join(" to ")}`];
}

function listen(view, id, tip) {
  const { canvas } = view.sheets[id];
  const fingers = new Map();
  let pressed = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const within = (x) => Math.min(Math.max(view.moment(x), view.from), view.to);
  canvas.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    const zooms = event.ctrlKey || event.metaKey;
    if (!zooms && (!sideways || view.to - view.from >= view.step.last)) return; // the page scrolls
    event.preventDefault();
    if (zooms) view.zoom(Math.exp(Math.min(Math.max(event.deltaY, -300), 300) / 400), view.moment(at(event)[0]));
    else view.move(sideways / view.frame.width);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const [x] = at(event);
    fingers.set(event.pointerId, x);
    const isTouch = event.pointerType === "touch";
    pressed = { x, from: view.from, isDrag: false, isTouch, moves: isTouch || id === "axis" || event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (fingers.size === 2 && fingers.has(event.pointerId)) return pinch(view, fingers, event.pointerId, x);
    view.point(x < view.left ? null : within(x));
    if (!pressed) return tip.show(tipText(view, id, x, y), event.clientX, event.clientY);
    pressed.isDrag ||= Math.abs(x - pressed.x) > DRAG;
    if (!pressed.isDrag) return undefined;
    tip.show("", 0, 0);
    if (!pressed.moves) return view.measure(spanOf(within(pressed.x), within(x)));
    const by = ((pressed.x - x) / view.frame.width) * (view.to - view.from);
    return view.show(pressed.from + by, pressed.from + by + view.to - view.from);
  });
  const release = (event) => {
    fingers.delete(event.pointerId);
    if (pressed && !pressed.isDrag && event.type === "pointerup" && (id === "ranks" || id === "rank")) {
      const [x, y] = at(event);
      const found = under(view, id, x, y);
      view.select(found.rank, found.event);
      if (found.event < 0 && x >= view.left) element("selected").textContent = `${waitText(view, found.rank, found.moment).join(", ")}.`;
      if (pressed.isTouch) tip.show(tipText(view, id, x, y), event.clientX, event.clientY);
    }
    if (pressed && !pressed.isDrag) view.measure(null);
    pressed = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return;
    tip.show("", 0, 0);
    view.point(null);
  });
  canvas.addEventListener("dblclick", () => zoomToEvent(view));
}

const spanOf = (one, other) => ({ from: Math.round(Math.min(one, other)), to: Math.round(Math.max(one, other)) });

// Keys act while a canvas has the focus, and while the pointer is over one and nothing else has it.
function listenToKeys(view, { signal }) {
  const stage = element("stage");
  document.addEventListener("keydown", (event) => {
    const isOurs = stage.contains(document.activeElement) || (view.cursor !== null && document.activeElement === document.body);
    if (isOurs && pressKey(view, event)) event.preventDefault();
  }, { signal });
}

function pinch(view, fingers, moved, x) {
  const [other] = [...fingers.keys()].filter((finger) => finger !== moved);
  const [before, fixed] = [fingers.get(moved), fingers.get(other)];
  fingers.set(moved, x);
  const [old, now] = [Math.max(Math.abs(before - fixed), 10), Math.max(Math.abs(x - fixed), 10)];
  view.zoom(old / now, view.moment(fixed));
}

// Zooms to what is measured, or else to the selected piece.
function zoomToEvent(view) {
  if (view.measured) return view.show(view.measured.from, view.measured.to);
  if (view.event < 0) return undefined;
  const [start, stop] = [view.step.start[view.event], view.step.stop[view.event]];
  return view.show(start - 4 * (stop - start), stop + 4 * (stop - start));
}

// Does what a key means; returns whether it means something.
function pressKey(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const about = view.cursor ?? undefined;
  const actions = {
    "ArrowLeft": () => (event.shiftKey ? view.move(-0.25) : nextEvent(view, -1)),
    "ArrowRight": () => (event.shiftKey ? view.move(0.25) : nextEvent(view, 1)),
    "ArrowUp": () => nextRank(view, -1),
    "ArrowDown": () => nextRank(view, 1),
    "w": () => view.zoom(0.7, about),
    "s": () => view.zoom(1 / 0.7, about),
    "a": () => view.move(-0.15),
    "d": () => view.move(0.15),
    "+": () => view.zoom(0.5),
    "=": () => view.zoom(0.5),
    "-": () => view.zoom(2),
    "0": () => view.show(0, view.step.last),
    "Home": () => view.show(0, view.step.last),
    "Enter": () => zoomToEvent(view),
    "Escape": () => view.measure(null),
    "c": () => element("critical").click(),
  };
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  action?.();
  return Boolean(action);
}

// The next piece of computation of the rank, or the first one of what is shown.
function nextEvent(view, by) {
  const { step } = view;
  const first = step.bounds[view.rank * step.lanes.length];
  const end = step.bounds[view.rank * step.lanes.length + 1];
  const isOnLane = view.event >= first && view.event < end;
  const next = isOnLane ? view.event + by : visible(step, view.rank, 0, view.from, view.to)[0];
  if (next >= first && next < end) view.select(view.rank, next);
}

function nextRank(view, by) {
  const rows = view.rows;
  const row = rows.findIndex((ranks) => ranks.includes(view.rank));
  const next = Math.min(Math.max(row + by, 0), rows.length - 1);
  view.select(rows[next][0]);
}
