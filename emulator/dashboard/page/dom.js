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

// `headings`: texts, those of numbers with a leading "#", of sentences with a leading "~". `rows`: lists of texts, numbers or elements.
export function table(headings, rows, caption) {
  const kinds = headings.map((one) => ({ "#": "number", "~": "words" })[one[0]] ?? "");
  const head = headings.map((one, at) => element("th", { scope: "col", class: kinds[at] || null }, one.replace(/^[#~]/, "")));
  const cell = (value, at) => element(at === 0 ? "th" : "td", { class: kinds[at] || null, scope: at === 0 ? "row" : null }, value ?? "");
  const body = rows.map((row) => element("tr", {}, row.map((value, at) => cell(value instanceof Node ? value : String(value ?? ""), at))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)));
}
