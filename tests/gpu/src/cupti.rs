//! CUPTI's records compared with the event clock and with the submitted work.

use std::{collections::HashSet, sync::Arc, time::Instant};

use laptime_cuda::cupti::{self, MemoryKind, Record, Recorded, Session, WaitKind, Work, WorkKind};
use laptime_cuda::{CudaError, EventClock, Graph, Stream};
use laptime_probe::{Anchor, DeviceClock, TickMap};

use crate::{Answer, Bench, Failed, clock::moment, expect};

const SPIN_NANOS: u64 = 5_000_000;
const SPINS: usize = 4;

fn kernels<'a>(recorded: &'a Recorded, wanted: &'a str) -> Vec<&'a Work> {
    let works = recorded.records.iter().filter_map(|record| match record {
        Record::Work(work) => Some(work),
        _ => None,
    });
    works.filter(|work| matches!(&work.kind, WorkKind::Kernel { name, .. } if **name == *wanted)).collect()
}

fn spin(bench: &Bench) -> Result<(), CudaError> {
    (0..SPINS).try_for_each(|_| bench.kernels.spin_nanos(bench.device.stream(), SPIN_NANOS))
}

/// The total of the kernels of one stream, which cannot overlap, is the stream time of a stage without gaps. The host's
/// time range contains CUPTI's.
pub fn against_events(bench: &Bench) -> Answer {
    let first = Anchor::take();
    let clock = EventClock::new(Arc::clone(bench.device.stream()))?;
    let session = Session::start()?;
    let before = laptime_probe::now();
    let marks = (clock.mark(), spin(bench)?, clock.mark());
    bench.device.synchronise()?;
    let after = laptime_probe::now();
    let recorded = session.finish()?;
    let (Some(begin), (), Some(end)) = marks else { return Err(Failed::Wrong("no mark was taken".to_owned())) };
    let events = (moment(&clock, end)?.nanos - moment(&clock, begin)?.nanos) as f64;
    let spins = kernels(&recorded, "spin_nanos");
    expect(spins.len() == SPINS, || format!("{} kernels of {SPINS}, {} lost", spins.len(), recorded.lost))?;
    let sum = spins.iter().map(|work| work.end_nanos.saturating_sub(work.start_nanos)).sum::<u64>() as f64;
    let off = (sum - events) / events;
    expect(off.abs() < 0.02, || format!("kernels {sum:.0} ns, events {events:.0} ns"))?;
    let map = TickMap::new(first, Anchor::take()).ok_or_else(|| Failed::Wrong("no tick map".to_owned()))?;
    let anchor = recorded.anchors[0];
    let host = |nanos: u64| map.nanos(anchor.host.middle()) as f64 + anchor.moment(nanos).nanos as f64;
    let slack = spins.iter().fold(f64::INFINITY, |least, work| {
        let (early, late) =
            (host(work.start_nanos) - map.nanos(before) as f64, map.nanos(after) as f64 - host(work.end_nanos));
        least.min(early).min(late)
    });
    expect(slack > -20_000.0, || format!("a kernel lies {slack:.0} ns outside of what the host saw"))?;
    Ok(format!("version {}, off by {:+.2} %, least slack {:.1} us", cupti::version()?, off * 100.0, slack / 1e3))
}

