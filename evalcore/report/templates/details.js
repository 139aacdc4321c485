// One case in full: what was asked, and beside each other what each variant answered.

const MARKS = { passed: "✓", failed: "✗", blocked: "–", error: "!", skipped: "·", cancelled: "·", none: " " };

function number(value, digits) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
}

// As `latency_text` of model/latency_text.py, with `digits` decimals from 1 ms on.
function milliseconds(value, digits) {
  if (value > 0 && value < 1) return value.toLocaleString("en", { maximumSignificantDigits: 1 }) + " ms";
  return number(value, digits) + " ms";
}

// As `usd_text` of report/costs.py: no powers of ten.
function usd(value) {
  const small = value !== 0 && Math.abs(value) < 0.001;
  return value.toLocaleString("en", small ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 4 });
}

function block(title, text) {
  return [element("h3", null, title), textElement("pre", { dir: "auto", tabindex: "0", "aria-label": title }, text)];
}

// Items and assertions are those of report.json; what is null there is left out.
function measures({ metrics, scores }) {
  const parts = [];
  if (metrics.latency_ms != null) parts.push(milliseconds(metrics.latency_ms, 1));
  if (metrics.cost_usd != null) parts.push(usd(metrics.cost_usd) + " USD");
  const tokens = [metrics.input_tokens, metrics.output_tokens].filter((count) => count != null);
  if (tokens.length) parts.push(number(tokens.reduce((sum, count) => sum + count), 0) + " tokens");
  for (const { name, value, error } of scores) parts.push(name + " " + (error ? "– (" + error + ")" : number(value, 4)));
  return parts.join(" · ");
}

// What a judge or a program gave as reasons: points that are met or not, and the votes of several.
function graderElements({ reasoning, assertions, votes }, message) {
  const entries = (list) => (Array.isArray(list) ? list.filter((each) => each && typeof each === "object") : []);
  const points = entries(assertions), voted = entries(votes), made = [];
  if (typeof reasoning === "string" && !message.includes(reasoning)) made.push(textElement("p", { dir: "auto" }, reasoning));
  if (points.length) made.push(element("ul", { class: "points" }, ...points.map(({ passed, text, evidence }) => {
    const point = element("li", null, element("b", { class: passed ? "o-passed" : "o-failed" }, passed ? "✓ " : "✗ "));
    appendText(point, text ?? "");
    if (evidence) point.append(textElement("small", { dir: "auto" }, evidence));
    return point;
  })));
  if (voted.length > 1) made.push(textElement("p", { class: "fine" }, "votes: " + voted.map(({ judge, score }) => (judge ?? "judge") + " " + number(score, 4)).join(", ")));
  return made;
}

function assertionElement({ name, type, block: blockName, outcome, score, weight, required, expected = null, actual = null, message = "", details = {} }) {
  const title = (blockName ? blockName + ": " : "") + name;
  const about = [type, "score " + number(score, 4)];
  if (weight != null && weight !== 1) about.push("weight " + number(weight, 4));
  if (required != null) about.push("required ≥ " + number(required, 4));
  const reasons = graderElements(details, message);
  if (outcome === "passed" && !message && !reasons.length) {
    const line = element(actual === null ? "p" : "summary", { class: "fine" }, element("span", { class: "o-passed" }, "✓ "));
    appendText(line, title);
    appendText(line, " — " + type + (expected === null ? "" : " " + expected));
    return actual === null ? line : element("details", null, line, comparison(null, actual));
  }
  const head = element("p", null, element("b", { class: "o-" + outcome }, (MARKS[outcome] ?? "?") + " "));
  appendText(head, title);
  head.append(element("small", null, outcome + " · " + about.join(" · ")));
  const made = element("div", { class: "assertion" }, head);
  if (message) made.append(textElement("p", { dir: "auto" }, message));
  made.append(...reasons);
  if (outcome === "passed") {
    if (actual !== null) made.append(element("details", null, element("summary", { class: "fine" }, "What was graded"), comparison(null, actual)));
  } else if (expected !== null || actual !== null) made.append(comparison(expected, actual));
  return made;
}

// Iterations with the same answer and the same results stand together; their measures may differ.
function sameIterations(items) {
  const groups = new Map();
  for (const item of items) {
    const { status, outcome, score, error, reason, cut, output, scores, assertions, outputs } = item;
    const key = JSON.stringify([status, outcome, score, error, reason, cut, output, scores, assertions, outputs]);
    if (!groups.has(key)) groups.set(key, [[], item]);
    groups.get(key)[0].push(item.iteration);
  }
  return groups.values();
}

function itemElement(item, iterations, several) {
  const { score, error, output, assertions, outputs } = item;
  const outcome = item.outcome ?? item.status, kind = error?.kind ?? (item.cut ? "cut" : outcome);
  const said = error?.message || item.reason || item.cut;
  const made = element("div");
  const measured = iterations.length > 1 ? "" : measures(item);
  const title = iterations.length > 1 ? iterations.length + " × " + outcome + ": iterations " + iterations.join(", ") : "iteration " + iterations[0] + ": " + outcome;
  if (several) {
    made.append(element("h4", null,
      element("span", { class: "o-" + outcome }, MARKS[outcome] + " " + title),
      element("small", null, "score " + number(score, 4) + (measured && " · ") + measured)));
  }
  if (said) made.append(...block(kind, said));
  if (output != null) made.append(...block("Output", output));
  for (const [name, text] of Object.entries(outputs ?? {})) {
    if (text !== output) made.append(...block(`Output of ${name}`, text));
  }
  if (assertions.length) made.append(element("h3", null, "Assertions"));
  // What did not pass comes first: it is why the details are opened.
  const rank = (assertion) => (assertion.outcome === "passed" ? 1 : 0);
  for (const assertion of [...assertions].sort((a, b) => rank(a) - rank(b))) made.append(assertionElement(assertion));
  return made;
}

function sideElement(name, cell, items, showName) {
  const made = element("div", { class: "side " + cell.outcome });
  const head = element("h4", null);
  if (showName) appendText(head.appendChild(element("span", { dir: "auto" })), name);
  head.append(element("span", { class: "o-" + cell.outcome }, MARKS[cell.outcome] + " " + cell.outcome),
    element("small", null, ["score " + number(cell.score, 4), items?.length === 1 ? measures(items[0]) : ""].filter(Boolean).join(" · ")));
  made.append(head);
  for (const change of cell.changes) {
    made.append(textElement("p", { class: "delta " + change.direction + (change.allowed ? " allowed" : "") }, (change.allowed ? "allowed " : "") + change.direction + ": " + change.detail));
  }
  if (items === null) made.append(element("p", { class: "note" }, "The details of this case are left out to keep this file small; report.json has them."));
  else for (const [iterations, item] of sameIterations(items)) made.append(itemElement(item, iterations, items.length > 1));
  return made;
}

// `detail` is [input, expected, items of each variant or null]; `cells` those of the shown variants.
function caseElement(detail, cells) {
  const made = element("div");
  const [input, expected, answers] = detail ?? [null, null, null];
  const asked = element("div", { class: "sides" });
  if (input !== null) asked.append(element("div", null, ...block("Input", input)));
  if (expected !== null) asked.append(element("div", null, ...block("Expected output", expected)));
  const sides = element("div", { class: "sides" });
  for (const { variant, name, cell } of cells) {
    sides.append(sideElement(name, cell, answers && answers[variant], cells.length > 1));
  }
  made.append(asked, sides);
  return made;
}
