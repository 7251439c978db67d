// Fields of the chosen decision; progress of a long answer, and a button that stops it.

import { ask, failed } from "./app.js";

const form = document.querySelector("form[data-counts]"); // what its progress counts: questions, placements
const panel = document.getElementById("under-way");
const bar = document.getElementById("far");
const text = document.getElementById("far-text");
const EVERY = 500;
let ticket = "";
let timer = 0;

function choose() {
  for (const each of form.querySelectorAll("[data-for]")) each.hidden = !each.dataset.for.split(" ").includes(form.elements.decide.value);
}

const DEFAULTS = {
  sequence_length: "4k,8k,16k,32k",
  global_batch_size: "256,512,1024,2048",
  "set.inter_node_bandwidth": "12.5 GB/s,25 GB/s,50 GB/s,100 GB/s",
  "set.intra_node_bandwidth": "150 GB/s,300 GB/s,450 GB/s,900 GB/s",
  precision: "bf16,fp8",
};

form.addEventListener("change", (event) => {
  if (event.target.name === "over") form.elements.values.value = DEFAULTS[event.target.value];
  choose();
}, true);
choose();

// A card chooses its decision; all can be answered one after another.
document.addEventListener("click", (event) => {
  const card = event.target.closest("a[data-decide]");
  if (card && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    form.elements.decide.value = card.dataset.decide;
    choose();
    ask();
  }
  if (event.target.closest("[data-answer-all]")) answerAll(event.target);
});

async function answerAll(button) {
  button.disabled = true;
  const query = new URLSearchParams(location.search);
  const body = form.elements.config.value ? new URLSearchParams({ config: form.elements.config.value }) : null;
  for (const card of document.querySelectorAll("a[data-decide]:not([aria-current])")) {
    if (!button.isConnected) return; // another question
    const line = card.querySelector("[data-line]");
    line.textContent = "Searching ...";
    query.set("decide", card.dataset.decide);
    const found = await fetch(`decide/answer?${query}`, { method: body ? "POST" : "GET", body, headers: { "HX-Request": "true" } }).catch(() => null);
    const page = new DOMParser().parseFromString(found ? await found.text() : "", "text/html");
    line.textContent = page.querySelector("[data-said]")?.dataset.said ?? page.querySelector(".lead")?.textContent ?? "No answer";
  }
}

async function look() {
  const mine = ticket;
  const answer = await fetch(`decide/progress?ticket=${mine}`).then((each) => each.json()).catch(() => null);
  if (mine !== ticket || !answer) return;
  if (answer.of > 0) {
    bar.max = answer.of;
    bar.value = answer.done;
    text.textContent = `${answer.done} of ${answer.of} ${form.dataset.counts}`;
  }
  timer = setTimeout(look, EVERY);
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.elt !== form) return;
  ticket = Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(16).padStart(2, "0")).join("");
  event.detail.parameters.ticket = ticket;
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt !== form) return;
  panel.hidden = false;
  bar.removeAttribute("value");
  text.textContent = "";
  clearTimeout(timer);
  timer = setTimeout(look, EVERY);
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt !== form || event.detail.xhr.responseURL.includes("ticket=") && !event.detail.xhr.responseURL.includes(ticket)) return;
  panel.hidden = true;
  clearTimeout(timer);
  ticket = "";
});
document.getElementById("stop").addEventListener("click", () => {
  htmx.trigger(form, "htmx:abort");
  panel.hidden = true;
  clearTimeout(timer);
  ticket = "";
  stopped();
});

function stopped() {
  failed("Stopped");
  document.getElementById("answer").setAttribute("aria-busy", "false");
  document.body.classList.remove("busy");
  document.getElementById("state").textContent = "Stopped.";
}
