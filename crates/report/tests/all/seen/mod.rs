//! What can be seen of a chart: its SVG and its pixels, read again.

use std::collections::BTreeSet;

use roxmltree::{Document, Node};
use ttf_parser::{Face, GlyphId};

/// An SVG read again.
#[derive(Debug)]
pub struct Seen {
    pub width: f64,
    pub height: f64,
    pub texts: Vec<SeenText>,
    pub paths: Vec<SeenPath>,
    /// The centres of circles.
    pub circles: Vec<(f64, f64)>,
}

/// A line of text and its bounding box.
#[derive(Debug, Clone)]
pub struct SeenText {
    pub text: String,
    pub size: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    is_turned: bool,
}

/// A path and its bounding box.
#[derive(Debug)]
pub struct SeenPath {
    pub stroke_width: String,
    pub colour: String,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Seen {
    /// Reads an SVG; every number in it must be one.
    pub fn of(svg: &str) -> Self {
        let document = Document::parse(svg).expect("the SVG is well-formed");
        let root = document.root_element();
        let nodes = |tag: &'static str| document.descendants().filter(move |node| node.has_tag_name(tag));
        Self {
            width: number(&root, "width"),
            height: number(&root, "height"),
            texts: nodes("text").map(|node| text(&node)).collect(),
            paths: nodes("path").map(|node| path(&node)).collect(),
            circles: nodes("circle").map(|node| (number(&node, "cx"), number(&node, "cy"))).collect(),
        }
    }

    /// Finds a text.
    pub fn text(&self, text: &str) -> &SeenText {
        let found = self.texts.iter().find(|seen| seen.text == text || seen.text.starts_with(&format!("{text} (")));
        found.unwrap_or_else(|| panic!("`{text}` is not in {:?}", self.texts.iter().map(|seen| &seen.text)))
    }

    /// The colour of the symbol to the left of a name in the legend.
    pub fn colour_before(&self, name: &str) -> String {
        let is_name = |text: &&SeenText| text.text == name || text.text.starts_with(&format!("{name}:"));
        let name = self.texts.iter().rev().find(is_name).expect("the legend has the name");
        let is_before = |path: &&SeenPath| path.right < name.left && path.left > name.left - 50.0;
        let is_beside = |path: &&SeenPath| path.bottom > name.top && path.top < name.bottom;
        let first = self.paths.iter().filter(is_before).find(is_beside);
        first.expect("a symbol precedes the name").colour.clone()
    }

    /// Checks that nothing reaches out of the picture.
    pub fn assert_is_inside(&self) {
        let check = |left: f64, right: f64, top: f64, bottom: f64, what: &str| {
            let inside = left >= -0.5 && right <= self.width + 0.5 && top >= -0.5 && bottom <= self.height + 0.5;
            assert!(inside, "{left} {right} {top} {bottom}: {what}");
        };
        for seen in self.texts.iter().filter(|text| !text.is_turned) {
            check(seen.left, seen.right, seen.top, seen.bottom, &seen.text);
        }
        for seen in &self.paths {
            check(seen.left, seen.right, seen.top, seen.bottom, "a path");
        }
        for &(x, y) in &self.circles {
            check(x, x, y, y, "a circle");
        }
    }
}

impl SeenText {
    pub fn overlaps(&self, other: &Self) -> bool {
        let is_apart = self.left >= other.right || other.left >= self.right;
        let is_below = self.top >= other.bottom || other.top >= self.bottom;
        !is_apart && !is_below && !self.is_turned && !other.is_turned
    }
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    finite(node.attribute(name).unwrap_or_else(|| panic!("{name} is missing")))
}

fn finite(text: &str) -> f64 {
    let number: f64 = text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"));
    assert!(number.is_finite(), "{text}");
    number
}

fn text(node: &Node<'_, '_>) -> SeenText {
    let (x, y, size) = (number(node, "x"), number(node, "y"), number(node, "font-size"));
    let text = node.text().unwrap_or_default().to_owned();
    let width = width(&text, size, node.attribute("font-weight") == Some("bold"));
    let left = match node.attribute("text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    let is_turned = node.attribute("transform").is_some();
    SeenText { text, size, left, right: left + width, top: y - 0.75 * size, bottom: y + 0.2 * size, is_turned }
}

fn width(text: &str, size: f64, is_bold: bool) -> f64 {
    let bytes = if is_bold { dejavu::sans::bold() } else { dejavu::sans::regular() };
    let face = Face::parse(bytes, 0).expect("the font is whole");
    let advance = |char| face.glyph_hor_advance(face.glyph_index(char).unwrap_or(GlyphId(0))).unwrap_or(0);
    text.chars().map(|char| f64::from(advance(char))).sum::<f64>() / f64::from(face.units_per_em()) * size
}

fn path(node: &Node<'_, '_>) -> SeenPath {
    let attribute = |name| node.attribute(name).unwrap_or_default().to_owned();
    let places = attribute("d").replace(['M', 'L', 'Z'], " ");
    let numbers: Vec<f64> = places.split_whitespace().map(finite).collect();
    let (xs, ys) = (numbers.iter().step_by(2), numbers.iter().skip(1).step_by(2));
    let least = |numbers: &mut dyn Iterator<Item = &f64>| numbers.copied().fold(f64::INFINITY, f64::min);
    let most = |numbers: &mut dyn Iterator<Item = &f64>| numbers.copied().fold(f64::NEG_INFINITY, f64::max);
    let fill = Some(attribute("fill")).filter(|fill| fill != "none");
    SeenPath {
        stroke_width: attribute("stroke-width"),
        colour: fill.unwrap_or_else(|| attribute("stroke")),
        left: least(&mut xs.clone()),
        right: most(&mut xs.clone()),
        top: least(&mut ys.clone()),
        bottom: most(&mut ys.clone()),
    }
}

/// A PNG read again.
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    bytes: Vec<u8>,
}

impl Pixels {
    pub fn of(png: &[u8]) -> Self {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("the PNG is whole");
        let mut bytes = vec![0; reader.output_buffer_size().expect("it has a size")];
        let frame = reader.next_frame(&mut bytes).expect("the PNG is whole");
        assert_eq!(frame.color_type, png::ColorType::Rgb);
        Self { width: frame.width, height: frame.height, bytes }
    }

    pub fn at(&self, x: u32, y: u32) -> [u8; 3] {
        let from = 3 * (y * self.width + x) as usize;
        [self.bytes[from], self.bytes[from + 1], self.bytes[from + 2]]
    }

    /// The share of the area of a text that has another colour.
    pub fn share_unlike(&self, colour: [u8; 3], room: &SeenText) -> f64 {
        let columns = room.left as u32..room.right as u32;
        let places = (room.top as u32..room.bottom as u32).flat_map(|y| columns.clone().map(move |x| (x, y)));
        let unlike = places.clone().filter(|&(x, y)| self.at(x, y) != colour).count();
        unlike as f64 / places.count() as f64
    }

    pub fn colours(&self) -> usize {
        self.bytes.chunks_exact(3).collect::<BTreeSet<_>>().len()
    }
}
