// Elements without HTML parsing: every text of the run becomes a text node, whatever it contains.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, text) {
  if (node.getAttribute("class") !== text) node.setAttribute("class", text);
}

// `pairs`: [label, value], without those whose value is empty.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { class: "facts" }, shown.flatMap(([label, value]) => [element("dt", {}, label), element("dd", {}, value)]));
}

// `headings`: texts, those of numbers with a leading "#", of sentences with a leading "~". `rows`: lists of values; the
// last value of a shorter list takes the room of the missing ones.
export function table(headings, rows, caption) {
  const kinds = headings.map((one) => ({ "#": "number", "~": "words" })[one[0]] ?? null);
  const head = headings.map((one, at) => element("th", { scope: "col", class: kinds[at] }, one.replace(/^[#~]/, "")));
  const lineOf = (row) => element("tr", {}, row.map((value, at) => {
    if (at === 0) return element("th", { scope: "row" }, String(value));
    const missing = at === row.length - 1 ? headings.length - row.length : 0;
    return element("td", { class: missing ? "soft" : kinds[at], colspan: missing ? missing + 1 : null }, String(value ?? ""));
  }));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows.map(lineOf))));
}
