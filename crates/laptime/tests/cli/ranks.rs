//! The ranks of a job compared, through the program.

use laptime_trace::{Nanos, SpanEntry, Trace, TraceBuilder, TrackId, activity::category, metadata::DISTRIBUTED};

use crate::common::{Place, assert_golden};

const RANKS: usize = 8;
const US: u64 = 1_000;

struct Rank {
    builder: TraceBuilder,
    tracks: [TrackId; 3],
    now: u64,
    /// How far its clock is ahead.
    ahead: u64,
}

impl Rank {
    fn new(rank: usize) -> Self {
        let mut builder = TraceBuilder::default();
        let device = rank as i64;
        let tracks =
            [builder.thread(1, 1, "main"), builder.stream(device, 7, "stream 7"), builder.stream(device, 20, "nccl")];
        for track in &tracks[1..] {
            builder.track_mut(*track).device = Some(device);
        }
        builder.metadata.set(DISTRIBUTED, &format!(r#"{{"rank": {rank}, "world_size": {RANKS}}}"#));
        builder.origin.unix_nanos = Some(0);
        // The second host is four seconds ahead.
        Self { builder, tracks, now: 1_000 * US, ahead: if rank < 4 { 0 } else { 4_000_000 * US } }
    }

    fn span(&mut self, track: usize, from: u64, to: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(self.tracks[track], Nanos(from + self.ahead), Nanos(to - from), name, category)
    }

    fn work(&mut self, track: usize, to: u64, name: &str) -> SpanEntry {
        let from = self.now;
        let launch = self.span(0, from - 8 * US, from - 4 * US, "cudaLaunchKernel", category::RUNTIME);
        let kernel = self.span(track, from, to, name, category::KERNEL);
        self.builder.flow(launch, kernel);
        self.now = to + 10 * US;
        kernel
    }
}

/// Four steps of three layers. Rank 5 computes 0.6 ms longer per layer, and rank 2 loads data for 3 ms per step.
fn job() -> Vec<Trace> {
    let mut ranks: Vec<Rank> = (0..RANKS).map(Rank::new).collect();
    for step in 0..4 {
        let began: Vec<u64> = ranks.iter().map(|rank| rank.now).collect();
        for layer in 0..3 {
            for (number, rank) in ranks.iter_mut().enumerate() {
                if (number, layer) == (2, 0) {
                    let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
                    rank.span(0, rank.now, rank.now + 3_000 * US, name, category::USER);
                    rank.now += 3_020 * US;
                }
                let slow = if number == 5 { 600 } else { 0 };
                rank.work(1, rank.now + (2_000 + slow + number as u64) * US, "gemm");
            }
            for first in [0, 4] {
                let members: Vec<usize> = (first..first + 4).collect();
                exchange(&mut ranks, &members, ("allreduce", "tp"), 1 << 21, 120);
            }
        }
        let all: Vec<usize> = (0..RANKS).collect();
        exchange(&mut ranks, &all, ("_reduce_scatter_base", "dp"), 1 << 24, 900);
        exchange(&mut ranks, &all, ("allreduce", "norm"), 1, 20);
        for (rank, began) in ranks.iter_mut().zip(began) {
            rank.span(0, began, rank.now, &format!("ProfilerStep#{}", step + 10), category::USER);
        }
    }
    ranks.into_iter().map(|rank| rank.builder.build().unwrap()).collect()
}

fn exchange(ranks: &mut [Rank], members: &[usize], (name, group): (&str, &str), elements: i64, transfer: u64) {
    let end = members.iter().map(|at| ranks[*at].now).max().unwrap() + transfer * US;
    for at in members {
        let kernel = ranks[*at].work(2, end, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)");
        let builder = &mut ranks[*at].builder;
        builder.span_field(kernel, "Collective name", name);
        builder.span_field(kernel, "Process Group Name", group);
        builder.span_field(kernel, "Process Group Ranks", format!("{members:?}").as_str());
        builder.span_field(kernel, "Group size", members.len() as i64);
        builder.span_field(kernel, "In msg nelems", elements);
        builder.span_field(kernel, "dtype", "BFloat16");
    }
}

fn place() -> Place {
    let place = Place::new();
    for (rank, trace) in job().iter().enumerate() {
        laptime_trace::write(trace, place.path(&format!("rank-{rank}.json.gz"))).unwrap();
    }
    place
}

#[test]
fn stragglers_are_named_with_their_cause_before_the_table() {
    let place = place();
    let printed = place.laptime(["ranks", "."]).done();
    assert_golden("ranks/ranks.txt", &printed);
    assert!(printed.lines().count() <= 10 && printed.starts_with("Rank 2 is a straggler in 3 of 4 steps"), "{printed}");
    let whole = place.laptime(["ranks", ".", "--all"]).done();
    assert!(whole.contains("Clocks are aligned by 32 collectives to within 20.0 µs"), "{whole}");
    assert_golden("ranks/by_rank.txt", &place.laptime(["ranks", ".", "--by", "rank"]).done());
    // `diagnose` gives the same answer.
    assert_eq!(place.laptime(["diagnose", "."]).done(), printed);
    let files = place.laptime(["diagnose", "rank-0.json.gz", "rank-5.json.gz", "--format", "json"]).done();
    assert!(files.contains("6 of 8 ranks are missing (1-4, 6-7)"), "{files}");
    assert_eq!(place.laptime(["diagnose", ".", "--fail-on-finding"]).status, Some(1));
}

#[test]
fn programs_read_every_rank_step_and_collective() {
    let place = place();
    let printed = place.laptime(["ranks", ".", "--format", "json"]).done();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let causes: Vec<_> =
        answer["stragglers"].as_array().unwrap().iter().map(|one| (&one["rank"], &one["cause"])).collect();
    assert_eq!(causes, [(&2.into(), &"data_loading".into()), (&5.into(), &"compute".into())]);
    let lines = |by: &str| place.laptime(["ranks", ".", "--format", "csv", "--by", by]).done().lines().count();
    // A header each; three kinds of collectives; eight ranks of four steps; 3 x 2 + 2 collectives in each.
    assert_eq!(["collective", "rank", "step", "call"].map(lines), [4, 9, 33, 33]);
}

#[test]
fn the_page_has_a_row_per_rank_and_the_timelines_of_the_stragglers() {
    let place = place();
    place.laptime(["ranks", ".", "--out", "job.html"]).done();
    let page = String::from_utf8(place.read("job.html")).unwrap();
    assert!(page.contains("Rank 2 is a straggler"));
    assert_eq!(page.matches("<g><title>rank ").count(), RANKS);
    // The stragglers, and the first other rank.
    for rank in [0, 2, 5] {
        let name = format!("job.rank-{rank}.html");
        assert!(page.contains(&format!("<a href=\"{name}\"><g><title>rank {rank}:")), "{name}");
        assert!(!place.read(&name).is_empty());
    }
}

#[test]
fn bad_files_are_reported_and_the_others_analysed() {
    let place = place();
    place.write("rank-3.json.gz", b"no trace");
    let copy = place.read("rank-1.json.gz");
    place.write("again-1.json.gz", copy);
    let printed = place.laptime(["ranks", "."]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for text in [
        "note: `rank-3.json.gz`: cannot read it: this is not a trace",
        "note: rank 1 is in `again-1.json.gz` and in `rank-1.json.gz`; the second one is left out [ranks-input]",
        "note: 1 of 8 ranks is missing (3);",
        "Rank 2 is a straggler",
    ] {
        assert!(printed.out.contains(text), "{text}\n{}", printed.out);
    }
}

#[test]
fn a_folder_without_traces_and_files_without_gpu_work_are_refused() {
    let place = Place::new();
    let message = place.laptime(["ranks", "."]).failed();
    assert!(message.contains("contains no traces") && message.contains("hint: "), "{message}");
    place.write("rank-0.json", b"{}");
    let message = place.laptime(["ranks", "rank-0.json"]).failed();
    assert!(message.contains("found no GPU work to compare in 1 file") && message.contains("hint: "), "{message}");
}
