// A click on a point, or on a row, shows that run next to the figure.

const LINKS = "td a[data-apply]";
const named = (link) => new URL(link.href).searchParams.get("run");
const place = () => document.getElementById("run-detail");

function address(id) {
  const query = new URLSearchParams(new FormData(document.querySelector("form[hx-get]")));
  query.delete("config");
  query.set("run", id);
  return `trust/run?${query}`;
}

async function show(id) {
  document.getElementById("shown-run").value = id;
  await htmx.ajax("GET", address(id), { target: "#run-detail", swap: "innerHTML" });
  mark(id);
  if (matchMedia("(max-width: 1200px)").matches) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place().scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }
}

function mark(id) {
  for (const each of document.querySelectorAll(LINKS)) {
    if (named(each) === id) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest(LINKS);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  show(named(link));
});
document.addEventListener("drawn", (event) => {
  if (event.target.id !== "trust-chart") return;
  event.target.removeAllListeners("plotly_click");
  event.target.on("plotly_click", ({ points }) => {
    const id = points.find((each) => each.customdata)?.customdata;
    if (id) show(id);
  });
});
