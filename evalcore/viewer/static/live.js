"use strict";
// A run that goes on: its progress is asked for once a second; new rows are taken from the page's own address.
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const items = Number(live.dataset.items);
  const progress = document.getElementById("live-progress");
  const counts = document.getElementById("live-counts");
  const rate = document.getElementById("live-rate");
  const shown = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const LOOK_EVERY_MS = 1000;
  const ROWS_EVERY_MS = 3000;
  let done = Number(progress.value);
  let rowsAt = 0;
  let pending = 0;

  const seconds = (left) => (left < 90 ? `${Math.ceil(left)} s` : `${Math.ceil(left / 60)} min`);

  const refreshRows = async () => {
    pending = 0;
    const list = document.getElementById("case-list");
    // What is being typed or read with the keyboard is not taken away.
    if (!list || list.querySelector("form:focus-within") || document.hidden) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("case-list");
    if (!fresh) return;
    const focused = document.activeElement?.closest("#rows a.open")?.getAttribute("href");
    list.replaceWith(document.adoptNode(fresh));
    if (focused) [...fresh.querySelectorAll("a.open")].find((link) => link.getAttribute("href") === focused)?.focus();
  };

  const show = (look) => {
    const now = look.items.done;
    progress.value = now;
    const parts = ["passed", "failed", "blocked", "errors", "skipped", "cancelled"]
      .filter((name) => look.items[name])
      .map((name) => `${shown.format(look.items[name])} ${name === "errors" ? "in error" : name}`);
    counts.textContent = `${shown.format(now)} of ${shown.format(items)} items have ended${parts.length ? `: ${parts.join(", ")}` : ""}`;
    rate.textContent = [
      look.items_per_s ? `${shown.format(look.items_per_s)} items a second` : "",
      look.left_s ? `about ${seconds(look.left_s)} left` : "",
    ].filter(Boolean).join(", ");
    if (now !== done && !pending) {
      done = now;
      pending = setTimeout(() => {
        rowsAt = performance.now();
        refreshRows().catch(() => {});
      }, Math.max(0, rowsAt + ROWS_EVERY_MS - performance.now()));
    }
  };
  const look = async () => {
    if (!document.hidden) {
      const answer = await fetch(live.dataset.look, { headers: { Accept: "application/json" } });
      if (answer.ok) {
        const seen = await answer.json();
        show(seen);
        if (seen.state !== "running") {
          clearTimeout(pending);
          // The list of runs is read once a second.
          setTimeout(() => location.reload(), 1100);
          return;
        }
      }
    }
    again();
  };
  const again = () => setTimeout(() => look().catch(again), LOOK_EVERY_MS);
  again();
})();
