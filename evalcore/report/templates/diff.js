// Shows text as it is: controls spelled out, differences between two texts marked.
"use strict";

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\uffff]/g;
const TOKENS = /\s+|[\p{L}\p{N}\p{M}_]+|[^]/gu;
const MOST_STEPS = 2_000_000;
const LEAST_ALIKE = 0.35;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

// Appends foreign text; what has no shape of its own is spelled out.
function appendText(parent, text) {
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    // The joiner of an emoji is part of its shape.
    if (match[0] === "\u200d" || match[0] === "\u200c") continue;
    if (match.index > end) parent.append(text.slice(end, match.index));
    const code = match[0].codePointAt(0);
    const name = code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
    parent.append(element("span", { class: "ctl" }, name));
    end = match.index + 1;
  }
  if (end < text.length) parent.append(text.slice(end));
  return parent;
}

function textElement(name, attributes, text) {
  return appendText(element(name, attributes), text);
}

// White space that differs would be invisible, but for a single space between words.
function spelledSpace(text) {
  return text.replace(/^ +| +$| {2,}/g, (spaces) => "␣".repeat(spaces.length)).replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t");
}

// Returns runs [kind, text]: kind 0 in both, -1 only in the first, 1 only in the second.
// Null where the texts have too little in common, or are too long to say.
function difference(before, after) {
  const a = before.match(TOKENS) ?? [], b = after.match(TOKENS) ?? [];
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const n = endA - start, m = endB - start;
  if (n * m > MOST_STEPS) return null;
  const width = m + 1, longest = new Uint32Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      longest[i * width + j] = a[start + i] === b[start + j]
        ? longest[(i + 1) * width + j + 1] + a[start + i].length
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const runs = [];
  const add = (kind, text) => {
    if (!text) return;
    const last = runs[runs.length - 1];
    if (last && last[0] === kind) last[1] += text; else runs.push([kind, text]);
  };
  add(0, a.slice(0, start).join(""));
  let i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && a[start + i] === b[start + j]) { add(0, a[start + i]); i++; j++; }
    else if (j >= m || (i < n && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) add(-1, a[start + i++]);
    else add(1, b[start + j++]);
  }
  add(0, a.slice(endA).join(""));
  const shared = runs.reduce((sum, [kind, text]) => sum + (kind === 0 ? text.replace(/\s+/g, "").length : 0), 0);
  const longer = Math.max(before.replace(/\s+/g, "").length, after.replace(/\s+/g, "").length);
  return longer === 0 || shared / longer >= LEAST_ALIKE ? runs : null;
}

function side(label, runs, own, text) {
  const pre = element("pre", { dir: "auto", tabindex: "0", "aria-label": label });
  if (runs === null) appendText(pre, text);
  else for (const [kind, part] of runs) {
    if (kind === 0) appendText(pre, part);
    else if (kind === own) pre.append(textElement(own < 0 ? "del" : "ins", null, spelledSpace(part)));
  }
  return element("div", null, element("span", { class: "label" }, label), pre);
}

// Expected and actual beside each other; either may be null.
function comparison(expected, actual) {
  const runs = expected !== null && actual !== null && expected !== actual ? difference(expected, actual) : null;
  const pair = element("div", { class: "pair" });
  if (expected !== null) pair.append(side("expected", runs, -1, expected));
  if (actual !== null) pair.append(side("actual", runs, 1, actual));
  return pair;
}
