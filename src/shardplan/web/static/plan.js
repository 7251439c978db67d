// The Plan view: locks, pins, the plan that is looked at, the table of plans and the picture of all of them.

import { ask, form, setField } from "./app.js";
import { draw } from "./charts.js";

const answer = document.getElementById("answer");
const lookedAt = document.getElementById("looked-at");

// Pins and the plan that is looked at are fields of the form without a place on the page.
function looked(name) {
  return [...lookedAt.querySelectorAll(`input[name="${name}"]`)];
}

function addLooked(name, value) {
  const input = document.createElement("input");
  Object.assign(input, { type: "hidden", name, value });
  lookedAt.append(input);
}

// The question that is answered, with what is looked at: the form may hold another one by now.
function query() {
  const fields = new URLSearchParams(location.search);
  for (const name of ["pin", "show"]) {
    fields.delete(name);
    for (const each of looked(name)) fields.append(name, each.value);
  }
  return fields;
}

function part(path, id, more = {}) {
  const place = document.getElementById(id);
  const { config } = form().elements;
  if (place) htmx.ajax("GET", `${path}?${query()}`, { source: place, target: place, swap: "innerHTML", values: { config: config.value, ...more } });
}

function togglePin(code) {
  const known = looked("pin").find((each) => each.value === code);
  if (known) known.remove();
  else addLooked("pin", code);
  markPins();
  part("compare", "compare");
}

function markPins() {
  const pinned = new Set(looked("pin").map((each) => each.value));
  for (const button of answer.querySelectorAll("[data-pin]")) {
    button.setAttribute("aria-pressed", String(pinned.has(button.dataset.pin)));
  }
}

function show(code) {
  for (const each of looked("show")) each.remove();
  for (const row of answer.querySelectorAll("tr[data-code]")) {
    if (row.dataset.code === code) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  if (code) {
    addLooked("show", code);
    part("one", "one");
  } else {
    document.getElementById("one").replaceChildren();
    history.replaceState(history.state, "", `${location.pathname}?${query()}${location.hash}`);
  }
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-lock], [data-pin], [data-show], [data-sort], tr[data-code]");
  if (!target || !answer.contains(target)) return;
  const { lock, value, pin, sort } = target.dataset;
  if (lock) setField(lock, target.getAttribute("aria-pressed") === "true" ? "" : value);
  else if (pin) togglePin(pin);
  else if (sort !== undefined) sortBy(target.closest("table"), Number(sort), target.closest("th"));
  else show(target.dataset.show ?? target.dataset.code);
});

// Sorting and filtering the table.
function sortBy(table, column, title) {
  const isUp = title.getAttribute("aria-sort") !== "ascending";
  for (const each of table.querySelectorAll("th")) each.removeAttribute("aria-sort");
  title.setAttribute("aria-sort", isUp ? "ascending" : "descending");
  const value = (row) => row.cells[column + 1].dataset.v;
  const order = (a, b) => (Number.isNaN(Number(a)) ? a.localeCompare(b) : Number(a) - Number(b));
  const rows = [...table.tBodies[0].rows].sort((a, b) => order(value(a), value(b)) * (isUp ? 1 : -1));
  table.tBodies[0].append(...rows);
}

// What is shown is filtered at once, and all plans are searched once typing pauses.
const PAUSE = 300;
let pausing = 0;

function filterBy(text) {
  const wanted = text.toLowerCase().split(",").map((each) => each.trim()).filter((each) => each && !each.includes(".."));
  for (const row of answer.querySelectorAll("#plans tr[data-words]")) {
    const words = ` ${row.dataset.words.replaceAll("\u00b7", " ")} `;
    row.hidden = !wanted.every((each) => words.includes(` ${each}`));
  }
  clearTimeout(pausing);
  pausing = setTimeout(() => part("plans", "plans", { filter: text }), PAUSE);
}

document.addEventListener("input", (event) => {
  if (!event.target.matches?.("[data-filter]")) return;
  event.stopPropagation();
  filterBy(event.target.value);
});

function putFilter(text) {
  const field = answer.querySelector("[data-filter]");
  field.value = text;
  filterBy(text);
}

// The picture of the space.
const TONES = ["--c1", "--c4", "--c2", "--c6", "--c3", "--c5", "--c8", "--c9", "--c10"];
const POWERS = [-3, -2, -1, 0, 1, 2, 3, 4, 5].map((power) => 10 ** power);
const TICK_ROOM = 48; // pixels of a label
let colour = null;
let isZoomed = true;
const FAR = 0.95; // share of the plans that fit which the zoomed picture has the step times of
const FRONT = "fastest for its memory";

// The least time at every memory, of what fits.
function front(points) {
  const fit = points.time.flatMap((time, at) => (points.fits[at] ? [[time, points.memory[at]]] : [])).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let least = Infinity;
  return fit.filter(([, memory]) => memory < least && ((least = memory), true));
}

function ranges(points) {
  const fit = points.time.flatMap((time, at) => (points.fits[at] ? [[time, points.memory[at]]] : []));
  if (!isZoomed || fit.length < 3 || !points.usable) return {};
  const times = fit.map(([time]) => time).sort((a, b) => a - b);
  const least = fit.reduce((low, [, memory]) => Math.min(low, memory), Infinity);
  const x = [0.95 * times[0], 1.05 * times[Math.floor(FAR * (times.length - 1))]];
  return { x, y: [0.85 * least, 1.35 * points.usable] };
}

