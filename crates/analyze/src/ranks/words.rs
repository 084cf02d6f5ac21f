//! The answer in sentences.

use super::{Ranks, SlowLink, Straggler, collective::ranges, rank::RankPart};
use crate::{
    note::first_few,
    units::{per_cent, three_figures, time},
};

/// Stragglers and slow links that are listed after the first; the rest is counted.
const NAMED: usize = 3;

/// A clock that is further off than this is reported, besides the uncertainty.
const CLOCK_OFF: u64 = 1_000_000;

impl Ranks {
    /// The answer, most important first: whole sentences. [`Ranks::clocks`] is one more.
    pub fn answer(&self) -> Vec<String> {
        let mut answer = Vec::new();
        if self.collectives.iter().all(|one| one.ranks < 2) {
            answer.push("No collective could be matched across ranks, so there is no skew to report.".to_owned());
        } else if self.stragglers.is_empty() && self.slow_links.is_empty() {
            answer.push("No straggler and no slow link found.".to_owned());
        }
        answer.extend(self.stragglers.first().map(|first| self.of_straggler(first)));
        answer.extend(self.of_others());
        answer.extend(self.slow_links.first().map(|first| self.of_link(first)));
        answer.extend(listed("Other slow links: ranks", self.slow_links.iter().map(|link| ranges(&link.ranks))));
        answer.extend(self.of_communication());
        answer.extend(self.of_pipeline());
        answer
    }

    /// The number of a rank by its index.
    pub fn number(&self, at: u32) -> u32 {
        self.ranks.get(at as usize).and_then(|row| row.rank).unwrap_or(at)
    }

    fn of_step(&self, cost: f64) -> String {
        match self.step.filter(|step| *step > 0.0) {
            Some(step) if self.steps.is_empty() => {
                format!("{} ({} of the recording)", time(cost), per_cent(cost / step))
            }
            Some(step) => format!("{} per step ({} of {})", time(cost), per_cent(cost / step), time(step)),
            None => time(cost),
        }
    }

    fn of_straggler(&self, found: &Straggler) -> String {
        let steps = match (self.steps.is_empty(), found.recurs) {
            (true, _) => String::new(),
            (false, true) => format!(" in {} of {} steps", found.steps, found.of_steps),
            (false, false) => format!(" only in {} of {} steps", found.steps, found.of_steps),
        };
        let at = found.at.map_or_else(String::new, |(communicator, kind)| {
            let title = self.communicators.get(communicator as usize).map_or("", |known| known.title());
            format!(", mostly {} of `{title}`", kind.words())
        });
        format!(
            "Rank {} is a straggler{steps}: other ranks wait {} for it. It is last at {} of {} collectives{at}: {}.",
            self.number(found.rank),
            self.of_step(found.cost),
            found.last.0,
            found.last.1,
            reason(found)
        )
    }

    /// The stragglers after the first one, in a few words each.
    fn of_others(&self) -> Option<String> {
        let words = |found: &Straggler| {
            let cause = found.part.map_or("", |(part, _)| part.words());
            format!("rank {} ({}, {cause})", self.number(found.rank), time(found.cost))
        };
        listed("Other stragglers:", self.stragglers.iter().map(words))
    }

    fn of_link(&self, found: &SlowLink) -> String {
        let communicator = self.communicators.get(found.communicator as usize);
        let title = communicator.map_or("", |communicator| communicator.title());
        let ranks = ranges(&found.ranks);
        let who = match found.rank {
            Some(rank) => {
                format!("The links of rank {rank} are slow: {} of `{title}` (ranks {ranks})", found.kind.words())
            }
            None => format!("Slow link: {} of `{title}` (ranks {ranks})", found.kind.words()),
        };
        let (transfer, usual) = (time(found.transfer), time(found.usual));
        let ratio = three_figures(found.transfer / found.usual);
        format!(
            "{who} takes {transfer}, {ratio} times as long as elsewhere ({usual}), which adds {}.",
            self.of_step(found.cost)
        )
    }

