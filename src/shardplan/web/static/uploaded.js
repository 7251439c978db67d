// What is uploaded, a model or what a plan file describes: it travels in the body of requests, and compressed in the
// fragment of the address. Where it is too large for that, this tab keeps it, and the fragment has its key alone: a link
// without it says so. The Model and Cluster fields say by name whether it is used.

import { ask, copied, failed, form, NO_ANSWER, refused, told } from "./app.js";

const MOST_FRAGMENT = 8192;
const KEPT = "#config-kept-";
const PASTED = "config.json"; // the name of a pasted model
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

// The model of the address where the page goes from one to another.
export async function takeFragment() {
  if (!config()) return;
  config().value = "";
  await readFragment();
  had = config().value.trim();
}

function withoutItsModel() {
  const where = document.querySelector("[data-open-session]") ? "Open" : "Open on Plan";
  failed("The model of this link was uploaded and is too large for a link", `${where} the file that was saved with it, or choose a built-in model.`);
}

// A model that comes is asked about; one that goes is still named, until another is chosen.
let had = config()?.value.trim();
function nameModel() {
  const text = config().value.trim();
  if (text && !had) form().elements.model.value = PASTED;
  had = text;
}

function recordIn(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

const isPlanFile = (record) => String(record.schema).startsWith("shardplan/");

// The name of the uploaded model; none where only a cluster or constants are uploaded.
function nameIn(text) {
  const record = recordIn(text);
  return isPlanFile(record) ? record.model?.name : PASTED;
}

function saidOfConfig(text) {
  const place = document.querySelector("[data-config-state]");
  if (place) place.textContent = text;
}

async function keepFragment() {
  if (!config()) return;
  const hash = await fragmentOf(config().value.trim());
  history.replaceState(history.state, "", location.pathname + location.search + hash);
  const name = nameIn(config().value);
  if (hash && name && form().elements.model.value !== name) saidOfConfig(`Not used: Model names another one. ${name} there uses it again.`);
  else if (isKeptInTab()) saidOfConfig("Too large for a link: this tab keeps it. Save a file to share it.");
  else saidOfConfig(hash ? "A link to this page has it included." : "");
}

document.addEventListener("htmx:replacedInHistory", keepFragment);
document.addEventListener("click", (event) => {
  const copyLink = event.target.closest("[data-copy-link]");
  if (copyLink && isKeptInTab()) told(copyLink, "Too large: save a file");
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
  if (file) put(await file.text());
}

function put(text) {
  const record = recordIn(text);
  if (isPlanFile(record)) return open(text);
  config().value = Object.keys(record).length ? JSON.stringify(record) : text;
  form().elements.model.value = PASTED; // an empty file too: the answer says that it is empty
  had = text.trim();
  ask();
}

document.addEventListener("input", (event) => {
  if (event.target !== config()) return;
  if (isPlanFile(recordIn(config().value))) {
    event.stopPropagation();
    open(config().value);
  } else nameModel();
}, true);
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-file]")) {
    event.stopPropagation();
    takeConfig(event.target.files[0]);
  } else if (event.target.matches("[data-open-session]")) {
    event.target.files[0]?.text().then(open);
    event.target.value = ""; // the same file can be opened again
  }
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

// What the server makes of it; null where it refuses, which is shown.
async function sent(path, body) {
  try {
    const found = await fetch(path, { method: "POST", body, headers: { "HX-Request": "true" } });
    if (found.ok) return found;
    refused(await found.text());
  } catch {
    failed(...NO_ANSWER);
  }
  return null;
}

// A session is a plan file with the address of its page in it.
async function saveSession() {
  const found = await sent("plan.json", new URLSearchParams(new FormData(form())));
  if (!found) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await found.blob());
  link.download = "plan.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function open(text) {
  const found = await sent("open", text);
  if (!found) return;
  const { query, config: own } = await found.json();
  const isSame = location.search === `?${query}`;
  location.assign(`${location.pathname}?${query}${await fragmentOf(own)}`);
  if (isSame) location.reload(); // another model alone
}
