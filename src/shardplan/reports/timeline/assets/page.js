// The page: reads its data, fills in what is not drawn on a canvas, and links the levels.
"use strict";

const element = (id) => document.getElementById(id);

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
  element("legend").replaceChildren(...shown, bubble);
}

function fillSelected(view) {
  const { step, rank, event } = view;
  const bubble = `${sentence(step.rank_names[rank])}: bubble ${(100 * step.bubble_rates[rank]).toFixed(1)} % of its time.`;
  element("selected").textContent = event < 0 ? bubble : `${eventText(step, event, rank).join(", ")}.`;
  element("rank-choice").value = String(rank);
  if (step.memory) fillPeak(view);
  if (step.layer.length) fillLayer(view);
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
    bound.append(swatch(palette.bounds[each.bound] ?? palette.page.faint), each.bound);
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
    const piece = swatch(palette.bounds[each.bound] ?? palette.page.faint);
    piece.style.width = `${(100 * each.exposed_time_s) / longest}%`;
    piece.title = `${each.name}: ${timeText(each.exposed_time_s)}, limited by ${each.bound}`;
    bar.append(piece);
  }
  line.append(made("b", direction), bar, made("span", timeText(total)));
  return line;
}

function setTheme(view, theme) {
  view.theme = theme;
  document.documentElement.dataset.theme = theme;
  for (const [name, colour] of Object.entries(view.palette.page)) document.documentElement.style.setProperty(`--${name}`, colour);
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
  element("memory-section").hidden = !step.memory;
  element("layer-section").hidden = step.layer.length === 0;
}

function linkTools(view) {
  element("closer").onclick = () => view.zoom(0.5);
  element("farther").onclick = () => view.zoom(2);
  element("whole").onclick = () => view.show(0, view.step.last);
  element("critical").onchange = (event) => { view.marksCritical = event.target.checked; view.changed(); };
  element("fold").onchange = (event) => { view.isFolded = event.target.checked; view.changed(); };
  element("theme").onclick = () => setTheme(view, view.theme === "dark" ? "light" : "dark");
  element("rank-choice").onchange = (event) => view.select(Number(event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(view, event.matches ? "dark" : "light"));
  new ResizeObserver(() => view.changed()).observe(document.body);
}

async function start() {
  const step = await loaded(JSON.parse(element("data").textContent));
  const view = new View(step);
  window.shardplanView = view; // for a reader's own console, and for tests
  fillChoices(view);
  view.onChange = () => fillSelected(view);
  const tip = new Tip();
  for (const id of ["ranks", "rank", ...(step.memory ? ["memory"] : [])]) listen(view, id, tip);
  linkTools(view);
  setTheme(view, view.theme);
  view.draw();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  element("summary").textContent = `This browser cannot show the page: ${error.message}. Use a current version of it.`;
});
