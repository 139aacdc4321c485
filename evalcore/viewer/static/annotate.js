"use strict";
// Keys of the annotation queue. They come before those of every page.
(() => {
  let submitted = false;
  const button = (key) =>
    document.querySelector(`button[data-key="${CSS.escape(key)}"]`) ??
    document.querySelector(`button[data-letter="${CSS.escape(key)}"]`);
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      if (event.target.closest("input, select, textarea") || document.getElementById("help").open) return;
      const key = event.key.toLowerCase();
      const comment = document.getElementById("comment");
      const pressed = key.length === 1 ? button(key) : null;
      if (!pressed && !(key === "c" && comment)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      if (pressed) pressed.click();
      else comment.focus();
    },
    true,
  );
  // A second press before the next page is shown would answer the same item again.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (submitted) event.preventDefault();
    submitted = true;
  });
  // A page that comes back from the browser's history can be answered again.
  addEventListener("pageshow", () => (submitted = false));
  if (document.getElementById("deciding")) setTimeout(() => location.reload(), 1000);
})();
