//! Whole models over sequence length, in four panels.

use super::{LENGTHS, axis, chart, lines_panel};
use crate::chart::{Chart, Line, Panel, Quantity, Reference, Scale};

/// The cost of models over sequence length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Models {
    /// Machine and method.
    pub subtitle: String,
    /// Nanoseconds per iteration over sequence length, one line per model and pass, such as `decoder_tiny, training`.
    pub time_ns: Vec<Line>,
    /// The peak memory in bytes over sequence length, with the same names.
    pub peak_bytes: Vec<Line>,
    /// Training step / inference over sequence length, one line per model with the name of its training line, which saves a
    /// legend entry.
    pub training_over_inference: Vec<Line>,
    /// The loss over steps from 1, one line per model, with the name of its training line if it has one.
    pub loss: Vec<Line>,
}

/// Draws time, memory, training / inference, and loss. A panel without values is left out.
pub fn model_performance(models: &Models) -> Option<Chart> {
    let time = axis("time of an iteration", Quantity::Nanos, Scale::Log);
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
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    let title = format!("Models: {}", in_words(panels.iter().map(|panel| panel.title.to_lowercase()).collect()));
    chart("model_performance", &title, &models.subtitle, panels)
}

/// A list in words: `time, memory and loss`.
fn in_words(mut words: Vec<String>) -> String {
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Point;

    #[test]
    fn the_title_names_only_measured_quantities() {
        let line = || vec![Line::new("tiny, inference", vec![Point::measured(512.0, 1e6)])];
        let title = |models: &Models| model_performance(models).unwrap().title;
        let time = Models { time_ns: line(), ..Models::default() };
        assert_eq!(title(&time), "Models: time");
        let both = Models { peak_bytes: line(), ..time };
        assert_eq!(title(&both), "Models: time and memory");
        assert_eq!(title(&Models { loss: line(), ..both }), "Models: time, memory and loss");
    }
}
