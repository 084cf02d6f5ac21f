//! The difference between two traces as a waterfall: one bar per step from the total of a to the total of b.

use std::fmt::Write;

use laptime_analyze::Waterfall;
use laptime_report::html::{escape, html, prose};
use laptime_report::{Cell, short, single, tables};

use crate::Page;

/// The width of a name.
const NAME: usize = 60;

/// Makes the page of a comparison of two traces.
pub fn of_waterfall(answer: &Waterfall, title: &str) -> Page {
    let table = tables::waterfall(answer);
    let mut page = Page { title: title.to_owned(), ..Page::default() };
    let mut sentences = table.notes.iter();
    let headline =
        sentences.next().map_or_else(String::new, |first| format!("<p class=\"headline\">{}</p>\n", prose(first)));
    let rest: String = sentences.map(|sentence| format!("<p>{}</p>\n", prose(sentence))).collect();
    page.section("answer", "Verdict", headline + &rest);
    page.section("waterfall", "Waterfall", bars(answer));
    page.section("steps", "Steps", html(&laptime_report::Table { notes: Vec::new(), ..table }, |_| None));
    page
}

fn bars(answer: &Waterfall) -> String {
    let mut levels = vec![answer.totals[0]];
    for step in &answer.steps {
        levels.push(levels.last().copied().unwrap_or(0.0) + step.change());
    }
    let most = levels.iter().copied().fold(answer.totals[1], f64::max).max(1.0);
    let mut out = String::from("<div class=\"waterfall\"><table><tbody>\n");
    let mut row = |name: &str, value: Cell, from: f64, to: f64, class: &str| {
        let (left, right) = (100.0 * from.min(to) / most, 100.0 * from.max(to) / most);
        // Writing to memory cannot fail.
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"wide\"><svg viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{0}\"><rect class=\"{class}\" x=\"{left:.3}\" width=\"{:.3}\" height=\"1\"/></svg></td></tr>",
            escape(&short(name, NAME)),
            escape(&single(&value)),
            (right - left).max(0.15)
        );
    };
    let total = |time: f64| Cell::Nanos(time.max(0.0).round() as u64);
    row("a", total(answer.totals[0]), 0.0, answer.totals[0], "total");
    for (step, level) in answer.steps.iter().zip(&levels) {
        let class = if step.change() > 0.0 { "slower" } else { "faster" };
        row(&step.name, Cell::Shift(step.change().round() as i64), *level, level + step.change(), class);
    }
    row("b", total(answer.totals[1]), 0.0, answer.totals[1], "total");
    out.push_str("</tbody></table></div>\n");
    out
}
