// A script that is chosen or dropped is put into the text field; nothing is uploaded but that text.

const area = document.querySelector("[data-drop]");
const MOST = 500000;

async function take(file) {
  if (!file) return;
  if (file.size > MOST) {
    document.getElementById("state").textContent = "The file is too large for a launch script.";
    document.getElementById("help-script").textContent = `${file.name} has ${file.size.toLocaleString("en")} bytes: too large for a launch script.`;
    return;
  }
  document.getElementById("f-script").value = await file.text();
  document.getElementById("f-name").value = file.name;
  for (const each of document.querySelectorAll("[form=audit-form]")) each.value = "";
  htmx.trigger(document.getElementById("audit-form"), "change");
}

document.getElementById("f-file").addEventListener("change", (event) => {
  event.stopPropagation();
  take(event.target.files[0]);
});
area.addEventListener("dragover", (event) => {
  event.preventDefault();
  area.classList.add("over");
});
area.addEventListener("dragleave", () => area.classList.remove("over"));
area.addEventListener("drop", (event) => {
  event.preventDefault();
  area.classList.remove("over");
  take(event.dataTransfer.files[0]);
});
