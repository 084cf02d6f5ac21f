// Starts the page.

import { pageColours } from "./colours.js";
import { curveCharts, lapCharts } from "./charts.js";
import { readData } from "./data.js";
import { Flame } from "./flame.js";
import { el } from "./format.js";
import { addKeys, helpDialog, toggleTheme } from "./keys.js";
import { buildModel } from "./model.js";
import { addTables } from "./tables.js";
import { Timeline } from "./timeline.js";

function addHeader(help) {
  const buttons = el("div", { class: "head-buttons" },
    el("button", { type: "button", title: "Light or dark (t)", onclick: toggleTheme }, "Light / dark"),
    el("button", { type: "button", title: "Keys (?)", onclick: () => help.showModal() }, "?"));
  document.querySelector("header").append(buttons);
  for (const command of document.querySelectorAll("pre.command")) {
    const copy = el("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command.textContent) }, "Copy");
    command.after(copy);
  }
}

async function addTrace(block) {
  const model = buildModel(await readData(block.textContent));
  block.remove();
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

async function main() {
  const help = helpDialog();
  addHeader(help);
  const block = document.getElementById("data");
  let timeline = null;
  try {
    if (block) timeline = await addTrace(block);
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
