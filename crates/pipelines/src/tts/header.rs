//! The header of a benchmark of text to speech, in the lines of qwen3-tts-rs.

use std::io::Write;

use laptime_trace::run::{Run, WarmUp};

use super::files::iterations;
use crate::extras::Context;

/// The CPU governor that keeps the clock constant.
const STEADY: &str = "performance";

/// Warns about a varying CPU clock; with `--compat` prints device, model and settings.
pub fn write(context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let run = context.run;
    if context.flags.is_compat() {
        lines(run).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        out.flush()?;
    }
    if let Some(governor) = run.environment.machine.governor.as_deref().filter(|governor| *governor != STEADY) {
        context.screen.warn(&format!("the CPU governor is `{governor}`, not `{STEADY}`: the clock may vary"));
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
        WarmUp::Iterations(iterations) => iterations.to_string(),
        WarmUp::Auto => "as many iterations as needed for".to_owned(),
    };
    let iterations = iterations(&run.settings)
        .map_or_else(|| "as many iterations as needed".to_owned(), |iterations| format!("{iterations} iterations"));
    let mut lines = vec![
        format!("Device: {}", run.device),
        format!("Model: {} ({})", of("model"), of("dtype")),
        format!("Config: {warmup} warmup, {iterations}, seed {}", of("seed")),
    ];
    if of("streaming").contains("true") {
        lines.push(format!("Mode: streaming (measuring TTFA), chunks of {} frames", of("chunk_frames")));
    }
    lines
}
