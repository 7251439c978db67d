// On a narrow window the verdict comes first: the question is folded to one line before anything is painted, and it is
// unfolded where the window grows.

const narrow = matchMedia("(max-width: 900px)");
const fold = () => {
  for (const each of document.querySelectorAll("details[data-folds]")) each.open = false;
};
narrow.addEventListener("change", () => {
  for (const each of document.querySelectorAll("details[data-folds]")) each.open = !narrow.matches;
});
if (narrow.matches) {
  const reading = new MutationObserver(fold);
  reading.observe(document, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", () => {
    fold();
    reading.disconnect();
  });
}
