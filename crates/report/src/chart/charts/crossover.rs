//! The sequence length from which on one kind is better than another.

use super::{LENGTHS, axis, chart, lines_panel};
use crate::chart::{Chart, Highlight, Line, Quantity, Reference, Scale};

/// Cost ratios over sequence length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Crossovers {
    /// Machine and method.
    pub subtitle: String,
    /// Dense / another kind, over sequence length, one line per kind, metric and batch size: the name says
    /// which, such as `time, sparse, batch 4`. Above 1, the other kind is better.
    pub ratios: Vec<Line>,
    /// The sequence lengths at which they cross 1, with labels such as `sparse: faster from 1,300 [1,180, 1,450] on`.
    pub crossings: Vec<Highlight>,
}

/// Draws ratios over sequence length, with the line at 1 and the intervals of the crossings.
pub fn crossover(crossovers: &Crossovers) -> Option<Chart> {
    let y = axis("dense / this kind", Quantity::Ratio, Scale::Log);
    let mut panel = lines_panel("", LENGTHS, y, crossovers.ratios.clone())?;
    panel.references = vec![Reference::Level { y: 1.0, label: "equal".to_owned() }];
    panel.highlights = crossovers.crossings.clone();
    let title = "Where another kind of attention beats dense (above 1)";
    chart("crossover", title, &crossovers.subtitle, vec![panel])
}
