//! Folded stacks as a flame graph: an SVG that can be searched and zoomed.
//!
//! inferno draws the graph. This file protects its line format from names
//! of any content: inferno reads a name that ends in a number as a second
//! weight, one that starts with `# ` as a comment, and draws a stack twice
//! if names sort between `a` and `a;b`.

use std::collections::{BTreeMap, HashMap};
use std::io;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap, StrokeColor};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use crate::visible::visible;

/// The texts of a flame graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlameOptions {
    /// The title.
    pub title: String,
    /// The subtitle.
    pub subtitle: Option<String>,
    /// The unit of the weights.
    pub weights: Weights,
}

/// The unit of folded stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// Nanoseconds, shown in a suitable unit.
    Nanos,
    /// A count, such as `launches`.
    Counted(&'static str),
}

/// Why a flame graph could not be drawn.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum FlameError {
    #[error("nothing to draw: all stacks have weight 0")]
    Empty,
    #[error("line {line} is not a folded stack: `{text}`, expected `a;b;c 123`")]
    Line { line: usize, text: String },
    #[error("the weights of all stacks add up to more than {}", u64::MAX)]
    TooHeavy,
    #[error("cannot write the flame graph")]
    Write(#[from] io::Error),
}

/// Draws folded stacks (`a;b;c 123`) as an SVG.
///
/// Siblings are drawn from left to right in the order of the input, so that
/// stages in the order of a run give a graph in that order. The same lines
/// give the same bytes. Nothing is written unless there is something to
/// draw.
pub fn flamegraph<S: AsRef<str>>(
    folded: impl IntoIterator<Item = S>,
    options: &FlameOptions,
    out: impl io::Write,
) -> Result<(), FlameError> {
    let mut stacks = Stacks::default();
    for (at, text) in folded.into_iter().enumerate() {
        let text = text.as_ref();
        let bad = || FlameError::Line { line: at + 1, text: text.chars().take(80).collect() };
        let (stack, weight) = text.rsplit_once(' ').ok_or_else(bad)?;
        stacks.add(stack, weight.parse().map_err(|_| bad())?)?;
    }
    if stacks.total == 0 {
        return Err(FlameError::Empty);
    }
    let lines = stacks.lines();
    let mut palette = stacks.palette();
    let mut options = inferno_options(options, stacks.total);
    options.palette_map = Some(&mut palette);
    Ok(from_lines(&mut options, lines.iter().map(String::as_str), out)?)
}

/// Stacks in the order in which they are drawn.
#[derive(Debug, Default)]
struct Stacks {
    /// The frames by parent and name, numbered in order of appearance.
    frames: HashMap<(usize, String), usize>,
    /// Each stack with its weight, by the numbers of its frames: stacks with a
    /// common prefix are adjacent, and siblings are in order of appearance.
    weights: BTreeMap<Vec<usize>, (String, u64)>,
    total: u64,
}

impl Stacks {
    fn add(&mut self, stack: &str, weight: u64) -> Result<(), FlameError> {
        if weight == 0 {
            return Ok(());
        }
        let names: Vec<_> = stack.split(';').map(guard).collect();
        let line = names.join(";");
        let mut below = 0;
        let mut numbers = Vec::with_capacity(names.len());
        for name in names {
            let next = self.frames.len() + 1;
            below = *self.frames.entry((below, name)).or_insert(next);
            numbers.push(below);
        }
        // No stack is heavier than the total, so its sum cannot overflow either.
        self.total = self.total.checked_add(weight).ok_or(FlameError::TooHeavy)?;
        self.weights.entry(numbers).or_insert((line, 0)).1 += weight;
        Ok(())
    }

    /// Returns the lines for inferno, which reads those of a chart backwards.
    fn lines(&self) -> Vec<String> {
        let stacks = self.weights.values().rev();
        stacks.map(|(stack, weight)| format!("{stack} {weight}")).collect()
    }

    fn palette(&self) -> PaletteMap {
        let mut palette = PaletteMap::default();
        // The root frame has no name.
        for name in self.frames.keys().map(|(_, name)| name.as_str()).chain([""]) {
            palette.insert(name, colour(name));
        }
        palette
    }
}

/// Writes a name so that inferno reads it as a name and XML accepts it.
///
/// A zero-width space makes numbers and hashes part of the name, and
/// searching for the name still finds it.
fn guard(name: &str) -> String {
    const NOTHING: char = '\u{200b}';
    let mut name = visible(name.trim()).into_owned();
    if name.is_empty() {
        return "(no name)".to_owned();
    }
    let is_number = |text: &str| text.chars().all(|char| char.is_ascii_digit() || char == '.');
    if name.rsplit_once(' ').is_some_and(|(_, end)| is_number(end)) {
        name.push(NOTHING);
    }
    if name.starts_with("# ") {
        name.insert(0, NOTHING);
    }
    name
}

/// Returns the colour of a name: the same in every graph, between red and
/// yellow, and light enough for black text, which inferno's own are not
/// always.
fn colour(name: &str) -> Color {
    // FNV-1a: short, and the same on every machine and with every compiler.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let part = |shift: u32, range: u64| ((hash >> shift) % (range + 1)) as u8;
    Color { r: 240 + part(40, 15), g: 145 + part(16, 85), b: 75 + part(28, 60) }
}

fn inferno_options<'a>(options: &FlameOptions, total: u64) -> Options<'a> {
    let mut inferno = Options::default();
    inferno.title = visible(&options.title).into_owned();
    inferno.subtitle = options.subtitle.as_deref().map(|text| visible(text).into_owned());
    (inferno.count_name, inferno.factor) = match &options.weights {
        Weights::Nanos => time_unit(total),
        Weights::Counted(name) => ((*name).to_owned(), 1.0),
    };
    inferno.name_type = "Stage:".to_owned();
    inferno.text_truncate_direction = TextTruncateDirection::Right;
    inferno.frame_height = 18;
    inferno.bgcolors = Some(BackgroundColor::Grey);
    inferno.stroke_color = StrokeColor::Color(Color { r: 255, g: 255, b: 255 });
    // This mode keeps the order of the lines: inferno's own sorts them as
    // text, which separates `a` and `a;b` if there is an `a-b`.
    inferno.flame_chart = true;
    inferno
}

/// Chooses the largest unit in which the total is at least 10,000: inferno rounds
/// to whole units before it computes percentages, which are then exact to 0.01.
fn time_unit(total: u64) -> (String, f64) {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)];
    let fits = units.into_iter().find(|(_, size)| total / size >= 10_000);
    let (name, size) = fits.unwrap_or(("ns", 1));
    (name.to_owned(), 1.0 / size as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_fits_the_total() {
        let totals = [9_999_999, 84_000_000, 12_000_000_000, u64::MAX];
        assert_eq!(totals.map(|total| time_unit(total).0), ["ns", "µs", "ms", "s"]);
    }

    #[test]
    fn equal_stacks_are_merged_and_branches_are_adjacent() {
        let mut stacks = Stacks::default();
        for (stack, weight) in [("b;z", 1), ("a", 5), ("b;y", 2), ("b;z", 3), ("c", 0)] {
            stacks.add(stack, weight).unwrap();
        }
        assert_eq!(stacks.lines(), ["a 5", "b;y 2", "b;z 4"]);
    }

    #[test]
    fn names_that_inferno_would_misread_are_escaped() {
        let names = ["layer 12", "# note", "", "v1.5", "a\nb"];
        let expected = ["layer 12\u{200b}", "\u{200b}# note", "(no name)", "v1.5", "a\\nb"];
        assert_eq!(names.map(guard), expected);
    }
}
