// What every page does: marks a stale answer, puts errors next to their field, keeps the question in links, shares it.

import { forget } from "./charts.js";

const MOST_FRAGMENT = 8192;
const answer = () => document.getElementById("answer");
const state = () => document.getElementById("state");
export const form = () => document.getElementById("question") ?? document.querySelector("form[hx-get]");
let pending = null;

const isAnswer = (event) => event.detail.target === answer();

// `continues`: what is shown is an answer to the question that is asked, and more of it comes.
function stale(isStale, continues = false) {
  answer().setAttribute("aria-busy", String(isStale && !continues));
  document.body.classList.toggle("busy", isStale);
}

if (matchMedia("(max-width: 900px)").matches) {
  for (const each of document.querySelectorAll("details[data-folds]")) each.open = false; // the verdict comes first
}

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
  forget(answer());
  answer().replaceChildren();
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (isAnswer(event) && event.detail.xhr === pending) stale(false); // an aborted one is followed by another
});
document.addEventListener("htmx:sendError", (event) => {
  if (isAnswer(event)) failed("The server does not answer. Is shardplan serve still running?");
});
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  if (isAnswer(event) && ![422, 503, 504].includes(status)) failed(`The server answered with an error (${status}).`);
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
  if (!isAnswer(event)) return;
  showErrors();
  const said = answer().querySelector("[data-said]");
  state().textContent = said ? said.dataset.said : "";
  const defaults = answer().querySelector("[data-defaults]");
  if (defaults) showDefaults(JSON.parse(defaults.dataset.defaults));
});

// What empty fields were answered with.
function showDefaults(values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form()?.elements[name];
    if (field instanceof HTMLInputElement) field.placeholder = value;
  }
}

// The error of a field next to it, besides the panel.
function showErrors() {
  for (const each of document.querySelectorAll(".field [aria-invalid]")) each.removeAttribute("aria-invalid");
  for (const each of document.querySelectorAll(".wrong")) each.hidden = true;
  const panel = answer().querySelector("[data-wrong]");
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
  const copyLink = event.target.closest("[data-copy-link]");
  if (copyLink) copied(copyLink, location.href);
  if (event.target.closest("[data-save]")) saveSession();
  if (event.target.closest("[data-again]")) ask();
});

async function copied(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Press Ctrl+C";
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy) ?? button);
  }
  setTimeout(() => (button.textContent = before), 1500);
}

// An uploaded model: it travels in the body of requests, and compressed in the fragment of the address.
const config = () => form()?.elements.config;
let reading = readFragment();

async function piped(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function packed(text) {
  const bytes = await piped(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  return new TextDecoder().decode(await piped(bytes, new DecompressionStream("deflate-raw")));
}

async function readFragment() {
  const found = location.hash.match(/^#config=([\w-]+)$/);
  if (!found || !config()) return;
  try {
    config().value = await unpacked(found[1]);
    const group = config().closest("details");
    if (group) group.open = true;
  } catch {
    saidOfConfig("The model in this link is not complete: copy the whole link.");
  }
}

function saidOfConfig(text) {
  const place = document.querySelector("[data-config-state]");
  if (place) place.textContent = text;
}

async function keepFragment() {
  if (!config()) return;
  const text = config().value.trim() ? await packed(config().value.trim()) : "";
  const fits = text.length <= MOST_FRAGMENT;
  const hash = text && fits ? `#config=${text}` : "";
  history.replaceState(history.state, "", location.pathname + location.search + hash);
  if (text) {
    saidOfConfig(fits ? "A link to this page has the model in it." : "Too large for a link: save the session as a file.");
  } else saidOfConfig("");
}

document.addEventListener("htmx:replacedInHistory", keepFragment);
document.addEventListener("htmx:configRequest", (event) => {
  if (reading) { // the model in the address first
    const waiting = reading;
    reading = null;
    if (location.hash.startsWith("#config=")) {
      event.preventDefault();
      waiting.then(ask);
      return;
    }
  }
  if (!config()?.value.trim()) {
    delete event.detail.parameters.config;
    return;
  }
  event.detail.verb = "post";
  event.detail.useUrlParams = false;
  event.detail.headers["Content-Type"] = "application/x-www-form-urlencoded";
});

async function takeConfig(file) {
  if (!file) return;
  const text = await file.text();
  try {
    config().value = JSON.stringify(JSON.parse(text));
  } catch {
    config().value = text;
  }
  ask();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-file]")) {
    event.stopPropagation();
    takeConfig(event.target.files[0]);
  } else if (event.target.matches("[data-open-session]")) openSession(event.target.files[0]);
}, true);
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    const place = document.querySelector("[data-drop]");
    if (!place || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    place.classList.toggle("over", kind === "dragover");
    if (kind === "dragover") place.closest("details").open = true;
    if (kind === "drop") takeConfig(event.dataTransfer.files[0]);
  });
}

// A session is a plan file with the address of its page in it.
async function saveSession() {
  const body = new URLSearchParams(new FormData(form()));
  const found = await fetch("plan.json", { method: "POST", body });
  if (!found.ok) return failed("The session is saved once the question has an answer.");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await found.blob());
  link.download = "plan.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function openSession(file) {
  if (!file) return;
  const found = await fetch("open", { method: "POST", body: await file.text(), headers: { "Content-Type": "application/json" } });
  if (!found.ok) return failed((await found.json()).error.message);
  const { query, config: text } = await found.json();
  location.assign(`${location.pathname}?${query}${text ? `#config=${await packed(text)}` : ""}`);
}

export function sendLater() {
  const query = new URLSearchParams([...new FormData(form())].filter(([name, value]) => value && name !== "config"));
  history.replaceState(history.state, "", `${location.pathname}?${query}${location.hash}`);
}
