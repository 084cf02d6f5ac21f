// Mouse, touch and keyboard of the timeline, and the list of keys.

import { el } from "./format.js";

const KEYS = [
  ["w / s", "zoom in / out at the pointer"],
  ["a / d", "pan left / right"],
  ["0", "show the whole trace"],
  ["/", "search names"],
  ["Enter / Shift+Enter", "next / previous match"],
  ["click", "select a span; arrows show what it launched"],
  ["f", "zoom to the selected span"],
  ["m", "measure the selected span as a range"],
  ["Shift+drag", "measure a range"],
  ["[ / ]", "previous / next lap"],
  ["drag, Ctrl+wheel", "pan, zoom"],
  ["Escape", "clear the search, the selection and the range"],
  ["t", "light or dark"],
  ["?", "this list"],
];

export function helpDialog() {
  const rows = KEYS.map(([key, action]) => el("tr", null, el("td", null, el("kbd", null, key)), el("td", null, action)));
  const dialog = el("dialog", { class: "help" }, el("h2", null, "Keys"), el("table", null, el("tbody", null, ...rows)));
  dialog.append(el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  document.body.append(dialog);
  return dialog;
}

export function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  document.dispatchEvent(new Event("theme"));
}

const isTyping = (target) => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

export function addKeys(timeline, help) {
  let pointer = null;
  if (timeline) {
    addMouse(timeline, (moment) => { pointer = moment; });
    timeline.input.addEventListener("input", () => timeline.search(timeline.input.value));
    timeline.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") timeline.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") timeline.input.blur();
    });
  }
  const actions = {
    w: () => timeline.zoom(0.7, pointer ?? undefined),
    s: () => timeline.zoom(1 / 0.7, pointer ?? undefined),
    a: () => timeline.pan(-0.15),
    d: () => timeline.pan(0.15),
    0: () => timeline.show(0, timeline.model.length),
    "/": () => timeline.input.focus(),
    f: () => timeline.selected >= 0 && timeline.jump(timeline.model.start[timeline.selected], timeline.model.end[timeline.selected]),
    m: () => timeline.selected >= 0 && timeline.measure(timeline.model.start[timeline.selected], timeline.model.end[timeline.selected]),
    "[": () => timeline.lap(-1),
    "]": () => timeline.lap(1),
    Escape: () => {
      timeline.search("");
      timeline.select(-1);
      timeline.measure(null);
    },
  };
  document.addEventListener("keydown", (event) => {
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") help.showModal();
    else if (event.key === "t") toggleTheme();
    else if (timeline && Object.hasOwn(actions, event.key) && !help.open) actions[event.key]();
    else return;
    event.preventDefault();
  });
}

function addMouse(timeline, setPointer) {
  const { canvas, scroller } = timeline;
  let drag = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const [x, y] = at(event);
    drag = { x, y, from: timeline.view.from, to: timeline.view.to, scroll: scroller.scrollTop, isRange: event.shiftKey, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    setPointer(timeline.timeAt(x));
    if (!drag) {
      canvas.classList.toggle("over", (timeline.hit(x, y).span ?? -1) >= 0);
      return;
    }
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    if (drag.isRange) {
      timeline.measure(timeline.timeAt(drag.x), timeline.timeAt(x));
    } else {
      const step = ((drag.x - x) / timeline.size.width) * (drag.to - drag.from);
      timeline.show(drag.from + step, drag.to + step);
      scroller.scrollTop = drag.scroll + drag.y - y;
    }
  });
  canvas.addEventListener("pointerup", () => {
    if (drag && !drag.moved) click(timeline, drag.x, drag.y);
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => setPointer(null));
  canvas.addEventListener("click", (event) => {
    // Touch pointers do not drag: the page scrolls instead.
    if (event.pointerType === "touch") click(timeline, ...at(event));
  });
  canvas.addEventListener("wheel", (event) => {
    const isAcross = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !isAcross) return;
    event.preventDefault();
    if (event.ctrlKey) timeline.zoom(Math.exp(event.deltaY / 300), timeline.timeAt(at(event)[0]));
    else timeline.pan((event.deltaX || event.deltaY) / timeline.size.width);
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    const { span } = timeline.hit(...at(event));
    if (span >= 0) timeline.jump(timeline.model.start[span], timeline.model.end[span]);
  });
}

function click(timeline, x, y) {
  const { span, title } = timeline.hit(x, y);
  if (title) timeline.fold(title);
  else timeline.select(span ?? -1);
}
