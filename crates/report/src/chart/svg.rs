//! A picture as SVG.

use super::picture::{Anchor, Colour, Look, Picture, Shape, Text};
use super::{font::Weight, geometry::Pos};
use crate::format::html::escape;

/// Fonts of nearly the same widths come next, so that text fits if DejaVu Sans is missing.
const FONTS: &str = "DejaVu Sans, Verdana, sans-serif";

pub(crate) fn write(picture: &Picture) -> String {
    let (width, height) = (number(picture.width), number(picture.height));
    let (title, description) = (escape(&picture.title), escape(&picture.description));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FONTS}\">\n\
         <title>{title}</title>\n<desc>{description}</desc>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        hex(picture.background)
    );
    picture.shapes.iter().for_each(|shape| push_shape(&mut out, shape));
    out.push_str("</svg>\n");
    out
}

fn push_shape(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Path { places, is_closed, look } => {
            *out += &format!("<path d=\"{}\"{}/>\n", path(places, *is_closed), looks(look));
        }
        Shape::Lines { ends, look } => {
            let path: String = ends.iter().map(|ends| path(ends, false)).collect();
            *out += &format!("<path d=\"{path}\"{}/>\n", looks(look));
        }
        Shape::Circle { centre, radius, look } => {
            let (x, y, radius) = (number(centre.x), number(centre.y), number(*radius));
            *out += &format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{}/>\n", looks(look));
        }
        Shape::Text(text) => push_text(out, text),
        Shape::Titled { title, shapes } => {
            *out += &format!("<g><title>{}</title>\n", escape(title));
            shapes.iter().for_each(|shape| push_shape(out, shape));
            out.push_str("</g>\n");
        }
    }
}

fn path(places: &[Pos], is_closed: bool) -> String {
    let places: Vec<String> = places.iter().map(|at| format!("{} {}", number(at.x), number(at.y))).collect();
    let start = if places.is_empty() { "" } else { "M" };
    format!("{start}{}{}", places.join("L"), if is_closed { "Z" } else { "" })
}

fn looks(look: &Look) -> String {
    let mut looks = String::new();
    match look.fill {
        Some(colour) => looks += &format!(" fill=\"{}\"{}", hex(colour), opacity("fill", colour)),
        None => looks.push_str(" fill=\"none\""),
    }
    if let Some(stroke) = look.stroke {
        let (colour, opacity) = (hex(stroke.colour), opacity("stroke", stroke.colour));
        looks += &format!(" stroke=\"{colour}\"{opacity} stroke-width=\"{}\"", number(stroke.width));
        looks.push_str(" stroke-linejoin=\"round\"");
        if !stroke.dash.is_empty() {
            let dash: Vec<String> = stroke.dash.iter().map(|&length| number(f64::from(length))).collect();
            looks += &format!(" stroke-dasharray=\"{}\"", dash.join(" "));
        }
    }
    looks
}

fn push_text(out: &mut String, text: &Text) {
    let (x, y) = (number(text.at.x), number(text.at.y));
    *out += &format!("<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"", number(text.size));
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => out.push_str(" text-anchor=\"middle\""),
        Anchor::End => out.push_str(" text-anchor=\"end\""),
    }
    if text.weight == Weight::Bold {
        out.push_str(" font-weight=\"bold\"");
    }
    if text.rotation != 0.0 {
        *out += &format!(" transform=\"rotate({} {x} {y})\"", number(text.rotation));
    }
    if let Some(halo) = text.halo.map(hex) {
        *out += &format!(" stroke=\"{halo}\" stroke-width=\"{HALO}\"");
        out.push_str(" stroke-linejoin=\"round\" paint-order=\"stroke\"");
    }
    *out += &format!(" fill=\"{}\">{}</text>\n", hex(text.colour), escape(&text.text));
}

/// The width of the halo around letters; half of it is outside.
pub(crate) const HALO: f32 = 4.0;

fn opacity(of: &str, colour: Colour) -> String {
    if colour.opacity < 1.0 { format!(" {of}-opacity=\"{}\"", number(colour.opacity)) } else { String::new() }
}

fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue)
}

/// Writes a coordinate in hundredths, so that the last bits of a logarithm do not matter.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
