#!/usr/bin/env node
// Asks Perfetto's own trace_processor what it sees in a trace file, offline.
//
//   node query.mjs [--judge DIR] FILE 'SQL' ['SQL' ...]
//
// DIR is the folder that ./setup filled (default: <repository>/.cache/perfetto).
// Prints one JSON array to stdout: per SQL statement, an array of row objects.
// An integer outside JavaScript's safe range becomes a string, NULL becomes
// null, a BLOB a hex string, a float that JSON cannot write its name ("NaN").
// Exit: 0 fine, 1 trace_processor refused the trace or a query, 2 wrong usage.
// PERFETTO_JUDGE_LOG=1 shows trace_processor's own log on stderr.

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const CHUNK = 4 << 20; // bytes of trace per append request
const REQUEST_BUFFER = 8 << 20; // bytes the module takes in one call

class JudgeError extends Error {}

// ---- protobuf, as much as the RPC needs -----------------------------------

function varint(value) {
  const out = [];
  let v = BigInt.asUintN(64, BigInt(value));
  for (; v > 0x7fn; v >>= 7n) out.push(Number(v & 0x7fn) | 0x80);
  out.push(Number(v));
  return Buffer.from(out);
}

const intField = (id, value) => Buffer.concat([varint(id << 3), varint(value)]);
const bytesField = (id, bytes) =>
  Buffer.concat([varint((id << 3) | 2), varint(bytes.length), bytes]);

class Reader {
  constructor(bytes) {
    this.buf = bytes;
    this.pos = 0;
  }
  get more() {
    return this.pos < this.buf.length;
  }
  // The raw varint as a non-negative Number where that is exact, else a BigInt.
  varint() {
    let value = 0;
    let scale = 1;
    const start = this.pos;
    for (let i = 0; i < 7; i++, scale *= 128) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    this.pos = start;
    let big = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      big |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return big;
    }
  }
  byte() {
    if (this.pos >= this.buf.length) throw new JudgeError('truncated protobuf in a reply');
    return this.buf[this.pos++];
  }
  // A varint read as int64: a Number when safe, else its decimal string.
  int64() {
    const raw = this.varint();
    if (typeof raw === 'number') return raw;
    const signed = BigInt.asIntN(64, raw);
    const number = Number(signed);
    return Number.isSafeInteger(number) ? number : signed.toString();
  }
  take(size) {
    const end = this.pos + size;
    if (end > this.buf.length) throw new JudgeError('truncated protobuf in a reply');
    const bytes = this.buf.subarray(this.pos, end);
    this.pos = end;
    return bytes;
  }
  // Yields [field id, value]; a length-delimited value is a Buffer.
  *fields() {
    while (this.more) {
      const tag = Number(this.varint());
      const wire = tag & 7;
      if (wire === 0) yield [tag >>> 3, this.int64()];
      else if (wire === 1) yield [tag >>> 3, this.take(8)];
      else if (wire === 2) yield [tag >>> 3, this.take(Number(this.varint()))];
      else if (wire === 5) yield [tag >>> 3, this.take(4)];
      else throw new JudgeError(`wire type ${wire} in a reply`);
    }
  }
}

// ---- the WebAssembly module -------------------------------------------------

