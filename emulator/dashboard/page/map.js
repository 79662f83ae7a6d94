// The map: a box for each region, an arrow for each direction of a link. It is drawn anew only if the regions, links or
// the width change; otherwise classes and labels are updated, so that the keyboard focus stays.

import { drawing, element, setClass, setText } from "./dom.js";
import { duration, isDisturbed, linkTone, regionTone } from "./words.js";

const BOX_PX = 46, APART_PX = 9, LABELLED_MAX = 4, REGIONS_MAX = 12, NARROW_PX = 500, CHARACTER_PX = 8.6;
// Where the label is along its arrow: nearer to the start, so that the labels of neighbouring arrows do not meet.
const LABEL_AT = 0.36;

export class RegionMap {
  constructor(parent, select) {
    this.parent = parent;
    this.select = select;
    this.shape = "";
    this.isNarrow = false;
    this.parts = new Map();
  }

  show(status, lags, selected) {
    const width = Math.max(300, Math.min(this.parent.clientWidth, 900));
    const links = status.links.filter((link) => link.from !== "clients" && link.to !== "clients");
    const shape = JSON.stringify([width, status.regions.map((one) => [one.name, one.cluster]), links.map((one) => [one.from, one.to])]);
    if (shape !== this.shape) this.draw(status.regions, links, width);
    this.shape = shape;
    for (const region of status.regions) this.showRegion(region, selected);
    for (const link of links) this.showLink(link, status.regions, lags, selected);
  }

  draw(regions, links, width) {
    this.parts.clear();
    this.isNarrow = width < NARROW_PX;
    if (regions.length > REGIONS_MAX) {
      this.parent.replaceChildren(element("p", { class: "soft" }, `A map of ${regions.length} regions is not drawn: choose a region or link by name.`));
      return;
    }
    const places = place(regions, width);
    const height = Math.max(...[...places.values()].map((one) => one.y)) + BOX_PX / 2 + 20;
    const labelled = regions.length <= LABELLED_MAX && width > 320;
    const picture = drawing("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Map of regions and links" });
    for (const link of links) if (places.has(link.from) && places.has(link.to)) picture.append(this.arrow(link, places));
    for (const region of regions) picture.append(this.box(region, places.get(region.name)));
    if (labelled) for (const link of links) picture.append(this.label(link, places));
    this.parent.replaceChildren(picture);
  }

  part(kind, key, children, name) {
    const choose = () => this.select(key);
    const group = drawing("g", { tabindex: "0", role: "button", "data-name": name, onclick: choose }, children);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    });
    return group;
  }

  box(region, at) {
    const below = drawing("text", { class: "below", x: at.x, y: at.y + 14, "text-anchor": "middle" });
    const group = this.part("node", { region: region.name }, [
      drawing("rect", { class: "box", x: at.x - at.half, y: at.y - BOX_PX / 2, width: at.half * 2, height: BOX_PX, rx: 7 }),
      drawing("text", { class: "name", x: at.x, y: at.y - 2, "text-anchor": "middle" }, at.name),
      below,
    ], region.name);
    this.parts.set(region.name, { group, below });
    return group;
  }

  arrow(link, places) {
    const { start, end, along, right } = ends(link, places);
    const back = { x: end.x - along.x * 9, y: end.y - along.y * 9 };
    const corner = (sign) => `${(back.x + sign * right.x * 4).toFixed(1)} ${(back.y + sign * right.y * 4).toFixed(1)}`;
    const line = `M${start.x.toFixed(1)} ${start.y.toFixed(1)}L${back.x.toFixed(1)} ${back.y.toFixed(1)}`;
    const group = this.part("link", { from: link.from, to: link.to }, [
      drawing("path", { class: "area", d: line }),
      drawing("path", { class: "wire", d: line }),
      drawing("path", { class: "tip", d: `M${corner(1)}L${corner(-1)}L${end.x.toFixed(1)} ${end.y.toFixed(1)}Z` }),
    ], `${link.from} to ${link.to}`);
    this.parts.set(key(link), { group, label: null });
    return group;
  }

  label(link, places) {
    const { start, end, right } = ends(link, places);
    const along = (one, other) => one + (other - one) * LABEL_AT;
    const middle = { x: along(start.x, end.x) + right.x * 7, y: along(start.y, end.y) + right.y * 7 };
    const anchor = Math.abs(right.x) < 0.35 ? "middle" : right.x > 0 ? "start" : "end";
    const text = drawing("text", { class: "label", x: middle.x, y: middle.y + 4 + (anchor === "middle" ? 8 * right.y : 0), "text-anchor": anchor });
    this.parts.get(key(link)).label = text;
    return text;
  }

  showRegion(region, selected) {
    const part = this.parts.get(region.name);
    if (!part) return;
    setClass(part.group, `node tone-${regionTone(region)}${selected?.region === region.name ? " selected" : ""}`);
    part.group.setAttribute("aria-label", `Region ${region.name}, ${region.state}`);
    setText(part.below, region.state === "running" ? region.cluster : region.state);
  }

  showLink(link, regions, lags, selected) {
    const part = this.parts.get(key(link));
    if (!part) return;
    const tone = linkTone(link, regions), lag = lags.get(key(link));
    const isSelected = selected && selected.from === link.from && selected.to === link.to;
    setClass(part.group, `link tone-${tone}${isSelected ? " selected" : ""}`);
    const words = describe(link, lag, ", lag ");
    part.group.setAttribute("aria-label", `Link ${link.from} to ${link.to}, ${link.state}, ${words}`);
    if (!part.label) return;
    setClass(part.label, `label tone-${tone}`);
    setText(part.label, this.isNarrow ? describe(link, lag, ", ") : words);
  }
}

