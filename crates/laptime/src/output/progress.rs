//! A progress bar on standard error. It is drawn between iterations only, so that it does not disturb the timings.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use laptime_bench::{Case, Phase};
use laptime_report::{visible, visible_lines};

use crate::estimate::{Estimate, words};

const BAR: usize = 12;

/// Fewer characters of a case's name are not worth showing.
const LEAST_NAME: usize = 8;

/// The progress of a sweep; hidden if standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    case: String,
    phase: &'static str,
    iterations: usize,
    left: TimeLeft,
}

impl Progress {
    pub fn new(cases: usize, is_quiet: bool) -> Self {
        Self::with_estimate(cases, is_quiet, Estimate::default())
    }

    pub fn with_estimate(cases: usize, is_quiet: bool, estimate: Estimate) -> Self {
        let is_shown = !is_quiet && std::io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(cases as u64), target);
        if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:{BAR}}} {{wide_msg}}")) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        let left = TimeLeft::new(cases, estimate);
        Self { bar, began: Instant::now(), case: String::new(), phase: "", iterations: 0, left }
    }

    pub fn begin(&mut self, case: &Case, run: u32, runs: u32) {
        let process = if runs > 1 { format!("process {} of {runs}, ", run + 1) } else { String::new() };
        self.case = visible(&format!("{process}{case}")).into_owned();
        (self.phase, self.iterations) = ("", 0);
        self.left.begin(case, self.began.elapsed());
        self.draw();
    }

    pub fn phase(&mut self, phase: Phase) {
        (self.phase, self.iterations) = (phase.word(), 0);
        self.draw();
    }

    pub fn iteration(&mut self) {
        self.iterations += 1;
        self.draw();
    }

    pub fn done(&mut self) {
        self.left.done(self.began.elapsed());
        self.bar.inc(1);
    }

    /// Shows a step of a command that does not measure cases.
    pub fn step(&mut self, at: usize, of: usize, what: &str) {
        self.bar.set_length(of as u64);
        self.bar.set_position(at as u64);
        self.bar.set_message(format!("{} of {of} · {}", at + 1, visible(what)));
    }

    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            crate::output::say(line);
        } else {
            self.bar.println(visible_lines(line));
        }
    }

    fn draw(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let (at, of) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
        let elapsed = self.began.elapsed();
        let mut parts = vec![format!("case {at} of {of}")];
        parts.extend((!self.phase.is_empty()).then(|| self.phase.to_owned()));
        parts.extend((self.iterations > 0).then(|| format!("iteration {}", self.iterations)));
        parts.push(words(elapsed.as_secs_f64()));
        parts.extend(self.left.seconds(elapsed).map(|left| format!("about {} left", words(left))));
        let width = terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        self.bar.set_message(with_name(&parts.join(" · "), &self.case, width.saturating_sub(BAR + 1)));
    }
}

/// Adds the name of the case as far as it fits.
fn with_name(message: &str, case: &str, width: usize) -> String {
    let space = width.saturating_sub(message.chars().count() + " · ".chars().count());
    match case.chars().count() {
        length if length <= space => format!("{message} · {case}"),
        _ if space < LEAST_NAME => message.to_owned(),
        _ => format!("{message} · {}…", case.chars().take(space - 1).collect::<String>()),
    }
}

/// Estimates the time left: the estimate of each case, scaled by how the finished ones compared with theirs.
struct TimeLeft {
    estimate: Estimate,
    /// Expected seconds: finished cases, the current case, all cases.
    done: f64,
    current: f64,
    all: f64,
    /// When the current case began, and the time of the finished ones.
    began: Duration,
    taken: Duration,
}

impl TimeLeft {
    fn new(cases: usize, estimate: Estimate) -> Self {
        // Without an estimate all cases count equally.
        let all = estimate.total().unwrap_or(cases as f64);
        let (began, taken) = (Duration::ZERO, Duration::ZERO);
        Self { estimate, done: 0.0, current: 0.0, all, began, taken }
    }

    fn begin(&mut self, case: &Case, now: Duration) {
        self.current = self.estimate.total().map_or(1.0, |_| self.estimate.case(case).unwrap_or(0.0));
        self.began = now;
    }

    fn done(&mut self, now: Duration) {
        self.done += self.current;
        self.taken += now.saturating_sub(self.began);
        self.current = 0.0;
    }

    /// Seconds left; none without an estimate or a finished case.
    fn seconds(&self, now: Duration) -> Option<f64> {
        let scale = match (self.done > 0.0, self.estimate.total()) {
            (true, _) => self.taken.as_secs_f64() / self.done,
            (false, Some(_)) => 1.0,
            (false, None) => return None,
        };
        let current = now.saturating_sub(self.began).as_secs_f64();
        let rest = (self.all - self.done - self.current).max(0.0);
        Some((scale * self.current - current).max(0.0) + scale * rest)
    }
}

/// Removes the bar before results are printed.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(size: i64) -> Case {
        Case::new(vec![("size".to_owned(), size.into())])
    }

    fn left(left: &TimeLeft, now: u64) -> Option<u64> {
        left.seconds(Duration::from_secs(now)).map(|seconds| seconds.round() as u64)
    }

    #[test]
    fn a_long_case_name_is_shortened_or_left_out() {
        let drawn = [40, 21, 20, 19].map(|width| with_name("case 1 of 2", "size=1024 f32", width));
        assert_eq!(drawn, ["case 1 of 2 · size=1024 f32", "case 1 of 2", "case 1 of 2", "case 1 of 2"]);
        assert_eq!(with_name("case 1 of 2", "size=1024 f32", 24), "case 1 of 2 · size=1024…");
    }

    #[test]
    fn the_time_left_accounts_for_the_estimate_of_each_case() {
        let mut time = TimeLeft::new(2, Estimate::known([(case(1), 10.0), (case(2), 100.0)]));
        time.begin(&case(1), Duration::ZERO);
        assert_eq!(left(&time, 0), Some(110));
        assert_eq!(left(&time, 5), Some(105));
        // The first case took twice as long as expected, so the second one is expected to as well.
        time.done(Duration::from_secs(20));
        time.begin(&case(2), Duration::from_secs(20));
        assert_eq!(left(&time, 20), Some(200));
        assert_eq!(left(&time, 500), Some(0), "a case that takes longer than expected has no negative time left");
    }

    #[test]
    fn without_an_estimate_the_time_left_follows_from_the_finished_cases() {
        let mut time = TimeLeft::new(3, Estimate::default());
        time.begin(&case(1), Duration::ZERO);
        assert_eq!(left(&time, 4), None);
        time.done(Duration::from_secs(6));
        time.begin(&case(2), Duration::from_secs(6));
        assert_eq!(left(&time, 8), Some(10));
    }
}
