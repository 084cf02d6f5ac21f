//! A picture as PNG, drawn with tiny-skia and our own font.

use super::picture::{Anchor, Colour, Look, Picture, Shape, Stroke, Text};
use super::{font, geometry::Pos, svg::HALO};
use crate::visible::visible;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke as SkiaStroke, StrokeDash, Transform,
};

const WIDTHS: std::ops::RangeInclusive<u32> = 200..=6_400;

/// Why a chart could not be drawn as PNG.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the chart as PNG: {reason}")]
pub struct PngError {
    reason: String,
}

/// Draws a picture with a width in pixels.
pub(crate) fn draw(picture: &Picture, width: u32) -> Result<Vec<u8>, PngError> {
    let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let scale = f64::from(width) / picture.width;
    let height = (picture.height * scale).round().max(1.0) as u32;
    let too_large = || PngError { reason: format!("{width} x {height} pixels do not fit") };
    let mut canvas = Canvas {
        pixels: Pixmap::new(width, height).ok_or_else(too_large)?,
        transform: Transform::from_scale(scale as f32, scale as f32),
    };
    canvas.pixels.fill(colour(picture.background));
    picture.shapes.iter().for_each(|shape| canvas.draw(shape));
    encoded(&canvas.pixels).map_err(|error| PngError { reason: error.to_string() })
}

/// Writes pixels without their alpha, which is 1 everywhere, and without filters, which are made for photographs: a quarter
/// smaller for our charts.
fn encoded(pixels: &Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixels.width(), pixels.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_filter(png::Filter::NoFilter);
    let colours: Vec<u8> =
        pixels.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&colours)?;
    writer.finish()?;
    Ok(bytes)
}

struct Canvas {
    pixels: Pixmap,
    transform: Transform,
}

impl Canvas {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Path { places, is_closed, look } => self.path(through(places, *is_closed), look),
            Shape::Lines { ends, look } => ends.iter().for_each(|ends| self.path(through(ends, false), look)),
            Shape::Circle { centre, radius, look } => {
                self.path(PathBuilder::from_circle(centre.x as f32, centre.y as f32, *radius as f32), look);
            }
            Shape::Text(text) => self.text(text),
            Shape::Titled { shapes, .. } => shapes.iter().for_each(|shape| self.draw(shape)),
        }
    }

    /// A path without extent is not drawn.
    fn path(&mut self, path: Option<Path>, look: &Look) {
        let Some(path) = path else { return };
        if let Some(fill) = look.fill {
            self.fill(&path, fill, self.transform);
        }
        if let Some(stroke) = look.stroke {
            self.stroke(&path, stroke, self.transform);
        }
    }

    fn fill(&mut self, path: &Path, colour: Colour, transform: Transform) {
        self.pixels.fill_path(path, &paint(colour), FillRule::Winding, transform, None);
    }

    fn stroke(&mut self, path: &Path, stroke: Stroke, transform: Transform) {
        let dash = (!stroke.dash.is_empty()).then(|| StrokeDash::new(stroke.dash.to_vec(), 0.0)).flatten();
        let skia = SkiaStroke {
            width: stroke.width as f32,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash,
            ..SkiaStroke::default()
        };
        self.pixels.stroke_path(path, &paint(stroke.colour), &skia, transform, None);
    }

    fn text(&mut self, text: &Text) {
        let shown = visible(&text.text);
        let width = font::width(&shown, text.size, text.weight);
        let before = match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let Some(path) = font::outlines(&shown, text.weight) else { return };
        let size = text.size as f32;
        let transform = self
            .transform
            .pre_concat(Transform::from_rotate_at(text.rotation as f32, text.at.x as f32, text.at.y as f32))
            .pre_translate((text.at.x - before) as f32, text.at.y as f32)
            .pre_scale(size, -size);
        if let Some(halo) = text.halo {
            let stroke = Stroke { colour: halo, width: f64::from(HALO / size), dash: &[] };
            self.stroke(&path, stroke, transform);
        }
        self.fill(&path, text.colour, transform);
    }
}

fn through(places: &[Pos], is_closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    let (first, others) = places.split_first()?;
    builder.move_to(first.x as f32, first.y as f32);
    others.iter().for_each(|place| builder.line_to(place.x as f32, place.y as f32));
    if is_closed {
        builder.close();
    }
    builder.finish()
}

fn paint(of: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color(colour(of));
    paint
}

fn colour(colour: Colour) -> Color {
    let opacity = (colour.opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    Color::from_rgba8(colour.red, colour.green, colour.blue, opacity)
}
