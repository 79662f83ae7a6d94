// The selected region or link, with its faults. It is built when the selection changes, and updated with each status.

import { element, facts } from "./dom.js";
import { count, duration, GONE } from "./words.js";
import { key } from "./map.js";

const REGION_ACTIONS = [
  ["Kill", "kill", "harm"], ["Pause", "pause", "harm"], ["Stop", "stop", "harm"], ["Lose", "lose", "harm"],
  ["Start", "start", "repair"], ["Resume", "resume", "repair"],
];

function isPossible(verb, state) {
  if (verb === "start") return GONE.includes(state);
  if (verb === "resume") return state === "paused";
  if (verb === "lose") return state !== "lost";
  return !GONE.includes(state) && !(verb === "pause" && state === "paused");
}

export class Panel {
  constructor(parent, act) {
    this.parent = parent;
    this.act = act;
    this.selected = null;
    this.buttons = [];
    this.details = element("div");
    parent.append(element("p", { class: "soft" }, "Nothing is selected."));
  }

  select(selected) {
    this.selected = selected;
    this.buttons = [];
    const parts = selected.region ? this.ofRegion(selected.region) : this.ofLink(selected.from, selected.to);
    this.parent.replaceChildren(...parts);
    this.details.replaceChildren();
  }

  button(text, verb, tone, request) {
    const button = element("button", { type: "button", class: tone, onclick: () => this.act(request()) }, text);
    this.buttons.push([verb, button]);
    return button;
  }

  ofRegion(region) {
    const buttons = REGION_ACTIONS.map(([text, verb, tone]) => this.button(text, verb, tone, () => ({ verb, region })));
    return [element("h3", {}, region), this.details, element("div", { class: "buttons" }, buttons)];
  }

  ofLink(from, to) {
    const oneWay = element("input", { type: "checkbox" });
    const latency = element("input", { type: "number", min: "0", max: "3600000", value: "500", "aria-label": "Latency in milliseconds" });
    const ends = () => ({ from, to, one_way: oneWay.checked });
    const slow = () => ({ verb: "latency", ...ends(), latency_ms: latency.valueAsNumber });
    return [
      element("h3", {}, `${from} → ${to}`),
      this.details,
      element("div", { class: "buttons" },
        this.button("Cut", "cut", "harm", () => ({ verb: "cut", ...ends() })),
        this.button("Hold", "hold", "harm", () => ({ verb: "hold", ...ends() })),
        this.button("Heal", "heal", "repair", () => ({ verb: "heal", from, to }))),
      element("div", { class: "buttons" }, latency, element("span", { class: "soft" }, "ms"), this.button("Slow", "latency", "harm", slow)),
      element("p", {}, element("label", {}, oneWay, " only in this direction")),
    ];
  }

  show(status, lags, isBusy) {
    if (!this.selected) return;
    const region = status.regions.find((one) => one.name === this.selected.region);
    const link = status.links.find((one) => one.from === this.selected.from && one.to === this.selected.to);
    for (const [verb, button] of this.buttons) {
      button.disabled = isBusy || status.ended || !(region || link) || (region ? !isPossible(verb, region.state) : false);
    }
    const pairs = region ? describeRegion(region) : link ? describeLink(link, lags.get(key(link))) : [["state", "these regions have no link"]];
    const shown = facts(pairs);
    if (shown.textContent !== this.details.textContent) this.details.replaceChildren(shown);
  }
}

function describeRegion(region) {
  return [
    ["state", region.state], ["waits for", region.waiting_for], ["cluster", region.cluster],
    ["clients", region.service_url], ["admin", region.admin_url], ["process", region.pid === null ? "" : String(region.pid)],
    ["disk", region.disk.state === "healthy" ? "" : region.disk.state],
  ];
}

function describeLink(link, lag) {
  return [
    ["state", link.state], ["latency", `${link.latency_ms} ms`], ["jitter", link.jitter_ms ? `up to ${link.jitter_ms} ms` : ""],
    ["bandwidth", link.bandwidth_bytes_per_second === null ? "" : `${link.bandwidth_bytes_per_second} bytes/s`],
    ["stalls", link.stall_ms ? `${link.stall_ms} ms every ${link.stall_every_ms} ms` : ""],
    ["flaps", link.flap_period_ms ? `up ${link.flap_up * 100} % of every ${link.flap_period_ms} ms` : ""],
    ["profile", link.profile], ["route", link.via.length ? `over ${link.via.join(", ")}` : ""],
    ["lag", lag ? `${count(lag.messages, "message")}, ${duration(lag.age_ms)}` : ""],
  ];
}
