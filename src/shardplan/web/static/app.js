// What every page does: marks a stale answer, puts errors next to their field, keeps the question in links, shares it.

import { forget } from "./charts.js";

const SHOWN = [401, 403, 408, 413, 422, 503, 504]; // come as a panel, which htmx shows (htmx-config of the page)
export const answer = () => document.getElementById("answer");
const problem = () => document.getElementById("problem");
const state = () => document.getElementById("state");
export const form = () => document.getElementById("question") ?? document.querySelector("form[hx-get], form[hx-post]");
const TITLE = document.title;
let pending = null;
let focused = null;
let opened = []; // ids of what was unfolded in the older answer

const isAnswer = (event) => event.detail.target === answer();

// `continues`: what is shown is an answer to the question that is asked, and more of it comes.
function stale(isStale, continues = false) {
  answer().setAttribute("aria-busy", String(isStale && !continues));
  document.body.classList.toggle("busy", isStale);
}

// A field that is left after a pause in typing was asked about already.
let asked = "";
document.addEventListener("htmx:confirm", (event) => {
  const { elt, triggeringEvent: by } = event.detail;
  if (elt !== form() || !isAnswer(event)) return;
  const own = [...elt.elements].filter((each) => elt.contains(each)); // and none of the answer, which asks by itself
  const fields = JSON.stringify(own.map((each) => (each.type === "checkbox" ? each.checked : each.value)));
  if (fields === asked && by?.isTrusted && by.type !== "submit") event.preventDefault();
  asked = fields;
});

// The request of the answer: an older one is aborted, the answer that is shown is marked until the new one is there.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!isAnswer(event)) return;
  pending = event.detail.xhr;
  stale(true, event.detail.elt.matches("[data-continues]"));
  for (const part of answer().querySelectorAll("[hx-get]")) htmx.trigger(part, "htmx:abort"); // of the older answer
});
// htmx looks at every element that goes, points of figures too: an answer goes at once instead.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!isAnswer(event) || !event.detail.shouldSwap) return;
  if (SHOWN.includes(event.detail.xhr.status)) {
    event.detail.target = problem(); // the last answer stays
    return;
  }
  clearProblem();
  opened = [...answer().querySelectorAll("details[data-keep][open]")].map((each) => each.id);
  forget(answer());
  focused = answer().contains(document.activeElement) ? document.activeElement : null;
  answer().replaceChildren();
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.xhr === pending) stale(false); // an aborted one is followed by another
});
document.addEventListener("htmx:sendError", (event) => {
  if (isAnswer(event)) failed(...NO_ANSWER);
  else missing(event.detail.target);
});
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  if (SHOWN.includes(status)) return;
  if (isAnswer(event)) failed(`The server answered with an error (${status})`, "Its log says what went wrong.");
  else missing(event.detail.target);
});

// A part of the answer that did not come says so in its place.
function missing(place) {
  const note = document.createElement("p");
  note.className = "note";
  note.setAttribute("role", "alert");
  const again = document.createElement("button");
  Object.assign(again, { type: "button", className: "small", textContent: "Try again" });
  again.dataset.again = "";
  note.append("This part could not be loaded. ", again);
  place.replaceChildren(note);
}

export const NO_ANSWER = ["The server does not answer", "Is shardplan serve still running? What you typed stays here."];

// What went wrong where the server sends no panel that says so.
export function failed(text, hint = "") {
  const panel = document.createElement("div");
  panel.className = "panel error";
  panel.setAttribute("role", "alert");
  const title = document.createElement("h2");
  title.textContent = text;
  const more = document.createElement("p");
  more.textContent = hint;
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", ask);
  panel.append(title, more, again);
  problem().replaceChildren(panel);
  besides();
}

export function refused(panel) {
  problem().innerHTML = panel;
  besides();
}

export const hasProblem = () => problem().childElementCount > 0;

export function clearProblem() {
  problem().replaceChildren();
  showErrors();
}

