// An uploaded model: it travels in the body of requests, and compressed in the fragment of the address. Where it is too
// large for that, this tab keeps it, and the fragment has its key alone: a link without its model says so.

import { ask, copied, failed, form, told } from "./app.js";

const MOST_FRAGMENT = 8192;
const KEPT = "#config-kept-";
const config = () => form()?.elements.config;
let reading = readFragment();

function isKeptInTab() {
  return location.hash.startsWith(KEPT);
}

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

// Tells one model from another.
function keyOf(text) {
  let sum = 7;
  for (let at = 0; at < text.length; at += 1) sum = (31 * sum + text.charCodeAt(at)) >>> 0;
  return `${text.length}-${sum}`;
}

async function fragmentOf(text) {
  if (!text) return "";
  const short = await packed(text);
  if (short.length <= MOST_FRAGMENT) return `#config=${short}`;
  try {
    sessionStorage.setItem("config", text);
  } catch { /* no room: the model stays in the form while the page is open */ }
  return KEPT + keyOf(text);
}

// Whether the model of the address is there, or the address has none.
async function readFragment() {
  const [, short] = location.hash.match(/^#config=([\w-]+)$/) ?? [];
  if (!config() || !(short || isKeptInTab())) return true;
  const kept = sessionStorage.getItem("config") ?? "";
  try {
    config().value = short ? await unpacked(short) : KEPT + keyOf(kept) === location.hash ? kept : "";
  } catch {
    saidOfConfig("The model in this link is not complete: copy the whole link.");
    return true;
  }
  const group = config().closest("details");
  if (group) group.open = true;
  return config().value !== "";
}

function withoutItsModel() {
  const where = document.querySelector("[data-open-session]") ? "open" : "open on Plan";
  const panel = failed(`The model of this link was uploaded and is too large for a link: ${where} the session that was saved with it.`);
  panel.querySelector("button").textContent = `Ask for ${form().elements.model?.value ?? "the model that is named"}`;
}

function saidOfConfig(text) {
  const place = document.querySelector("[data-config-state]");
  if (place) place.textContent = text;
}

async function keepFragment() {
  if (!config()) return;
  const hash = await fragmentOf(config().value.trim());
  history.replaceState(history.state, "", location.pathname + location.search + hash);
  if (isKeptInTab()) saidOfConfig("Too large for a link: this tab keeps the model. Save the session to share it.");
  else saidOfConfig(hash ? "A link to this page has the model in it." : "");
}

document.addEventListener("htmx:replacedInHistory", keepFragment);
document.addEventListener("click", (event) => {
  const copyLink = event.target.closest("[data-copy-link]");
  if (copyLink && isKeptInTab()) told(copyLink, "Too large: save the session");
  else if (copyLink) copied(copyLink, location.href);
  if (event.target.closest("[data-save]")) saveSession();
});
document.addEventListener("htmx:configRequest", (event) => {
  if (reading) { // the model in the address first
    const waiting = reading;
    reading = null;
    if (config() && location.hash.startsWith("#config")) {
      event.preventDefault();
      waiting.then((isThere) => (isThere ? ask() : withoutItsModel()));
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
  const isSame = location.search === `?${query}`;
  location.assign(`${location.pathname}?${query}${await fragmentOf(text)}`);
  if (isSame) location.reload(); // another model alone
}
