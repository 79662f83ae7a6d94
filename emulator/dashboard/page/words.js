// The states of regions and links in words and tones.

export const GONE = ["killed", "lost", "stopped"];

export function regionTone(region) {
  if (GONE.includes(region.state)) return "bad";
  return region.state === "running" && !diskWords(region.disk) && !clockWords(region.clock) ? "good" : "warn";
}

// Empty for a healthy disk.
export function diskWords(disk) {
  return disk.state === "healthy" ? "" : disk.state === "slow" ? `slow, ${disk.delay_ms} ms` : disk.state;
}

// Empty for a clock that is right.
export function clockWords(clock) {
  const offset = clock.ahead_ms ? `${Math.abs(clock.ahead_ms).toLocaleString("en")} ms ${clock.ahead_ms < 0 ? "behind" : "ahead"}` : "";
  return [offset, clock.drift_ppm ? `drifts by ${clock.drift_ppm} ppm` : ""].filter(Boolean).join(", ");
}

export function frameWords(fault) {
  const by = fault.by_ms ? ` by ${fault.by_ms} ms` : "", start = fault.nth > 1 ? `, from number ${fault.nth} on` : "";
  return `${fault.action} ${fault.count} ${fault.what}${by}${start}`;
}

export function isDisturbed(link) {
  return link.state !== "up" || link.flap_period_ms > 0 || link.stall_ms > 0 || link.frame_faults.length > 0;
}

// An arrow of a region that is down transfers nothing, whatever the link's state is.
export function linkTone(link, regions) {
  if (link.state === "cut") return "bad";
  if (isDisturbed(link)) return "warn";
  const ends = regions.filter((one) => one.name === link.from || one.name === link.to);
  return ends.some((one) => one.state !== "running") ? "idle" : "good";
}

export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  return seconds < 100 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds / 60)} min`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function time(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString("en-GB");
}

// The name of a topic as a user types it.
export function short(topic) {
  return topic.replace(/^persistent:\/\//, "").replace(/^public\/default\//, "");
}
