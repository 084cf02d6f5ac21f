// Numbers as text, and elements whose content is always text.

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

export function time(ns) {
  const size = Math.abs(ns);
  for (const [unit, name] of UNITS) {
    if (size >= unit || unit === 1) return `${figures(ns / unit)} ${name}`;
  }
  return "0 ns";
}

export function figures(number) {
  const size = Math.abs(number);
  if (size >= 1000) return Math.round(number).toLocaleString("en-US");
  if (Number.isInteger(number)) return String(number);
  return String(Number(number.toPrecision(4)));
}

export function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

export function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export const isBytes = (unit) => /^(b|bytes?)$/i.test(unit);

export function amount(number, unit) {
  if (!isBytes(unit)) return `${figures(number)}${unit ? ` ${unit}` : ""}`;
  let at = 0;
  while (Math.abs(number) >= 1024 && at + 1 < BYTES.length) {
    number /= 1024;
    at += 1;
  }
  return `${figures(number)} ${BYTES[at]}`;
}

// Steps of 1, 2 or 5 times a power of ten, at least this far apart.
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least) ?? least;
}

// An element with properties and children. Strings become text, never markup.
export function el(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function shorten(text, most) {
  if (text.length <= most) return text;
  return most < 2 ? "" : `${text.slice(0, most - 1)}…`;
}
