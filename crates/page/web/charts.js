// Laps in order and by length, and curves of counters.

import { CLASSES, pageColours } from "./colours.js";
import { amount, count, el, isBytes, niceStep, time } from "./format.js";

const HEIGHT = 150;
const LEFT = 64;
const STATES = [["lap", CLASSES[9][1]], ["slow lap", CLASSES[10][1]], ["cold lap", CLASSES[2][1]]];

// A canvas with axes; `paint` gets the context, the size and functions that map values to positions.
function chart(container, label, paint, onclick) {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  const box = el("div", { class: "chart-box" }, el("h4", null, label), canvas);
  container.append(box);
  const draw = () => {
    const width = box.clientWidth;
    if (!width) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${HEIGHT}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    paint(context, width, pageColours());
  };
  new ResizeObserver(draw).observe(box);
  document.addEventListener("theme", draw);
  if (onclick) {
    canvas.classList.add("over");
    canvas.addEventListener("click", (event) => onclick((event.clientX - canvas.getBoundingClientRect().left - LEFT) / (box.clientWidth - LEFT - 4)));
  }
}

// Horizontal lines with their values; returns the function that maps a value to its position.
function heightAxis(context, width, colours, highest, text, stepOf = niceStep) {
  const place = (value) => HEIGHT - 18 - (value / highest) * (HEIGHT - 28);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const step = stepOf(highest / 4);
  for (let value = 0; value <= highest * 1.001; value += step) {
    context.fillStyle = colours.line;
    context.fillRect(LEFT, Math.round(place(value)), width - LEFT, 1);
    context.fillStyle = colours.faint;
    context.fillText(text(value), LEFT - 5, place(value));
  }
  context.textAlign = "left";
  return place;
}

function ends(context, width, colours, left, right) {
  context.fillStyle = colours.faint;
  context.textBaseline = "bottom";
  context.fillText(left, LEFT, HEIGHT);
  context.textAlign = "right";
  context.fillText(right, width - 4, HEIGHT);
  context.textAlign = "left";
}

export function lapCharts(container, laps, timeline) {
  const { rows } = laps;
  if (!rows.length) return;
  const lengths = rows.map((row) => row[2]);
  const longest = lengths.reduce((a, b) => Math.max(a, b), 1);
  const go = (row) => {
    timeline?.jump(row[1], row[1] + row[2]);
    document.getElementById("timeline").scrollIntoView();
  };
  chart(container, `Length of each lap of ${laps.name}, in order (click to jump)`, (context, width, colours) => {
    const place = heightAxis(context, width, colours, longest, time);
    const wide = (width - LEFT - 4) / rows.length;
    rows.forEach((row, at) => {
      context.fillStyle = STATES[row[4]][1];
      const top = place(row[2]);
      context.fillRect(LEFT + at * wide, top, Math.max(1, wide - (wide > 4 ? 1 : 0)), HEIGHT - 18 - top);
    });
    ends(context, width, colours, rows[0][0], rows[rows.length - 1][0]);
  }, (share) => go(rows[Math.min(rows.length - 1, Math.max(0, Math.floor(share * rows.length)))]));
  const used = new Set(rows.map((row) => row[4]));
  container.append(el("div", { class: "legend" }, ...STATES.filter((state, at) => used.has(at)).map(([name, colour]) => {
    const key = el("i", { class: "key" });
    key.style.background = colour;
    return el("span", null, key, name);
  })));
  if (rows.length >= 8) distribution(container, lengths);
}

function distribution(container, lengths) {
  const sorted = Float64Array.from(lengths).sort();
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const bins = Math.min(60, Math.max(8, Math.ceil(Math.sqrt(lengths.length) * 1.5)));
  const counts = new Array(bins).fill(0);
  for (const length of lengths) counts[Math.min(bins - 1, Math.floor(((length - low) / Math.max(1, high - low)) * bins))] += 1;
  const most = Math.max(...counts);
  chart(container, "Distribution of lap lengths", (context, width, colours) => {
    const place = heightAxis(context, width, colours, most * 1.15, count, (least) => Math.max(1, niceStep(least)));
    const wide = (width - LEFT - 4) / bins;
    context.fillStyle = CLASSES[0][1];
    counts.forEach((number, at) => context.fillRect(LEFT + at * wide, place(number), wide - 1, HEIGHT - 18 - place(number)));
    ends(context, width, colours, time(low), time(high));
    const median = sorted[sorted.length >> 1];
    const x = LEFT + ((median - low) / Math.max(1, high - low)) * (width - LEFT - 4);
    context.fillStyle = colours.text;
    context.fillRect(x, 4, 1.5, HEIGHT - 22);
    context.textBaseline = "top";
    const text = `median ${time(median)}`;
    context.textAlign = x > width - 140 ? "right" : "left";
    context.fillText(text, x + (x > width - 140 ? -5 : 5), 4);
    context.textAlign = "left";
  });
}

export function curveCharts(container, model, timeline) {
  for (const curve of model.curves) {
    const highest = curve.points.reduce((most, point) => Math.max(most, point[1]), 0) || 1;
    const device = curve.device === null || /(gpu|device) *\d/i.test(curve.name) ? "" : ` (device ${curve.device})`;
    const label = `${curve.name}${device}, highest ${amount(highest, curve.unit)}`;
    const go = (share) => {
      const at = share * model.length;
      timeline?.show(at - model.length / 40, at + model.length / 40);
      document.getElementById("timeline").scrollIntoView();
    };
    chart(container, label, (context, width, colours) => {
      const stepOf = isBytes(curve.unit) ? (least) => 2 ** Math.ceil(Math.log2(least)) : niceStep;
      const place = heightAxis(context, width, colours, highest, (value) => amount(value, curve.unit), stepOf);
      const x = (moment) => LEFT + (moment / model.length) * (width - LEFT - 4);
      context.beginPath();
      let before = null;
      for (const [moment, value] of curve.points) {
        // A counter keeps its value until the next point.
        if (before !== null) context.lineTo(x(moment), place(before));
        context.lineTo(x(moment), place(value));
        before = value;
      }
      if (before !== null) context.lineTo(x(model.length), place(before));
      context.strokeStyle = CLASSES[0][1];
      context.lineWidth = 1.5;
      context.stroke();
      ends(context, width, colours, "0", time(model.length));
    }, go);
  }
}
