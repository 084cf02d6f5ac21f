//! A bar on standard error while cases are measured. It is drawn between takes, never by a clock of its own.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use laptime_bench::Case;
use laptime_report::{visible, visible_lines};

/// What is shown while cases are measured; nothing if standard error is no terminal.
pub struct Progress {
    bar: ProgressBar,
    case: String,
    takes: usize,
}

impl Progress {
    /// Begins with so many cases to go.
    pub fn new(cases: usize, is_quiet: bool) -> Self {
        let is_shown = !is_quiet && std::io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(cases as u64), target);
        draw_as(&bar, "{bar:16} {pos}/{len}  {wide_msg}");
        Self { bar, case: String::new(), takes: 0 }
    }

    /// A case begins.
    pub fn begin(&mut self, case: &Case, run: u32, runs: u32) {
        let process = if runs > 1 { format!("{} of {runs}: ", run + 1) } else { String::new() };
        self.case = visible(&format!("{process}{case}")).into_owned();
        self.takes = 0;
        self.bar.set_message(self.case.clone());
    }

    /// A take ended.
    pub fn take(&mut self) {
        self.takes += 1;
        self.bar.set_message(format!("{} · {} takes", self.case, self.takes));
    }

    /// A case is done. From the first one on the time that is left can be told.
    pub fn done(&mut self) {
        if self.bar.position() == 0 {
            draw_as(&self.bar, "{bar:16} {pos}/{len}  {wide_msg} {eta} left");
        }
        self.bar.inc(1);
    }

    /// A step of several begins.
    pub fn step(&mut self, at: usize, of: usize, what: &str) {
        self.bar.set_length(of as u64);
        self.bar.set_position(at as u64);
        self.bar.set_message(visible(what).into_owned());
    }

    /// Writes a line above the bar.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            crate::output::say(line);
        } else {
            self.bar.println(visible_lines(line));
        }
    }
}

fn draw_as(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸ "));
    }
}

/// The bar goes, so that it does not stand among the answers.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