// trace_processor.wasm is a 32-bit emscripten module that exports its memory.
// It needs clocks, memory growth and a place for its log; it is given no files.
class Module {
  constructor(wasmPath) {
    this.log = [];
    this.onReply = () => {};
    const module = new WebAssembly.Module(fs.readFileSync(wasmPath));
    const imports = {};
    const known = this.imports();
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      imports[from] ??= {};
      imports[from][name] = known[name] ?? this.absent(name);
    }
    this.wasm = new WebAssembly.Instance(module, imports).exports;
    this.wasm.emscripten_stack_init();
    this.wasm.__wasm_call_ctors();
    // A JavaScript function enters the module's table only as a wasm export, so
    // this (i32, i32) -> () module re-exports its only import.
    const trampoline = Buffer.from(
      '0061736d01000000' + '0106016002' + '7f7f00' + '02070101650166' + '0000' + '0705010166' + '0000',
      'hex',
    );
    const reply = (ptr, size) => this.onReply(Buffer.from(this.bytes(ptr, size)));
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(trampoline), {
      e: { f: reply },
    });
    const table = this.wasm.__indirect_function_table;
    const index = table.grow(1);
    table.set(index, exports.f);
    this.request = this.wasm.trace_processor_rpc_init(index, REQUEST_BUFFER) >>> 0;
  }

  send(bytes) {
    for (let at = 0; at < bytes.length; at += REQUEST_BUFFER) {
      const piece = bytes.subarray(at, at + REQUEST_BUFFER);
      this.bytes(this.request, piece.length).set(piece);
      this.wasm.trace_processor_on_rpc_request(piece.length);
    }
  }

  // Views are made anew each time: memory growth detaches the old ones.
  bytes(ptr, size) {
    return new Uint8Array(this.wasm.memory.buffer, ptr >>> 0, size >>> 0);
  }
  view() {
    return new DataView(this.wasm.memory.buffer);
  }
  string(ptr) {
    if (!ptr) return '?';
    const heap = new Uint8Array(this.wasm.memory.buffer);
    return Buffer.from(heap.subarray(ptr >>> 0, heap.indexOf(0, ptr >>> 0))).toString();
  }
  write(text) {
    if (process.env.PERFETTO_JUDGE_LOG) process.stderr.write(text);
    this.log.push(text);
    if (this.log.length > 50) this.log.shift();
  }

  absent(name) {
    if (name.startsWith('__syscall_') || name === '_mmap_js' || name === '_munmap_js') {
      return () => -52; // ENOSYS
    }
    if (name.startsWith('fd_')) return () => 8; // EBADF
    return () => {
      throw new JudgeError(`trace_processor called ${name}, which the judge does not provide`);
    };
  }

  imports() {
    const die = (why) => {
      throw new Error(`trace_processor stopped: ${why}`); // with its log, see main
    };
    // struct tm: nine ints from seconds to is-DST, then the offset from UTC.
    const breakDown = (seconds, tm) => {
      const d = new Date(Number(seconds) * 1000);
      const year = d.getUTCFullYear();
      const yearDay = Math.floor((d - Date.UTC(year, 0, 1)) / 86400000);
      const parts = [d.getUTCSeconds(), d.getUTCMinutes(), d.getUTCHours(), d.getUTCDate(),
        d.getUTCMonth(), year - 1900, d.getUTCDay(), yearDay, 0, 0];
      const view = this.view();
      parts.forEach((part, i) => view.setInt32((tm >>> 0) + 4 * i, part, true));
    };
    return {
      emscripten_get_now: () => performance.now(),
      emscripten_date_now: () => Date.now(),
      clock_time_get: (clock, _precision, out) => {
        const ms = clock === 0 ? Date.now() : performance.now();
        this.view().setBigUint64(out >>> 0, BigInt(Math.round(ms * 1e6)), true);
        return 0;
      },
      emscripten_get_heap_max: () => 0xffff0000 | 0,
      emscripten_resize_heap: (wanted) => {
        const { memory } = this.wasm;
        const have = memory.buffer.byteLength;
        wanted >>>= 0;
        for (const target of [Math.max(wanted, have * 1.2), wanted]) {
          const pages = Math.ceil((Math.min(target, 0xffff0000) - have) / 65536);
          try {
            memory.grow(pages);
            return 1;
          } catch {
            // try the smaller growth, then give up
          }
        }
        return 0;
      },
      emscripten_err: (text) => this.write(`${this.string(text)}\n`),
      fd_write: (fd, vectors, count, out) => {
        let total = 0;
        for (let i = 0; i < count; i++) {
          const at = (vectors >>> 0) + 8 * i;
          const size = this.view().getUint32(at + 4, true);
          this.write(Buffer.from(this.bytes(this.view().getUint32(at, true), size)).toString());
          total += size;
        }
        this.view().setUint32(out >>> 0, total, true);
        return 0;
      },
      fd_close: () => 0,
      environ_get: () => 0,
      environ_sizes_get: (count, size) => {
        this.view().setUint32(count >>> 0, 0, true);
        this.view().setUint32(size >>> 0, 0, true);
        return 0;
      },
      __syscall_openat: () => -44, // ENOENT
      __syscall_faccessat: () => -44,
      __assert_fail: (what, file, line) => die(`${this.string(what)} at ${this.string(file)}:${line}`),
      _abort_js: () => die('abort'),
      // The judge's wall clock is UTC, whatever the machine's is.
      _tzset_js: (offset, daylight, standardName, summerName) => {
        this.view().setInt32(offset >>> 0, 0, true);
        this.view().setInt32(daylight >>> 0, 0, true);
        for (const name of [standardName, summerName]) this.bytes(name, 4).set(Buffer.from('UTC\0'));
      },
      _gmtime_js: breakDown,
      _localtime_js: breakDown,
      _timegm_js: (tm) => {
        const [s, m, h, day, month, year] = [0, 1, 2, 3, 4, 5].map((i) =>
          this.view().getInt32((tm >>> 0) + 4 * i, true));
        const ms = Date.UTC(year + 1900, month, day, h, m, s);
        breakDown(ms / 1000, tm);
        return BigInt(ms / 1000);
      },
    };
  }
}

// ---- trace_processor's RPC --------------------------------------------------

// protos/perfetto/trace_processor/trace_processor.proto, by field number.
const RPC = { seq: 1, request: 2, response: 3, invalidRequest: 4, fatalError: 5,
  appendData: 101, queryArgs: 103, appendResult: 201, queryResult: 203, finalizeResult: 212 };
const METHOD = { append: 1, finalize: 2, query: 3 };
const CELL = { null: 1, varint: 2, float64: 3, string: 4, blob: 5 };

class TraceProcessor {
  constructor(wasmPath) {
    this.module = new Module(wasmPath);
    this.seq = 0;
  }