export function key(link) {
  return `${link.from} ${link.to}`;
}

// `separator`: what precedes the lag.
function describe(link, lag, separator) {
  const speed = link.state !== "up" ? link.state : isDisturbed(link) ? "disturbed" : `${Number(link.latency_ms.toFixed(1))} ms`;
  return lag && lag.messages ? `${speed}${separator}${duration(lag.age_ms)}` : speed;
}

// The regions on an ellipse, those of a cluster side by side.
function place(regions, width) {
  const ordered = [...regions].sort((a, b) => a.cluster.localeCompare(b.cluster));
  const n = ordered.length, half = halfWidth(ordered, width);
  const height = n === 1 ? 80 : n === 2 ? 120 : Math.max(Math.min(width * 0.72, 190 + 45 * n), (Math.floor(n / 2) + 1) * 54);
  const radius = { x: width / 2 - half - 6, y: height / 2 - BOX_PX / 2 - 6 };
  const begin = n === 2 ? Math.PI : -Math.PI / 2;
  return new Map(ordered.map((one, at) => {
    const angle = begin + (2 * Math.PI * at) / n;
    const shift = n > 1 ? { x: Math.cos(angle) * radius.x, y: Math.sin(angle) * radius.y } : { x: 0, y: 0 };
    return [one.name, { x: width / 2 + shift.x, y: height / 2 + shift.y, half, name: shortened(one.name, Math.floor((half * 2 - 10) / CHARACTER_PX)) }];
  }));
}

// Half the width of a box: as its longest name needs, but neighbours at the top of the ellipse must not overlap.
function halfWidth(regions, width) {
  const wanted = Math.min(Math.max(...regions.map((one) => one.name.length)) * (CHARACTER_PX / 2) + 8, width * 0.19);
  if (regions.length < 5) return wanted;
  const share = Math.sin((2 * Math.PI) / regions.length);
  return Math.min(wanted, (share * (width / 2 - 6) - 4) / (2 + share));
}

// Names of regions often differ at their end.
function shortened(name, maximum) {
  if (name.length <= maximum) return name;
  const end = Math.floor((maximum - 1) / 2);
  return `${name.slice(0, maximum - 1 - end)}…${name.slice(name.length - end)}`;
}

// The ends of an arrow at the borders of two boxes, with the arrows of both directions apart.
function ends(link, places) {
  const from = places.get(link.from), to = places.get(link.to);
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const along = { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
  const right = { x: -along.y, y: along.x };
  const shift = { x: right.x * APART_PX, y: right.y * APART_PX };
  const start = border(from, shift, along), end = border(to, shift, { x: -along.x, y: -along.y });
  return { start, end, along, right };
}

// Where a ray from near the middle of a box leaves the box and a margin.
function border(box, shift, along) {
  const reach = (half, offset, towards) => (towards ? (half + 3 - Math.sign(towards) * offset) / Math.abs(towards) : Infinity);
  const distance = Math.min(reach(box.half, shift.x, along.x), reach(BOX_PX / 2, shift.y, along.y));
  return { x: box.x + shift.x + along.x * distance, y: box.y + shift.y + along.y * distance };
}
