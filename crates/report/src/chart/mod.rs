//! Charts as SVG and PNG.
//!
//! A [`Chart`] describes the content in the units of the data. Its layout is a picture of lines, areas and text
//! (`picture.rs`), which is written as SVG (`svg.rs`) or drawn as PNG (`png.rs`), so both show the same. Nothing comes
//! from the machine, not even fonts, so the same chart gives the same bytes everywhere.
//!
//! The charts of a report are in [`charts`]: one function each, from plain figures to a chart, or to none if there is
//! nothing to draw.
//!
//! ```
//! use laptime_report::chart::{Line, Point, Theme, charts};
//!
//! let time = vec![
//!     Point::measured(512.0, 210e3).within(205e3, 216e3),
//!     Point::measured(1024.0, 790e3),
//!     Point::failed(2048.0, "out of memory"),
//! ];
//! let dense = charts::AttentionKind { time_ns: Line::new("dense", time), ..Default::default() };
//! let attention = charts::Attention { subtitle: "2 cores, f32".into(), kinds: vec![dense], ..Default::default() };
//! let chart = charts::attention_latency(&attention).expect("there is a point to draw");
//! assert!(chart.to_svg(Theme::Light).starts_with("<svg"));
//! assert!(chart.to_png(Theme::Dark, 800)?.starts_with(b"\x89PNG"));
//! # Ok::<(), laptime_report::chart::PngError>(())
//! ```

mod axis;
mod bars;
pub mod charts;
mod failures;
mod font;
mod frame;
mod geometry;
mod labels;
mod layout;
mod legend;
mod lines;
mod panel;
mod picture;
mod png;
mod quantity;
mod references;
mod style;
mod svg;
mod ticks;

use laptime_analyze::distinct;

pub use png::PngError;
pub use quantity::Quantity;
pub use style::Theme;

/// A chart: one or more panels under a title, with one legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of its files, such as `attention_latency`.
    pub name: &'static str,
    /// The title.
    pub title: String,
    /// The subtitle: machine and method.
    pub subtitle: String,
    /// One panel, or several in two columns.
    pub panels: Vec<Panel>,
    /// What the area around a line is, such as `95 % interval`. Shown only if there is one.
    pub interval: &'static str,
    /// Subjects that use the first colours even if they are not drawn, so that a colour means the same in several
    /// charts.
    pub known_subjects: Vec<String>,
}

/// A pair of axes with its content.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The title of the panel, shown if there are several.
    pub title: String,
    /// The horizontal axis. Bars only use its label.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The measured values.
    pub content: Content,
    /// Reference lines.
    pub references: Vec<Reference>,
    /// Highlighted ranges of the horizontal axis.
    pub highlights: Vec<Highlight>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Its label, such as `sequence length`. The unit is added if there is one.
    pub label: &'static str,
    /// The kind of its numbers.
    pub quantity: Quantity,
    /// Its scale.
    pub scale: Scale,
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic. Values of 0 or less are left out.
    Log,
}

/// The measured values.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Lines over a number.
    Lines(Vec<Line>),
    /// Bars over categories.
    Bars(Bars),
}

/// The points of one name. A name has the same style in all panels of a chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// What its colour means, such as a model with several lines. Empty for its name.
    pub subject: String,
    /// A suffix in the legend, such as `exponent 1.97`. Empty for nothing.
    pub note: String,
    /// The points, from left to right.
    pub points: Vec<Point>,
    /// Whether points are not joined.
    pub is_scatter: bool,
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its horizontal position.
    pub x: f64,
    /// Its value.
    pub reading: Reading,
    /// A label, left out if there is no space. Empty for none.
    pub label: String,
    /// Whether it is drawn hollow, as an uncounted one.
    pub is_hollow: bool,
}

/// The value at a position.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Reading {
    /// A value, with an optional interval.
    Measured { value: f64, interval: Option<[f64; 2]> },
    /// Nothing: a gap in the line. NaN and values beyond `1e150` are gaps too.
    Missing,
    /// A failed case with a word, such as `out of memory`. It is marked at the upper edge.
    Failed(String),
}

/// Grouped bars.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// The labels of the groups.
    pub groups: Vec<String>,
    /// Bars of one name, one per group.
    pub series: Vec<BarSeries>,
}

/// Bars of one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// What its colour means. Empty for its name.
    pub subject: String,
    /// One value per group.
    pub readings: Vec<Reading>,
}

/// A reference line.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Reference {
    /// A constant.
    Level { y: f64, label: String },
    /// A power of `x` through a point, on two logarithmic axes.
    Slope { through: [f64; 2], exponent: f64, label: String },
    /// A roofline: it rises with `x` up to the most and stays there. Both parts have a label.
    Roof { slope: f64, most: f64, slope_label: String, label: String },
}

/// A highlighted range of the horizontal axis, with a position inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Highlight {
    /// The position.
    pub at: f64,
    /// The range.
    pub interval: Option<[f64; 2]>,
    /// Its label.
    pub label: String,
}

impl Chart {
    /// The subjects of the chart, one per colour, in order of appearance.
    pub fn subjects(&self) -> Vec<String> {
        distinct(self.panels.iter().flat_map(legend::subjects)).into_iter().map(str::to_owned).collect()
    }
}

impl Line {
    /// Points of a name, joined.
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// The same with the colour of a subject.
    pub fn of(self, subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..self }
    }
}

impl Point {
    /// A value at a position.
    pub fn measured(x: f64, value: f64) -> Self {
        Self::of(x, Reading::Measured { value, interval: None })
    }

    /// A position without a value.
    pub fn missing(x: f64) -> Self {
        Self::of(x, Reading::Missing)
    }

    /// A failed case at a position, with a reason of a word or two.
    pub fn failed(x: f64, word: impl Into<String>) -> Self {
        Self::of(x, Reading::Failed(word.into()))
    }

    /// The same point with an interval, if it has a value.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        if let Reading::Measured { interval, .. } = &mut self.reading {
            *interval = Some([low.min(high), high.max(low)]);
        }
        self
    }

    /// The same point with a label.
    pub fn labelled(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    fn of(x: f64, reading: Reading) -> Self {
        Self { x, reading, label: String::new(), is_hollow: false }
    }
}

impl Chart {
    /// Writes the chart as SVG, 800 units wide. Text stays text, so that it can be searched and read aloud.
    pub fn to_svg(&self, theme: Theme) -> String {
        svg::write(&layout::picture(self, theme))
    }

    /// Draws the chart as PNG with a width of 200 to 6,400 pixels; the height follows.
    pub fn to_png(&self, theme: Theme, width: u32) -> Result<Vec<u8>, PngError> {
        png::draw(&layout::picture(self, theme), width)
    }
}
