//! Charts: measured figures as pictures, SVG and PNG alike.
//!
//! A [`Chart`] says what is to be seen, in the units of the data. Laying it out gives a picture of lines, areas and
//! text (`picture.rs`), which is written as SVG (`svg.rs`) and drawn as PNG (`png.rs`): both show the same. Nothing is
//! taken from the machine, not even fonts, so the same chart gives the same bytes everywhere.
//!
//! The charts of a report are in [`charts`]: a function each, from plain figures to a chart, or to none where there is
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

pub use png::PngError;
pub use quantity::Quantity;
pub use style::Theme;

/// What is to be seen: one or more panels under a title, with one legend below all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of its files, such as `attention_latency`.
    pub name: &'static str,
    /// The line above it.
    pub title: String,
    /// A smaller line below the title: machine and method.
    pub subtitle: String,
    /// One panel, or several in two columns.
    pub panels: Vec<Panel>,
    /// What an area around a line is, such as `95 % interval`. Told only where there is one.
    pub interval: &'static str,
    /// Subjects that take the first colours whether they are drawn or not, so that a colour means the same in several
    /// charts.
    pub known_subjects: Vec<String>,
}

/// One pair of axes and what is drawn between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Told where there is more than one panel.
    pub title: String,
    /// From left to right. Bars have words there and take only its label.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What was measured.
    pub content: Content,
    /// What it is held against.
    pub references: Vec<Reference>,
    /// Stretches of the axis from left to right that mean something.
    pub stretches: Vec<Stretch>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it shows, such as `sequence length`. The unit is added where there is one.
    pub label: &'static str,
    /// What its numbers are.
    pub quantity: Quantity,
    /// How they are spread.
    pub scale: Scale,
}

/// How numbers are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// By difference.
    Linear,
    /// By ratio. What is not above 0 has no place on it and is left out.
    Log,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Points over a number.
    Lines(Vec<Line>),
    /// Bars over words.
    Bars(Bars),
}

/// Points of one name. The same name looks the same in all panels of a chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// What its colour stands for, such as a model of which there are several lines. Empty for its name.
    pub subject: String,
    /// What the legend says behind the name, such as `exponent 1.97`. Empty for nothing.
    pub note: String,
    /// The points, from left to right.
    pub points: Vec<Point>,
    /// Whether points are left apart instead of being joined.
    pub is_loose: bool,
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its place on the axis from left to right.
    pub x: f64,
    /// What was read there.
    pub reading: Reading,
    /// A word beside it, left out where it has no room. Empty for none.
    pub label: String,
    /// Whether it is drawn hollow, as one that does not count.
    pub is_hollow: bool,
}

/// What was read at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// A figure, with its interval if it has one.
    Measured {
        /// The figure.
        value: f64,
        /// Its lower and upper end.
        interval: Option<[f64; 2]>,
    },
    /// Nothing: a gap in the line. A figure that is no number, or beyond `1e150`, is such a gap too.
    Missing,
    /// A case that gave no figure, and the word for it, such as `out of memory`. It is marked at the upper edge.
    Failed(String),
}

/// Bars in groups.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// The words below the groups.
    pub groups: Vec<String>,
    /// Bars of one name, one in each group.
    pub series: Vec<BarSeries>,
}

/// Bars of one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// What its colour stands for. Empty for its name.
    pub subject: String,
    /// One reading for each group.
    pub readings: Vec<Reading>,
}

/// A line that measured figures are held against.
#[derive(Debug, Clone, PartialEq)]
pub enum Reference {
    /// The same value everywhere.
    Level {
        /// The value.
        y: f64,
        /// What it is.
        label: String,
    },
    /// A power of `x` through a point, on two axes of ratios.
    Slope {
        /// A point that it goes through.
        through: [f64; 2],
        /// The power.
        exponent: f64,
        /// What it is, such as `∝ N²`.
        label: String,
    },
    /// Rises with `x` up to a value and stays there.
    Roof {
        /// What one of `x` allows of `y`.
        slope: f64,
        /// The most of `y`.
        most: f64,
        /// What the rising part is.
        slope_label: String,
        /// What the level part is.
        label: String,
    },
}

/// A stretch of the axis from left to right, with the place inside that is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// The place that is meant.
    pub at: f64,
    /// Where it may be as well.
    pub interval: Option<[f64; 2]>,
    /// What it is.
    pub label: String,
}

impl Chart {
    /// What the colours of the chart stand for, in the order in which they first come.
    pub fn subjects(&self) -> Vec<String> {
        let mut subjects: Vec<String> = Vec::new();
        for subject in self.panels.iter().flat_map(legend::subjects) {
            if !subjects.iter().any(|known| known == subject) {
                subjects.push(subject.to_owned());
            }
        }
        subjects
    }
}

impl Line {
    /// Points of a name, joined.
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// The same in the colour of a subject.
    pub fn of(self, subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..self }
    }
}

impl Point {
    /// A figure at a place.
    pub fn measured(x: f64, value: f64) -> Self {
        Self::of(x, Reading::Measured { value, interval: None })
    }

    /// A place without a figure.
    pub fn missing(x: f64) -> Self {
        Self::of(x, Reading::Missing)
    }

    /// A place at which there is no figure for a reason, which is a word or two.
    pub fn failed(x: f64, word: impl Into<String>) -> Self {
        Self::of(x, Reading::Failed(word.into()))
    }

    /// The same point with an interval, if it is a figure.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        if let Reading::Measured { interval, .. } = &mut self.reading {
            *interval = Some([low.min(high), high.max(low)]);
        }
        self
    }

    /// The same point with a word beside it.
    pub fn labelled(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    fn of(x: f64, reading: Reading) -> Self {
        Self { x, reading, label: String::new(), is_hollow: false }
    }
}

impl Chart {
    /// Writes the chart as SVG, 800 units wide. Text is text, so that it can be searched for and read aloud.
    pub fn to_svg(&self, theme: Theme) -> String {
        svg::write(&layout::picture(self, theme))
    }

    /// Draws the chart as PNG of a width in pixels, from 200 to 6,400; the height follows.
    pub fn to_png(&self, theme: Theme, width: u32) -> Result<Vec<u8>, PngError> {
        png::draw(&layout::picture(self, theme), width)
    }
}
