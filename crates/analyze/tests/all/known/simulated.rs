//! A simulated host with streams: a program is a list of operations, and running it gives its trace and its wall time.
//! Changes to the program are applied before it runs, so that their effect is known.

use laptime_trace::{Nanos, SpanEntry, Trace, TraceBuilder, TrackId, activity::category};

/// Seeded random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from).max(1)
    }

    /// A duration with noise of up to 10 % in both directions.
    pub fn around(&mut self, nanos: u64) -> u64 {
        nanos * self.within(900, 1_101) / 1_000
    }
}

/// One operation of a program. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub enum Op {
    /// Host code in a span of this name and category; without a name nothing is recorded.
    Host { time: u64, name: &'static str, category: &'static str },
    /// A kernel on a stream; `call` is how long the launch takes. Fields are added to the kernel.
    Kernel { stream: usize, time: u64, name: &'static str, call: u64, grid: Option<u64> },
    /// A graph of kernels with one launch.
    Graph { stream: usize, times: Vec<u64>, pause: u64 },
    /// A copy on a stream. A pageable one blocks the host.
    Copy { stream: usize, time: u64, name: &'static str, bytes: u64 },
    /// A copy from pageable memory: the host stages the data, and the device copies the last piece after the call.
    Staged { stream: usize, staging: u64, time: u64 },
    /// The host waits for all streams.
    Sync { name: &'static str },
    /// The next work on a stream waits for what is queued on another.
    StreamWait { stream: usize, on: usize },
    /// A matrix product: an operation with shapes around one kernel.
    Product { stream: usize, time: u64, shapes: [[u64; 2]; 2] },
    /// Freeing memory waits for the device, and allocating takes this long.
    Reallocate { time: u64 },
    /// Loading a batch; three quarters in `decode_jpeg`.
    Load { time: u64 },
    /// A collective over all devices: each joins when its stream is free, and all end together.
    Collective { time: u64 },
    /// Another Python thread runs meanwhile for this long from now on.
    Rival { time: u64 },
    /// A kernel whose launch is not recorded, this long after the stream is free.
    Unlaunched { stream: usize, time: u64, pause: u64 },
    /// The beginning of a step.
    Step,
}

/// What is changed before a program runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    pub without_sync: bool,
    pub without_loading: bool,
    pub faster: Option<(&'static str, u64)>,
    pub hide_copies: bool,
}

/// The streams of a program: the device of each.
pub struct Machine {
    builder: TraceBuilder,
    main: TrackId,
    rival: TrackId,
    streams: Vec<TrackId>,
    free: Vec<u64>,
    now: u64,
    step: Option<(u64, u64)>,
    /// The time of copies that are hidden: the link still needs it.
    hidden: u64,
}

/// The time from the end of a launch call to its kernel on an idle stream.
const LATENCY: u64 = 3_000;
/// The pause between queued kernels.
const TURNAROUND: u64 = 800;

/// Runs a program on streams of these devices. Gives the trace, and the time from the first call to the last end.
pub fn run(devices: &[usize], program: &[Op], change: Change) -> (Trace, u64) {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let rival = builder.thread(1, 2, "metrics");
    let mut streams = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        let stream = builder.stream(1, 7 + at as i64, &format!("stream {}", 7 + at));
        builder.track_mut(stream).device = Some(*device as i64);
        streams.push(stream);
    }
    let free = vec![0; devices.len()];
    let mut machine = Machine { builder, main, rival, streams, free, now: 1_000, step: None, hidden: 0 };
    for op in program {
        machine.run(op, change);
    }
    machine.end_step();
    let wall = machine.now.max(machine.free.iter().copied().max().unwrap_or(0)) - 1_000;
    let wall = wall.max(machine.hidden);
    let properties = (0..2).map(|id| format!(r#"{{"id": {id}, "name": "GPU", "numSms": 132}}"#));
    let properties = format!("[{}]", properties.collect::<Vec<_>>().join(","));
    let mut trace = machine.builder.build().expect("the simulated trace nests");
    trace.metadata.set("deviceProperties", &properties);
    (trace, wall)
}

impl Machine {
    fn host(&mut self, time: u64, name: &str, category: &str) -> SpanEntry {
        let span = self.builder.span(self.main, Nanos(self.now), Nanos(time), name, category);
        self.now += time;
        span
    }

    fn work(&mut self, stream: usize, time: u64, name: &str, category: &str, ready: u64) -> SpanEntry {
        let queued = if self.free[stream] == 0 { 0 } else { self.free[stream] + TURNAROUND };
        let start = queued.max(ready);
        self.free[stream] = start + time;
        self.builder.span(self.streams[stream], Nanos(start), Nanos(time), name, category)
    }

    fn launch(&mut self, stream: usize, time: u64, name: &str, call: u64) -> SpanEntry {
        let launch = self.host(call, "cudaLaunchKernel", category::RUNTIME);
        let work = self.work(stream, time, name, category::KERNEL, self.now + LATENCY);
        self.builder.flow(launch, work);
        work
    }

    fn done(&self) -> u64 {
        self.free.iter().copied().max().unwrap_or(0).max(self.now) + 1_000
    }

    fn end_step(&mut self) {
        if let Some((number, begin)) = self.step.take() {
            let name = format!("ProfilerStep#{number}");
            self.builder.span(self.main, Nanos(begin), Nanos(self.now - begin), &name, category::USER);
        }
    }

    fn run(&mut self, op: &Op, change: Change) {
        let faster = |name: &str, time: u64| match change.faster {
            Some((wanted, times)) if name.contains(wanted) => time / times,
            _ => time,
        };
        match op {
            Op::Host { time, name: "", .. } => self.now += time,
            Op::Host { time, name, category } => {
                self.host(*time, name, category);
            }
            Op::Kernel { stream, time, name, call, grid } => {
                let work = self.launch(*stream, faster(name, *time), name, *call);
                if let Some(blocks) = grid {
                    self.builder.span_field(work, "grid", format!("[{blocks}, 1, 1]").as_str());
                }
            }
            Op::Graph { stream, times, pause } => {
                let launch = self.host(12_000, "cudaGraphLaunch", category::RUNTIME);
                for (at, time) in times.iter().enumerate() {
                    let time = faster("gemv", *time);
                    let ready = if at == 0 { self.now + LATENCY } else { self.free[*stream] + pause };
                    let work = self.work(*stream, time, "gemv", category::KERNEL, ready);
                    self.builder.flow(launch, work);
                }
            }
            Op::Copy { stream, time, name, bytes } => self.copy(*stream, *time, name, *bytes, change),
            Op::Staged { .. } if change.hide_copies => {
                self.host(5_000, "cudaMemcpyAsync", category::RUNTIME);
            }
            Op::Staged { stream, staging, time } => {
                let launch = self.host(*staging, "cudaMemcpyAsync", category::RUNTIME);
                let name = "Memcpy HtoD (Pageable -> Device)";
                let work = self.work(*stream, *time, name, category::COPY, self.now + LATENCY);
                self.builder.flow(launch, work);
            }
            Op::Sync { .. } if change.without_sync => {}
            Op::Sync { name } => {
                let done = self.done();
                self.host(done - self.now, name, category::RUNTIME);
            }
            Op::StreamWait { stream, on } => {
                self.host(1_000, "cudaStreamWaitEvent", category::RUNTIME);
                if !change.hide_copies {
                    self.free[*stream] = self.free[*stream].max(self.free[*on]);
                }
            }
            Op::Product { stream, time, shapes: [a, b] } => {
                let begin = self.now;
                self.now += 1_000;
                self.launch(*stream, *time, "ampere_bf16_gemm", 4_000);
                self.now += 1_000;
                let length = Nanos(self.now - begin);
                let span = self.builder.span(self.main, Nanos(begin), length, "aten::mm", category::OPERATION);
                self.builder.span_field(span, "Input Dims", format!("[{a:?}, {b:?}]").as_str());
                self.builder.span_field(span, "Input type", "['c10::BFloat16', 'c10::BFloat16']");
            }
            Op::Reallocate { time } => {
                let done = self.done();
                self.host(done - self.now + time / 2, "cudaFree", category::RUNTIME);
                self.host(*time / 2, "cudaMalloc", category::RUNTIME);
            }
            Op::Load { .. } if change.without_loading => {}
            Op::Load { time } => {
                let begin = self.now;
                let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
                self.builder.span(self.main, Nanos(begin), Nanos(*time), name, category::USER);
                self.now += time / 8;
                self.host(time * 3 / 4, "decode_jpeg", category::PYTHON);
                self.now = begin + time;
            }
            Op::Collective { time } => self.collective(*time),
            Op::Rival { time } => {
                let name = "metrics.py(9): update";
                self.builder.span(self.rival, Nanos(self.now), Nanos(*time), name, category::PYTHON);
            }
            Op::Unlaunched { stream, time, pause } => {
                let ready = self.free[*stream].max(self.now) + pause;
                self.work(*stream, *time, "gemm", category::KERNEL, ready);
            }
            Op::Step => {
                let number = self.step.map_or(0, |(number, _)| number + 1);
                self.end_step();
                self.step = Some((number, self.now));
            }
        }
    }

    fn copy(&mut self, stream: usize, time: u64, name: &str, bytes: u64, change: Change) {
        let is_hidden = change.hide_copies;
        let launch_at = self.now;
        let is_pageable = name.contains("Pageable") && !is_hidden;
        let free = self.free[stream];
        let start = (self.now + 5_000 + LATENCY).max(if free == 0 { 0 } else { free + TURNAROUND });
        let call = if is_pageable { start + time + 1_000 - launch_at } else { 5_000 };
        let launch = self.host(call, "cudaMemcpyAsync", category::RUNTIME);
        if is_hidden {
            self.hidden += if name.contains("Pageable") { 0 } else { time };
            return;
        }
        let work = self.work(stream, time, name, category::COPY, start);
        self.builder.span_field(work, "bytes", bytes as i64);
        self.builder.flow(launch, work);
    }

    fn collective(&mut self, time: u64) {
        let mut starts = Vec::new();
        for stream in 0..self.streams.len() {
            let launch = self.host(5_000, "cudaLaunchKernel", category::RUNTIME);
            starts.push((launch, (self.free[stream] + TURNAROUND).max(self.now + LATENCY)));
        }
        let end = starts.iter().map(|(_, start)| *start).max().unwrap_or(0) + time;
        for (stream, (launch, start)) in starts.into_iter().enumerate() {
            let name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
            let work =
                self.builder.span(self.streams[stream], Nanos(start), Nanos(end - start), name, category::KERNEL);
            self.builder.flow(launch, work);
            self.free[stream] = end;
        }
    }
}
