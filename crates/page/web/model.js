// The trace in memory: rows of disjoint spans in order of time, with a pyramid over each row.
//
// A node of the pyramid covers 16 nodes of the level below. It has the exact busy time of its spans and the class
// with most of that time, so a view of the whole trace shows exact sums without visiting every span.

import { eachNumber, numbers, sums } from "./data.js";
import { CLASSES } from "./colours.js";

const FAN = 16;

export function buildModel({ header, column }) {
  const marks = readMarks(column);
  const size = header.spans + marks.length;
  const raw = {
    depth: numbers(column("depth"), new Uint32Array(header.spans)),
    lane: numbers(column("lane"), new Uint32Array(header.spans)),
  };
  const marksOf = header.tracks.map(() => []);
  marks.forEach((mark, at) => marksOf[mark.track].push(at));
  const tracks = [];
  const rows = [];
  const rowOf = new Uint32Array(size);
  let first = 0;
  header.tracks.forEach((described, index) => {
    const track = { ...described, index, first, rows: [] };
    addMarkRow(track, marksOf[index], header.spans, rows, rowOf);
    addRows(track, raw, rows, rowOf);
    tracks.push(track);
    first += described.spans;
  });
  const model = { header, tracks, rows, length: Math.max(1, header.length), size, marks };
  placeSpans(model, column, rowOf);
  addPyramid(model);
  addFlows(model, column);
  addCurves(model, column);
  return model;
}

// The marks of a track are spans without a duration, in a row of their own above the others.
function addMarkRow(track, marks, before, rows, rowOf) {
  if (!marks.length) return;
  const row = { index: rows.length, track, lane: -1, depth: 0, first: 0, size: marks.length, isMarks: true };
  for (const at of marks) rowOf[before + at] = row.index;
  rows.push(row);
  track.rows.push(row);
}

// One row per lane and depth of a track.
function addRows(track, raw, rows, rowOf) {
  // Rows keep their position if a window of the trace leaves some of them empty.
  const deepest = new Map((track.lanes ?? []).flatMap((rows, lane) => (rows ? [[lane, rows - 1]] : [])));
  const end = track.first + track.spans;
  for (let at = track.first; at < end; at += 1) {
    const lane = raw.lane[at];
    if (!((deepest.get(lane) ?? -1) >= raw.depth[at])) deepest.set(lane, raw.depth[at]);
  }
  const base = new Map();
  for (const lane of [...deepest.keys()].sort((a, b) => a - b)) {
    base.set(lane, rows.length);
    for (let depth = 0; depth <= deepest.get(lane); depth += 1) {
      const row = { index: rows.length, track, lane, depth, first: 0, size: 0 };
      rows.push(row);
      track.rows.push(row);
    }
  }
  for (let at = track.first; at < end; at += 1) {
    rowOf[at] = base.get(raw.lane[at]) + raw.depth[at];
    rows[rowOf[at]].size += 1;
  }
}

// Sorts the columns by row; within a row the time order is kept.
function placeSpans(model, column, rowOf) {
  const { rows, size, tracks } = model;
  let first = 0;
  for (const row of rows) {
    row.first = first;
    first += row.size;
  }
  const next = rows.map((row) => row.first);
  const place = new Uint32Array(size);
  for (let at = 0; at < size; at += 1) place[at] = next[rowOf[at]]++;
  const into = (array) => (value, at) => { array[place[at]] = value; };
  Object.assign(model, {
    place,
    start: new Float64Array(size),
    end: new Float64Array(size),
    kind: new Uint32Array(size),
    set: new Uint32Array(size),
  });
  const begins = new Set(tracks.map((track) => track.first));
  let at = 0;
  eachNumber(column("start"), (value, index) => {
    at = begins.has(index) ? value : at + value;
    model.start[place[index]] = at;
  });
  eachNumber(column("duration"), (value, index) => { model.end[place[index]] = model.start[place[index]] + value; });
  eachNumber(column("kind"), into(model.kind));
  eachNumber(column("set"), into(model.set));
  model.marks.forEach(({ time, kind, set }, at) => {
    const to = place[model.header.spans + at];
    model.start[to] = model.end[to] = time;
    model.kind[to] = kind;
    model.set[to] = set;
  });
  model.classOf = Uint8Array.from(model.header.kinds, (kind) => Math.min(kind[2], CLASSES.length - 1));
  model.blocks = new Map();
  const triple = [];
  let span = 0;
  eachNumber(column("blocks"), (value) => {
    triple.push(value);
    if (triple.length < 3) return;
    const [step, count, busy] = triple.splice(0);
    span += step;
    model.blocks.set(place[span], { count, busy });
  });
}

export function busyOf(model, at) {
  return model.blocks.size && model.blocks.has(at) ? model.blocks.get(at).busy : model.end[at] - model.start[at];
}

