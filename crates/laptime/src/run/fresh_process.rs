//! Measures one case in a fresh process, for commands that interleave cases.

use laptime_bench::{CaseResult, Children, Job, Sink, Swept};

use crate::app::App;

/// Measures the only case of a job; none if the user interrupted it.
pub fn measure(app: &App, job: &Job) -> anyhow::Result<Option<CaseResult>> {
    let mut last = Last::default();
    let swept = Children::of_this_program().run(job, &app.interrupt, &mut last)?;
    Ok(last.0.filter(|result| swept == Swept::Whole && result.is_finished()))
}

#[derive(Default)]
struct Last(Option<CaseResult>);

impl Sink for Last {
    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        self.0 = Some(result);
        Ok(())
    }
}
