// Draws plotly figures that the server sends as JSON; loads plotly after the first paint; follows light and dark.

// plotly adds the style of its maps to the page where it finds none: the policy of this server allows no such style.
const STYLE_OF_MAPS = /^[0-9a-f]{64}$/;
let loading = null;
const drawn = new Set();

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("meta[name=plotly]").content;
    const known = document.getElementById;
    document.getElementById = (id) => (STYLE_OF_MAPS.test(id) ? document.head : known.call(document, id));
    script.onload = () => {
      delete document.getElementById;
      resolve(window.Plotly);
    };
    script.onerror = () => reject(new Error("plotly.min.js was not loaded"));
    document.head.append(script);
  });
  return loading;
}

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Colours of the page for what the figure does not set. A colour that is written "var(--x)" is one of the page's.
function themed(value) {
  if (typeof value === "string") return value.startsWith("var(") ? token(value.slice(4, -1)) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(themed);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, themed(each)]));
  }
  return value;
}

function layoutOf(figure) {
  const axis = { gridcolor: token("--line"), zerolinecolor: token("--line"), linecolor: token("--line"), automargin: true };
  const own = themed(figure.layout ?? {});
  const axes = Object.keys({ xaxis: 0, yaxis: 0, ...own }).filter((key) => /^[xy]axis\d*$/.test(key));
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: token("--font"), size: 12, color: token("--text") },
    margin: { l: 56, r: 16, t: 16, b: 48 },
    hoverlabel: { bgcolor: token("--panel"), bordercolor: token("--line"), font: { color: token("--text") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: token("--quiet"), activecolor: token("--accent") },
    ...own,
    ...Object.fromEntries(axes.map((key) => [key, { ...axis, ...own[key] }])),
  };
}

export const CONFIG = {
  displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false, // fingers pinch, and have no room for it
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
  plotlyServerURL: "",
};

const NO_BRUSH = { modeBarButtonsToRemove: [...CONFIG.modeBarButtonsToRemove, "select2d"] };

export async function draw(place, figure) {
  const library = await plotly();
  if (!place.isConnected) return null;
  const copy = structuredClone(figure);
  await library.react(place, themed(copy.data), layoutOf(copy), { ...CONFIG, ...(copy.layout?.dragmode === "select" ? {} : NO_BRUSH) });
  place.figure = figure;
  drawn.add(place);
  place.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
  return place;
}

export function drawAll(root = document) {
  for (const data of root.querySelectorAll("script[data-chart]")) {
    const place = document.getElementById(data.dataset.chart);
    if (place) draw(place, JSON.parse(data.textContent));
  }
}

document.addEventListener("htmx:afterSettle", (event) => drawAll(event.detail.target));

// What a figure holds outside its place, such as the window's listeners, goes with it; the new answer comes first.
export function forget(root) {
  for (const place of drawn) {
    if (!root.contains(place)) continue;
    drawn.delete(place);
    setTimeout(() => window.Plotly.purge(place), 200);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const place of drawn) {
    draw(place, place.figure);
  }
});
document.addEventListener("toggle", (event) => {
  for (const place of event.target.querySelectorAll?.("[data-plot]") ?? []) window.Plotly?.Plots.resize(place);
}, true);
if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => drawAll());
else drawAll();