function addPyramid(model) {
  const { rows, classOf, kind } = model;
  const shares = new Float64Array(CLASSES.length);
  for (const row of rows) {
    row.levels = [];
    for (let below = null, size = row.size; size > FAN;) {
      const nodes = Math.ceil(size / FAN);
      const level = { busy: new Float64Array(nodes), cls: new Uint8Array(nodes) };
      for (let node = 0; node < nodes; node += 1) {
        shares.fill(0);
        for (let at = node * FAN; at < Math.min(size, (node + 1) * FAN); at += 1) {
          const busy = below ? below.busy[at] : busyOf(model, row.first + at);
          level.busy[node] += busy;
          // Spans without a duration still have a class.
          shares[below ? below.cls[at] : classOf[kind[row.first + at]]] += busy || 1e-9;
        }
        level.cls[node] = shares.indexOf(Math.max(...shares));
      }
      row.levels.push(level);
      below = level;
      size = nodes;
    }
  }
}

// Visits what a row shows in a window: nodes shorter than `least`, else spans. The callback gets start, end, busy time,
// class, and the span or -1.
export function visit(model, row, from, to, least, found) {
  const { start, end, kind, classOf } = model;
  const stop = row.first + row.size;
  for (let at = firstEndingAfter(model, row, from); at < stop && start[at] < to;) {
    let level = 0, step = 1;
    while (level < row.levels.length && (at - row.first) % (step * FAN) === 0) {
      const last = Math.min(at + step * FAN, stop) - 1;
      if (end[last] - start[at] > least) break;
      level += 1;
      step *= FAN;
    }
    if (level === 0) {
      found(start[at], end[at], busyOf(model, at), classOf[kind[at]], at);
    } else {
      const { busy, cls } = row.levels[level - 1];
      const node = (at - row.first) / step;
      found(start[at], end[Math.min(at + step, stop) - 1], busy[node], cls[node], -1);
    }
    at += step;
  }
}

// The first span of a row that ends after a moment. Spans of a row are disjoint, so their ends are in order too.
export function firstEndingAfter({ end }, row, moment) {
  let low = row.first, high = row.first + row.size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The span of a row at a moment, or -1.
export function spanAt(model, row, moment, slack = 0) {
  const at = firstEndingAfter(model, row, moment - slack);
  return at < row.first + row.size && model.start[at] <= moment + slack ? at : -1;
}

export function rowOfSpan({ rows }, span) {
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows[middle].first <= span) low = middle;
    else high = middle - 1;
  }
  return rows[low];
}

// The spans around a span, the outermost first.
export function around(model, span) {
  const row = rowOfSpan(model, span);
  const above = model.rows.slice(row.index - row.depth, row.index);
  return above.map((outer) => spanAt(model, outer, model.start[span])).filter((outer) => outer >= 0);
}

// The time of a span that is not in its children.
export function selfTime(model, span) {
  const row = rowOfSpan(model, span);
  const inner = model.rows[row.index + 1];
  let own = busyOf(model, span);
  if (!inner || inner.track !== row.track || inner.lane !== row.lane || inner.depth !== row.depth + 1) return own;
  visit(model, inner, model.start[span], model.end[span], 0, (start, end, busy) => {
    if (start >= model.start[span] && end <= model.end[span]) own -= busy;
  });
  return Math.max(0, own);
}

function addFlows(model, column) {
  const [from, to] = [sums(column("flowFrom")), sums(column("flowTo"))];
  model.launched = new Map();
  model.launcher = new Map();
  const add = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));
  from.forEach((source, at) => {
    add(model.launched, model.place[source], model.place[to[at]]);
    add(model.launcher, model.place[to[at]], model.place[source]);
  });
}

function readMarks(column) {
  const times = sums(column("markTime"));
  const [track, kind, set] = ["markTrack", "markKind", "markSet"].map((name) => numbers(column(name), []));
  return times.map((time, at) => ({ time, track: track[at], kind: kind[at], set: set[at] }));
}

function addCurves(model, column) {
  const bytes = column("value");
  const values = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const times = numbers(column("valueTime"), []);
  let first = 0;
  model.curves = model.header.curves.map((curve) => {
    let time = 0;
    const points = [];
    for (let at = first; at < first + curve.points; at += 1) {
      time += times[at];
      points.push([time, values.getFloat64(8 * at, true)]);
    }
    first += curve.points;
    return { ...curve, points };
  });
}

export function nameOf(model, span) {
  return model.header.kinds[model.kind[span]][0];
}

// The fields of a set, as pairs.
export function fieldsOf({ header }, set) {
  const flat = header.sets[set] ?? [];
  const pairs = [];
  for (let at = 0; at < flat.length; at += 2) pairs.push([header.keys[flat[at]], flat[at + 1]]);
  return pairs;
}
