"use strict";
// The keyboard of every page. What a page shows is in its address and made on the server.
(() => {
  const help = document.getElementById("help");
  const opener = document.getElementById("help-button");
  const rows = () => [...document.querySelectorAll("#rows a.open")];
  opener?.addEventListener("click", () => help.showModal());

  const move = (step) => {
    const links = rows();
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step;
    const link = links[Math.min(links.length - 1, Math.max(0, next))];
    link.focus();
    link.closest("tr")?.scrollIntoView({ block: "nearest" });
  };
  const actions = {
    "/": () => document.querySelector("#search, input[type=search]")?.focus(),
    "?": () => help.showModal(),
    j: () => move(1),
    k: () => move(-1),
    u: () => document.querySelector("a[data-up]")?.click(),
    n: () => document.querySelector("a[rel=next]")?.click(),
    p: () => document.querySelector("a[rel=prev]")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    const action = actions[event.key];
    if (!action || help.open) return;
    event.preventDefault();
    action();
  });
  // A choice shows at once; the button is for browsers without script.
  document.addEventListener("change", (event) => {
    if (event.target.matches("form.filters :is(select, input[type=checkbox], input[type=date])")) {
      event.target.form.requestSubmit();
    }
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form.filters")) return;
    for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
  });
})();
