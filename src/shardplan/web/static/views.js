// What several views need: text to copy, fields of an answer that belong to the form.

const said = () => document.getElementById("state");

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.querySelector(button.dataset.copy)?.textContent ?? "";
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied: the browser does not allow it";
  }
  said().textContent = button.textContent;
  setTimeout(() => { button.textContent = label; }, 2000);
});

document.addEventListener("change", (event) => {
  const form = event.target.form;
  if (form?.matches("[hx-get], [hx-post]") && !form.contains(event.target)) htmx.trigger(form, "change");
});
