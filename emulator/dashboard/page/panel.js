// The selected region or link, with its faults. It is built when the selection changes, and updated with each status.

import { element, facts } from "./dom.js";
import { linkRows, regionRows } from "./faults.js";
import { key } from "./map.js";
import { clockWords, count, diskWords, duration, frameWords, GONE } from "./words.js";

function isPossible(verb, state) {
  if (verb === "start") return GONE.includes(state);
  if (verb === "resume") return state === "paused";
  if (verb === "lose") return state !== "lost";
  if (verb === "skew" || verb === "disk") return true;
  return !GONE.includes(state) && !(verb === "pause" && state === "paused");
}

// A link of clients is listed only while it has a fault.
function linkOf(status, selected) {
  const found = status.links.find((one) => one.from === selected.from && one.to === selected.to);
  return found ?? ([selected.from, selected.to].includes("clients") ? { from: selected.from, to: selected.to, state: "up" } : undefined);
}

export class Panel {
  constructor(parent, act, choose) {
    this.parent = parent;
    this.act = act;
    this.choose = choose;
    this.frames = { between_regions: [], clients: [] };
    this.selected = null;
    this.buttons = [];
    this.details = element("div");
    parent.append(element("p", { class: "soft" }, "Nothing is selected."));
  }

  select(selected) {
    this.selected = selected;
    this.buttons = [];
    const { region, from, to } = selected;
    const button = (text, verb, tone, request) => this.button(text, verb, tone, request);
    const rows = region ? regionRows(region, button, this.choose) : linkRows(from, to, button, this.frames);
    this.parent.replaceChildren(element("h3", {}, region ?? `${from} → ${to}`), this.details, ...rows);
    this.details.replaceChildren();
  }

  button(text, verb, tone, request) {
    const button = element("button", { type: "button", class: tone, onclick: () => this.act(request()) }, text);
    this.buttons.push([verb, button]);
    return button;
  }

  show(status, lags, isBusy) {
    if (!this.selected) return;
    const region = status.regions.find((one) => one.name === this.selected.region);
    const link = region ? undefined : linkOf(status, this.selected);
    for (const [verb, button] of this.buttons) {
      button.disabled = isBusy || status.ended || !(region || link) || (region ? !isPossible(verb, region.state) : false);
    }
    const pairs = region ? describeRegion(region, status.links) : link ? describeLink(link, lags.get(key(link))) : [["state", "these regions have no link"]];
    const shown = facts(pairs);
    if (shown.textContent !== this.details.textContent) this.details.replaceChildren(shown);
  }
}

function describeRegion(region, links) {
  const ofClients = links.filter((one) => [one.from, one.to].sort().join() === ["clients", region.name].sort().join());
  return [
    ["state", region.state], ["waits for", region.waiting_for], ["cluster", region.cluster],
    ["clients", region.service_url], ["admin", region.admin_url], ["process", region.pid === null ? "" : String(region.pid)],
    ["disk", diskWords(region.disk)], ["clock", clockWords(region.clock)],
    ["links of clients", ofClients.map((one) => `${one.from} → ${one.to} ${one.state === "up" ? "disturbed" : one.state}`).join(", ")],
  ];
}

function describeLink(link, lag) {
  return [
    ["state", link.state], ["latency", link.latency_ms ? `${link.latency_ms} ms` : ""], ["jitter", link.jitter_ms ? `up to ${link.jitter_ms} ms` : ""],
    ["bandwidth", link.bandwidth_bytes_per_second ? `${link.bandwidth_bytes_per_second.toLocaleString("en")} bytes/s` : ""],
    ["stalls", link.stall_ms ? `${link.stall_ms} ms every ${link.stall_every_ms} ms` : ""],
    ["flaps", link.flap_period_ms ? `up ${link.flap_up * 100} % of every ${link.flap_period_ms} ms` : ""],
    ["frames", (link.frame_faults ?? []).map(frameWords).join("; ")],
    ["profile", link.profile], ["route", link.via?.length ? `over ${link.via.join(", ")}` : ""],
    ["lag", lag ? `${count(lag.messages, "message")}, ${duration(lag.age_ms)}` : ""],
  ];
}
