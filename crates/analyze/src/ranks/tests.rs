//! Jobs with known faults: what the comparison must find, and what it must not.

use laptime_trace::{Nanos, SpanEntry, Trace, TraceBuilder, TrackId, activity::category, metadata::DISTRIBUTED};

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A job of ranks that compute, exchange within groups of four and then among all, step by step.
struct Job {
    ranks: u32,
    steps: u64,
    /// Additional compute of a rank per layer, in a step.
    slow: fn(u32, u64) -> u64,
    /// Time that a rank loads data before a step.
    loading: fn(u32, u64) -> u64,
    /// How many times as long transfers within a group of four take.
    link: fn(u32) -> u64,
    /// How far the clock of a rank is ahead, and how many nanoseconds it gains per millisecond.
    clock: fn(u32) -> (i64, i64),
    has_sequence: bool,
    first_step: fn(u32) -> u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ranks: 16,
            steps: 6,
            slow: |_, _| 0,
            loading: |_, _| 0,
            link: |_| 1,
            clock: |_| (0, 0),
            has_sequence: true,
            first_step: |_| 0,
        }
    }
}

const LAYERS: u64 = 4;
const COMPUTE: u64 = 2 * MS;

struct Writer {
    builder: TraceBuilder,
    host: TrackId,
    compute: TrackId,
    comm: TrackId,
    rank: u32,
    clock: (i64, i64),
    /// Sequence numbers by communicator.
    sequences: HashMap<String, u64>,
}

/// Clocks that are behind must not count below zero.
const START: i64 = 20_000_000_000_000;

