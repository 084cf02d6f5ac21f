// What happened in a range of time.

import { DEVICE_WORK } from "./colours.js";
import { around, busyOf, visit } from "./model.js";

const isDevice = (track) => track.kind === "device stream" || track.kind === "copy engine";

// The duration of the union of intervals.
export function union(intervals) {
  intervals.sort((a, b) => a[0] - b[0]);
  let sum = 0, reached = -Infinity;
  for (const [from, to] of intervals) {
    if (to <= reached) continue;
    sum += to - Math.max(from, reached);
    reached = to;
  }
  return sum;
}

// Busy time of each device, idle time by cause, and the names with the most time.
export function measureRange(model, from, to) {
  const devices = new Map();
  const idle = new Map();
  const names = new Map();
  const clip = (start, end) => Math.min(end, to) - Math.max(start, from);
  const hasDevice = model.tracks.some(isDevice);
  const add = (map, key, time) => {
    const known = map.get(key) ?? { time: 0, count: 0 };
    map.set(key, { time: known.time + time, count: known.count + 1 });
  };
  for (const row of model.rows) {
    const { track } = row;
    if (track.kind === "idle") {
      visit(model, row, from, to, 0, (start, end, busy, cls, span) => add(idle, model.header.kinds[model.kind[span]][0], clip(start, end)));
    } else if (isDevice(track)) {
      const name = track.device === null ? track.process : `device ${track.device}`;
      if (!devices.has(name)) devices.set(name, []);
      visit(model, row, from, to, 0, (start, end, busy, cls, span) => {
        if (cls > DEVICE_WORK) return;
        devices.get(name).push([Math.max(start, from), Math.min(end, to)]);
        add(names, model.kind[span], clip(start, end));
      });
    } else if (!hasDevice && track.kind !== "laps" && !row.isMarks) {
      visit(model, row, from, to, 0, (start, end, busy, cls, span) => add(names, model.kind[span], clip(start, end)));
    }
  }
  const busy = [...devices].map(([name, intervals]) => [name, union(intervals)]);
  const most = [...names].sort((a, b) => b[1].time - a[1].time);
  const causes = [...idle].sort((a, b) => b[1].time - a[1].time);
  return { busy, causes, most: most.slice(0, 10), kinds: most.length };
}

// The spans whose name matches, in order of time: places and the sum of their times.
export function findSpans(model, isMatch) {
  const matching = new Uint8Array(model.header.kinds.length);
  let any = false;
  model.header.kinds.forEach((kind, at) => {
    if (isMatch(kind[0])) {
      matching[at] = 1;
      any = true;
    }
  });
  const found = [];
  let time = 0;
  if (any) {
    for (let at = 0; at < model.size; at += 1) {
      if (!matching[model.kind[at]]) continue;
      found.push(at);
      time += busyOf(model, at);
    }
  }
  const byRow = Uint32Array.from(found);
  const byTime = Uint32Array.from(found).sort((a, b) => model.start[a] - model.start[b]);
  return { byRow, byTime, time };
}

// Spans of a name; `*` in it matches a number. All spans of a stage tree with the same name count.
export function findName(model, name) {
  if (!name.includes("*")) return findSpans(model, (other) => other === name);
  const exact = findSpans(model, (other) => other === name);
  if (exact.byTime.length) return exact;
  const pattern = name.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join("\\d+");
  const expression = new RegExp(`^${pattern}$`);
  return findSpans(model, (other) => expression.test(other));
}

// The lines of Python code that were sampled in the thread of a span while it ran, most frequent first.
export function samplesIn(model, span, track) {
  const lines = new Map();
  for (const mark of model.marks) {
    if (mark.time < model.start[span] || mark.time > model.end[span]) continue;
    const lane = model.tracks[mark.track];
    if (lane.pid !== track.pid || lane.number !== track.number) continue;
    lines.set(mark.kind, (lines.get(mark.kind) ?? 0) + 1);
  }
  return [...lines].sort((a, b) => b[1] - a[1]).slice(0, 8);
}

export function stackOf(model, span) {
  return around(model, span);
}
