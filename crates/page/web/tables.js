// Tables that sort, fold and copy, and rows that jump to their place in the timeline.

import { el } from "./format.js";

const SHOWN = 15;

export function addTables(timeline) {
  for (const table of document.querySelectorAll("div.table > table")) {
    const rows = [...table.tBodies[0].rows];
    addSorting(table, rows);
    addTools(table, rows);
  }
  if (timeline) addJumps(timeline);
}

const isTree = (rows) => rows.some((row) => row.cells[0]?.textContent.startsWith("\u2003"));

function addSorting(table, rows) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = el("button", { type: "button", class: "sort", title: "Sort by this column" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
      };
      const order = (a, b) => {
        const [left, right] = [value(a), value(b)];
        if (typeof left === "number" && typeof right === "number") return left - right;
        if (typeof left === "number" || typeof right === "number") return typeof left === "number" ? 1 : -1;
        return left.localeCompare(right);
      };
      table.tBodies[0].append(...[...rows].sort((a, b) => (isDown ? order(b, a) : order(a, b))));
      table.classList.toggle("sorted", isTree(rows));
    });
  });
}

function addTools(table, rows) {
  const copied = el("span", { class: "status", "aria-live": "polite" });
  const copy = (text, name) => {
    const done = () => { copied.textContent = `copied as ${name}`; };
    navigator.clipboard?.writeText(text).then(done, () => fallback(text, done)) ?? fallback(text, done);
  };
  const bar = el("div", { class: "tools" },
    el("button", { type: "button", onclick: () => copy(asCsv(table), "CSV") }, "Copy CSV"),
    el("button", { type: "button", onclick: () => copy(asMarkdown(table), "Markdown") }, "Copy Markdown"), copied);
  if (rows.length > SHOWN) {
    table.classList.add("folded");
    const all = el("button", { type: "button" }, `Show all ${rows.length} rows`);
    all.addEventListener("click", () => {
      const isFolded = table.classList.toggle("folded");
      all.textContent = isFolded ? `Show all ${rows.length} rows` : "Show fewer rows";
    });
    bar.prepend(all);
  }
  table.parentElement.after(bar);
}

function fallback(text, done) {
  const area = el("textarea", { class: "clip" });
  area.value = text;
  document.body.append(area);
  area.select();
  if (document.execCommand("copy")) done();
  area.remove();
}

function cells(table) {
  const head = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const body = [...table.tBodies[0].rows].map((row) => [...row.cells]);
  return [head, body];
}

export function asCsv(table) {
  const [head, body] = cells(table);
  const field = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // Spreadsheets execute fields that start like a formula.
  const safe = (text) => (/^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text);
  const value = (cell) => (cell.title ? cell.title : cell.textContent.replaceAll("\u2003", "").trim());
  const plain = (cell) => (cell.dataset.v === undefined ? safe(value(cell)) : value(cell).replaceAll(",", ""));
  return [head.map(field), ...body.map((row) => row.map((cell) => field(plain(cell))))].map((row) => row.join(",")).join("\n");
}

export function asMarkdown(table) {
  const [head, body] = cells(table);
  const field = (text) => text.replaceAll("\u2003", "&emsp;").replace(/[\\|`*_<]/g, (sign) => `\\${sign}`).trim();
  const rule = [...table.tHead.rows[0].cells].map((cell) => (cell.classList.contains("n") ? "---:" : "---"));
  const lines = [head.map(field), rule, ...body.map((row) => row.map((cell) => field(cell.textContent)))];
  return lines.map((row) => `| ${row.join(" | ")} |`).join("\n");
}

function addJumps(timeline) {
  for (const place of document.querySelectorAll("[data-from], [data-find]")) {
    place.classList.add("jumps");
    place.tabIndex = 0;
    place.title ||= "Show in the timeline";
    const go = () => {
      if (place.dataset.find !== undefined) timeline.goToName(place.dataset.find);
      else goToRange(timeline, Number(place.dataset.from), Number(place.dataset.to));
      document.getElementById("timeline").scrollIntoView();
    };
    place.addEventListener("click", () => { if (!String(getSelection())) go(); });
    place.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  }
}

function goToRange(timeline, from, to) {
  timeline.jump(from, to);
  timeline.measure(from, Math.max(to, from + 1));
}
