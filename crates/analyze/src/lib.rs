//! Questions asked of a trace or of the results of a run: one pure function each, one answer type each.
//!
//! Nothing here reads a file, a clock or an environment, and nothing here formats: an answer is plain data. Only a
//! doubt says itself, in a sentence.

mod ab;
mod account;
mod against;
mod by_case;
mod c2c;
mod cases;
mod check;
mod cold_start;
mod compare;
mod crossover;
mod device_time;
mod devices;
mod diagnose;
mod differences;
mod doctor;
mod doubt;
mod doubts;
mod explain;
mod families;
mod figures;
mod finding;
mod fleet;
mod gap_cause;
mod gap_charge;
mod gap_verdict;
mod gap_whole;
mod gaps;
mod group;
mod host;
mod host_tree;
mod intervals;
mod lap_unit;
mod laps;
mod launch_figures;
mod limits;
mod measured;
mod note;
mod offload;
mod one_off;
mod overhead;
mod overlap;
mod overview;
mod profiling;
mod python_lines;
mod quantile;
mod repeats;
mod scaling;
mod series;
mod stage_figures;
mod stages;
mod syncs;
mod timeline;
mod timings;
mod top;
mod units;
mod waits;
mod warmup;
mod warmup_rows;
mod waterfall;

pub use self::{
    ab::{Ab, ab},
    account::{Account, Accounts, By, Dividing, Entry, EntryKind, LapsHeld, NoAccount, Owner, accounts},
    against::{AgainstText, PromptAgainst, TextAgainst, against_text},
    by_case::{CaseId, Trouble, TroubleKind},
    c2c::{JoinedStages, joined_stages},
    cases::{CaseFigures, Cases, Course, MeasuredFigures, MetricFigures, StateFigures, cases},
    check::findings,
    cold_start::{ColdPart, ColdStart, ColdWork, StageShift, cold_start, middle_start},
    compare::{Compared, ComparedCase, Comparing, NotCompared, Pair, RunResults, Tally, Which, compare, metrics},
    crossover::{
        Answer as CrossoverAnswer, Crossing, Crossover, Crossovers, Ends, FLOOR as CROSSOVER_FLOOR,
        REACH as EXTRAPOLATION_REACH, Ratio, crossovers,
    },
    devices::launch_starts,
    diagnose::{Diagnosis, NEAR_LIMIT, diagnose},
    differences::{Difference, differences},
    doctor::{Check, Doctor, GpuHealth, Level, Patient, PeaksState, doctor},
    doubt::Doubt,
    doubts::{SharedDoubt, doubts},
    explain::{TOPICS, Topic, explain},
    figures::Figures,
    finding::Finding,
    fleet::{Figure, Fleet, FleetRow, LEAST_TRACES, ODD_DISTANCE, ODD_SHARE, Odd, Unit},
    gap_cause::{Cause, Gap, LAUNCH, TURNAROUND},
    gap_verdict::{BUSY, Basis, HostSplit, LEAST_EXTENT, LEAST_WORK, Verdict, VerdictKind},
    gaps::{DeviceGaps, Gaps, HostTime, LapIdle, LongGap, NoGaps, Part, PartKind, gaps},
    group::Group,
    host_tree::HostPlace,
    lap_unit::{LapSource, LapTime, LapUnit, NoLaps, counted},
    laps::{
        EXPLAINED, LEAST_LAPS, Lap, LapFigures, LapPart, Laps, MOST_COLD, PartDifference, SLOW_DISTANCE, SLOW_SHARE,
        SlowLap, Trend, laps,
    },
    launch_figures::{Delay, LaunchFigures},
    limits::{Bound, Limits, limits},
    measured::{Measured, measured},
    note::Note,
    offload::{
        AUDIO_OF_A_TOKEN, BUFFERS, Bottleneck, Conclusion, Expected, Experiment, ExperimentLimits, HIT, LEAST_TOKENS,
        Minimum, Offload, OffloadFacts, OffloadedLayer, PassKind, Prefetch, Rates, Severity, Sizes, Step as ReplayStep,
        Thresholds, Token, TokenPart, Trial, Usual, expected as expected_of_offload, experiment,
        names as offload_names, offload,
    },
    overhead::{MOST_OVERHEAD, Overhead, overhead},
    overlap::{DeviceOverlap, Family, Overlap, Path, Traffic, overlap},
    overview::{Overview, Waits, overview},
    profiling::{
        ColdRun, FAR_FROM_LIMIT, KeyFinding, LossCurve, Mode, NamedRun, Part as ProfilingPart, Passes, ProfiledRun,
        Profiling, RUN_AXIS, TrainingCost, profiling,
    },
    python_lines::{LineShare, LineShares, idle_lines, wait_lines},
    scaling::{Exponent, Growth, LEAST_LENGTHS, LEAST_SHARE, QUADRATIC, Scaling, ScalingSeries, scaling},
    series::{Clock, INTERVAL_TAKES, LengthPoint, LengthSeries},
    stage_figures::{STAGE_FIGURES, stage_figures},
    stages::{OuterLap, Per, Stage, Stages, stages},
    syncs::{
        Budget, Judged, LapWait, LapWaits, Limit, NoBudget, Over, Range, Spent, Syncs, Wait, WaitGroup, WaitKind,
        WaitPlace, WaitPlaces, WaitingThread, syncs, wait_places,
    },
    timings::{TimedStage, TimingFigures, Timings, timings},
    top::{GroupTime, Operation, OperationKind, Top, top},
    warmup::{Advice, Answer, Averaged, WarmUp, WarmUpProcess, WarmUps, warmup},
    warmup_rows::{
        ColdProcess, Distance, REFERENCE_TAKES, TakeSeries, WarmUpRow, WarmUpRows, WarmUpStudy, warmup_doubts,
        warmup_study,
    },
    waterfall::{Per as WaterfallPer, Step, Waterfall, waterfall},
};