// Powers of ten, with others between them where there is room.
function logAxis(title, all, pixels, range) {
  const values = range ?? all;
  const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
  const between = [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].find((each) => each.length * (decades + 1) * TICK_ROOM <= pixels) ?? [1];
  const tickvals = POWERS.flatMap((power) => between.map((each) => each * power));
  const ticktext = tickvals.map((each) => Number(each.toPrecision(2)).toLocaleString("en"));
  return { type: "log", ...(range ? { range: range.map(Math.log10) } : {}), tickmode: "array", tickvals, ticktext, tickangle: 0, title: { text: title } };
}

function traces(points, name) {
  const values = points.dimensions[name] ?? points.time.map(() => "");
  const kinds = [...new Set(values)].sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
  const label = name.replaceAll("_", " ");
  const of = (kind, fits, index) => {
    const chosen = values.flatMap((each, at) => (each === kind && Boolean(points.fits[at]) === fits ? [at] : []));
    const tone = `var(${TONES[index % TONES.length]})`;
    return {
      type: "scatter", mode: "markers", name: `${label} ${kind}`, legendgroup: String(kind), showlegend: fits,
      x: chosen.map((at) => points.time[at]), y: chosen.map((at) => points.memory[at]),
      customdata: chosen.map((at) => [points.codes[at], points.codes[at].replaceAll(";", ", ").replaceAll("=", " ")]),
      hovertemplate: "%{customdata[1]}<br>%{x:.3~g} s, %{y:.3~g} GB<extra></extra>",
      marker: fits
        ? { color: tone, size: 6, opacity: 0.8 }
        : { color: "rgba(0,0,0,0)", size: 5, opacity: 0.45, line: { color: tone, width: 1 } },
    };
  };
  return kinds.flatMap((kind, index) => [of(kind, false, index), of(kind, true, index)]).filter((each) => each.x.length);
}

function figure(points, name, width) {
  const data = traces(points, name);
  const line = front(points);
  data.unshift({ type: "scatter", mode: "lines", name: FRONT, x: line.map(([time]) => time), y: line.map(([, memory]) => memory), line: { color: "var(--text)", width: 1.5, shape: "hv" }, hoverinfo: "skip" });
  const { x, y } = ranges(points);
  if (points.best) {
    data.push({
      type: "scatter", mode: "markers", name: "recommended plan", x: [points.best[0]], y: [points.best[1]], customdata: [[points.best[2], "the recommended plan"]],
      hovertemplate: "the recommended plan<br>%{x:.3~g} s, %{y:.3~g} GB<extra></extra>",
      marker: { color: "var(--text)", symbol: "star", size: 14, line: { color: "var(--panel)", width: 1 } },
    });
  }
  const shapes = points.usable
    ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: points.usable, y1: points.usable, line: { color: "var(--bad)", width: 1, dash: "dash" } }]
    : [];
  const annotations = points.usable
    ? [{ xref: "paper", x: 1, y: Math.log10(points.usable), xanchor: "right", yanchor: "bottom", text: "usable memory", showarrow: false, font: { color: "var(--bad)" } }]
    : [];
  return {
    data,
    layout: {
      xaxis: logAxis("step time [s]", points.time, width, x), yaxis: logAxis("peak memory [GB]", points.memory, 800, y),
      hovermode: "closest", dragmode: matchMedia("(hover: hover)").matches ? "select" : false, shapes, annotations, margin: { l: 64, r: 16, t: 8, b: 48 },
      legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 11 } },
    },
  };
}

// The part of the picture that is brushed, in the words of the filter.
function within(points) {
  const ends = (values, digits) => `${(Math.min(...values) - 0.5 * 10 ** -digits).toFixed(digits + 1)}..${(Math.max(...values) + 0.5 * 10 ** -digits).toFixed(digits + 1)}`;
  return `step ${ends(points.map((each) => each.x), 2)}, memory ${ends(points.map((each) => each.y), 1)}`;
}

async function drawSpace() {
  const place = document.querySelector("[data-space]");
  const data = document.querySelector("[data-points]");
  const select = document.querySelector("[data-colour]");
  if (!place || !data || place.dataset.isDrawn) return;
  place.dataset.isDrawn = "yes";
  const points = JSON.parse(data.textContent);
  const names = Object.keys(points.dimensions);
  select.replaceChildren(...names.map((name) => new Option(name.replaceAll("_", " "), name)));
  select.value = names.includes(colour) ? colour : names[0] ?? "";
  const again = () => draw(place, figure(points, select.value, place.clientWidth));
  select.addEventListener("change", (event) => {
    event.stopPropagation();
    colour = select.value;
    again();
  });
  const zoom = document.querySelector("[data-zoom]");
  zoom.checked = isZoomed;
  zoom.addEventListener("change", (event) => {
    event.stopPropagation();
    isZoomed = zoom.checked;
    again();
  });
  await again();
  place.on?.("plotly_click", (event) => {
    const [code] = event.points.find((each) => each.customdata)?.customdata ?? [];
    if (code) show(code);
  });
  place.on?.("plotly_selected", (event) => {
    if (!event?.points.length) return;
    putFilter(within(event.points));
    document.getElementById("plans-title").scrollIntoView({ block: "nearest" });
  });
  place.on?.("plotly_deselect", () => putFilter(""));
}

document.addEventListener("htmx:afterSwap", () => {
  markPins();
  drawSpace();
});
drawSpace();
