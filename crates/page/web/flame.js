// The stage tree as a flame chart: in order of the first start, or the largest first.

import { pageColours } from "./colours.js";
import { count, el, percent, shorten, time } from "./format.js";

const BOX = 19;
const TONES = ["#0072b2", "#3d7fb0", "#009e73", "#4a9a86", "#7a6fbe", "#5f87b8"];
const MOST_ROWS = 28;

export class Flame {
  constructor(container, stages, timeline) {
    this.timeline = timeline;
    this.nodes = stages.rows.map(([parent, name, times, host, device]) => ({ parent, name, times, host, device, children: [] }));
    for (const node of this.nodes) {
      if (node.parent !== null) this.nodes[node.parent]?.children.push(node);
    }
    this.side = this.nodes.some((node) => node.host) ? "host" : "device";
    this.byTime = false;
    this.focus = null;
    this.build(container);
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  build(container) {
    this.canvas = el("canvas", { role: "img", "aria-label": "Stage tree as a flame chart; the table below has its figures" });
    this.info = el("p", { class: "flame-info" }, "Click a stage to enlarge it. Double-click to find it in the timeline.");
    const button = (text, action) => el("button", { type: "button", onclick: () => { action(); this.draw(); } }, text);
    const bar = el("div", { class: "bar" },
      button("Time order / largest first", () => { this.byTime = !this.byTime; }),
      button("Host time / device time", () => { this.side = this.side === "host" ? "device" : "host"; }),
      button("All stages", () => { this.focus = null; }));
    container.append(bar, el("div", { class: "flame" }, this.canvas), this.info);
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("mousemove", (event) => this.describe(this.boxAt(event)?.node));
    this.canvas.addEventListener("dblclick", (event) => {
      const found = this.boxAt(event);
      if (found && this.timeline?.goToName(found.node.name)) document.getElementById("timeline").scrollIntoView();
    });
  }

  value(node) {
    return node[this.side] ?? 0;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const roots = this.focus ? [this.focus] : this.nodes.filter((node) => node.parent === null);
    this.total = roots.reduce((sum, node) => sum + this.value(node), 0);
    this.boxes = [];
    this.place(roots, 0, 0, width, 0);
    const rows = Math.max(1, ...this.boxes.map((box) => box.row + 1));
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = width * ratio;
    this.canvas.height = rows * BOX * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${rows * BOX}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const { node, x, wide, row } of this.boxes) {
      context.fillStyle = TONES[hash(node.name) % TONES.length];
      context.fillRect(x, row * BOX, Math.max(0.5, wide - 1), BOX - 1);
      const letters = Math.floor((wide - 8) / 6.2);
      if (letters < 3) continue;
      context.fillStyle = "#fff";
      context.fillText(shorten(`${node.name}  ${time(this.value(node))}`, letters), x + 4, row * BOX + BOX / 2);
    }
    if (!this.total) {
      context.fillStyle = pageColours().text;
      context.fillText(`no ${this.side} time`, 4, BOX / 2);
    }
  }

  place(nodes, left, row, width, above) {
    if (row >= MOST_ROWS) return;
    const scale = width / Math.max(1, above || this.total);
    const order = this.byTime ? [...nodes].sort((a, b) => this.value(b) - this.value(a)) : nodes;
    let x = left;
    for (const node of order) {
      const wide = this.value(node) * scale;
      if (wide > 0.4) {
        this.boxes.push({ node, x, wide, row });
        const inner = node.children.reduce((sum, child) => sum + this.value(child), 0);
        // Children on other threads or devices may have more time than their parent.
        this.place(node.children, x, row + 1, wide, Math.max(this.value(node), inner));
      }
      x += wide;
    }
  }

  boxAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, row] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / BOX)];
    return this.boxes?.find((other) => other.row === row && x >= other.x && x < other.x + other.wide);
  }

  click(event) {
    const found = this.boxAt(event);
    if (!found) return;
    this.focus = found.node === this.focus ? null : found.node;
    this.draw();
    this.describe(found.node);
  }

  describe(node) {
    if (!node) return;
    const of = this.total ? `, ${percent(this.value(node) / this.total)} of what is shown` : "";
    const both = [["host", node.host], ["device", node.device]].filter(([, value]) => value !== null).map(([side, value]) => `${side} ${time(value)}`);
    this.info.textContent = `${node.name}: ${both.join(", ")}, ${count(node.times)} x${of}`;
  }
}

function hash(text) {
  let value = 7;
  for (const letter of text) value = (value * 31 + letter.codePointAt(0)) >>> 0;
  return value;
}
