// The page or the part of one: reads its data, fills in what is not drawn on a canvas, and links the levels.
"use strict";

function made(tag, text = "", attributes = {}) {
  const found = document.createElement(tag);
  found.textContent = text;
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  return found;
}

function swatch(colour) {
  const found = made("i");
  found.style.background = colour;
  return found;
}

function fillLegend(view) {
  const { step, palette } = view;
  const present = new Set(step.hue);
  const entries = new Map(); // by colours: kinds of work that share them are one entry
  step.hues.forEach((hue, number) => {
    if (!present.has(number)) return;
    const all = palette.shades[number];
    const key = hue.hatched ? "hatched" : all.join();
    const { labels } = entries.get(key) ?? { labels: [] };
    entries.set(key, { hue, labels: [...labels, hue.label], colours: hue.shaded ? [...new Set(all)].slice(0, 4) : [all[0]] });
  });
  const shown = [...entries.values()].map(({ hue, labels, colours }) => {
    const entry = made("span");
    if (hue.hatched) entry.append(swatch(`repeating-linear-gradient(135deg, ${colours[0]} 0 2px, ${palette.pale} 2px 5px)`));
    else entry.append(...colours.map(swatch));
    entry.append(labels.join(" or ") + (hue.shaded && step.num_chunks > 1 ? " (shades: chunks)" : ""));
    return entry;
  });
  const bubble = made("span");
  bubble.append(swatch(palette.page.track), "bubble");
  element("legend").replaceChildren(...shown, bubble, ...(step.memory?.parts ?? []).map((part) => memoryEntry(palette, part)));
}

function memoryEntry(palette, part) {
  const entry = made("span");
  entry.append(swatch(palette.memory[part]), `memory: ${part}`);
  return entry;
}

function fillSelected(view) {
  const { step, rank, event } = view;
  const bubble = `${sentence(step.rank_names[rank])}: bubble ${(100 * step.bubble_rates[rank]).toFixed(1)} % of its time.`;
  element("selected").textContent = event < 0 ? bubble : `${eventText(step, event, rank).join(", ")}.`;
  element("rank-choice").value = String(rank);
  fillMeasured(view);
  if (step.memory) fillPeak(view);
  if (step.layer.length && element("layer-section")) fillLayer(view);
}

// What the rank does in the measured span, by kind of work, and the most that it holds.
function fillMeasured(view) {
  const { step, rank, measured } = view;
  element("measured").textContent = "";
  if (!measured) return;
  const { from, to } = measured;
  const [begin, end] = visible(step, rank, 0, from, to);
  const shares = sharesOf(step, { from, to }, begin, end, 1);
  const times = new Map();
  step.parts.forEach((part, place) => {
    const name = step.hues[part >> 1].label;
    times.set(name, (times.get(name) ?? 0) + shares[place]);
  });
  const waits = 1 - [...times.values()].reduce((sum, share) => sum + share, 0);
  const texts = [...times, ["waits", waits]].filter(([, share]) => share > 5e-4).sort((one, other) => other[1] - one[1]);
  const tick = step.tick_s;
  const ends = [from, to].map((moment) => momentText(moment * tick, (to - from) * tick)).join(" to ");
  element("measured").textContent =
    `Measured: ${timeText((to - from) * tick)}, ${ends}. ${sentence(step.rank_names[rank])}: ` +
    `${texts.map(([name, share]) => `${name} ${(100 * share).toFixed(1)} %`).join(", ")}${step.memory ? `; holds at most ${bytesText(mostHeld(step.memory, rank, from, to))}` : ""}.`;
}

// What is under the cursor, in one line for all canvases.
function fillCursor(view, moment) {
  const { step, rank } = view;
  if (moment === null) return void (element("at").textContent = "");
  const at = Math.min(Math.max(moment, 0), step.last);
  const texts = [momentText(at * step.tick_s, ((view.to - view.from) * step.tick_s) / 100)];
  if (step.memory) {
    const parts = partsAt(step.memory, rank, at).map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(", ");
    texts.push(`${step.rank_names[rank]} holds ${bytesText(heldAt(step.memory, rank, at))}${parts && `: ${parts}`}`);
  }
  element("at").textContent = `At ${texts.join(": ")}.`;
}

function fillPeak(view) {
  const { step, rank } = view;
  const { time, bytes, parts } = step.memory.peaks[rank];
  const list = parts.map((part) => `${part.name}: ${bytesText(part.bytes)}${part.note ? ` (${part.note})` : ""}`);
  element("peak").textContent =
    `${sentence(step.rank_names[rank])} holds most after ${timeText(time * step.tick_s)}, ${bytesText(bytes)}. ${sentence(list.join("; "))}.`;
}

