// On a narrow window the verdict comes first: parts of the form are folded as they are read, before anything is painted.

if (matchMedia("(max-width: 900px)").matches) {
  const fold = () => {
    for (const each of document.querySelectorAll("details[data-folds]")) each.open = false;
  };
  const reading = new MutationObserver(fold);
  reading.observe(document, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", () => {
    fold();
    reading.disconnect();
  });
}
