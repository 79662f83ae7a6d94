// Requests to the dashboard's server. Each ends after a time limit, so that the page stays live.

const READ_MS = 15000;
const CHANGE_MS = 120000;
const TOKEN = document.querySelector("meta[name=geoemu-token]").content;

async function request(path, options, milliseconds) {
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(milliseconds) });
  const content = await response.json();
  if (!response.ok) throw new Error(content.reason);
  return content;
}

export function read(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return request(query ? `${path}?${query}` : path, {}, READ_MS);
}

export function change(path, body) {
  const headers = { "content-type": "application/json", "x-geoemu-token": TOKEN };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) }, CHANGE_MS);
}

// Calls `step` again and again, `pause` milliseconds after its end; never two at a time.
export async function repeat(step, pause) {
  for (;;) {
    await step();
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