// The operators of a layer: one bar for each direction, and a table.
function fillLayer(view) {
  const { step, palette, event } = view;
  const kind = event < 0 ? "" : step.kinds[step.kind[event]].name;
  const chosen = kind === "forward" || kind === "recomputation" ? "forward" : /backward|gradient$/.test(kind) ? "backward" : "";
  const directions = [...new Set(step.layer.map((each) => each.direction))];
  const totals = directions.map((name) => step.layer.reduce((sum, each) => sum + (each.direction === name ? each.exposed_time_s : 0), 0));
  const longest = Math.max(...totals);
  element("layer-bars").replaceChildren(...directions.map((name, i) => layerBar(view, name, totals[i], longest)));
  const head = made("tr");
  head.append(...["operator", "pass", "alone", "adds", "limited by"].map((text) => made("th", text, { scope: "col" })));
  const rows = step.layer.map((each) => {
    const row = made("tr", "", chosen === each.direction ? { class: "on" } : {});
    const bound = made("td", "");
    bound.append(swatch(palette.bounds[each.bound] ?? palette.page.quiet), each.bound);
    row.append(made("td", each.name), made("td", each.direction), made("td", timeText(each.time_s)), made("td", timeText(each.exposed_time_s)), bound);
    return row;
  });
  element("layer-table").replaceChildren(head, ...rows);
  element("layer-note").textContent =
    "The most frequent kind of layer, for one micro-batch. Alone: what the operator takes. Adds: what it adds to the pass; " +
    `communication that computation hides adds nothing.${chosen ? ` The selected piece is a ${chosen} pass.` : ""}`;
}

function layerBar(view, direction, total, longest) {
  const { step, palette } = view;
  const line = made("div", "", { class: "bar" });
  const bar = made("div");
  for (const each of step.layer.filter((one) => one.direction === direction && one.exposed_time_s > 0)) {
    const piece = swatch(palette.bounds[each.bound] ?? palette.page.quiet);
    piece.style.width = `${(100 * each.exposed_time_s) / longest}%`;
    piece.title = `${each.name}: ${timeText(each.exposed_time_s)}, limited by ${each.bound}`;
    bar.append(piece);
  }
  line.append(made("b", direction), bar, made("span", timeText(total)));
  return line;
}

// On a page of its own a reader chooses the theme; elsewhere it is that of the page.
function setTheme(view, theme) {
  view.theme = theme;
  document.documentElement.dataset.theme = theme;
  const colours = view.step.palettes[theme];
  if (view.isAlone) for (const [name, colour] of Object.entries(colours.page)) document.documentElement.style.setProperty(`--${name}`, colour);
  delete colours.own;
  fillLegend(view);
  fillSelected(view);
  view.changed();
}

function fillChoices(view) {
  const { step } = view;
  element("rank-choice").append(...step.rank_names.map((name, rank) => made("option", name, { value: rank })));
  const folded = step.groups.reduce((sum, group) => sum + group.length - 1, 0);
  element("fold-label").hidden = folded === 0;
  element("fold-text").textContent = `Fold identical ranks (${folded} hidden)`;
  element("critical").parentElement.hidden = !step.hasCritical;
  element("critical").checked = view.marksCritical;
  element("theme").hidden = !view.isAlone;
  element("memory").hidden = !step.memory;
  if (element("layer-section")) element("layer-section").hidden = step.layer.length === 0;
}

function linkTools(view, { signal }) {
  element("closer").onclick = () => view.zoom(0.5);
  element("farther").onclick = () => view.zoom(2);
  element("whole").onclick = () => view.show(0, view.step.last);
  element("critical").onchange = (event) => { view.marksCritical = event.target.checked; view.changed(); };
  element("fold").onchange = (event) => { view.isFolded = event.target.checked; view.changed(); };
  element("theme").onclick = () => setTheme(view, view.theme === "dark" ? "light" : "dark");
  element("rank-choice").onchange = (event) => view.select(Number(event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(view, event.matches ? "dark" : "light"), { signal });
  const resized = new ResizeObserver(() => view.resized());
  resized.observe(element("stage"));
  signal.addEventListener("abort", () => resized.disconnect());
}

async function start() {
  const step = await loaded(JSON.parse(element("data").textContent));
  if (!element("stage")) return;
  const view = new View(step);
  window.shardplanView = view; // for a reader's own console, and for tests
  view.isAlone = "alone" in document.body.dataset;
  fillChoices(view);
  view.onChange = () => fillSelected(view);
  view.onPoint = (moment) => fillCursor(view, moment);
  shown = new AbortController();
  const tip = new Tip();
  for (const id of ["axis", "ranks", "rank", ...(step.memory ? ["memory"] : [])]) listen(view, id, tip);
  listenToKeys(view, shown);
  linkTools(view, shown);
  setTheme(view, view.theme);
  view.draw();
  document.documentElement.dataset.ready = "yes";
}

let shown = null; // what ends with the timeline that is shown

// Starts the timeline of a page, or of an answer that has come into it.
function boot() {
  const data = element("data");
  if (!data || data.dataset.isRead) return;
  data.dataset.isRead = "yes";
  shown?.abort();
  start().catch((error) => {
    element("failed").hidden = false;
    element("failed").textContent = `This browser cannot show the timeline: ${error.message}. Use a current version of it.`;
  });
}

document.addEventListener("htmx:afterSettle", boot);
boot();
