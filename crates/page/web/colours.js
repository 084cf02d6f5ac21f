// The class of a span and its colour. The colours are those of Okabe and Ito, which colour-blind people can distinguish.

export const CLASSES = [
  ["kernel", "#0072b2"],
  ["communication", "#cc79a7"],
  ["copy or memset", "#e69f00"],
  ["launch or call", "#56b4e9"],
  ["sync", "#d55e00"],
  ["operation", "#009e73"],
  ["Python", "#b5a642"],
  ["stage", "#7a6fbe"],
  ["other", "#8a8f98"],
  ["lap", "#6b7f99"],
  ["slow lap", "#d55e00"],
  ["idle: host", "#d55e00"],
  ["idle: host sync", "#cc79a7"],
  ["idle: copy", "#e69f00"],
  ["idle: stream", "#56b4e9"],
  ["idle: turnaround", "#9aa0a8"],
  ["idle: unexplained stream wait", "#6d6d6d"],
  ["idle: unexplained, queued", "#6d6d6d"],
  ["idle: unexplained, no launch", "#6d6d6d"],
  ["mark", "#a35c2e"],
];

export const DEVICE_WORK = 2;
export const MATCH = "#f0e442";

export const RGB = CLASSES.map(([, colour]) => rgb(colour));

export function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

// Black or white, whichever is legible on the colour.
export const INK = RGB.map(([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff"));

// The colours of the page, which follow the theme.
export function pageColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { text: of("--text"), faint: of("--faint"), line: of("--line"), back: of("--panel"), band: of("--band"), accent: of("--accent") };
}
