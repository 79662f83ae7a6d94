// The selected topic in every region: owner and wait queue, entries, what other regions lack, snapshots.

import { element, table } from "./dom.js";
import { count, short } from "./words.js";

// One line for each region and loaded partition; `row` is null if the topic is not loaded there.
export function linesOf(shown) {
  return shown.regions.flatMap((one) => {
    if (!one.rows.length) return [{ region: one.region, label: one.region, row: null, problem: one.problem }];
    return one.rows.map((row) => ({ region: one.region, label: labelOf(one, row), row, problem: "" }));
  });
}

function labelOf(one, row) {
  const part = /-partition-(\d+)$/.exec(row.topic);
  return part && one.rows.length > 0 ? `${one.region}, partition ${part[1]}` : one.region;
}

export function topicTable(shown) {
  const rows = linesOf(shown).map(({ label, row, problem }) => {
    if (!row) return [label, problem || "not loaded"];
    const { owner, epoch, waiting, waiting_count: waits } = row.access;
    const queue = waits > waiting.length ? `${waiting.join(", ")} and ${waits - waiting.length} more` : waiting.join(", ");
    return [label, owner ?? "none", epoch ?? "", queue || "empty", row.entries, row.last_position, lacking(row.replication)];
  });
  const headings = ["region", "owner", "#epoch", "queue", "#entries", "last position", "~backlog of other regions"];
  return table(headings, rows, "The topic in each region");
}

function lacking(replication) {
  const behind = Object.entries(replication).map(([region, one]) => {
    const why = one.backlog && one.why_not ? ` (${one.why_not})` : "";
    return `${region} ${one.backlog}${why}`;
  });
  return behind.length ? behind.join("; ") : "replicated to no region";
}

// What regions explain, equal explanations of several regions once.
export function explanations(explained) {
  const regions = new Map();
  for (const one of explained?.regions ?? []) {
    const words = one.problem ?? [one.what, one.why && `because ${one.why}`, ...(one.waits_for ?? []).map((event) => `waits for ${event}`)].filter(Boolean).join("; ");
    regions.set(words, [...(regions.get(words) ?? []), one.region]);
  }
  return element("dl", { class: "facts" }, [...regions].flatMap(([words, names]) => [element("dt", {}, names.join(", ")), element("dd", {}, words)]));
}

function takesSnapshots(row) {
  return row !== null && Object.keys(row.snapshots).length > 0;
}

export function snapshotTable(shown) {
  const lines = linesOf(shown);
  if (!lines.some(({ row }) => takesSnapshots(row))) return element("p", { class: "soft" }, "No snapshot is taken of this topic: it has no replicated subscription that is loaded.");
  const rows = lines.map(({ label, row, problem }) => {
    if (!takesSnapshots(row)) return [label, problem || "takes none"];
    const one = row.snapshots;
    return [label, one.started, one.completed, one.timed_out, one.aborted, one.pending, one.why_not || "nothing"];
  });
  return table(["region", "#started", "#completed", "#timed out", "#aborted", "#under way", "~a newer one waits for"], rows, "Snapshot rounds of each region");
}

export function eventTable(events, timeOf) {
  if (!events.length) return element("p", { class: "soft" }, "Nothing has happened yet.");
  const rows = events.map((one) => [timeOf(one.at_ms), one.actor, wordsOf(one)]);
  return table(["time", "by", "~event"], rows, `The newest ${count(events.length, "event")}`);
}

function wordsOf(event) {
  const detail = event.detail ?? "", arrow = detail.endsWith("one way back") ? " ← " : detail.endsWith("one way") ? " → " : " ↔ ";
  const place = [event.region, event.other_region].filter(Boolean).join(arrow);
  const subject = [event.topic && short(event.topic), event.subscription].filter(Boolean).join(" ");
  return [event.op.replaceAll("_", " "), place, subject, event.detail, event.error].filter(Boolean).join(" · ");
}
