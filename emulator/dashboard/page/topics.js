// The lower half of the page: choosing a topic and a subscription, and reading what is shown of them.

import { change, read } from "./api.js";
import { element, setText } from "./dom.js";
import { planFacts, subscriptionTable } from "./subscription_view.js";
import { explanations, snapshotTable, topicTable } from "./topic_view.js";

const byId = (id) => document.getElementById(id);

export class Topics {
  constructor() {
    this.topic = "";
    byId("topic").addEventListener("change", () => this.choose(byId("topic").value.trim()));
    byId("subscription").addEventListener("change", () => this.showAgain());
    byId("plan").addEventListener("click", () => this.plan());
  }

  choose(topic) {
    this.topic = topic;
    byId("topic").value = topic;
    byId("plan-view").replaceChildren();
    this.showAgain();
  }

  // The regions of the fail-over plan; they do not change during a run.
  setRegions(names) {
    for (const [id, at] of [["plan-from", 0], ["plan-to", 1]]) {
      const select = byId(id);
      if (select.options.length === names.length) continue;
      select.replaceChildren(...names.map((name) => element("option", {}, name)));
      select.selectedIndex = Math.min(at, names.length - 1);
    }
  }

  async readTopics() {
    const typed = byId("topic").value.trim();
    const { topics: names, omitted } = await read("/api/topics", { contains: typed === this.topic ? "" : typed });
    setOptions(byId("topics"), names);
    const more = omitted ? `, ${omitted} more: type a part of the name` : "";
    setText(byId("topic-count"), `${names.length} listed${more}`);
    if (!this.topic && names.length && document.activeElement !== byId("topic")) this.choose(names[0]);
  }

  async readTopic() {
    if (!this.topic) return;
    const topic = this.topic;
    const shown = await read("/api/topic", { topic, subscription: byId("subscription").value });
    if (topic !== this.topic) return;
    const subscription = this.setSubscriptions(shown);
    update("topic-view", topicTable(shown), explanations(shown.explain));
    update("snapshot-view", snapshotTable(shown));
    if (subscription) update("subscription-view", subscriptionTable(shown, subscription));
    else update("subscription-view", element("p", { class: "soft" }, "No subscription of this topic is loaded."));
  }

  setSubscriptions(shown) {
    const rows = shown.regions.flatMap((one) => one.rows);
    const names = [...new Set(rows.flatMap((row) => Object.keys(row.subscriptions)))].sort();
    const select = byId("subscription"), before = select.value;
    setOptions(select, names);
    if (names.includes(before)) select.value = before;
    select.disabled = byId("plan").disabled = !names.length;
    return select.value;
  }

  async showAgain() {
    try {
      await this.readTopic();
    } catch (problem) {
      update("topic-view", element("p", { class: "bad" }, problem.message));
      for (const id of ["snapshot-view", "subscription-view"]) byId(id).replaceChildren();
    }
  }

  async plan() {
    const [source, target] = [byId("plan-from").value, byId("plan-to").value];
    byId("plan-view").replaceChildren(element("p", { class: "soft" }, "computing the plan …"));
    try {
      const subscription = byId("subscription").value;
      const plan = await change("/api/failover-plan", { topic: this.topic, subscription, from: source, to: target });
      byId("plan-view").replaceChildren(planFacts(plan));
    } catch (problem) {
      byId("plan-view").replaceChildren(element("p", { class: "bad" }, problem.message));
    }
  }
}

function setOptions(parent, names) {
  const known = [...parent.children].map((one) => one.value);
  if (known.length === names.length && known.every((name, at) => name === names[at])) return;
  parent.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
}

// Replaces a view only if its text differs, so that its scroll position and focus stay.
export function update(id, ...parts) {
  const view = byId(id), text = parts.map((part) => part.textContent).join("");
  if (view.textContent !== text) view.replaceChildren(...parts);
}
