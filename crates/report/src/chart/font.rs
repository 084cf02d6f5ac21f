//! The font of all charts: DejaVu Sans, which is part of the binary, so that every machine has it.

use std::{io::Read, sync::LazyLock};

use flate2::read::ZlibDecoder;
use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use crate::visible::visible;

/// The font weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Regular,
    Bold,
}

static REGULAR: LazyLock<Face<'static>> = LazyLock::new(|| face(include_bytes!(concat!(env!("OUT_DIR"), "/regular"))));
static BOLD: LazyLock<Face<'static>> = LazyLock::new(|| face(include_bytes!(concat!(env!("OUT_DIR"), "/bold"))));

/// Unpacks a font that the build script compressed.
fn face(packed: &[u8]) -> Face<'static> {
    let mut bytes = Vec::new();
    let unpacked = ZlibDecoder::new(packed).read_to_end(&mut bytes);
    unpacked.expect("the font that the program was built with is whole");
    Face::parse(bytes.leak(), 0).expect("the font that the program was built with is a font")
}

impl Weight {
    fn face(self) -> &'static Face<'static> {
        match self {
            Self::Regular => &REGULAR,
            Self::Bold => &BOLD,
        }
    }
}

/// The glyphs of a text, each with its distance from the start, for font size 1.
fn glyphs(text: &str, weight: Weight) -> impl Iterator<Item = (GlyphId, f64)> {
    let face = weight.face();
    let units = f64::from(face.units_per_em());
    text.chars().scan(0.0, move |from, char| {
        let glyph = face.glyph_index(char).unwrap_or(GlyphId(0));
        let at = *from;
        *from += f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) / units;
        Some((glyph, at))
    })
}

/// The width of a text, with escapes for invisible characters.
pub(crate) fn width(text: &str, size: f64, weight: Weight) -> f64 {
    let face = weight.face();
    let text = visible(text);
    let advance = |char| face.glyph_index(char).and_then(|glyph| face.glyph_hor_advance(glyph));
    let missing = || face.glyph_hor_advance(GlyphId(0)).unwrap_or(0);
    let units: f64 = text.chars().map(|char| f64::from(advance(char).unwrap_or_else(missing))).sum();
    units / f64::from(face.units_per_em()) * size
}

/// The outlines of a text: from 0 on the base line, font size 1, upwards. None if nothing is drawn.
pub(crate) fn outlines(text: &str, weight: Weight) -> Option<Path> {
    let face = weight.face();
    let mut outlines = Outlines { path: PathBuilder::new(), from: 0.0, scale: 1.0 / f32::from(face.units_per_em()) };
    for (glyph, from) in glyphs(text, weight) {
        outlines.from = from as f32;
        face.outline_glyph(glyph, &mut outlines);
    }
    outlines.path.finish()
}

/// Outlines as a path, moved to their position and scaled.
struct Outlines {
    path: PathBuilder,
    from: f32,
    scale: f32,
}

impl Outlines {
    fn x(&self, x: f32) -> f32 {
        self.from + x * self.scale
    }

    fn y(&self, y: f32) -> f32 {
        y * self.scale
    }
}

impl OutlineBuilder for Outlines {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.x(x), self.y(y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.x(x), self.y(y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.x(x1), self.y(y1), self.x(x), self.y(y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.x(x1), self.y(y1), self.x(x2), self.y(y2), self.x(x), self.y(y));
    }

    fn close(&mut self) {
        self.path.close();
    }
}

/// Marks a cut.
const ELLIPSIS: char = '…';

/// No line of a chart holds more characters than this.
const MOST_CHARS: usize = 400;

/// Cuts the middle out of a text that is too wide: names mostly differ at their ends.
pub(crate) fn shorten(text: &str, space: f64, size: f64, weight: Weight) -> String {
    let text = visible(text);
    if width(&text, size, weight) <= space {
        return text.into_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let cut = |keep: usize| -> String {
        let (front, back) = (&chars[..keep.div_ceil(2)], &chars[chars.len() - keep / 2..]);
        front.iter().chain([&ELLIPSIS]).chain(back).collect()
    };
    let fits = |keep: usize| width(&cut(keep), size, weight) <= space;
    let (mut fitting, mut too_many) = (0, chars.len().min(MOST_CHARS));
    while too_many - fitting > 1 {
        let middle = fitting.midpoint(too_many);
        if fits(middle) { fitting = middle } else { too_many = middle }
    }
    cut(fitting)
}

/// Breaks a text into at most `most` lines at blanks; the last line is shortened if necessary.
pub(crate) fn wrap(text: &str, space: f64, size: f64, weight: Weight, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        let is_full = lines.len() >= most;
        match longer.filter(|line| is_full || width(line, size, weight) <= space) {
            Some(longer) => *lines.last_mut().expect("a longer line was made of it") = longer,
            None => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| shorten(line, space, size, weight)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_all_characters_of_charts() {
        for weight in [Weight::Regular, Weight::Bold] {
            for char in "Az09 ∝²×µ…–[]/%·≥".chars() {
                assert!(weight.face().glyph_index(char).is_some(), "{char}");
            }
        }
    }

    #[test]
    fn a_shortened_name_keeps_both_ends() {
        let name = "sliding-window with sixteen heads, batch 4";
        let short = shorten(name, 120.0, 12.0, Weight::Regular);
        assert!(width(&short, 12.0, Weight::Regular) <= 120.0);
        assert!(short.starts_with("sliding") && short.ends_with("batch 4") && short.contains('…'), "{short}");
        assert_eq!(shorten("dense", 120.0, 12.0, Weight::Regular), "dense");
    }

    #[test]
    fn a_long_line_breaks_at_spaces() {
        let lines = wrap("one two three four five six", 60.0, 12.0, Weight::Regular, 9);
        assert!(lines.len() > 2 && lines.iter().all(|line| width(line, 12.0, Weight::Regular) <= 60.0), "{lines:?}");
        assert_eq!(lines.join(" "), "one two three four five six");
        assert_eq!(wrap("one two three four five six", 60.0, 12.0, Weight::Regular, 2).len(), 2);
        assert!(wrap("  ", 60.0, 12.0, Weight::Regular, 2).is_empty());
    }
}
