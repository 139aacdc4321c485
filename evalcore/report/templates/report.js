// The table of cases: filters, order, pages, and the case that is open.

const PAGE = 100;
const OUTCOMES = ["failed", "error", "blocked", "skipped", "cancelled", "passed"];
const byId = (id) => document.getElementById(id);
const head = JSON.parse(byId("head").textContent);
const lines = byId("details").textContent.split("\n");
let searchable = null;
const state = { text: "", outcome: null, variant: null, tag: "", changed: false, sort: null, descending: false, page: 0 };
const open = new Set();

const changesOf = new Map();
for (const change of head.changes) {
  const key = JSON.stringify([change.case, change.variant]);
  changesOf.set(key, [...(changesOf.get(key) ?? []), change]);
}

const cases = JSON.parse(byId("rows").textContent).map(([id, group, tags, packed, question], index) => {
  const cells = packed.map((cell, variant) => {
    const changes = changesOf.get(JSON.stringify([id, head.variants[variant]])) ?? [];
    if (cell === null) return { outcome: "none", score: null, latency: null, why: "", items: 0, changes };
    const [outcome, score, latency, why, items] = cell;
    return { outcome: OUTCOMES[outcome], score, latency, why, items, changes };
  });
  const outcomes = new Set(cells.map((cell) => cell.outcome));
  const changed = cells.some((cell) => cell.changes.length > 0) || (head.changes.length === 0 && outcomes.size > 1);
  const counted = cells.flatMap((cell) => cell.changes).filter((change) => change.direction === "regression" && !change.allowed);
  const rank = counted.some((change) => change.hard) ? 0 : counted.length ? 1 : outcomes.size === 1 && outcomes.has("passed") ? 3 : 2;
  return { rank, index, id, group, question, tags: tags.map((tag) => head.tags[tag]), cells, changed };
});

function shownVariants() {
  const all = head.variants.map((name, variant) => ({ name, variant }));
  return state.variant === null ? all : [all[state.variant]];
}

// The needle as it stands in the data: JSON, in which the characters of HTML are spelled.
function needle(text) {
  return JSON.stringify(text).slice(1, -1).replace(/[<>&]/g, (c) => "\\u00" + c.charCodeAt(0).toString(16)).toLowerCase();
}

function matches(one, wanted, variants) {
  if (state.tag && !one.tags.includes(state.tag)) return false;
  if (state.changed && !one.changed) return false;
  if (state.outcome !== null && !variants.some(({ variant }) => one.cells[variant].outcome === state.outcome)) return false;
  if (state.variant !== null && one.cells[state.variant].outcome === "none") return false;
  if (!wanted) return true;
  const own = (one.id + "\n" + (one.question ?? "") + "\n" + (one.group ?? "") + "\n" + one.tags.join(" ")).toLowerCase();
  return own.includes(state.text) || searchable[one.index].includes(wanted);
}

function sortKey(one) {
  const [kind, variant] = state.sort;
  const cell = variant === undefined ? null : one.cells[variant];
  switch (kind) {
    case "id": return one.id;
    case "outcome": return cell.outcome === "none" ? 99 : OUTCOMES.indexOf(cell.outcome);
    case "score": return cell.score ?? -1;
    default: return cell.latency ?? -1;
  }
}

// Without an order chosen by the reader: regressions, what else did not pass, the rest as planned.
function selected() {
  const wanted = state.text ? needle(state.text) : "";
  if (wanted && searchable === null) searchable = lines.map((line) => line.toLowerCase());
  const variants = shownVariants();
  const found = cases.filter((one) => matches(one, wanted, variants));
  if (state.sort === null) found.sort((a, b) => a.rank - b.rank || a.index - b.index);
  else {
    const keys = new Map(found.map((one) => [one, sortKey(one)]));
    const way = state.descending ? -1 : 1;
    found.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return (x < y ? -way : x > y ? way : a.index - b.index);
    });
  }
  return found;
}

function columns() {
  if (head.variants.length === 1) {
    return [["Outcome", ["outcome", 0]], ["Score", ["score", 0], "n"], ["Latency", ["latency", 0], "n"], ["Why", null]];
  }
  return shownVariants().map(({ name, variant }) => [name, ["score", variant]]);
}

