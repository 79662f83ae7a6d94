// The selected subscription in every region: its cursor, what other regions know of it, and the plan of a fail-over.

import { element, facts, table } from "./dom.js";
import { linesOf } from "./topic_view.js";
import { count, duration } from "./words.js";

export function subscriptionTable(shown, name) {
  const explained = shown.subscription?.name.endsWith(` ${name}`) ? shown.subscription.regions : [];
  const details = new Map(explained.map((one) => [one.region, one.subscription]));
  const rows = linesOf(shown).map(({ region, label, row, problem }) => {
    const one = row?.subscriptions[name];
    if (!one) return [label, problem || (row ? "does not exist" : "not loaded")];
    const known = details.get(region);
    return [label, one.mark_delete, one.backlog, one.consumers, one.replicated ? "yes" : "no", known ? positions(known.sent) : "", known ? received(known.received) : "", one.why_not_replicated || "nothing"];
  });
  const headings = ["region", "cursor", "#backlog", "#consumers", "replicated", "~sent to", "~received from", "~position waits for"];
  return table(headings, rows, "The subscription in each region");
}

function positions(sent) {
  return sent.map((one) => `${one.region} ${one.position}, ${duration(one.age_ms)} ago${one.is_stored_there ? "" : ", not stored there yet"}`).join("; ");
}

function received(all) {
  return all.map((one) => `${one.region} ${one.position}${one.age_ms === null ? "" : `, ${duration(one.age_ms)} ago`}: ${one.outcome}`).join("; ");
}

export function planFacts(plan) {
  const bound = plan.exact ? "" : plan.complete ? "at most " : "at least ";
  const number = (value) => (value === null ? `unknown: ${plan.source} does not respond` : count(value, "message"));
  const oldest = plan.oldest_redelivered_age_ms === null ? "" : `, the oldest published ${duration(plan.oldest_redelivered_age_ms)} ago`;
  return element("div", {}, element("h3", {}, `Plan of a fail-over ${plan.source} → ${plan.target}`), facts([
    ["redelivered", `${bound}${count(plan.redelivered_messages, "message")}${oldest}`],
    ["skipped", [number(plan.skipped_messages), ...plan.skipped_because].join("; ")],
    ["missing", number(plan.missing_messages)],
    ["resumes at", plan.resume ?? "the next message"],
    ["because", plan.why.join("; ")],
    ["waits for", plan.wait_for.join("; ")],
  ]));
}
