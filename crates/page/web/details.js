// The panel that describes the selected span or range.

import { CLASSES } from "./colours.js";
import { amount, count, el, percent, time } from "./format.js";
import { measureRange, samplesIn, stackOf } from "./measure.js";
import { busyOf, fieldsOf, nameOf, rowOfSpan, selfTime } from "./model.js";

const MOST_LINKS = 12;

export function trackName(track) {
  const parts = [];
  if (track.kind === "laps" || track.kind === "idle") return track.name;
  if (track.device !== null && track.device !== undefined) parts.push(`device ${track.device}`);
  parts.push(track.name || track.kind);
  if (track.number !== null && track.number !== undefined && !track.name?.includes(String(track.number))) parts.push(String(track.number));
  return parts.join(" · ");
}

function facts(pairs) {
  const list = el("dl", { class: "pairs" });
  for (const [label, value] of pairs) list.append(el("dt", null, label), el("dd", null, value));
  return list;
}

function link(timeline, span, text) {
  return el("button", { class: "link", type: "button", onclick: () => timeline.select(span, true) }, text);
}

function links(timeline, title, spans) {
  if (!spans?.length) return null;
  const { model } = timeline;
  const items = spans.slice(0, MOST_LINKS).map((span) => el("li", null, link(timeline, span, nameOf(model, span)), ` ${time(busyOf(model, span))}, at ${time(model.start[span])}`));
  if (spans.length > MOST_LINKS) items.push(el("li", null, `and ${count(spans.length - MOST_LINKS)} more`));
  return el("div", null, el("h4", null, title), el("ul", null, ...items));
}

export function spanDetails(timeline, span) {
  const { model } = timeline;
  const row = rowOfSpan(model, span);
  const [name, category, cls] = model.header.kinds[model.kind[span]];
  const block = model.blocks.get(span);
  const duration = model.end[span] - model.start[span];
  const pairs = row.isMarks ? [["time", time(model.start[span])]] : [["start", time(model.start[span])], ["duration", time(duration)]];
  if (block) pairs.push(["spans in this block", count(block.count)], ["their total", time(block.busy)]);
  else if (!row.isMarks && row.track.kind !== "laps" && row.track.kind !== "idle") pairs.push(["self", time(selfTime(model, span))]);
  pairs.push(["kind", CLASSES[cls][0]], ["track", trackName(row.track)]);
  if (category) pairs.push(["category", category]);
  for (const [key, value] of fieldsOf(model, model.set[span])) pairs.push([key, shown(key, value)]);
  const stack = stackOf(model, span);
  const samples = row.isMarks ? [] : samplesIn(model, span, row.track);
  const lines = samples.length ? el("div", null, el("h4", null, "Python lines while it ran (samples)"), el("ul", null, ...samples.map(([kind, many]) => el("li", null, `${model.header.kinds[kind][0]}: ${many}`)))) : null;
  return el("div", { class: "detail" },
    el("h3", null, block ? `${count(block.count)} spans, the longest: ${name}` : name),
    el("div", { class: "detail-columns" },
      facts(pairs),
      links(timeline, "Launched by", model.launcher.get(span)),
      links(timeline, "Launches", model.launched.get(span)),
      links(timeline, "Inside (outermost first)", stack),
      lines));
}

function shown(key, value) {
  return typeof value === "number" && /bytes$/i.test(key) ? amount(value, "B") : String(value);
}

export function rangeDetails(timeline, from, to) {
  const { model } = timeline;
  const { busy, causes, most, kinds } = measureRange(model, from, to);
  const length = to - from;
  const pairs = [["from", time(from)], ["to", time(to)]];
  for (const [device, sum] of busy) {
    pairs.push([`${device} busy`, `${time(sum)} (${percent(sum / length)})`], [`${device} idle`, time(length - sum)]);
  }
  for (const [cause, sum] of causes) pairs.push([`idle, ${cause}`, time(sum.time)]);
  const rows = most.map(([kind, sum]) => el("li", null, el("button", { class: "link", type: "button", onclick: () => timeline.search(model.header.kinds[kind][0]) }, model.header.kinds[kind][0]), ` ${time(sum.time)}, ${count(sum.count)} x`));
  return el("div", { class: "detail" },
    el("h3", null, `Range of ${time(length)}`),
    el("div", { class: "detail-columns" },
      facts(pairs),
      el("div", null, el("h4", null, `Most time in this range (of ${count(kinds)} names)`), el("ul", null, ...rows))));
}
