// Reads the data of a page: zlib, a JSON header and columns; in a file it is base64.

import { inflateZlib } from "./inflate.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function fromBase64(text) {
  const value = new Uint8Array(128);
  for (let at = 0; at < 64; at += 1) value[LETTERS.charCodeAt(at)] = at;
  let length = text.length;
  while (length && text[length - 1] === "=") length -= 1;
  const bytes = new Uint8Array(Math.floor((length * 3) / 4));
  for (let from = 0, to = 0; from < length; from += 4) {
    const at = (step) => value[text.charCodeAt(from + step) & 127];
    const bits = (at(0) << 18) | (at(1) << 12) | (from + 2 < length ? at(2) << 6 : 0) | (from + 3 < length ? at(3) : 0);
    bytes[to++] = bits >> 16;
    bytes[to++] = bits >> 8;
    bytes[to++] = bits;
  }
  return bytes;
}

async function unpack(bytes) {
  if (typeof DecompressionStream === "undefined") return inflateZlib(bytes);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The header and a function that finds columns by name.
export async function readData(packed) {
  const bytes = await unpack(packed);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const column = (name) => {
    const [from, size] = header.columns[name];
    return bytes.subarray(4 + length + from, 4 + length + from + size);
  };
  return { header, column };
}

// Calls back with each number of a column.
export function eachNumber(bytes, found) {
  let value = 0, scale = 1, at = 0;
  for (const byte of bytes) {
    value += (byte & 127) * scale;
    if (byte < 128) {
      found(value, at++);
      value = 0;
      scale = 1;
    } else {
      scale *= 128;
    }
  }
  return at;
}

export function numbers(bytes, into) {
  eachNumber(bytes, (value, at) => { into[at] = value; });
  return into;
}

// The numbers of a column of signed differences, added up.
export function sums(bytes) {
  const list = [];
  let sum = 0;
  eachNumber(bytes, (value) => {
    sum += value % 2 ? -(value + 1) / 2 : value / 2;
    list.push(sum);
  });
  return list;
}