    fn of_communication(&self) -> Option<String> {
        let whole = self.waiting + self.transfer;
        if self.collectives.is_empty() || whole <= 0.0 {
            return None;
        }
        if self.collectives.iter().all(|one| one.ranks < 2) {
            return Some(format!("Exposed communication takes {}, waiting included.", self.of_step(whole)));
        }
        let cause = match () {
            () if self.waiting > 2.0 * self.transfer => "Late ranks cost more than the network",
            () if self.transfer > 2.0 * self.waiting => "The network costs more than late ranks",
            () => "Late ranks and the network cost about the same",
        };
        let (waiting, transfer) = (time(self.waiting), time(self.transfer));
        let (per, of) = if self.steps.is_empty() { ("", "the recording") } else { (" per step", "it") };
        let share = self.step.filter(|step| *step > 0.0);
        let share = share.map_or_else(String::new, |step| format!(", together {} of {of}", per_cent(whole / step)));
        Some(format!("{cause}: {waiting} waiting and {transfer} transfer{per}{share}."))
    }

    fn of_pipeline(&self) -> Option<String> {
        let pipeline = self.pipeline.as_ref()?;
        let slow = pipeline.slowest().map_or_else(String::new, |(at, usual)| {
            let stage = &pipeline.stages[at];
            let more = per_cent(stage.compute / usual - 1.0);
            format!("; stage {at} (ranks {}) computes {more} longer than the median stage", ranges(&stage.ranks))
        });
        Some(format!(
            "Pipeline of {} stages: the median rank spends {} of its time in sends and receives with nothing else to do{slow}.",
            pipeline.stages.len(),
            per_cent(pipeline.bubble)
        ))
    }

    /// How well the clocks are aligned, and which were off; none if there is nothing to align.
    pub fn clocks(&self) -> Option<String> {
        let uncertainty = self.ranks.iter().map(|row| row.clock.uncertainty).max().filter(|most| *most > 0)?;
        let furthest = self.ranks.iter().max_by_key(|row| row.clock.offset.unsigned_abs())?;
        let is_off = |offset: u64| offset > uncertainty.max(CLOCK_OFF);
        let off = self.ranks.iter().filter(|row| is_off(row.clock.offset.unsigned_abs())).count();
        let ahead = if furthest.clock.offset < 0 { "behind" } else { "ahead" };
        let of = furthest.rank.map_or_else(|| furthest.label.clone(), |rank| format!("rank {rank}"));
        let worst = match off {
            0 => String::new(),
            1 => format!("; the clock of {of} is {} {ahead}", time(furthest.clock.offset.unsigned_abs() as f64)),
            _ => {
                let most = time(furthest.clock.offset.unsigned_abs() as f64);
                format!("; the clocks of {off} ranks differ, that of {of} most ({most} {ahead})")
            }
        };
        Some(format!(
            "Clocks are aligned by {} collectives to within {}{worst}.",
            self.aligning,
            time(uncertainty as f64)
        ))
    }
}

/// Names after the first one.
fn listed(what: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let others = first_few(names.skip(1), NAMED);
    (!others.is_empty()).then(|| format!("{what} {others}."))
}

/// What takes longer than on other ranks.
fn reason(found: &Straggler) -> String {
    let Some((part, share)) = found.part else { return "what it did instead was not recorded".to_owned() };
    let share = per_cent(share);
    match part {
        RankPart::Compute => compute_reason(found),
        RankPart::Loading => format!("its GPU waits for input data ({share} of the additional time)"),
        RankPart::Host => format!("its host launches too late ({share} of the additional time)"),
        RankPart::Sync => format!("its GPU is idle after host syncs ({share} of the additional time)"),
        RankPart::Copy => format!("it waits for copies ({share} of the additional time)"),
        RankPart::Communication => format!("other communication delays it ({share} of the additional time)"),
        RankPart::Other => format!("its GPU is idle, and the trace does not show why ({share} of the additional time)"),
    }
}

/// Kernel counts within this share of each other are the same.
const SAME_KERNELS: f64 = 0.02;

fn compute_reason(found: &Straggler) -> String {
    let more = |ratio: f64| per_cent(ratio - 1.0);
    let compute = found.compute.map_or_else(String::new, |ratio| format!(" {}", more(ratio)));
    match found.kernels {
        Some(ratio) if (ratio - 1.0).abs() <= SAME_KERNELS => {
            format!("its compute takes{compute} longer with the same number of kernels (GPU clocks, input sizes)")
        }
        Some(ratio) if ratio > 1.0 => format!("its compute takes{compute} longer, with {} more kernels", more(ratio)),
        _ => format!("its compute takes{compute} longer"),
    }
}
