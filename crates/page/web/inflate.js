// Decompresses zlib data if the browser has no DecompressionStream.

const LENGTH_BASE = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const FAR_BASE = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
const FAR_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

// The symbols of a Huffman code in order, and how many codes each length has.
function huffman(lengths) {
  const counts = new Uint16Array(16);
  for (const length of lengths) counts[length] += 1;
  counts[0] = 0;
  const next = new Uint16Array(16);
  for (let length = 1; length < 15; length += 1) next[length + 1] = next[length] + counts[length];
  const symbols = new Uint16Array(lengths.length);
  lengths.forEach((length, symbol) => {
    if (length) symbols[next[length]++] = symbol;
  });
  return { counts, symbols };
}

export function inflateZlib(bytes) {
  let at = 2, held = 0, bits = 0, size = 0;
  let out = new Uint8Array(Math.max(1024, bytes.length * 4));
  const need = (more) => {
    if (size + more <= out.length) return;
    const larger = new Uint8Array(Math.max(size + more, out.length * 2));
    larger.set(out.subarray(0, size));
    out = larger;
  };
  const take = (wanted) => {
    while (bits < wanted) {
      if (at >= bytes.length) throw new Error("the data of this page is cut off");
      held |= bytes[at++] << bits;
      bits += 8;
    }
    const value = held & ((1 << wanted) - 1);
    held >>>= wanted;
    bits -= wanted;
    return value;
  };
  const symbol = ({ counts, symbols }) => {
    let code = 0, first = 0, index = 0;
    for (let length = 1; length < 16; length += 1) {
      code |= take(1);
      const many = counts[length];
      if (code - many < first) return symbols[index + (code - first)];
      index += many;
      first = (first + many) << 1;
      code <<= 1;
    }
    throw new Error("the data of this page is damaged");
  };
  const copied = (literals, distances) => {
    for (;;) {
      const value = symbol(literals);
      if (value === 256) return;
      if (value < 256) {
        need(1);
        out[size++] = value;
        continue;
      }
      const length = LENGTH_BASE[value - 257] + take(LENGTH_BITS[value - 257]);
      const far = symbol(distances);
      const distance = FAR_BASE[far] + take(FAR_BITS[far]);
      need(length);
      for (let step = 0; step < length; step += 1, size += 1) out[size] = out[size - distance];
    }
  };
  const tables = () => {
    const [many, far, codes] = [take(5) + 257, take(5) + 1, take(4) + 4];
    const lengths = new Array(19).fill(0);
    for (let code = 0; code < codes; code += 1) lengths[CODE_ORDER[code]] = take(3);
    const code = huffman(lengths);
    const all = [];
    while (all.length < many + far) {
      const value = symbol(code);
      if (value < 16) all.push(value);
      else if (value === 16) all.push(...new Array(take(2) + 3).fill(all[all.length - 1]));
      else all.push(...new Array(value === 17 ? take(3) + 3 : take(7) + 11).fill(0));
    }
    return [huffman(all.slice(0, many)), huffman(all.slice(many))];
  };
  const fixed = [
    huffman([...new Array(144).fill(8), ...new Array(112).fill(9), ...new Array(24).fill(7), ...new Array(8).fill(8)]),
    huffman(new Array(30).fill(5)),
  ];
  for (let isLast = 0; !isLast;) {
    isLast = take(1);
    const kind = take(2);
    if (kind === 0) {
      bits = held = 0;
      const length = bytes[at] | (bytes[at + 1] << 8);
      need(length);
      out.set(bytes.subarray(at + 4, at + 4 + length), size);
      at += 4 + length;
      size += length;
    } else {
      copied(...(kind === 1 ? fixed : tables()));
    }
  }
  return out.subarray(0, size);
}