impl Writer {
    fn new(rank: u32, world: u32, clock: (i64, i64)) -> Self {
        let mut builder = TraceBuilder::default();
        let host = builder.thread(1, 1, "main");
        let compute = builder.stream(i64::from(rank), 7, "stream 7");
        let comm = builder.stream(i64::from(rank), 20, "stream 20");
        for stream in [compute, comm] {
            builder.track_mut(stream).device = Some(i64::from(rank));
        }
        builder.metadata.set(DISTRIBUTED, &format!(r#"{{"rank": {rank}, "world_size": {world}}}"#));
        builder.origin.unix_nanos = Some(0);
        Self { builder, host, compute, comm, rank, clock, sequences: HashMap::new() }
    }

    fn at(&self, time: u64) -> Nanos {
        let (ahead, gain) = self.clock;
        Nanos((START + time as i64 + ahead + gain * (time as i64) / MS as i64) as u64)
    }

    fn span(&mut self, track: TrackId, from: u64, to: u64, name: &str, category: &str) -> SpanEntry {
        let (from, to) = (self.at(from), self.at(to));
        self.builder.span(track, from, to.saturating_sub(from), name, category)
    }

    fn kernel(&mut self, from: u64, to: u64) {
        let launch = self.span(self.host, from - 10 * US, from - 5 * US, "cudaLaunchKernel", category::RUNTIME);
        let kernel = self.span(self.compute, from, to, "gemm", category::KERNEL);
        self.builder.flow(launch, kernel);
    }

    fn collective(
        &mut self,
        (from, to): (u64, u64),
        (name, group): (&str, &str),
        ranks: &[u32],
        elements: i64,
        is_numbered: bool,
    ) -> SpanEntry {
        let launch = self.span(self.host, from - 4 * US, from - 2 * US, "cudaLaunchKernelExC", category::RUNTIME);
        let kernel = self.span(self.comm, from, to, "ncclDevKernel_Generic(x)", category::KERNEL);
        self.builder.flow(launch, kernel);
        let number = self.sequences.entry(group.to_owned()).or_insert(100);
        *number += 1;
        let (number, members) = (*number, format!("{ranks:?}"));
        self.builder.span_field(kernel, "Collective name", name);
        self.builder.span_field(kernel, "Process Group Name", group);
        self.builder.span_field(kernel, "Process Group Description", group);
        self.builder.span_field(kernel, "Process Group Ranks", members.as_str());
        self.builder.span_field(kernel, "Group size", ranks.len() as i64);
        self.builder.span_field(kernel, "In msg nelems", elements);
        self.builder.span_field(kernel, "Out msg nelems", elements);
        self.builder.span_field(kernel, "dtype", "Float");
        if is_numbered {
            self.builder.span_field(kernel, "Seq", number);
        }
        kernel
    }
}

impl Job {
    fn traces(&self) -> Vec<Trace> {
        let mut writers: Vec<Writer> =
            (0..self.ranks).map(|rank| Writer::new(rank, self.ranks, (self.clock)(rank))).collect();
        let mut now: Vec<u64> = vec![MS; self.ranks as usize];
        let all: Vec<u32> = (0..self.ranks).collect();
        for step in 0..self.steps {
            let began = now.clone();
            for layer in 0..LAYERS {
                for writer in &mut writers {
                    let rank = writer.rank;
                    let time = &mut now[rank as usize];
                    if layer == 0 {
                        let length = (self.loading)(rank, step);
                        if length > 0 {
                            let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
                            writer.span(writer.host, *time, *time + length, name, category::USER);
                            *time += length;
                        }
                    }
                    // Ranks differ a little, as real ones do.
                    let jitter = (u64::from(rank) * 7 + layer * 13 + step * 5) % 11 * US;
                    let from = *time + 20 * US;
                    let end = from + COMPUTE + jitter + (self.slow)(rank, step);
                    writer.kernel(from, end);
                    *time = end + 10 * US;
                }
                for group in all.chunks(4) {
                    let transfer = 400 * US * (self.link)(group[0]);
                    self.exchange(&mut writers, &mut now, group, ("allreduce", "tp"), 1 << 20, transfer);
                }
            }
            self.exchange(&mut writers, &mut now, &all, ("_allgather_base", "dp"), 1 << 22, 3 * MS);
            self.exchange(&mut writers, &mut now, &all, ("allreduce", "norm"), 1, 30 * US);
            for writer in &mut writers {
                let at = writer.rank as usize;
                let name = format!("ProfilerStep#{}", step + (self.first_step)(writer.rank));
                writer.span(writer.host, began[at], now[at], &name, category::USER);
            }
        }
        writers.into_iter().map(|writer| writer.builder.build().unwrap()).collect()
    }

    fn exchange(
        &self,
        writers: &mut [Writer],
        now: &mut [u64],
        ranks: &[u32],
        (name, group): (&str, &str),
        elements: i64,
        transfer: u64,
    ) {
        let latest = ranks.iter().map(|rank| now[*rank as usize]).max().unwrap();
        for &rank in ranks {
            let end = latest + transfer + u64::from(rank % 3) * US;
            let from = now[rank as usize];
            writers[rank as usize].collective((from, end), (name, group), ranks, elements, self.has_sequence);
            now[rank as usize] = end + 10 * US;
        }
    }

    fn kept(&self) -> Vec<RankTrace> {
        kept(&self.traces())
    }

    fn answer(&self) -> Ranks {
        ranks(self.kept(), None)
    }
}

fn kept(traces: &[Trace]) -> Vec<RankTrace> {
    let of = |(at, trace)| RankTrace::of(trace, &format!("rank-{at}.json"), at);
    traces.iter().enumerate().flat_map(of).collect()
}

fn named(answer: &Ranks) -> Vec<u32> {
    answer.stragglers.iter().map(|found| answer.number(found.rank)).collect()
}

fn notes(answer: &Ranks) -> String {
    answer.notes.iter().map(|note| format!("{note}\n")).collect()
}

#[test]
fn a_healthy_job_has_no_straggler_and_no_slow_link() {
    let answer = Job::default().answer();
    assert_eq!((named(&answer), answer.slow_links.len(), notes(&answer)), (vec![], 0, String::new()));
    assert_eq!(answer.ranks.len(), 16);
    // Six steps of four layers in four groups, and two collectives of all ranks.
    assert_eq!(answer.collectives.len(), 6 * (4 * 4 + 2));
    assert!(answer.collectives.iter().all(|one| one.ranks == if one.bytes == Some(4 << 20) { 4 } else { 16 }));
    assert!(answer.answer()[0].contains("No straggler and no slow link"), "{:?}", answer.answer());
}

#[test]
fn collective_figures_match_the_simulated_values() {
    let answer = Job::default().answer();
    let gather = answer.classes.iter().find(|class| class.kind == CollectiveKind::AllGather).unwrap();
    assert_eq!((gather.count, gather.size, gather.bytes, gather.communicators), (6, 16, Some(16 << 20), 1));
    let transfer = gather.transfer / 1e6;
    assert!((3.0..3.01).contains(&transfer), "{transfer}");
    let (algorithm, bus) = (gather.algorithm_gb_s().unwrap(), gather.bus_gb_s().unwrap());
    assert!((algorithm - (16 << 20) as f64 / gather.transfer).abs() < 1e-9);
    assert!((bus / algorithm - 15.0 / 16.0).abs() < 1e-9);
}

#[test]
fn a_rank_with_slow_kernels_is_named_and_its_neighbours_are_not() {
    let job = Job { slow: |rank, _| if rank == 6 { MS } else { 0 }, ..Job::default() };
    let answer = job.answer();
    assert_eq!(named(&answer), [6]);
    let found = &answer.stragglers[0];
    assert!(found.recurs && found.steps == 6, "{found:?}");
    assert_eq!(found.part.map(|(part, _)| part), Some(RankPart::Compute));
    // One millisecond per layer; the first collective of a recording has nothing before it.
    assert!((3.6e6..4.1e6).contains(&found.cost), "{found:?}");
    assert!(found.kernels.is_some_and(|ratio| ratio == 1.0), "{found:?}");
    let text = answer.answer().join("\n");
    assert!(
        text.contains("Rank 6 is a straggler in 6 of 6 steps") && text.contains("with the same number of kernels"),
        "{text}"
    );
    assert!(answer.slow_links.is_empty());
}

#[test]
fn a_rank_that_loads_data_too_slowly_is_named_with_that_cause() {
    let job = Job { loading: |rank, _| if rank == 11 { 3 * MS } else { 0 }, ..Job::default() };
    let answer = job.answer();
    assert_eq!(named(&answer), [11]);
    assert_eq!(answer.stragglers[0].part.map(|(part, _)| part), Some(RankPart::Loading));
}

#[test]
fn two_stragglers_in_one_communicator_are_both_named() {
    let slow = |rank, _| match rank {
        4 => 2 * MS,
        6 => MS,
        _ => 0,
    };
    assert_eq!(named(&Job { slow, ..Job::default() }.answer()), [4, 6]);
}

#[test]
fn a_rank_that_is_late_once_is_reported_as_such() {
    let slow = |rank, step| if (rank, step) == (3, 4) { 20 * MS } else { 0 };
    let answer = Job { slow, ..Job::default() }.answer();
    assert_eq!(named(&answer), [3]);
    assert_eq!((answer.stragglers[0].recurs, answer.stragglers[0].steps), (false, 1));
    assert!(answer.answer()[0].contains("only in 1 of 6 steps"));
}

#[test]
fn a_slow_link_is_named_and_its_ranks_are_not_stragglers() {
    let job = Job { link: |first| if first == 8 { 4 } else { 1 }, ..Job::default() };
    let answer = job.answer();
    assert_eq!(named(&answer), Vec::<u32>::new());
    let found = &answer.slow_links[0];
    assert_eq!((answer.slow_links.len(), found.ranks.as_slice()), (1, &[8, 9, 10, 11][..]));
    assert!((found.transfer / found.usual - 4.0).abs() < 0.1, "{found:?}");
    assert!((4.7e6..4.9e6).contains(&found.cost), "{found:?}");
}

#[test]
fn clocks_hours_apart_with_drift_do_not_change_the_answer() {
    let clock = |rank: u32| match rank / 4 {
        1 => (7_200_000_000_000, 0),
        2 => (-3_000_000_000, 0),
        3 => (1_500_000, 20),
        _ => (0, 0),
    };
    let slow = |rank, _| if rank == 6 { MS } else { 0 };
    let (apart, same) = (Job { clock, slow, ..Job::default() }.answer(), Job { slow, ..Job::default() }.answer());
    assert_eq!((named(&apart), apart.slow_links.len()), (vec![6], 0));
    for (one, other) in std::iter::zip(&apart.collectives, &same.collectives) {
        let (one, other) = (one.skew.unwrap(), other.skew.unwrap());
        assert!(one.abs_diff(other) < 2 * apart.ranks[15].clock.uncertainty, "{one} {other}");
    }
    let clock = &apart.ranks[4].clock;
    assert!((clock.offset - 7_200_000_000_000).unsigned_abs() <= clock.uncertainty, "{clock:?}");
    assert!(clock.uncertainty < 60 * US, "{clock:?}");
    let text = apart.clocks().unwrap();
    assert!(text.contains("Clocks are aligned by") && text.contains("7200 s ahead"), "{text}");
}

#[test]
fn skew_below_the_uncertainty_is_not_claimed() {
    let answer = Job::default().answer();
    assert!(answer.collectives.iter().all(|one| one.skew.is_none_or(|skew| skew == 0 || skew > one.uncertainty)));
    assert!(answer.collectives.iter().filter(|one| one.skew == Some(0)).all(|one| one.last.is_none()));
    assert!(answer.collectives.iter().any(|one| one.skew == Some(0)));
}

#[test]
fn without_sequence_numbers_collectives_are_matched_by_order_within_a_step() {
    let job = Job { has_sequence: false, slow: |rank, _| if rank == 6 { MS } else { 0 }, ..Job::default() };
    let answer = job.answer();
    assert_eq!((named(&answer), answer.collectives.len()), (vec![6], 6 * (4 * 4 + 2)));
}

#[test]
fn missing_ranks_are_listed_and_the_others_are_compared() {
    let job = Job { slow: |rank, _| if rank == 6 { MS } else { 0 }, ..Job::default() };
    let mut traces = job.kept();
    traces.remove(9);
    traces.remove(2);
    let answer = ranks(traces, None);
    assert!(notes(&answer).contains("2 of 16 ranks are missing (2, 9)"), "{}", notes(&answer));
    assert_eq!(named(&answer), [6]);
}

#[test]
fn a_rank_in_two_files_counts_once() {
    let mut traces = Job::default().kept();
    let again = RankTrace { label: "copy.json".to_owned(), ..traces[3].clone() };
    traces.push(again);
    let answer = ranks(traces, None);
    let text = "rank 3 is in `rank-3.json` and in `copy.json`; the second one is left out";
    assert!(notes(&answer).contains(text), "{}", notes(&answer));
    assert_eq!(answer.ranks.len(), 16);
}

#[test]
fn a_trace_of_another_job_is_left_out() {
    let mut traces = Job::default().kept();
    let mut other = Job { ranks: 8, ..Job::default() }.kept();
    other[1].label = "old.json".to_owned();
    traces.push(other.swap_remove(1));
    let answer = ranks(traces, None);
    let text = "`old.json` is from another job (of 8 ranks; the others are of 16 ranks)";
    assert!(notes(&answer).contains(text), "{}", notes(&answer));
    assert_eq!(answer.ranks.len(), 16);
}

#[test]
fn a_shorter_rank_is_compared_over_the_common_steps() {
    let mut traces = Job::default().kept();
    let short = Job { steps: 3, ..Job::default() }.kept();
    traces[5] = short[5].clone();
    let answer = ranks(traces, None);
    let text = "`rank-5.json` has steps 0 to 2 and the others steps 0 to 5";
    assert!(notes(&answer).contains(text), "{}", notes(&answer));
    assert_eq!(named(&answer), Vec::<u32>::new());
}

#[test]
fn a_rank_with_different_steps_is_reported_and_does_not_change_the_answer() {
    let job = Job {
        has_sequence: false,
        first_step: |rank| if rank == 2 { 50 } else { 0 },
        slow: |rank, _| if rank == 6 { MS } else { 0 },
        ..Job::default()
    };
    let answer = job.answer();
    assert!(
        notes(&answer).contains("`rank-2.json` has steps 50 to 55 and the others steps 0 to 5"),
        "{}",
        notes(&answer)
    );
    assert_eq!(named(&answer), [6]);
}

/// Two ranks with ten all-reduces each and no communicators. Each rank arrives late at every third one, and the second one
/// leaves every other one this many microseconds after the first.
fn without_communicators(apart: u64) -> Ranks {
    let rank = |number: u32| {
        let mut writer = Writer::new(number, 2, (0, 0));
        for at in 0..10 {
            let from = MS + 3 * MS * at;
            writer.kernel(from, from + MS);
            let late = if at % 3 == u64::from(number) { 700 * US } else { 0 };
            let end = from + 2 * MS + u64::from(number) * (at % 2) * apart * US;
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";
            writer.span(writer.comm, from + MS + late, end, name, category::KERNEL);
        }
        writer.builder.build().unwrap()
    };
    ranks(kept(&[rank(0), rank(1)]), None)
}

#[test]
fn collectives_without_communicators_are_matched_if_the_ranks_leave_them_together() {
    let answer = without_communicators(5);
    assert_eq!(answer.collectives.len(), 10);
    let skews: Vec<_> = answer.collectives.iter().map(|one| (one.skew, one.last)).collect();
    assert_eq!(skews[..3], [(Some(700 * US), Some(0)), (Some(700 * US), Some(1)), (Some(0), None)]);
    assert!(notes(&answer).contains("matched by their order"), "{}", notes(&answer));
}

#[test]
fn collectives_without_communicators_are_not_matched_if_the_ranks_leave_them_apart() {
    let answer = without_communicators(400);
    assert!(answer.collectives.is_empty());
    assert!(notes(&answer).contains("10 collectives have no communicator information"), "{}", notes(&answer));
    assert!(answer.answer()[0].contains("No collective could be matched"));
    assert_eq!(answer.ranks.iter().map(|row| row.kernels).collect::<Vec<_>>(), [10; 2]);
}

#[test]
fn a_communicator_whose_collectives_differ_between_ranks_is_not_matched() {
    let rank = |number: u32, name: &str| {
        let mut writer = Writer::new(number, 2, (0, 0));
        for at in 1..10 {
            writer.collective((MS * at, MS * at + 300 * US), (name, "0"), &[0, 1], 1024, true);
        }
        writer.builder.build().unwrap()
    };
    let answer = ranks(kept(&[rank(0, "allreduce"), rank(1, "broadcast")]), None);
    assert!(answer.collectives.is_empty());
    assert!(notes(&answer).contains("9 of 9 collectives of `0 [0-1]` differ between ranks"), "{}", notes(&answer));
}

#[test]
fn clocks_without_a_symmetric_collective_are_not_aligned_and_give_no_skew() {
    let rank = |number: u32| {
        let mut writer = Writer::new(number, 2, (i64::from(number) * 5_000_000, 0));
        for at in 1..10 {
            writer.collective((MS * at, MS * at + 300 * US), ("broadcast", "0"), &[0, 1], 1024, true);
        }
        writer.builder.build().unwrap()
    };
    let answer = ranks(kept(&[rank(0), rank(1)]), None);
    assert_eq!(answer.collectives.len(), 9);
    assert!(answer.collectives.iter().all(|one| one.skew.is_none() && one.last.is_none()));
    assert!(notes(&answer).contains("could not be aligned"), "{}", notes(&answer));
}

/// Four stages that send forward and back; stage 2 computes twice as long.
#[test]
fn pipeline_stages_are_derived_from_sends_and_receives() {
    let rank = |number: u32| {
        let mut writer = Writer::new(number, 4, (0, 0));
        let length = if number == 2 { 2 * MS } else { MS };
        for step in 0..4_u64 {
            let begin = MS + step * 30 * MS;
            let ready = begin + u64::from(number) * 3 * MS;
            if number > 0 {
                p2p(&mut writer, begin, ready, "recv", number - 1);
            }
            writer.kernel(ready + 20 * US, ready + 20 * US + length);
            if number < 3 {
                p2p(&mut writer, ready + length + 40 * US, ready + length + 140 * US, "send", number + 1);
            }
            let name = format!("ProfilerStep#{step}");
            writer.span(writer.host, begin - 500 * US, begin + 29 * MS, &name, category::USER);
        }
        writer.builder.build().unwrap()
    };
    let answer = ranks(kept(&[0, 1, 2, 3].map(rank)), None);
    let pipeline = answer.pipeline.as_ref().unwrap();
    let stages: Vec<_> = pipeline.stages.iter().map(|stage| (stage.ranks.clone(), stage.compute)).collect();
    assert_eq!(stages, [(vec![0], 1e6), (vec![1], 1e6), (vec![2], 2e6), (vec![3], 1e6)]);
    assert!(pipeline.bubble > 0.1, "{pipeline:?}");
    let text = answer.answer().join("\n");
    assert!(
        text.contains("Pipeline of 4 stages") && text.contains("stage 2 (ranks 2) computes 100.0 % longer"),
        "{text}"
    );
    let pairs = answer.collectives.iter().filter(|one| one.ranks == 2).count();
    assert_eq!((pairs, answer.collectives.len()), (12, 12));
}

fn p2p(writer: &mut Writer, from: u64, to: u64, name: &str, peer: u32) {
    let kernel = writer.collective((from, to), (name, "pp"), &[0, 1, 2, 3], 1024, true);
    let field = if name == "send" { "Dst Rank" } else { "Src Rank" };
    writer.builder.span_field(kernel, field, i64::from(peer));
}

#[test]
fn the_collectives_of_one_rank_are_listed_for_export() {
    let trace = Job::default().traces().swap_remove(1);
    let rows = rank_collectives(&trace);
    assert_eq!(rows.len(), 6 * 6);
    let first = &rows[0];
    assert_eq!(
        (first.communicator.as_str(), first.sequence, first.operation.as_str()),
        ("tp [0-3]", Some(101), "all_reduce")
    );
    assert_eq!(
        (first.bytes, first.dtype.as_deref(), first.group_size, first.step),
        (Some(4 << 20), Some("Float"), Some(4), Some(0))
    );
}
