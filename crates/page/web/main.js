// Starts the page.

import { pageColours } from "./colours.js";
import { curveCharts, lapCharts } from "./charts.js";
import { fromBase64, readData } from "./data.js";
import { Flame } from "./flame.js";
import { el } from "./format.js";
import { addKeys, helpDialog, toggleTheme } from "./keys.js";
import { buildModel } from "./model.js";
import { addTables } from "./tables.js";
import { Timeline } from "./timeline.js";
import { followView, isServed, loadData, loadPage, perfettoButton } from "./view.js";

function addHeader(help) {
  const buttons = el("div", { class: "head-buttons" },
    el("button", { type: "button", title: "Light or dark (t)", onclick: toggleTheme }, "Light / dark"),
    el("button", { type: "button", title: "Keys (?)", onclick: () => help.showModal() }, "?"));
  if (isServed()) buttons.prepend(perfettoButton());
  document.querySelector("header").append(buttons);
  for (const command of document.querySelectorAll("pre.command")) {
    const copy = el("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command.textContent) }, "Copy");
    command.after(copy);
  }
}

async function addTrace(data) {
  const model = buildModel(data);
  const timeline = new Timeline(document.getElementById("timeline-view"), model);
  const { laps, stages, leftOut } = model.header;
  if (stages?.rows.length) new Flame(document.getElementById("flame-view"), stages, timeline);
  if (laps) lapCharts(document.getElementById("laps-view"), laps, timeline);
  const curves = document.getElementById("curves-view");
  if (curves) curveCharts(curves, model, timeline);
  if (leftOut?.length) {
    const names = `Fields that only identify a span are left out: ${leftOut.join(", ")}.`;
    document.getElementById("timeline-view").append(el("p", { class: "note" }, names));
  }
  document.addEventListener("theme", () => {
    timeline.colours = pageColours();
    timeline.redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
  return timeline;
}

// The data in the page, or that of the server.
async function findData() {
  if (isServed()) return loadData();
  const block = document.getElementById("data");
  if (!block) return null;
  const text = block.textContent.trim();
  block.remove();
  return readData(fromBase64(text));
}

async function main() {
  if (isServed()) {
    try {
      await loadPage();
    } catch (error) {
      document.querySelector("main").append(el("p", { class: "main bad" }, `The page cannot be loaded: ${error.message}`));
      return;
    }
  }
  const help = helpDialog();
  addHeader(help);
  let timeline = null;
  try {
    const data = await findData();
    if (data) timeline = await addTrace(data);
    if (timeline && isServed()) followView(timeline);
  } catch (error) {
    document.getElementById("timeline-view").append(el("p", { class: "main bad" }, `The timeline cannot be shown: ${error.message}`));
    throw error;
  } finally {
    addTables(timeline);
    addKeys(timeline, help);
  }
  document.documentElement.dataset.ready = "yes";
  // For people who look at the data in the console, and for tests.
  window.laptime = { timeline, model: timeline?.model };
}
