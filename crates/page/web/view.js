// A page served by `laptime view`: it requests its content with the token in its address, loads the spans of the
// visible window where the page has blocks, and sends the trace to Perfetto.

import { readData } from "./data.js";
import { el } from "./format.js";
import { buildModel } from "./model.js";

const PERFETTO = "https://ui.perfetto.dev";
const PAUSE = 150;

export const isServed = () => document.documentElement.dataset.served !== undefined;

async function get(path) {
  const answer = await fetch(path, { headers: { "x-laptime-token": location.hash.slice(1) } });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer;
}

// Fills the empty page.
export async function loadPage() {
  const whole = new DOMParser().parseFromString(await (await get("/page")).text(), "text/html");
  document.title = whole.title;
  for (const name of ["header", "nav", "main"]) document.querySelector(name).replaceWith(whole.querySelector(name));
}

export async function loadData(path = "/data") {
  return readData(new Uint8Array(await (await get(path)).arrayBuffer()));
}

// Loads the spans of the visible window. What is shown is never older than the window: outside of it the page has blocks.
export function followView(timeline) {
  const overview = timeline.model;
  if (!overview.header.thinned) return;
  let timer = null, loaded = null;
  const isInside = ({ from, to }, window) => window && from >= window.from && to <= window.to;
  timeline.onView = () => {
    clearTimeout(timer);
    if (isInside(timeline.view, loaded)) return;
    if (timeline.model !== overview) timeline.setModel(overview);
    loaded = null;
    timer = setTimeout(async () => {
      const { from, to } = timeline.view;
      if (from <= 0 && to >= overview.length) return;
      const window = { from: Math.max(0, Math.floor(2 * from - to)), to: Math.min(overview.length, Math.ceil(2 * to - from)) };
      const model = buildModel(await loadData(`/data?from=${window.from}&to=${window.to}`));
      if (!isInside(timeline.view, window)) return;
      loaded = window;
      timeline.setModel(model);
    }, PAUSE);
  };
}

// Perfetto's protocol: ping its window until it answers, then send the trace.
async function sendToPerfetto(status) {
  const target = window.open(PERFETTO);
  if (!target) {
    status.textContent = "the browser blocked the window";
    return;
  }
  const answer = await get("/trace");
  const buffer = await answer.arrayBuffer();
  const ping = setInterval(() => target.postMessage("PING", PERFETTO), 50);
  const listen = ({ origin, data }) => {
    if (origin !== PERFETTO || data !== "PONG") return;
    clearInterval(ping);
    removeEventListener("message", listen);
    const fileName = answer.headers.get("x-file-name");
    target.postMessage({ perfetto: { buffer, title: document.title, fileName } }, PERFETTO);
    status.textContent = "sent to Perfetto";
  };
  addEventListener("message", listen);
}

export function perfettoButton() {
  const status = el("span", { class: "status", "aria-live": "polite" });
  const failed = (error) => { status.textContent = error.message; };
  const button = el("button", { type: "button", id: "perfetto", onclick: () => sendToPerfetto(status).catch(failed) }, "Open in Perfetto");
  return el("span", null, status, button);
}