  // Sends one request and returns its replies, each a Map of field -> value.
  call(method, args = Buffer.alloc(0)) {
    const replies = [];
    this.module.onReply = (stream) => {
      for (const [, message] of new Reader(stream).fields()) {
        const reply = new Map(new Reader(message).fields());
        if (reply.has(RPC.fatalError)) throw new JudgeError(reply.get(RPC.fatalError).toString());
        if (reply.has(RPC.invalidRequest)) throw new JudgeError(`method ${method} is unknown`);
        if (reply.get(RPC.response) === method) replies.push(reply);
      }
    };
    const message = Buffer.concat([intField(RPC.seq, ++this.seq), intField(RPC.request, method), args]);
    this.module.send(bytesField(1, message));
    if (!replies.length) throw new JudgeError(`no reply to method ${method}`);
    return replies;
  }

  // Throws if the result message in any of the replies has its error set.
  check(replies, resultField, errorField) {
    for (const reply of replies) {
      const error = new Map(new Reader(reply.get(resultField) ?? Buffer.alloc(0)).fields()).get(errorField);
      if (error?.length) throw new JudgeError(error.toString());
    }
  }

  load(file) {
    const fd = fs.openSync(file, 'r');
    const chunk = Buffer.alloc(CHUNK);
    for (let size; (size = fs.readSync(fd, chunk, 0, CHUNK, null)) > 0;) {
      const data = bytesField(RPC.appendData, chunk.subarray(0, size));
      this.check(this.call(METHOD.append, data), RPC.appendResult, 2);
    }
    fs.closeSync(fd);
    this.check(this.call(METHOD.finalize), RPC.finalizeResult, 1);
  }

  query(sql) {
    const columns = [];
    const rows = [];
    let row = {};
    let at = 0;
    const args = bytesField(RPC.queryArgs, bytesField(1, Buffer.from(sql)));
    let last = false;
    for (const reply of this.call(METHOD.query, args)) {
      for (const [field, value] of new Reader(reply.get(RPC.queryResult)).fields()) {
        if (field === 1) {
          const name = value.toString();
          if (columns.includes(name)) throw new JudgeError(`two columns are named ${name}: use AS`);
          columns.push(name);
        } else if (field === 2 && value.length) {
          throw new JudgeError(value.toString());
        } else if (field === 3) {
          last = cells(value, (cell) => {
            row[columns[at++]] = cell;
            if (at === columns.length) {
              rows.push(row);
              row = {};
              at = 0;
            }
          });
        }
      }
    }
    if (at !== 0 || !last) throw new JudgeError('the reply to the query ends before its last row');
    return rows;
  }
}

// Hands every cell of a CellsBatch to `emit`; returns whether it is the last batch.
function cells(bytes, emit) {
  let types = Buffer.alloc(0);
  let varints = new Reader(types);
  let floats = new Reader(types);
  let strings = [];
  const blobs = [];
  let last = false;
  for (const [field, value] of new Reader(bytes).fields()) {
    if (field === 1) types = value;
    else if (field === 2) varints = new Reader(value);
    else if (field === 3) floats = new Reader(value);
    else if (field === 4) blobs.push(value.toString('hex'));
    else if (field === 5) strings = value.toString().split('\0');
    else if (field === 6) last = value !== 0;
  }
  let nextString = 0;
  let nextBlob = 0;
  for (const type of types) {
    if (type === CELL.null) emit(null);
    else if (type === CELL.varint) emit(varints.int64());
    else if (type === CELL.float64) {
      const float = floats.take(8).readDoubleLE();
      emit(Number.isFinite(float) ? float : String(float));
    } else if (type === CELL.string) emit(strings[nextString++]);
    else if (type === CELL.blob) emit(blobs[nextBlob++]);
    else throw new JudgeError(`cell type ${type} in a reply`);
  }
  return last;
}

// ---- command line -----------------------------------------------------------

function main(argv) {
  const here = path.dirname(fileURLToPath(import.meta.url));
  let judge = path.join(here, '..', '..', '.cache', 'perfetto');
  if (argv[0] === '--judge') [, judge] = argv.splice(0, 2);
  const [file, ...queries] = argv;
  if (!judge || !file || file.startsWith('--') || !queries.length) {
    console.error("usage: node query.mjs [--judge DIR] FILE 'SQL' ['SQL' ...]");
    return 2;
  }
  const wasmPath = path.join(judge, 'trace_processor.wasm');
  if (!fs.existsSync(wasmPath)) {
    console.error(`query.mjs: ${wasmPath} is missing: run ${path.join(here, 'setup')} ${judge}`);
    return 2;
  }
  let processor;
  try {
    processor = new TraceProcessor(wasmPath);
    processor.load(file);
    process.stdout.write(`${JSON.stringify(queries.map((sql) => processor.query(sql)))}\n`);
    return 0;
  } catch (error) {
    const expected = error instanceof JudgeError || typeof error.code === 'string';
    if (!expected && processor && !process.env.PERFETTO_JUDGE_LOG) {
      process.stderr.write(processor.module.log.join(''));
    }
    console.error(`query.mjs: ${file}: ${expected ? error.message : error.stack}`);
    return 1;
  }
}

process.exitCode = main(process.argv.slice(2));
