// The timeline: which tracks are shown where, the visible window, the selection, and drawing.

import { CLASSES, pageColours } from "./colours.js";
import { rangeDetails, spanDetails, trackName } from "./details.js";
import { RowPainter, lowerBound } from "./draw.js";
import { amount, count, el, niceStep, time } from "./format.js";
import { findName, findSpans } from "./measure.js";
import { rowOfSpan, spanAt } from "./model.js";

const ROW = 15;
const GAP = 1;
const TITLE = 17;
const AXIS = 22;
const CURVE = 30;
const MOST_CURVES = 24;
const FOLDED_ROWS = 32;
const MOST_ARROWS = 300;
const ORDER = ["laps", "idle", "device stream", "copy engine", "host thread", "host lane"];

export class Timeline {
  constructor(container, model) {
    this.model = model;
    this.view = { from: 0, to: model.length };
    this.painter = new RowPainter();
    this.selected = -1;
    this.range = null;
    this.matches = null;
    this.colours = pageColours();
    this.folded = new Map();
    this.build(container);
    this.arrange();
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
  }

  build(container) {
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": "Timeline of all tracks. Press ? for the keys." });
    this.spacer = el("div", { class: "spacer" });
    this.scroller = el("div", { class: "scroller" }, this.canvas, this.spacer);
    this.input = el("input", { type: "search", placeholder: "Search names ( / )", "aria-label": "Search names" });
    this.status = el("span", { class: "status", "aria-live": "polite" });
    this.panel = el("div", { class: "panel", "aria-live": "polite" });
    const button = (text, title, action) => el("button", { type: "button", title, onclick: action }, text);
    const bar = el("div", { class: "bar" }, this.input,
      button("‹", "Previous match (Shift+Enter)", () => this.step(-1)), button("›", "Next match (Enter)", () => this.step(1)),
      button("+", "Zoom in (w)", () => this.zoom(0.5)), button("−", "Zoom out (s)", () => this.zoom(2)),
      button("Whole trace", "Show everything (0)", () => this.show(0, this.model.length)), this.status);
    container.append(bar, this.scroller, this.legend(), this.panel);
    this.panel.append(el("p", { class: "note" }, "Click a span for its details. Drag to pan, Ctrl+wheel or w/s to zoom, Shift+drag to measure a range. Press ? for all keys."));
    this.context = this.canvas.getContext("2d");
  }

  legend() {
    const used = new Set(this.model.classOf);
    const items = CLASSES.map(([name], at) => [name, at]).filter(([, at]) => used.has(at));
    return el("div", { class: "legend" }, ...items.map(([name, at]) => {
      const key = el("i", { class: "key" });
      key.style.background = CLASSES[at][1];
      return el("span", null, key, name);
    }));
  }

  // Stacks the tracks: laps, then devices, then the threads with the most spans.
  arrange() {
    const rank = (track) => ORDER.indexOf(track.kind);
    const shown = this.model.tracks.filter((track) => track.rows.length && rank(track) >= 0);
    // The idle time of a device is above its streams.
    const device = (track) => Number(track.device ?? /^device (\d+)/.exec(track.name)?.[1] ?? 0);
    const group = (track) => (track.kind === "laps" ? 0 : rank(track) <= ORDER.indexOf("copy engine") ? 1 : 2);
    shown.sort((a, b) => group(a) - group(b) || device(a) - device(b) || rank(a) - rank(b) || b.spans - a.spans || a.index - b.index);
    this.lines = [];
    this.titles = [];
    let top = 0;
    for (const track of shown) {
      const isFolded = this.folded.get(track.index) ?? track.rows.length > FOLDED_ROWS;
      const rows = isFolded ? track.rows.slice(0, FOLDED_ROWS) : track.rows;
      this.titles.push({ track, top, isFolded, canFold: track.rows.length > FOLDED_ROWS });
      top += TITLE;
      for (const row of rows) {
        this.lines.push({ row, top });
        top += ROW + GAP;
      }
      top += 5;
    }
    this.curves = this.model.curves.filter((curve) => curve.points.length > 1).slice(0, MOST_CURVES).map((curve) => {
      const place = { curve, highest: curve.points.reduce((most, point) => Math.max(most, point[1]), 0) || 1, top: top + TITLE };
      this.titles.push({ text: `${curve.name}, highest ${amount(place.highest, curve.unit)}`, top });
      top += TITLE + CURVE + 5;
      return place;
    });
    this.topOf = new Map(this.lines.map((line) => [line.row, line.top]));
    this.height = top;
    this.resize();
  }

