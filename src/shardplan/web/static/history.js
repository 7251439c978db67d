// Each answered question is an entry of the browser's history. The last ones are listed, with what each change did.

import { answer, ask, clearProblem, form, hasProblem } from "./app.js";
import { takeFragment } from "./uploaded.js";

const MOST = 8;
const KEY = "asked";
const place = document.getElementById("asked");
const address = () => location.pathname + location.search;
let sent = null; // the fields of the question that is under way
let typed = null; // the field whose typing made the newest entry
let isGoing = false; // to an entry that is there
let shown = address();

// Fields of the form by their place in it, but for what travels in the fragment, and for pins.
const own = () => [...(form()?.elements ?? [])].filter((each) => each.name && each.name !== "config" && each.type !== "file" && form().contains(each) && !each.closest("#looked-at"));
const snapshot = () => own().map((each) => (each.type === "checkbox" ? each.checked : each.value));

function fill(fields) {
  for (const [at, each] of own().entries()) {
    if (each.type === "checkbox") each.checked = fields[at];
    else each.value = fields[at];
  }
  const looked = document.getElementById("looked-at");
  looked?.replaceChildren(...[...new URLSearchParams(location.search)].filter(([name]) => ["pin", "show"].includes(name)).map(([name, value]) => Object.assign(document.createElement("input"), { type: "hidden", name, value })));
}

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (detail.target === answer() && detail.elt === form()) sent = snapshot();
});

// What a person types into one field, stop by stop, is one entry.
function isSameTyping(event) {
  const name = event?.type === "input" ? event.target.name : null;
  const isSame = name !== null && name === typed;
  typed = name;
  return isSame;
}
document.addEventListener("focusout", () => (typed = null));

document.addEventListener("htmx:beforeHistoryUpdate", ({ detail }) => {
  const { pathname, search } = new URL(detail.history.path, location.href);
  if (pathname !== location.pathname) return; // a piece of another page
  const depth = history.state?.depth ?? 0;
  const isFirst = history.state?.fields === undefined;
  const isAnswer = detail.target === answer() && sent !== null;
  const isSame = pathname + search === address() || isSameTyping(detail.requestConfig.triggeringEvent);
  const isNew = isAnswer && !isFirst && !isGoing && !isSame;
  const state = { depth: isNew ? depth + 1 : depth, fields: isAnswer ? sent : history.state?.fields };
  history[isNew ? "pushState" : "replaceState"](state, "", pathname + search + location.hash);
  shown = address();
});

addEventListener("popstate", async ({ state }) => {
  if (!state?.fields) {
    if (address() !== shown) location.reload(); // an entry of another visit
    return;
  }
  shown = address();
  await goTo(state.fields);
});

async function goTo(fields) {
  clearProblem();
  fill(fields);
  await takeFragment();
  isGoing = true;
  ask();
}

// A question that was refused is given up first.
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-undo]")) return;
  if (!hasProblem()) history.back();
  else if (history.state?.fields) {
    clearProblem();
    fill(history.state.fields);
    takeFragment();
  }
});

// The last questions.
const read = () => JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
const count = (text) => (/^\d+$/.test(text) ? Number(text).toLocaleString("en") : text);
const FREE = { lock: "free", other: "default" };

function difference(before, now) {
  const [from, to] = [before, now].map((each) => new URLSearchParams(each));
  const names = [...new Set([...from.keys(), ...to.keys()])].filter((name) => !["pin", "show"].includes(name) && from.get(name) !== to.get(name));
  const texts = names.map((name) => {
    const none = FREE[name.startsWith("lock.") ? "lock" : "other"];
    const values = `${count(from.get(name) ?? none)} \u2192 ${count(to.get(name) ?? none)}`;
    if (name === "gpus") return `${values} accelerators`;
    const label = form().elements[name]?.labels?.[0]?.textContent ?? name.replace("lock.", "");
    return ["model", "cluster"].includes(name) ? values : `${label} ${values}`;
  });
  return texts.length > 2 ? `${texts.slice(0, 2).join(", ")} ...` : texts.join(", ");
}

// Steps of as many tokens are compared by their time, others by tokens per second.
function effect(before, now) {
  if (!now.step) return "nothing fits";
  if (!before?.step) return now.text;
  const isLike = Math.abs((now.step * now.rate) / (before.step * before.rate) - 1) < 0.001;
  const change = isLike ? now.step / before.step - 1 : now.rate / before.rate - 1;
  const size = Math.abs(100 * change);
  const text = size < 0.05 ? "same" : `${change > 0 ? "+" : "-"}${size < 9.95 ? size.toFixed(1) : size.toFixed(0)} %`;
  return isLike ? text : `${text} tokens/s`;
}

function note() {
  const said = answer().querySelector("[data-said]");
  if (!place || !said) return;
  const list = read();
  const now = { address: address(), hash: location.hash, step: Number(said.dataset.step ?? 0), rate: Number(said.dataset.rate ?? 0), fields: history.state?.fields };
  now.text = answer().querySelector(".big")?.textContent ?? "";
  const known = list.find((each) => withoutLooks(each.address) === withoutLooks(now.address));
  if (!known) {
    const before = list.at(-1);
    now.title = before ? difference(before.address.split("?")[1], location.search) : answer().querySelector("[data-subject]")?.textContent;
    now.effect = effect(before, now);
    if (typed && before?.typed === typed) list.pop();
    now.typed = typed;
    sessionStorage.setItem(KEY, JSON.stringify([...list, now].slice(-MOST)));
  }
  draw();
}

function withoutLooks(text) {
  const [path, query] = text.split("?");
  const fields = new URLSearchParams(query);
  for (const name of ["pin", "show"]) fields.delete(name);
  return `${path}?${fields}`;
}

function draw() {
  const list = read();
  const undo = place.querySelector("[data-undo]");
  undo.disabled = !(history.state?.depth > 0);
  place.hidden = list.length < 2 && undo.disabled;
  place.querySelector("ol").replaceChildren(...list.map((each, at) => {
    const link = document.createElement("a");
    link.href = each.address + each.hash;
    link.dataset.asked = at;
    if (withoutLooks(each.address) === withoutLooks(address())) link.setAttribute("aria-current", "true");
    const strong = document.createElement("b");
    strong.textContent = each.effect;
    link.append(each.title, " ", strong);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  place.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-asked]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const entry = read()[link.dataset.asked];
  if (entry?.fields?.length !== own().length) return; // of another version of the page: it is opened
  event.preventDefault();
  history.pushState({ depth: (history.state?.depth ?? 0) + 1, fields: entry.fields }, "", entry.address + entry.hash);
  shown = address();
  goTo(entry.fields);
});

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target !== answer()) return;
  note();
  isGoing = false;
});
