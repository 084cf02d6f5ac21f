//! Analyses of traces and of the results of runs: one pure function and one answer type each.
//!
//! Nothing here reads files, clocks or the environment, and nothing here formats tables: an answer is plain data. The
//! texts of notes, findings and verdicts are here, next to their rules.

mod bottleneck;
mod c2c;
mod diagnose;
mod explain;
mod fields;
mod finding;
mod machine;
mod note;
mod offload;
mod python_lines;
mod ranks;
mod results;
mod trace;
mod units;

// Modules name each other by their last name: `crate::gaps`, not `crate::trace::gaps`.
use self::{machine::*, results::*, trace::*};

pub use self::{
    ab::{Ab, ab},
    account::{Account, AccountOptions, Accounts, By, Entry, EntryKind, LapsCovered, NoAccount, Owner, accounts},
    against::{PromptAgainst, TextAgainst, against_text},
    bottleneck::{Bottleneck, Evidence, Fix, Gain, Reported, Severity},
    by_case::{CaseId, Trouble, TroubleKind, distinct, grouped},
    c2c::{JoinedStages, joined_stages},
    cases::{CaseFigures, Cases, MeasuredFigures, MetricFigures, Stability, StateFigures, cases},
    check::findings,
    cold_start::{ColdPart, ColdStart, ColdWork, StageShift, cold_start, middle_start},
    compare::{CompareOptions, Compared, ComparedCase, NotCompared, Pair, RunResults, Which, compare, metrics},
    critical_path::{CriticalPath, PathKind, PathName, PathPart, Prediction, critical_path},
    crossover::{
        Answer as CrossoverAnswer, Crossing, Crossover, Ends, FLOOR as CROSSOVER_FLOOR, REACH as EXTRAPOLATION_REACH,
        Ratio, crossovers,
    },
    devices::launch_starts,
    diagnose::{Diagnosis, FindingLimits, NEAR_LIMIT, NoLimit, RULES, Rule, diagnose, diagnose_with, rule},
    differences::{Difference, differences},
    doctor::{Check, Doctor, DoctorInput, GpuHealth, Level, PeaksState, doctor},
    doubt::Doubt,
    doubts::{SharedDoubt, doubts},
    explain::{TOPICS, Topic, current_id, explain},
    figures::Figures,
    finding::Finding,
    fleet::{Figure, Fleet, FleetRow, LEAST_TRACES, OUTLIER_DISTANCE, OUTLIER_SHARE, Outlier, Unit},
    gap_cause::{Cause, Gap, LAUNCH, TURNAROUND},
    gap_verdict::{BUSY, Basis, HostSplit, LEAST_EXTENT, LEAST_WORK, Verdict, VerdictKind},
    gaps::{DeviceGaps, Gaps, HostTime, LapIdle, LongGap, NoGaps, Part, PartKind, gaps},
    group::{Group, mangled_path},
    host_tree::HostPlace,
    lap_unit::{LapSource, LapTime, LapUnit, MOST_LAPS, NoLaps, counted},
    laps::{
        EXPLAINED, LEAST_LAPS, Lap, LapFigures, LapPart, Laps, MOST_COLD, PartDifference, SLOW_DISTANCE, SLOW_SHARE,
        SlowLap, Trend, laps,
    },
    launch_figures::{Delay, LaunchFigures},
    limits::{Bound, Limits, limits},
    measured::{Measured, measured},
    note::{Note, capital, first_few, plural},
    offload::{
        AUDIO_OF_A_TOKEN, BUFFERS, Conclusion, Expected, Experiment, ExperimentLimits, HIT, LEAST_TOKENS, Minimum,
        Offload, OffloadFacts, OffloadedLayer, PassKind, Prefetch, Rates, Sizes, Step as ReplayStep, Thresholds, Token,
        TokenPart, Trial, Usual, expected as expected_of_offload, experiment, names as offload_names, offload,
    },
    overhead::{MOST_OVERHEAD, Overhead, overhead},
    overlap::{DeviceOverlap, Family, Overlap, Path, Traffic, overlap},
    overview::{Overview, Waits, not_recorded, overview},
    profiling::{
        ColdRun, FAR_FROM_LIMIT, KeyFinding, LossCurve, Mode, NamedRun, Part as ProfilingPart, ProfiledRun, Profiling,
        RUN_AXIS, TrainingCost, profiling, with_pass,
    },
    python_lines::{LineShare, LineShares, wait_lines},
    ranks::{
        CollectiveClass, CollectiveKind, Communicator, LEAST_COMMUNICATORS, LEAST_COST, LEAST_RANKS, MatchedCollective,
        Pipeline, PipelineStage, RankClock, RankCollective, RankPart, RankParts, RankRow, RankStep, RankTrace, Ranks,
        SLOW_LINK, STAGE_IMBALANCE, STRAGGLER_DISTANCE, SlowLink, Straggler, ranges as rank_ranges, rank_collectives,
        ranks,
    },
    replay::Changes,
    scaling::{Exponent, Growth, LEAST_LENGTHS, LEAST_SHARE, QUADRATIC, Scaling, ScalingSeries, scaling},
    series::{Clock, INTERVAL_ITERATIONS, LengthPoint, LengthSeries},
    stage_figures::{STAGE_FIGURES, stage_figures},
    stages::{OuterLap, Per, Stage, Stages, stages},
    summary::{DeviceSummary, TraceSummary},
    syncs::{
        Budget, Judged, LapWait, LapWaits, Limit, NoBudget, Over, Range, Spent, Syncs, Wait, WaitGroup, WaitKind,
        WaitPlace, WaitPlaces, WaitingThread, syncs, wait_places,
    },
    timeline::{Prepared, Waiting},
    timings::{TimedStage, TimingFigures, Timings, timings},
    top::{GroupTime, Operation, OperationKind, Top, top},
    warmup::{Advice, Answer, Averaged, WarmUp, WarmUpProcess, warmup},
    warmup_rows::{
        ColdProcess, Distance, IterationSeries, REFERENCE_ITERATIONS, WarmUpRow, WarmUpRows, warmup_doubts,
        warmup_study,
    },
    waterfall::{Per as WaterfallPer, Step, Waterfall, waterfall},
};
