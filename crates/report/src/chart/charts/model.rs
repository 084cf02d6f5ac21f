//! Whole models over sequence length, in four panels.

use super::{LENGTHS, axis, chart, lines_panel};
use crate::chart::{Chart, Line, Quantity, Reference, Scale};

/// What models cost over sequence length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Models {
    /// Machine and method in a line.
    pub subtitle: String,
    /// Nanoseconds of a take over sequence length, one line for each model and pass, such as `decoder_tiny, training`.
    pub time_ns: Vec<Line>,
    /// The largest memory in bytes over sequence length, under the same names.
    pub peak_bytes: Vec<Line>,
    /// The time of a training step over that of inference, over sequence length, one line for each model under the name
    /// of its training: a name of its own would be a further entry of the legend.
    pub training_over_inference: Vec<Line>,
    /// The loss over steps counted from 1, one line for each model, under the name of its training where it has one.
    pub loss: Vec<Line>,
}

/// Draws time, memory, training against inference, and loss. A panel without figures is left out.
pub fn model_performance(models: &Models) -> Option<Chart> {
    let time = axis("time of a take", Quantity::Nanos, Scale::Log);
    let memory = axis("peak memory", Quantity::Bytes, Scale::Log);
    let ratio = axis("training / inference", Quantity::Ratio, Scale::Linear);
    let loss = axis("loss", Quantity::Number, Scale::Linear);
    let steps = axis("training step", Quantity::Count, Scale::Linear);
    let mut against = lines_panel("Training against inference", LENGTHS, ratio, models.training_over_inference.clone());
    if let Some(panel) = &mut against {
        panel.references = vec![Reference::Level { y: 1.0, label: "equal".to_owned() }];
    }
    let panels = [
        lines_panel("Time", LENGTHS, time, models.time_ns.clone()),
        lines_panel("Memory", LENGTHS, memory, models.peak_bytes.clone()),
        against,
        lines_panel("Loss", steps, loss, models.loss.clone()),
    ];
    let panels = panels.into_iter().flatten().collect();
    chart("model_performance", "Models: time, memory and training", &models.subtitle, panels)
}
