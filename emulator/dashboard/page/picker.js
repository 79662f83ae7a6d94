// The choice of a region or link by name: of use where the map is crowded, or is not drawn.

import { element } from "./dom.js";

const NONE = "—", CLIENTS = "clients";

export class Picker {
  constructor(from, to, select) {
    this.from = from;
    this.to = to;
    for (const one of [from, to]) one.addEventListener("change", () => this.picked(select));
  }

  picked(select) {
    const from = this.from.value, to = this.to.value;
    if (from === NONE || (from === CLIENTS && [NONE, CLIENTS].includes(to))) return;
    select(to === NONE || to === from ? { region: from } : { from, to });
  }

  setRegions(names) {
    if (this.from.options.length === names.length + 2) return;
    for (const one of [this.from, this.to]) {
      one.replaceChildren(...[NONE, ...names, CLIENTS].map((name) => element("option", { value: name }, name)));
    }
  }

  show(selected) {
    this.from.value = selected.region ?? selected.from;
    this.to.value = selected.to ?? NONE;
  }
}
