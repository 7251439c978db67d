// Fields in an answer belong to the form of the page: a change of them asks again.

document.addEventListener("change", (event) => {
  const form = event.target.form;
  if ("alone" in event.target.dataset) return;
  if (form?.matches("[hx-get], [hx-post]") && !form.contains(event.target)) htmx.trigger(form, "change");
});

// The timeline of an uploaded model: a frame has no body in its address, so that a form asks for what it shows.
document.addEventListener("htmx:afterSwap", (event) => {
  for (const form of event.detail.target.querySelectorAll("form[data-submits]")) form.submit();
});