// What went wrong is above the last answer, which stays, or in place of one.
function besides() {
  showErrors();
  const subject = answer().querySelector("[data-said] [data-subject], [data-said] ~ * [data-subject]") ?? answer().querySelector("[data-subject]");
  const panel = problem().querySelector(".panel");
  if (!answer().querySelector("[data-said]")) answer().replaceChildren();
  else if (panel) {
    const note = document.createElement("p");
    note.className = "quiet below";
    note.textContent = `Below is still the last answer${subject ? `: ${subject.textContent}` : ""}. `;
    const undo = document.createElement("button");
    Object.assign(undo, { type: "button", className: "small", textContent: "Undo this change" });
    undo.dataset.undo = "";
    if (history.state?.fields) note.append(undo); // a page whose question has no address has nothing to go back to
    panel.append(note);
  }
}

export function ask() {
  htmx.trigger(form(), "change");
}

export function setField(name, value) {
  const field = form().elements[name];
  if (!field) return;
  field.value = value;
  const group = field.closest("details");
  if (group && value) group.open = true;
  ask();
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === problem()) besides();
  if (!isAnswer(event)) return;
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) refocus(focused);
  const said = answer().querySelector("[data-said]");
  state().textContent = said ? said.dataset.said : "";
  const subject = answer().querySelector("[data-subject]");
  const folded = document.querySelector(".fold > summary");
  if (folded && subject) folded.textContent = subject.textContent;
  document.title = subject ? `${subject.textContent} · ${TITLE}` : TITLE; // tells tabs and bookmarks apart
  const defaults = answer().querySelector("[data-defaults]");
  if (defaults) showDefaults(JSON.parse(defaults.dataset.defaults));
});

// The keyboard stays where it was in the answer, and what was being typed there too.
function refocus(old) {
  const named = ["id", "data-lock", "data-pin", "data-show"].filter((name) => old.getAttribute(name));
  const same = named.map((name) => `[${name}="${CSS.escape(old.getAttribute(name))}"]`).join("");
  const again = (same && answer().querySelector(same)) || answer();
  if ("defaultValue" in old && "value" in again && old.value !== old.defaultValue) again.value = old.value;
  again.focus({ preventScroll: true });
}

// What empty fields were answered with; precisions that the accelerator does not have are no choice.
function showDefaults({ precisions, ...values }) {
  for (const [name, value] of Object.entries(values)) {
    const field = form()?.elements[name];
    if (field instanceof HTMLInputElement) field.placeholder = value;
    else if (name === "precision" && field) offerPrecisions(field, precisions, value);
  }
}

function offerPrecisions(field, names, usual) {
  for (const each of field.options) each.hidden = each.disabled = each.value !== "" && !names.includes(each.value);
  if (!field.value) field.options[0].textContent = `default (${usual})`;
}

// The error of a field next to it, besides the panel.
function showErrors() {
  for (const each of document.querySelectorAll(".field [aria-invalid]")) each.removeAttribute("aria-invalid");
  for (const each of document.querySelectorAll(".wrong")) each.hidden = true;
  const panel = problem().querySelector("[data-wrong]");
  const field = panel && document.querySelector(`[data-field="${CSS.escape(panel.dataset.wrong)}"]`);
  if (!field) return;
  field.querySelector("input, select, textarea")?.setAttribute("aria-invalid", "true");
  const text = field.querySelector(".wrong");
  if (text) {
    text.textContent = panel.querySelector(".lead").textContent;
    text.hidden = false;
  }
  for (let group = field.closest("details"); group; group = group.parentElement.closest("details")) group.open = true;
}

// The question in links and on the clipboard.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-keeps-question]");
  if (link) link.href = link.pathname + location.search + location.hash;
  const apply = event.target.closest("a[data-apply]");
  if (apply && location.hash) apply.href = apply.pathname + apply.search + location.hash;
  const set = event.target.closest("[data-set]");
  if (set) setField(...set.dataset.set.split(/=(.*)/s).slice(0, 2));
  const copy = event.target.closest("[data-copy]");
  if (copy) copied(copy, document.getElementById(copy.dataset.copy).textContent);
  if (event.target.closest("[data-again]")) ask();
});

export async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    told(button, "Copied");
  } catch { // a browser has no clipboard for pages of other machines without https
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    told(button, document.execCommand("copy") ? "Copied" : "Not copied");
    area.remove();
    button.focus();
  }
}

// What came of a press, on the button for a moment and to screen readers.
export function told(button, text) {
  button.dataset.title ??= button.textContent;
  button.textContent = text;
  state().textContent = text;
  setTimeout(() => (button.textContent = button.dataset.title), 2500);
}

