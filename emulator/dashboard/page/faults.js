// The faults of a region and of a link as rows of inputs and buttons. A button reads its inputs when it is pressed.

import { element } from "./dom.js";

const REGION_ACTIONS = [
  ["Kill", "kill", "harm"], ["Pause", "pause", "harm"], ["Stop", "stop", "harm"], ["Lose", "lose", "harm"],
  ["Start", "start", "repair"], ["Resume", "resume", "repair"],
];

// `label`: a heading for the eye; the inputs have names of their own.
function row(label, ...parts) {
  return element("div", { class: "fault", role: "group", "aria-label": label }, element("span", { class: "soft hint" }, label), element("div", { class: "buttons" }, parts));
}

function number(name, value, minimum, maximum) {
  return element("input", { type: "number", min: minimum, max: maximum, value, "aria-label": name });
}

function choice(name, values, chosen) {
  const select = element("select", { "aria-label": name }, values.map((one) => element("option", {}, one)));
  if (values.includes(chosen)) select.value = chosen;
  return select;
}

const unit = (text) => element("span", { class: "soft hint" }, text);

// Parts that stay on one line.
const pair = (...parts) => element("span", { class: "pair" }, parts);

export function regionRows(region, button, choose) {
  const ahead = number("Offset of the clock in milliseconds", "250", "-31622400000", "31622400000");
  const state = choice("State of the disk", ["slow", "full", "failing"]);
  const delay = number("Delay of each write in milliseconds", "200", "1", "60000");
  state.addEventListener("change", () => { delay.disabled = state.value !== "slow"; });
  const disk = () => ({ verb: "disk", region, state: state.value, ...(state.value === "slow" ? { delay_ms: delay.valueAsNumber } : {}) });
  return [
    row("region", ...REGION_ACTIONS.map(([text, verb, tone]) => button(text, verb, tone, () => ({ verb, region })))),
    row("clock", ahead, unit("ms ahead"),
      button("Skew", "skew", "harm", () => ({ verb: "skew", region, ahead_ms: ahead.valueAsNumber })),
      button("Correct", "skew", "repair", () => ({ verb: "skew", region, ahead_ms: 0 }))),
    row("disk", state, delay, unit("ms"), button("Break", "disk", "harm", disk),
      button("Repair", "disk", "repair", () => ({ verb: "disk", region, state: "healthy" }))),
    row("clients", element("button", { type: "button", onclick: () => choose({ from: region, to: "clients" }) }, "Link to clients"),
      element("button", { type: "button", onclick: () => choose({ from: "clients", to: region }) }, "Link from clients")),
  ];
}

export function linkRows(from, to, button, frames) {
  const oneWay = element("input", { type: "checkbox" });
  const ends = () => ({ from, to, one_way: oneWay.checked });
  const latency = number("Latency in milliseconds", "500", "0", "3600000");
  const bandwidth = number("Bandwidth in kilobytes per second", "100", "1", "1000000000");
  return [
    row("link", button("Cut", "cut", "harm", () => ({ verb: "cut", ...ends() })),
      button("Hold", "hold", "harm", () => ({ verb: "hold", ...ends() })),
      button("Heal", "heal", "repair", () => ({ verb: "heal", from, to })),
      element("label", {}, oneWay, " only in this direction")),
    row("latency", latency, unit("ms"), button("Slow", "latency", "harm", () => ({ verb: "latency", ...ends(), latency_ms: latency.valueAsNumber }))),
    row("bandwidth", bandwidth, unit("KB/s"),
      button("Limit", "bandwidth", "harm", () => ({ verb: "bandwidth", ...ends(), bytes_per_second: Math.round(bandwidth.valueAsNumber * 1000) })),
      button("No limit", "bandwidth", "repair", () => ({ verb: "bandwidth", ...ends(), bytes_per_second: null }))),
    frameRow(from, to, button, frames),
  ];
}

// Always in this direction only.
function frameRow(from, to, button, frames) {
  const names = [from, to].includes("clients") ? frames.clients : frames.between_regions;
  const verb = choice("Fault of frames", ["drop", "delay", "duplicate", "reorder"]);
  const what = choice("Command or marker", names, names.includes("snapshot_response") ? "snapshot_response" : "send");
  const nth = number("First affected frame", "1", "1", "1000000"), frameCount = number("Number of frames", "1", "1", "1000000");
  const by = number("Delay in milliseconds", "2000", "1", "3600000"), delay = pair(unit("by"), by, unit("ms"));
  delay.hidden = true;
  verb.addEventListener("change", () => { delay.hidden = verb.value !== "delay"; });
  const request = () => ({
    verb: verb.value, from, to, what: what.value, nth: nth.valueAsNumber, count: frameCount.valueAsNumber,
    ...(verb.value === "delay" ? { by_ms: by.valueAsNumber } : {}),
  });
  return row("frames", verb, what, delay, pair(unit("from number"), nth), pair(unit("count"), frameCount), button("Arm", "drop", "harm", request));
}
