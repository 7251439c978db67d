// A list that one can type into: the ARIA pattern of a combobox. Without this file the browser's own datalist is there.

const MOST = 60;

function enhance(input) {
  const options = [...document.getElementById(input.getAttribute("list")).options];
  const known = options.map((each) => ({ value: each.value, label: each.textContent }));
  const id = `${input.id}-options`;
  const list = document.createElement("div");
  Object.assign(list, { id, className: "options", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", input.labels[0]?.textContent ?? "");
  input.removeAttribute("list");
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", id);
  input.setAttribute("aria-expanded", "false");
  input.autocomplete = "off";
  const place = document.createElement("div");
  place.className = "combo";
  input.before(place);
  place.append(input, list);
  let active = -1;
  let before = input.value; // the last whole name

  function open(typed) {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const found = known.filter(({ value, label }) => words.every((each) => `${value} ${label}`.toLowerCase().includes(each)));
    list.replaceChildren(...found.slice(0, MOST).map(({ value, label }, index) => {
      const option = document.createElement("div");
      option.id = `${id}-${index}`;
      option.dataset.value = value;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const small = document.createElement("small");
      small.textContent = label;
      option.append(value, small);
      return option;
    }));
    mark(typed ? 0 : found.findIndex(({ value }) => value === input.value));
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(index) {
    const all = [...list.children];
    active = Math.max(-1, Math.min(index, all.length - 1));
    for (const [at, each] of all.entries()) each.setAttribute("aria-selected", String(at === active));
    if (active >= 0) {
      input.setAttribute("aria-activedescendant", all[active].id);
      all[active].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  function take(option) {
    input.value = before = option.dataset.value;
    close();
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }

  // What is half typed and left: the only name with it, or what was there before.
  function leave(event) {
    if (list.hidden || !isPart() || !event.isTrusted) return close();
    event.stopPropagation();
    if (list.children.length === 1) return take(list.children[0]);
    return restore();
  }

  function restore() {
    input.value = before;
    close();
  }

  const isPart = () => input.value !== "" && !known.some(({ value }) => value === input.value);

  // What is half typed is not a question yet: the form hears of a name that is complete.
  input.addEventListener("input", (event) => {
    open(input.value);
    if (!input.value || isPart()) event.stopPropagation();
    else before = input.value;
  });
  input.addEventListener("click", () => (list.hidden ? open("") : close()));
  input.addEventListener("focus", () => {
    before = input.value;
    input.select();
  });
  input.addEventListener("change", leave);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open("");
      else mark(active + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && !list.hidden && active >= 0) {
      event.preventDefault();
      take(list.children[active]);
    } else if (event.key === "Tab" && !list.hidden && active >= 0 && isPart()) take(list.children[active]);
    else if (event.key === "Escape" && !(list.hidden && input.value === before)) {
      event.preventDefault();
      const isAsked = list.hidden;
      restore();
      if (isAsked) input.dispatchEvent(new Event("change", { bubbles: true }));
    }
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });
}

for (const input of document.querySelectorAll("input[list]")) enhance(input);