function drawHead() {
  const row = element("tr");
  for (const [title, key, kind] of [["Case", ["id"]], ...columns()]) {
    const sorted = key !== null && state.sort !== null && key.join() === state.sort.join();
    const cell = element("th", { scope: "col", class: kind ?? null, "aria-sort": sorted ? (state.descending ? "descending" : "ascending") : null });
    if (key === null) cell.append(title);
    else {
      const button = textElement("button", { type: "button", dir: "auto", "data-sort": key.join() }, title);
      button.addEventListener("click", () => sortBy(key));
      cell.append(button);
    }
    row.append(cell);
  }
  byId("table").tHead.replaceChildren(row);
}

function sortBy(key) {
  const same = state.sort !== null && state.sort.join() === key.join();
  if (same && state.descending) state.sort = null;
  else state.descending = same;
  if (!same) state.sort = key;
  state.page = 0;
  draw();
  document.querySelector(`[data-sort="${key.join()}"]`)?.focus();
}

function deltas(cell) {
  const marks = { regression: "▼", improvement: "▲", missing: "?" };
  const titles = new Map(cell.changes.map((change) => [(change.allowed ? "allowed " : "") + change.direction, change]));
  return [...titles].map(([title, { direction, allowed }]) =>
    element("span", { class: "delta " + direction + (allowed ? " allowed" : ""), title: title + " against the baseline", role: "img", "aria-label": title }, marks[direction] ?? ""));
}

function cellElement(cell) {
  const made = element("td", { class: "cell" }, element("span", { class: "o-" + cell.outcome }, MARKS[cell.outcome] + " " + (cell.outcome === "none" ? "" : cell.outcome)), ...deltas(cell));
  if (head.variants.length > 1 && cell.score !== null) made.append(element("small", null, cell.score.toFixed(2)));
  if (cell.items > 1) made.append(element("small", null, "×" + cell.items));
  return made;
}

function rowElement(one) {
  const button = textElement("button", { type: "button", "aria-expanded": String(open.has(one.index)), dir: "auto" }, one.id);
  const id = element("th", { scope: "row", class: "id" }, button);
  if (one.group !== null) id.append(textElement("span", { class: "tag group", dir: "auto" }, one.group));
  for (const tag of one.tags) id.append(textElement("span", { class: "tag", dir: "auto" }, tag));
  if (one.question !== null && one.question !== one.id) id.append(textElement("div", { class: "question", dir: "auto" }, one.question));
  const row = element("tr", { class: open.has(one.index) ? "case open" : "case", "data-index": one.index }, id);
  if (head.variants.length === 1) {
    const [cell] = one.cells;
    row.append(cellElement(cell), element("td", { class: "n" }, cell.score === null ? "–" : cell.score.toFixed(2)),
      element("td", { class: "n" }, cell.latency === null ? "–" : milliseconds(cell.latency, 0)),
      textElement("td", { class: "why", dir: "auto" }, cell.why));
  } else {
    for (const { variant } of shownVariants()) row.append(cellElement(one.cells[variant]));
  }
  return row;
}

function detailElement(one) {
  const line = lines[one.index];
  const cells = shownVariants().map(({ name, variant }) => ({ name, variant, cell: one.cells[variant] })).filter(({ cell }) => cell.outcome !== "none");
  const content = element("td", { colspan: columns().length + 1 }, caseElement(line ? JSON.parse(line) : null, cells));
  return element("tr", { class: "detail" }, content);
}

function draw() {
  const found = selected(), pages = Math.max(1, Math.ceil(found.length / PAGE));
  state.page = Math.min(state.page, pages - 1);
  drawHead();
  const body = byId("table").tBodies[0];
  body.replaceChildren();
  for (const one of found.slice(state.page * PAGE, (state.page + 1) * PAGE)) {
    body.append(rowElement(one));
    if (open.has(one.index)) body.append(detailElement(one));
  }
  if (!found.length) body.append(element("tr", null, element("td", { class: "empty", colspan: columns().length + 1 }, cases.length ? "No case matches." : "There are no cases.")));
  byId("shown").textContent = found.length === cases.length ? cases.length.toLocaleString("en") + " cases" : found.length.toLocaleString("en") + " of " + cases.length.toLocaleString("en") + " cases";
  drawPages(pages);
}

