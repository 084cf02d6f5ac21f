//! A picture as SVG.

use std::fmt::Write;

use super::picture::{Anchor, Colour, Look, Picture, Shape, Text};
use super::{font::Weight, geometry::At};
use crate::visible::visible;

/// Fonts of nearly the same widths come next, so that text fits if DejaVu Sans is missing.
const FONTS: &str = "DejaVu Sans, Verdana, sans-serif";

pub(crate) fn write(picture: &Picture) -> String {
    let mut out = String::new();
    let (width, height) = (number(picture.width), number(picture.height));
    let (title, description) = (escaped(&picture.title), escaped(&picture.description));
    push(
        &mut out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FONTS}\">\n\
             <title>{title}</title>\n<desc>{description}</desc>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
            hex(picture.background)
        ),
    );
    for shape in &picture.shapes {
        push_shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn push_shape(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Path { places, is_closed, look } => {
            push(out, format_args!("<path d=\"{}\"{}/>\n", path(places, *is_closed), looks(look)));
        }
        Shape::Lines { ends, look } => {
            let path: String = ends.iter().map(|ends| path(ends, false)).collect();
            push(out, format_args!("<path d=\"{path}\"{}/>\n", looks(look)));
        }
        Shape::Circle { centre, radius, look } => {
            let (x, y, radius) = (number(centre.x), number(centre.y), number(*radius));
            push(out, format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{}/>\n", looks(look)));
        }
        Shape::Text(text) => push_text(out, text),
        Shape::Titled { title, shapes } => {
            push(out, format_args!("<g><title>{}</title>\n", escaped(title)));
            shapes.iter().for_each(|shape| push_shape(out, shape));
            out.push_str("</g>\n");
        }
    }
}

fn path(places: &[At], is_closed: bool) -> String {
    let mut path = String::new();
    for (at, place) in places.iter().enumerate() {
        let sign = if at == 0 { "M" } else { "L" };
        push(&mut path, format_args!("{sign}{} {}", number(place.x), number(place.y)));
    }
    if is_closed {
        path.push('Z');
    }
    path
}

fn looks(look: &Look) -> String {
    let mut looks = String::new();
    match look.fill {
        Some(colour) => push(&mut looks, format_args!(" fill=\"{}\"{}", hex(colour), cover("fill", colour))),
        None => looks.push_str(" fill=\"none\""),
    }
    if let Some(stroke) = look.stroke {
        let (colour, cover) = (hex(stroke.colour), cover("stroke", stroke.colour));
        push(&mut looks, format_args!(" stroke=\"{colour}\"{cover} stroke-width=\"{}\"", number(stroke.width)));
        looks.push_str(" stroke-linejoin=\"round\"");
        if !stroke.dash.is_empty() {
            let dash: Vec<String> = stroke.dash.iter().map(|&length| number(f64::from(length))).collect();
            push(&mut looks, format_args!(" stroke-dasharray=\"{}\"", dash.join(" ")));
        }
    }
    looks
}

fn push_text(out: &mut String, text: &Text) {
    let (x, y) = (number(text.at.x), number(text.at.y));
    push(out, format_args!("<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"", number(text.size)));
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => out.push_str(" text-anchor=\"middle\""),
        Anchor::End => out.push_str(" text-anchor=\"end\""),
    }
    if text.weight == Weight::Bold {
        out.push_str(" font-weight=\"bold\"");
    }
    if text.turn != 0.0 {
        push(out, format_args!(" transform=\"rotate({} {x} {y})\"", number(text.turn)));
    }
    if let Some(halo) = text.halo {
        let halo = hex(halo);
        push(
            out,
            format_args!(" stroke=\"{halo}\" stroke-width=\"{HALO}\" stroke-linejoin=\"round\" paint-order=\"stroke\""),
        );
    }
    push(out, format_args!(" fill=\"{}\">{}</text>\n", hex(text.colour), escaped(&text.text)));
}

/// The width of the halo around letters; half of it is outside.
pub(crate) const HALO: f32 = 4.0;

fn cover(of: &str, colour: Colour) -> String {
    if colour.cover < 1.0 { format!(" {of}-opacity=\"{}\"", number(colour.cover)) } else { String::new() }
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

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in visible(text).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            char => out.push(char),
        }
    }
    out
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}
