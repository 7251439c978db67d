// Fields in an answer belong to the form of the page: a change of them asks again.

document.addEventListener("change", (event) => {
  const form = event.target.form;
  if ("alone" in event.target.dataset) return;
  if (form?.matches("[hx-get], [hx-post]") && !form.contains(event.target)) htmx.trigger(form, "change");
});
