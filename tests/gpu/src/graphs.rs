//! Graphs, plain and stamped.

use std::sync::Arc;

use laptime_cuda::{CudaError, EventClock, Graph, StampCapacity, StampedGraph, Stamper};
use laptime_probe::DeviceClock;
use laptime_trace::kernels::Stretch;

use crate::{
    Answer, Bench, Failed,
    clock::{TimerAnchor, stream_nanos},
    expect, median,
};

const STEPS: usize = 50;
const SPIN_NANOS: u64 = 20_000;

fn chain(bench: &Bench) -> Result<(), CudaError> {
    (0..STEPS).try_for_each(|_| bench.kernels.spin_nanos(bench.device.stream(), SPIN_NANOS))
}

pub fn replay(bench: &Bench) -> Answer {
    let stream = bench.device.stream();
    let mut out = bench.device.upload(&[0_f32; 64])?;
    let graph = Graph::capture(stream, || bench.kernels.fill(stream, &mut out, 3.5))?;
    expect(out.read()? == [0.0; 64], || "the capture did the work".to_owned())?;
    launch(&graph, bench)?;
    expect(out.read()? == [3.5; 64], || "the replay did not do the work".to_owned())?;
    let clock = EventClock::new(Arc::clone(stream))?;
    let spins = Graph::capture(stream, || chain(bench))?;
    spins.upload(stream)?;
    let eager = stream_nanos(bench, &clock, || Ok(chain(bench)?))?;
    let replayed = stream_nanos(bench, &clock, || Ok(launch(&spins, bench)?))?;
    expect(spins.nodes() == STEPS, || format!("{} nodes", spins.nodes()))?;
    let ideal = STEPS as f64 * SPIN_NANOS as f64;
    expect(replayed >= ideal, || format!("{replayed:.0} ns for {ideal:.0} ns of work"))?;
    Ok(format!("{STEPS} kernels of 20 us: eager {:.0} us, replayed {:.0} us", eager / 1e3, replayed / 1e3))
}

#[allow(unsafe_code)]
fn launch(graph: &Graph, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: every test keeps what it captured until the device is synchronised.
    unsafe { graph.launch(bench.device.stream()) }
}

/// A step of three stages, one inside another.
fn step(bench: &Bench, stamper: &Stamper) -> Result<(), CudaError> {
    let spin = |micros: u64| bench.kernels.spin_nanos(bench.device.stream(), micros * 1_000);
    stamper.stage("layer", || {
        stamper.stage("attention", || spin(300))?;
        stamper.stage("mlp", || spin(700))
    })
}

pub fn stamped(bench: &Bench) -> Answer {
    const REPLAYS: u32 = 5;
    let stream = bench.device.stream();
    let capacity = StampCapacity { stages: 8, replays: 4 };
    let mut graph =
        StampedGraph::capture(&bench.device, &bench.kernels, stream, capacity, |stamper| step(bench, stamper))?;
    let before = TimerAnchor::take(&bench.device, &bench.kernels)?;
    for _ in 0..REPLAYS {
        graph.next_number();
        launch(graph.graph(), bench)?;
    }
    let found = graph.read(&bench.device)?;
    expect((found.replays.len(), found.lost) == (4, 1), || {
        format!("{} read, {} lost", found.replays.len(), found.lost)
    })?;
    let last = found.replays.last().ok_or_else(|| Failed::Wrong("no replay was read".to_owned()))?;
    let names: Vec<&str> = last.stages.iter().map(|stage| stage.name.as_str()).collect();
    expect(names == ["layer", "attention", "mlp"], || format!("{names:?}"))?;
    let micros = |time: &Stretch| time.end_ns.saturating_sub(time.start_ns) as f64 / 1e3;
    let micros: Vec<f64> = last.times.iter().map(micros).collect();
    let near = |found: f64, expected: f64| found >= expected - 2.0 && found < expected * 1.02 + 10.0;
    let words = format!("layer {:.1}, attention {:.1} of 300, mlp {:.1} of 700 us", micros[0], micros[1], micros[2]);
    expect(near(micros[1], 300.0) && near(micros[2], 700.0) && micros[0] >= micros[1] + micros[2], || words.clone())?;
    expect(last.times.iter().all(|time| before.moment(time.start_ns).nanos >= 0), || {
        "a stage began before its anchor".to_owned()
    })?;
    expect(graph.read(&bench.device)?.replays.is_empty(), || "replays were read twice".to_owned())?;
    Ok(words)
}

/// The same step with a stamp around each of fifty kernels, and without.
pub fn stamp_cost(bench: &Bench) -> Answer {
    let stream = bench.device.stream();
    let clock = EventClock::new(Arc::clone(stream))?;
    let plain = Graph::capture(stream, || chain(bench))?;
    let capacity = StampCapacity { stages: STEPS as u32, replays: 64 };
    let stamped = StampedGraph::capture(&bench.device, &bench.kernels, stream, capacity, |stamper| {
        (0..STEPS).try_for_each(|_| stamper.stage("spin", || bench.kernels.spin_nanos(stream, SPIN_NANOS)))
    })?;
    let mut costs = Vec::new();
    for _ in 0..3 {
        let without = stream_nanos(bench, &clock, || Ok(launch(&plain, bench)?))?;
        let with = stream_nanos(bench, &clock, || Ok(launch(stamped.graph(), bench)?))?;
        costs.push((with - without) / (STEPS as f64 + 1.0));
    }
    let cost = median(costs);
    expect(cost < 20_000.0, || format!("{cost:.0} ns per stamp"))?;
    Ok(format!("{cost:.0} ns a border of stages by a kernel of its own, inside a graph"))
}

pub fn spoiled_capture(bench: &Bench) -> Answer {
    let stream = bench.device.stream();
    let clock = EventClock::new(Arc::clone(stream))?;
    let mut marked = None;
    Graph::capture(stream, || {
        marked = clock.mark();
        bench.kernels.spin_nanos(stream, 1)
    })?;
    expect(marked.is_none(), || "a mark was taken inside a capture".to_owned())?;
    // Waiting is what a capture forbids.
    let spoiled = Graph::capture(stream, || stream.synchronise());
    let error = spoiled.err().ok_or_else(|| Failed::Wrong("a wait was captured".to_owned()))?;
    expect(!error.is_sticky(), || error.to_string())?;
    bench.kernels.spin_nanos(stream, 1)?;
    bench.device.synchronise()?;
    Ok(error.to_string())
}
