//! What stands above a benchmark of text to speech, in the lines of its kit.

use std::io::Write;

use laptime_trace::run::{Run, WarmUp};

use crate::{
    output::warn,
    tts_files::{WORKLOAD, iterations},
};

/// The governor under which clocks do not change.
const STEADY: &str = "performance";

/// Writes device, model and settings before the first take, and warns of clocks that change.
pub fn write(run: &Run, out: &mut dyn Write) -> anyhow::Result<()> {
    if run.workload != WORKLOAD {
        return Ok(());
    }
    for line in lines(run) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    out.flush()?;
    if let Some(governor) = run.environment.machine.governor.as_deref().filter(|governor| *governor != STEADY) {
        warn(&format!("the CPU's governor is `{governor}`, not `{STEADY}`: its clock changes while it is measured"));
    }
    Ok(())
}

fn lines(run: &Run) -> Vec<String> {
    let of = |axis: &str| {
        let values =
            run.axes.iter().find(|known| known.axis == axis).map(|known| &known.values[..]).unwrap_or_default();
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let warmup = match run.settings.warmup {
        WarmUp::Takes(takes) => takes.to_string(),
        WarmUp::Found => "as many takes as needed for".to_owned(),
    };
    let takes = iterations(&run.settings)
        .map_or_else(|| "as many iterations as needed".to_owned(), |takes| format!("{takes} iterations"));
    let mut lines = vec![
        format!("Device: {}", run.device),
        format!("Model: {} ({})", of("model"), of("dtype")),
        format!("Config: {warmup} warmup, {takes}, seed {}", of("seed")),
    ];
    if of("streaming").contains("true") {
        lines.push(format!("Mode: streaming (measuring TTFA), chunks of {} frames", of("chunk_frames")));
    }
    lines
}
