// Draws rows. Every span goes into a strip of pixels, one line of pixels per row, which is stretched to the height of the
// row: the cost depends on the number of pixels, not on the number of spans.

import { INK, MATCH, RGB, rgb } from "./colours.js";
import { shorten } from "./format.js";
import { firstEndingAfter, nameOf, visit } from "./model.js";

const LABEL_LEAST = 34;
const LETTER = 6.1;
const MATCH_RGB = rgb(MATCH);

export class RowPainter {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.width = 0;
  }

  // Prepares strips for some rows of this width in device pixels.
  begin(width, rows) {
    if (this.width !== width || this.canvas.height < rows) {
      this.canvas.width = this.width = width;
      this.canvas.height = Math.max(rows, 32);
      this.cover = new Float32Array(width);
      this.best = new Float32Array(width);
      this.cls = new Uint8Array(width);
      this.image = this.context.createImageData(width, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.rows = rows;
    this.pixels.fill(0, 0, width * rows);
    this.labels = [];
  }

  // Paints one row into its strip and collects its labels.
  paint(model, row, line, view, matches) {
    const { cover, best, cls, width } = this;
    const { from, scale } = view;
    cover.fill(0);
    best.fill(0);
    const to = from + width / scale;
    const labelLeast = LABEL_LEAST * view.ratio;
    // The name of a mark is next to it, up to the next mark.
    let mark = null;
    const endMark = (right) => {
      if (mark && right - mark[0] >= labelLeast) this.labels.push([line, mark[0], right, mark[1], -1]);
    };
    visit(model, row, from, to, 1 / scale, (start, end, busy, spanClass, span) => {
      const [left, right] = [(start - from) * scale, (end - from) * scale];
      if (row.isMarks) {
        endMark(left);
        mark = span >= 0 ? [left, span] : null;
        const pixel = Math.min(width - 1, Math.max(0, Math.floor(left)));
        for (let at = pixel; at < Math.min(width, pixel + 2 * view.ratio); at += 1) this.add(at, 1, spanClass);
        return;
      }
      if (right - left >= labelLeast && span >= 0) this.labels.push([line, left, right, span, spanClass]);
      if (right - left <= 1) {
        const pixel = Math.min(width - 1, Math.max(0, Math.floor((left + right) / 2)));
        this.add(pixel, busy * scale, spanClass);
        return;
      }
      // A block is busy for only part of its time.
      const density = busy / (end - start);
      const last = Math.min(width - 1, Math.ceil(right) - 1);
      for (let pixel = Math.max(0, Math.floor(left)); pixel <= last; pixel += 1) {
        const covered = Math.min(right, pixel + 1) - Math.max(left, pixel);
        this.add(pixel, covered * density, spanClass);
      }
      const edge = Math.floor(left);
      if (right - left > 4 && edge >= 0 && edge < width) cover[edge] = -1;
    });
    endMark(width);
    this.flush(line);
    if (matches) this.paintMatches(model, row, line, view, matches);
  }

  add(pixel, part, spanClass) {
    if (this.cover[pixel] < 0) this.cover[pixel] = 0;
    this.cover[pixel] += part;
    if (part > this.best[pixel]) {
      this.best[pixel] = part;
      this.cls[pixel] = spanClass;
    }
  }

  flush(line) {
    const { cover, cls, pixels, width } = this;
    const offset = line * width;
    for (let pixel = 0; pixel < width; pixel += 1) {
      const covered = cover[pixel];
      if (covered === 0) continue;
      const [red, green, blue] = RGB[cls[pixel]];
      // Short spans stay visible; the border of a span is paler.
      const alpha = covered < 0 ? 140 : 70 + 185 * Math.min(1, covered);
      pixels[offset + pixel] = (alpha << 24) | (blue << 16) | (green << 8) | red;
    }
  }

  paintMatches(model, row, line, { from, scale }, matches) {
    const { width, pixels } = this;
    const [red, green, blue] = MATCH_RGB;
    const colour = (255 << 24) | (blue << 16) | (green << 8) | red;
    const stop = row.first + row.size;
    let at = lowerBound(matches, Math.max(row.first, firstEndingAfter(model, row, from)));
    while (at < matches.length && matches[at] < stop) {
      const span = matches[at];
      const left = Math.max(0, Math.floor((model.start[span] - from) * scale));
      if (left >= width) break;
      const right = Math.min(width - 1, Math.max(left, Math.ceil((model.end[span] - from) * scale) - 1));
      pixels.fill(colour, line * width + left, line * width + right + 1);
      // The next match that is not in the same pixel.
      const next = firstEndingAfter(model, row, from + (right + 1) / scale);
      at = lowerBound(matches, Math.max(next, span + 1));
    }
  }

  // Copies the strips to a canvas: `place` returns the top of a row, or null if it is not visible.
  show(context, place, height) {
    this.context.putImageData(this.image, 0, 0, 0, 0, this.width, this.rows);
    context.imageSmoothingEnabled = false;
    for (let line = 0; line < this.rows; line += 1) {
      context.drawImage(this.canvas, 0, line, this.width, 1, 0, place(line), this.width, height);
    }
  }

  showLabels(context, model, place, height, ratio, isMatch, ink) {
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const [line, left, right, span, spanClass] of this.labels) {
      const from = Math.max(left, 0);
      const letters = Math.floor((Math.min(right, this.width) - from - 6 * ratio) / (LETTER * ratio));
      if (letters < 3) continue;
      const block = model.blocks.get(span);
      const text = block ? `${block.count} spans, such as ${nameOf(model, span)}` : nameOf(model, span);
      context.fillStyle = spanClass < 0 ? ink : isMatch?.(span) ? "#111" : INK[spanClass];
      context.fillText(shorten(text, letters), from + 3 * ratio, place(line) + height / 2);
    }
  }
}

export function lowerBound(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
