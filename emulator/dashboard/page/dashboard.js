// The dashboard: reads the state of the run again and again, and shows it. Nothing is kept between two pages.

import { change, read, repeat } from "./api.js";
import { setClass, setText } from "./dom.js";
import { key, RegionMap } from "./map.js";
import { Panel } from "./panel.js";
import { Picker } from "./picker.js";
import { eventTable } from "./topic_view.js";
import { Topics, update } from "./topics.js";
import { duration, time } from "./words.js";

const STATE_PAUSE_MS = 700, VIEW_PAUSE_MS = 1000, TOPICS_PAUSE_MS = 2000, STALE_MS = 3000;
const byId = (id) => document.getElementById(id);

let state = null, selected = null, pending = 0;

const map = new RegionMap(byId("map"), select);
const panel = new Panel(byId("panel"), act, select);
const picker = new Picker(byId("pick-from"), byId("pick-to"), select);
const topics = new Topics();

function select(chosen) {
  selected = chosen;
  panel.select(chosen);
  picker.show(chosen);
  show();
}

async function act(request) {
  pending += 1;
  setClass(byId("outcome"), "");
  setText(byId("outcome"), `${request.verb} …`);
  show();
  try {
    const { done } = await change("/api/actions", request);
    setText(byId("outcome"), done);
  } catch (problem) {
    setClass(byId("outcome"), "failed");
    setText(byId("outcome"), `${request.verb}: ${problem.message}`);
  }
  pending -= 1;
  show();
}

function lagsOf(status) {
  return new Map((status.replication_lag ?? []).map((row) => [key(row), row]));
}

function show() {
  const status = state?.status;
  if (!status) return;
  const lags = lagsOf(status);
  map.show(status, lags, selected);
  panel.show(status, lags, pending > 0);
  const names = status.regions.map((one) => one.name);
  picker.setRegions(names);
  topics.setRegions(names);
  setText(byId("run"), `${status.ended ? "ended run" : "run"} in ${status.run}`);
  byId("heal-all").disabled = pending > 0 || status.ended;
  document.title = `geoemu: ${status.regions.filter((one) => one.state === "running").length} of ${status.regions.length} regions run`;
}

function showFreshness(problem) {
  const stale = problem || !state || state.age_ms > STALE_MS;
  const age = state ? `the status is ${duration(state.age_ms)} old` : "no status yet";
  setClass(byId("freshness"), stale ? "stale" : "");
  setText(byId("freshness"), problem ? "not connected" : stale ? age : "live");
  byId("problem").hidden = !problem;
  setText(byId("problem"), problem);
}

async function readState() {
  try {
    state = await read("/api/state");
    showFreshness(state.problem);
  } catch (problem) {
    showFreshness(`The dashboard does not respond (${problem.message}); is \`geoemu dashboard\` still running?`);
  }
  show();
}

// A view that cannot be read stays as it is: the line of the status says whether the dashboard responds.
async function readQuietly(step) {
  try {
    await step();
  } catch (problem) {
    console.debug(problem.message);
  }
}

async function readEvents() {
  update("event-view", eventTable(await read("/api/events"), time));
}

byId("heal-all").addEventListener("click", () => act({ verb: "heal" }));
new ResizeObserver(show).observe(byId("map"));
// The names of frames are constant; the page is shown when it has them.
await readQuietly(async () => { panel.frames = await read("/api/frames"); });
repeat(readState, STATE_PAUSE_MS);
repeat(() => readQuietly(() => topics.readTopics()), TOPICS_PAUSE_MS);
repeat(() => topics.showAgain(), VIEW_PAUSE_MS);
repeat(() => readQuietly(readEvents), VIEW_PAUSE_MS);