function drawPages(pages) {
  const turn = (title, by, disabled) => {
    const button = element("button", { type: "button", disabled }, title);
    button.addEventListener("click", () => { state.page += by; draw(); byId("cases").scrollIntoView(); });
    return button;
  };
  byId("pages").hidden = pages < 2;
  byId("pages").replaceChildren(turn("← Previous", -1, state.page === 0), element("span", null, `Page ${state.page + 1} of ${pages}`), turn("Next →", 1, state.page === pages - 1));
}

function toggle(row) {
  const one = cases[Number(row.dataset.index)], isOpen = open.has(one.index);
  if (isOpen) { open.delete(one.index); row.nextElementSibling.remove(); }
  else { open.add(one.index); row.after(detailElement(one)); }
  row.classList.toggle("open", !isOpen);
  row.querySelector("button").setAttribute("aria-expanded", String(!isOpen));
}

// Opens a case wherever it is, from a list elsewhere on the page.
function show(id) {
  const one = cases.find((other) => other.id === id);
  if (!one) return;
  byId("filters").reset();
  open.add(one.index);
  state.page = Math.floor(selected().indexOf(one) / PAGE);
  draw();
  const row = document.querySelector(`tr[data-index="${one.index}"]`);
  row.scrollIntoView({ block: "center" });
  row.querySelector("button").focus();
}

function chips() {
  const counts = new Map();
  for (const one of cases) for (const { variant } of shownVariants()) {
    const outcome = one.cells[variant].outcome;
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  }
  const button = (outcome, title, count) => {
    const made = element("button", { type: "button", "aria-pressed": String(state.outcome === outcome), "data-outcome": outcome ?? "all" }, title);
    if (count !== null) made.append(element("b", null, count.toLocaleString("en")));
    made.addEventListener("click", () => change({ outcome }));
    return made;
  };
  const present = OUTCOMES.filter((outcome) => counts.get(outcome) || outcome === state.outcome);
  byId("outcomes").replaceChildren(button(null, "All", null), ...present.map((outcome) => button(outcome, outcome, counts.get(outcome) ?? 0)));
}

function change(values) {
  Object.assign(state, values, { page: 0 });
  chips();
  draw();
}

function fill(select, first, names) {
  select.append(element("option", { value: "" }, first));
  names.forEach((name, place) => select.append(textElement("option", { value: place }, name)));
}

function listen() {
  fill(byId("variant"), "all, side by side", head.variants);
  fill(byId("tag"), "any", head.tags);
  byId("variant-label").hidden = head.variants.length < 2;
  byId("tag-label").hidden = head.tags.length === 0;
  byId("changed-label").hidden = !cases.some((one) => one.changed);
  byId("changed-label").lastElementChild.textContent = head.changes.length ? "changed only" : "differing only";
  let waiting = 0;
  byId("text").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ text: event.target.value.trim().toLowerCase() }), 120);
  });
  byId("variant").addEventListener("change", (event) => change({ variant: event.target.value === "" ? null : Number(event.target.value), sort: null }));
  byId("tag").addEventListener("change", (event) => change({ tag: event.target.value === "" ? "" : head.tags[Number(event.target.value)] }));
  byId("changed").addEventListener("change", (event) => change({ changed: event.target.checked }));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => change({ text: "", outcome: null, variant: null, tag: "", changed: false, sort: null }));
  byId("table").tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr.case");
    // A row must not jump while its text is selected.
    if (row && (event.target.closest("button") || !String(getSelection()))) toggle(row);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-case]");
    if (link) { event.preventDefault(); show(link.dataset.case); }
  });
  document.addEventListener("keydown", keys);
  addEventListener("beforeprint", () => { for (const row of document.querySelectorAll("tr.case:not(.open)")) if (row.querySelector(".o-failed, .o-error, .o-blocked")) toggle(row); });
}

function keys(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) { event.preventDefault(); byId("text").focus(); return; }
  if (event.key === "Escape" && typing?.id === "text") { typing.value = ""; change({ text: "" }); return; }
  if (!["ArrowDown", "ArrowUp"].includes(event.key) || typing) return;
  const buttons = [...document.querySelectorAll("#table th.id button")], place = buttons.indexOf(document.activeElement);
  const next = buttons[place + (event.key === "ArrowDown" ? 1 : -1)];
  if (place >= 0 && next) { event.preventDefault(); next.focus(); }
}

listen();
chips();
draw();
byId("filters").hidden = false;