  resize() {
    const width = this.scroller.clientWidth;
    if (!width) return;
    const height = Math.min(this.height + AXIS + 6, Math.max(240, Math.round(window.innerHeight * 0.62)));
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.ratio = ratio;
    this.size = { width, height };
    this.scroller.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, this.height + AXIS + 6 - height)}px`;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.redraw();
  }

  // Shows other spans of the same trace.
  setModel(model) {
    this.model = model;
    this.selected = -1;
    this.search(this.input.value);
    this.arrange();
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  // Shows a window of time, within the trace and not shorter than a few nanoseconds.
  show(from, to) {
    const { length } = this.model;
    const wide = Math.min(length, Math.max(20, to - from));
    const start = Math.min(Math.max(0, from), length - wide);
    this.view = { from: start, to: start + wide };
    this.onView?.();
    this.redraw();
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(share) {
    const step = (this.view.to - this.view.from) * share;
    this.show(this.view.from + step, this.view.to + step);
  }

  timeAt(x) {
    return this.view.from + (x / this.size.width) * (this.view.to - this.view.from);
  }

  // The span below a point, the title below it, or nothing.
  hit(x, y) {
    const top = y - AXIS + this.scroller.scrollTop;
    if (y < AXIS) return {};
    const moment = this.timeAt(x);
    const slack = (2 / this.size.width) * (this.view.to - this.view.from);
    const line = this.lines[lowerBound(this.lines.map((other) => other.top), top + 1) - 1];
    if (line && top < line.top + ROW) {
      const exact = spanAt(this.model, line.row, moment);
      return { span: exact >= 0 ? exact : spanAt(this.model, line.row, moment, slack) };
    }
    return { title: this.titles.find((title) => top >= title.top && top < title.top + TITLE) };
  }

  fold(title) {
    if (!title?.canFold) return;
    this.folded.set(title.track.index, !title.isFolded);
    this.arrange();
  }

  select(span, isJump = false) {
    this.selected = span;
    this.panel.replaceChildren(...(span >= 0 ? [spanDetails(this, span)] : []));
    if (span >= 0) {
      this.reveal(rowOfSpan(this.model, span));
      if (isJump) this.jump(this.model.start[span], this.model.end[span]);
    }
    this.redraw();
  }

  // Unfolds the track of a row and scrolls to it.
  reveal(row) {
    if (!this.topOf.has(row)) {
      this.folded.set(row.track.index, false);
      this.arrange();
    }
    const top = this.topOf.get(row);
    if (top === undefined) return;
    const { scrollTop } = this.scroller;
    const room = this.size.height - AXIS - 2 * ROW;
    if (top < scrollTop || top > scrollTop + room) this.scroller.scrollTop = Math.max(0, top - room / 3);
  }

  // Shows a range with a margin around it; a single moment is centred.
  jump(from, to) {
    const half = (this.view.to - this.view.from) / 2;
    if (from === to) return this.show(from - half, from + half);
    const wide = Math.max(to - from, this.model.length * 1e-9, 200);
    this.show(from - wide * 1.5, from + wide * 2.5);
  }

  measure(from, to) {
    this.range = from === null ? null : [Math.max(0, Math.min(from, to)), Math.min(this.model.length, Math.max(from, to))];
    if (this.range && this.range[1] > this.range[0]) this.panel.replaceChildren(rangeDetails(this, ...this.range));
    this.redraw();
  }

  search(text) {
    this.input.value = text;
    const wanted = text.trim().toLowerCase();
    this.setMatches(wanted ? findSpans(this.model, (name) => name.toLowerCase().includes(wanted)) : null);
  }

  setMatches(matches) {
    this.matches = matches;
    this.at = -1;
    const found = matches?.byTime.length ?? 0;
    this.status.textContent = matches ? `${count(found)} ${found === 1 ? "match" : "matches"}${found ? `, ${time(matches.time)}` : ""}` : "";
    this.redraw();
  }

  step(by) {
    const found = this.matches?.byTime;
    if (!found?.length) return;
    this.at = this.at < 0 ? (by > 0 ? 0 : found.length - 1) : (this.at + by + found.length) % found.length;
    this.select(found[this.at], true);
  }

  // Jumps to the longest span of a name.
  goToName(name) {
    const found = findName(this.model, name);
    this.input.value = name;
    this.setMatches(found);
    let best = -1;
    for (const span of found.byTime) {
      if (best < 0 || this.model.end[span] - this.model.start[span] > this.model.end[best] - this.model.start[best]) best = span;
    }
    if (best >= 0) this.select(best, true);
    return best >= 0;
  }

  lap(by) {
    const strip = this.model.tracks.find((track) => track.kind === "laps")?.rows[0];
    if (!strip) return;
    const middle = (this.view.from + this.view.to) / 2;
    const starts = this.model.start.subarray(strip.first, strip.first + strip.size);
    const now = lowerBound(starts, middle + 1) - 1;
    const at = Math.min(strip.size - 1, Math.max(0, now + by)) + strip.first;
    this.select(at, false);
    this.show(this.model.start[at], this.model.end[at]);
  }

  draw() {
    if (!this.size) return;
    const { context, ratio, canvas, painter, model } = this;
    const { from, to } = this.view;
    const width = canvas.width;
    const scale = width / (to - from);
    const scrolled = this.scroller.scrollTop;
    const visible = this.lines.filter(({ top }) => top + ROW > scrolled && top < scrolled + this.size.height - AXIS);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.colours.back;
    context.fillRect(0, 0, width, canvas.height);
    const view = { from, scale, ratio };
    painter.begin(width, visible.length);
    visible.forEach(({ row }, line) => painter.paint(model, row, line, view, this.matches?.byRow));
    const place = (line) => Math.round((visible[line].top - scrolled + AXIS) * ratio);
    const height = Math.round(ROW * ratio);
    this.drawGrid(scale);
    painter.show(context, place, height);
    const isMatch = this.matches ? (span) => this.matches.byRow[lowerBound(this.matches.byRow, span)] === span : null;
    painter.showLabels(context, model, place, height, ratio, isMatch, this.colours.text);
    this.drawTitles(scrolled);
    this.drawCurves(scale, scrolled);
    this.drawMarksOf(this.selected, scale, scrolled);
    this.drawAxis(scale);
  }

  drawGrid(scale) {
    const { context, canvas } = this;
    const step = niceStep((90 * this.ratio) / scale);
    this.ticks = [];
    context.fillStyle = this.colours.line;
    for (let at = Math.ceil(this.view.from / step) * step; at < this.view.to; at += step) {
      const x = Math.round((at - this.view.from) * scale);
      this.ticks.push([x, at]);
      context.fillRect(x, 0, 1, canvas.height);
    }
  }

  drawAxis() {
    const { context, ratio, canvas } = this;
    context.fillStyle = this.colours.band;
    context.fillRect(0, 0, canvas.width, AXIS * ratio);
    context.fillStyle = this.colours.text;
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const [x, at] of this.ticks) context.fillText(time(at), x + 3 * ratio, (AXIS * ratio) / 2);
    if (this.range) {
      const x = (moment) => ((moment - this.view.from) / (this.view.to - this.view.from)) * canvas.width;
      const [left, right] = this.range.map(x);
      context.fillStyle = this.colours.accent;
      context.globalAlpha = 0.18;
      context.fillRect(left, 0, right - left, canvas.height);
      context.globalAlpha = 1;
      context.fillText(time(this.range[1] - this.range[0]), Math.max(left, 0) + 4 * ratio, (AXIS + 9) * ratio);
    }
  }

  drawTitles(scrolled) {
    const { context, ratio } = this;
    context.font = `600 ${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const { track, text, top, isFolded, canFold } of this.titles) {
      const y = (top - scrolled + AXIS) * ratio;
      if (y < 0 || y > this.canvas.height) continue;
      const more = canFold ? (isFolded ? `  ▸ ${track.rows.length} rows, click to show all` : "  ▾ click to fold") : "";
      context.fillStyle = this.colours.band;
      context.fillRect(0, y, this.canvas.width, (TITLE - 1) * ratio);
      context.fillStyle = this.colours.text;
      context.fillText((text ?? trackName(track)) + more, 4 * ratio, y + (TITLE * ratio) / 2);
    }
  }

  // Counters: the highest value of each pixel, kept until the next point.
  drawCurves(scale, scrolled) {
    const { context, ratio, canvas } = this;
    context.fillStyle = CLASSES[0][1];
    for (const { curve: { points }, highest, top } of this.curves) {
      const bottom = (top - scrolled + AXIS + CURVE) * ratio;
      if (bottom < AXIS * ratio || bottom - CURVE * ratio > canvas.height) continue;
      context.globalAlpha = 0.55;
      let at = Math.max(0, points.findLastIndex((point) => point[0] <= this.view.from));
      for (let x = 0; at < points.length && x < canvas.width;) {
        let most = points[at][1];
        const left = Math.max(x, (points[at][0] - this.view.from) * scale);
        // All points of the same pixel are one bar.
        for (; at + 1 < points.length && (points[at + 1][0] - this.view.from) * scale < left + 1; at += 1) most = Math.max(most, points[at + 1][1]);
        const right = at + 1 < points.length ? (points[at + 1][0] - this.view.from) * scale : canvas.width;
        const height = Math.max(0, most / highest) * CURVE * ratio;
        context.fillRect(left, bottom - height, Math.max(1, right - left), height);
        x = right;
        at += 1;
      }
      context.globalAlpha = 1;
    }
  }

  // The border of a span, and arrows to what it launched and from what launched it.
  drawMarksOf(span, scale, scrolled) {
    if (span < 0) return;
    const { context, ratio, model } = this;
    const box = (other) => {
      const top = this.topOf.get(rowOfSpan(model, other));
      if (top === undefined) return null;
      const x = (model.start[other] - this.view.from) * scale;
      return { x, right: (model.end[other] - this.view.from) * scale, y: (top - scrolled + AXIS) * ratio };
    };
    const own = box(span);
    if (!own) return;
    context.strokeStyle = this.colours.text;
    context.lineWidth = 2 * ratio;
    context.strokeRect(own.x, own.y, Math.max(2, own.right - own.x), ROW * ratio);
    context.lineWidth = 1.2 * ratio;
    const arrow = (from, to) => {
      if (!from || !to) return;
      const [startX, startY, endX, endY] = [from.right, from.y + 7 * ratio, to.x, to.y + 7 * ratio];
      const bend = Math.max(20 * ratio, Math.abs(endX - startX) / 3);
      context.beginPath();
      context.moveTo(startX, startY);
      context.bezierCurveTo(startX + bend, startY, endX - bend, endY, endX, endY);
      context.lineTo(endX - 5 * ratio, endY - 3 * ratio);
      context.moveTo(endX, endY);
      context.lineTo(endX - 5 * ratio, endY + 3 * ratio);
      context.stroke();
    };
    for (const other of model.launched.get(span)?.slice(0, MOST_ARROWS) ?? []) arrow(own, box(other));
    for (const other of model.launcher.get(span)?.slice(0, MOST_ARROWS) ?? []) arrow(box(other), own);
  }
}
