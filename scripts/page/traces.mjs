// Traces for the tests of the page, in the format of torch.profiler.

import { closeSync, openSync, writeFileSync, writeSync } from "node:fs";

export const EVIL = "</script><script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\">";

const thread = { pid: 1, tid: 1 };
const stream = { pid: 0, tid: 7 };

// Steps with a launch and a kernel each; every name, category and argument that can be hostile is.
export function writeSmall(path) {
  const events = [
    { ph: "M", name: "process_name", pid: 1, tid: 1, args: { name: `python ${EVIL}` } },
    { ph: "M", name: "thread_name", pid: 1, tid: 1, args: { name: `main ${EVIL}` } },
  ];
  for (let step = 0; step < 20; step += 1) {
    const ts = 1000 * step;
    const slow = step === 13 ? 600 : 0;
    events.push({ ph: "X", cat: "user_annotation", name: `ProfilerStep#${step}`, ts, dur: 900 + slow * 0.1, ...thread });
    events.push({ ph: "X", cat: "cpu_op", name: EVIL, ts: ts + 10, dur: 100, args: { [EVIL]: EVIL, "Input Dims": "[[2, 3]]" }, ...thread });
    for (let call = 0; call < 4; call += 1) {
      const correlation = 10 * step + call + 1;
      const at = ts + 120 + 150 * call;
      events.push({ ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", ts: at, dur: 5, args: { correlation }, ...thread });
      events.push({ ph: "X", cat: "kernel", name: call ? "gemm_kernel" : "softmax_kernel", ts: at + 20, dur: 60 + 10 * call, args: { correlation, device: 0, stream: 7, grid: "[4, 1, 1]", block: "[128, 1, 1]" }, ...stream });
      events.push({ ph: "s", id: correlation, cat: "ac2g", name: "ac2g", ts: at, ...thread });
      events.push({ ph: "f", bp: "e", id: correlation, cat: "ac2g", name: "ac2g", ts: at + 20, ...stream });
    }
    events.push({ ph: "X", cat: "cuda_runtime", name: "cudaStreamSynchronize", ts: ts + 720, dur: 80, args: { correlation: 10 * step + 9 }, ...thread });
  }
  events.push({ ph: "i", s: "t", name: "checkpoint saved", ts: 5000, args: { step: 5 }, ...thread });
  writeFileSync(path, JSON.stringify({ deviceProperties: [{ id: 0, name: `GPU ${EVIL}` }], traceEvents: events }));
}

// Operations with calls inside and kernels: as many spans as asked for.
export function writeLarge(path, spans) {
  const file = openSync(path, "w");
  writeSync(file, '{"traceEvents":[');
  let state = 1;
  const jitter = (most) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return (state >> 8) % most;
  };
  const names = ["aten::mm", "aten::add", "aten::softmax", "aten::layer_norm", "aten::copy_"];
  const kernels = ["gemm_kernel", "elementwise_kernel", "softmax_kernel", "layer_norm_kernel"];
  let ts = 0;
  for (let group = 0; group * 5 < spans; group += 1) {
    const lines = [];
    const event = (cat, name, at, dur, where, args = "") => lines.push(`{"ph":"X","cat":"${cat}","name":"${name}","ts":${at},"dur":${dur},${where}${args}}`);
    const where = `"pid":1,"tid":${1 + (group % 4)}`;
    const length = 20 + jitter(20);
    event("user_annotation", "forward", ts, length, where);
    event("cpu_op", names[jitter(5)], ts + 1, length - 3, where);
    event("cpu_op", names[jitter(5)], ts + 2, length - 8, where);
    event("cuda_runtime", "cudaLaunchKernel", ts + 4, 4, where, `,"args":{"correlation":${group}}`);
    event("kernel", kernels[jitter(4)], ts + 12, 5 + jitter(9), `"pid":0,"tid":${7 + (group % 3)}`, `,"args":{"correlation":${group},"device":0,"stream":${7 + (group % 3)}}`);
    ts += 6 + jitter(6);
    // A thread is in one place at a time.
    if (group % 4 === 3) ts += 30;
    writeSync(file, (group ? ",\n" : "\n") + lines.join(",\n"));
  }
  writeSync(file, "]}");
  closeSync(file);
}
