// Filter and time control of a report. Without this script the page shows everything, at the end of the run.
"use strict";
const find = document.getElementById("find");
const onlyFailed = document.getElementById("only-failed");
const found = document.getElementById("found");
const moment = document.getElementById("moment");
const momentText = document.getElementById("moment-text");
const SVG = "http://www.w3.org/2000/svg";
const text = new Map();

function matches(element, terms) {
  if (!text.has(element)) text.set(element, (element.dataset.f || element.textContent).toLowerCase());
  return terms.every((term) => text.get(element).includes(term));
}

function arrange(picture) {
  let above = 0;
  for (const part of picture.querySelectorAll(":scope > .row, :scope > .foot")) {
    part.setAttribute("transform", `translate(0,${-above})`);
    if (part.classList.contains("gone")) above += Number(part.dataset.h);
  }
  const height = Number(picture.dataset.height ||= picture.getAttribute("height")) - above;
  picture.setAttribute("height", height);
  picture.setAttribute("viewBox", `0 0 ${picture.getAttribute("width")} ${height}`);
}

function filter() {
  const terms = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const active = terms.length > 0 || onlyFailed.checked;
  let shown = 0, all = 0;
  for (const element of document.querySelectorAll("[data-f]")) {
    const failed = !onlyFailed.checked || !element.matches(".check") || element.matches(".invalid, .unknown");
    const kept = failed && matches(element, terms);
    element.classList.toggle("gone", !kept);
    if (element.closest(".narrow")) continue;
    all += 1;
    shown += kept;
  }
  document.querySelectorAll("svg.timeline:not(.map)").forEach(arrange);
  for (const section of document.querySelectorAll("section[data-part]")) {
    const parts = section.querySelectorAll("[data-f]");
    const empty = active && parts.length > 0 && !section.querySelector("[data-f]:not(.gone)");
    section.classList.toggle("gone", empty);
    section.previousElementSibling.classList.toggle("gone", empty);
  }
  document.body.classList.toggle("filtered", active);
  found.textContent = active ? `${shown} of ${all} match` : "";
}

function faultsAt(element, at) {
  return element.dataset.periods.split(";").map((period) => period.split(" "))
    .filter(([from, to]) => Number(from) <= at && at <= Number(to)).map((period) => period[2]);
}

function showMoment() {
  const at = Number(moment.value);
  const whole = at > Number(moment.max) - Number(moment.step) / 2;
  momentText.textContent = whole ? "the whole run" : `${at.toFixed(1)} s`;
  for (const element of document.querySelectorAll(".map .node, .map .link")) {
    const faults = whole || !element.dataset.periods ? [] : faultsAt(element, at);
    element.classList.toggle("now-up", !whole && faults.length === 0);
    element.classList.toggle("now-failed", faults.length > 0);
  }
  for (const picture of document.querySelectorAll("svg[data-seconds]")) {
    let line = picture.querySelector(".now");
    if (!line) {
      line = picture.appendChild(document.createElementNS(SVG, "path"));
      line.setAttribute("class", "now");
    }
    const { left, right, seconds } = picture.dataset;
    const x = Number(left) + (Number(right) - Number(left)) * Math.min(at / Number(seconds), 1);
    line.setAttribute("d", whole ? "" : `M${x.toFixed(1)} 0V${picture.dataset.height || picture.getAttribute("height")}`);
  }
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) {
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  }
}

for (const control of document.querySelectorAll(".controls")) control.hidden = false;
find.addEventListener("input", filter);
onlyFailed.addEventListener("change", filter);
find.form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== find) {
    event.preventDefault();
    find.focus();
  } else if (event.key === "Escape" && document.activeElement === find) {
    find.value = "";
    filter();
  }
});
moment?.addEventListener("input", showMoment);
window.addEventListener("hashchange", openTarget);
openTarget();