pub fn records(bench: &Bench) -> Answer {
    const BYTES: usize = 64 << 20;
    let mut there = bench.device.allocate::<u8>(BYTES)?;
    let pinned = bench.device.allocate_pinned::<u8>(BYTES)?;
    bench.device.synchronise()?;
    let session = Session::start()?;
    session.stage(7, || bench.kernels.spin_nanos(bench.device.stream(), 1_000_000))??;
    let copies = bench.device.new_stream()?;
    session.stage(8, || begin_write(&mut there, &pinned, &copies))??;
    there.zero()?;
    copies.synchronise()?;
    bench.device.synchronise()?;
    let recorded = session.finish()?;
    let tied = |stage: u64| -> HashSet<u32> {
        let ties = recorded.records.iter().filter_map(|record| match record {
            Record::Tie(tie) if tie.stage == stage => Some(tie.correlation),
            _ => None,
        });
        ties.collect()
    };
    let spins = kernels(&recorded, "spin_nanos");
    expect(spins.len() == 1 && tied(7).contains(&spins[0].correlation), || {
        "the kernel is not tied to its stage".to_owned()
    })?;
    let copies = recorded.records.iter().filter_map(|record| match record {
        Record::Work(work @ Work { kind: WorkKind::Copy { .. }, .. }) => Some(work),
        _ => None,
    });
    let copies: Vec<&Work> = copies.collect();
    let expected = WorkKind::Copy { from: MemoryKind::Pinned, to: MemoryKind::Device, bytes: BYTES as u64 };
    expect(copies.len() == 1 && copies[0].kind == expected, || format!("{copies:?}"))?;
    expect(tied(8).contains(&copies[0].correlation), || "the copy is not tied to its stage".to_owned())?;
    let has = |wanted: &dyn Fn(&Record) -> bool| recorded.records.iter().any(wanted);
    expect(has(&|record| matches!(record, Record::Wait(wait) if wait.kind == WaitKind::Stream)), || {
        "no wait for a stream".to_owned()
    })?;
    expect(has(&|record| matches!(record, Record::Work(work) if matches!(work.kind, WorkKind::Fill { .. }))), || {
        "no fill".to_owned()
    })?;
    let launch = recorded.records.iter().find_map(|record| match record {
        Record::Call(call) if call.correlation == spins[0].correlation => Some(call),
        _ => None,
    });
    let name = launch.and_then(cupti::function_name).unwrap_or_default();
    expect(name.starts_with("cuLaunchKernel"), || format!("the kernel was launched by `{name}`"))?;
    let speed = BYTES as f64 / copies[0].end_nanos.saturating_sub(copies[0].start_nanos).max(1) as f64;
    Ok(format!(
        "{} records, {} lost; pinned copy at {speed:.1} GB/s; launched by {name}",
        recorded.records.len(),
        recorded.lost
    ))
}

#[allow(unsafe_code)]
fn begin_write(
    to: &mut laptime_cuda::Buffer<u8>,
    from: &laptime_cuda::Pinned<u8>,
    stream: &Stream,
) -> Result<(), CudaError> {
    // SAFETY: both live until the stream is synchronised.
    unsafe { to.begin_write(from, stream) }
}

pub fn graph_nodes(bench: &Bench) -> Answer {
    // Captured while CUPTI is on: it need not know of graphs that were made before.
    let session = Session::start()?;
    let graph = Graph::capture(bench.device.stream(), || spin(bench))?;
    launch(&graph, bench)?;
    bench.device.synchronise()?;
    let recorded = session.finish()?;
    let spins = kernels(&recorded, "spin_nanos");
    let nodes: HashSet<u64> = spins.iter().filter_map(|work| work.graph.map(|graph| graph.node)).collect();
    expect(spins.len() == SPINS && nodes.len() == SPINS, || format!("{} kernels, {} nodes", spins.len(), nodes.len()))?;
    Ok(format!("{SPINS} kernels of {SPINS} nodes"))
}

#[allow(unsafe_code)]
fn launch(graph: &Graph, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: the kernels live as long as the bench.
    unsafe { graph.launch(bench.device.stream()) }
}

pub fn one_session(bench: &Bench) -> Answer {
    let launches = |count: u32| -> Result<f64, CudaError> {
        let began = Instant::now();
        (0..count).try_for_each(|_| bench.kernels.spin_nanos(bench.device.stream(), 0))?;
        let nanos = began.elapsed().as_nanos() as f64 / f64::from(count);
        bench.device.synchronise()?;
        Ok(nanos)
    };
    launches(1_000)?;
    let without = launches(1_000)?;
    let session = Session::start()?;
    let second = Session::start().err().ok_or_else(|| Failed::Wrong("two sessions are on".to_owned()))?;
    launches(1_000)?;
    let with = launches(1_000)?;
    let recorded = session.finish()?;
    expect(kernels(&recorded, "spin_nanos").len() == 2_000, || format!("{} lost", recorded.lost))?;
    let again = Session::start()?.finish()?;
    expect(kernels(&again, "spin_nanos").is_empty(), || "records were reported twice".to_owned())?;
    Ok(format!("{second}; a launch takes {without:.0} ns without, {with:.0} ns with it"))
}
