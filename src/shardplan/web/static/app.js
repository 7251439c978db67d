// What every page does: marks a stale answer, puts errors next to their field, keeps the question in links.

const answer = () => document.getElementById("answer");
const state = () => document.getElementById("state");
let pending = null;

function isAnswer(event) {
  return event.detail.target === answer();
}

function stale(isStale) {
  answer().setAttribute("aria-busy", String(isStale));
  document.body.classList.toggle("busy", isStale);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!isAnswer(event)) return;
  pending = event.detail.xhr;
  stale(true);
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (!isAnswer(event) || event.detail.xhr !== pending) return; // an aborted request is followed by another
  stale(false);
});
document.addEventListener("htmx:sendError", (event) => {
  if (isAnswer(event)) failed("The server does not answer. Is shardplan serve still running?");
});
document.addEventListener("htmx:responseError", (event) => {
  if (isAnswer(event)) failed(`The server answered with an error (${event.detail.xhr.status}).`);
});

function failed(text) {
  const panel = document.createElement("div");
  panel.className = "panel error";
  panel.setAttribute("role", "alert");
  const title = document.createElement("h2");
  title.textContent = text;
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", ask);
  panel.append(title, again);
  answer().replaceChildren(panel);
}

export function ask() {
  const form = document.querySelector("form[hx-get]");
  if (form) htmx.trigger(form, "change");
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (!isAnswer(event)) return;
  showErrors();
  const said = answer().querySelector("[data-said]");
  state().textContent = said ? said.dataset.said : "";
});

// The error of a field next to it, besides the panel.
function showErrors() {
  for (const each of document.querySelectorAll(".field [aria-invalid]")) each.removeAttribute("aria-invalid");
  for (const each of document.querySelectorAll(".wrong")) each.hidden = true;
  const panel = answer().querySelector("[data-wrong]");
  const field = panel && document.querySelector(`[data-field="${CSS.escape(panel.dataset.wrong)}"]`);
  if (!field) return;
  const input = field.querySelector("input, select, textarea");
  if (input) input.setAttribute("aria-invalid", "true");
  const text = field.querySelector(".wrong");
  if (text) {
    text.textContent = panel.querySelector(".lead").textContent;
    text.hidden = false;
  }
  const group = field.closest("details");
  if (group) group.open = true;
}

// A link to another view carries the question.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-keeps-question]");
  if (link) link.href = link.pathname + location.search + location.hash;
});
