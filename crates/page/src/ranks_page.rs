//! The ranks of a job: steps as rows of bars, coloured by what each rank did, and who came last at which collective.

use std::collections::HashMap;

use laptime_analyze::{CollectiveKind, RankPart, RankRow, Ranks};
use laptime_report::html::{escape, html, prose};
use laptime_report::tables::{RanksBy, ranks};
use laptime_report::{Cell, single};

use crate::Page;

/// Colours that are easy to distinguish, in the order of [`RankPart::ALL`].
const COLOURS: [&str; 7] = ["#4e79a7", "#e15759", "#9c755f", "#f28e2b", "#edc948", "#b07aa1", "#bab0ac"];

/// The width of all steps, the height of a row and the width of its label, in pixels.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 14.0;
const LABEL: f64 = 60.0;

/// Makes the page. `timelines` gives the page of a rank's timeline, by its index.
pub fn of_ranks(answer: &Ranks, title: &str, timelines: &HashMap<usize, String>) -> Page {
    let mut page = Page { title: title.to_owned(), ..Page::default() };
    page.subtitle = format!("{} ranks, {} steps", answer.ranks.len(), answer.steps.len());
    let mut table = ranks(answer, RanksBy::Collective, true);
    let mut sentences = std::mem::take(&mut table.answer).into_iter();
    let first =
        sentences.next().map_or_else(String::new, |first| format!("<p class=\"headline\">{}</p>\n", prose(&first)));
    page.section(
        "answer",
        "Answer",
        first + &sentences.map(|text| format!("<p>{}</p>\n", prose(&text))).collect::<String>(),
    );
    page.section("rank-steps", "Ranks by step", steps(answer, timelines));
    page.section("collectives", "Collectives", html(&table, |_| None));
    page.section("last", "Who came last", matrix(answer));
    page
}

fn legend() -> String {
    let mut out = String::from("<p>");
    for (part, colour) in RankPart::ALL.iter().zip(COLOURS) {
        out += "<svg width=\"12\" height=\"12\" role=\"img\" aria-hidden=\"true\">";
        out += &format!("<rect width=\"12\" height=\"12\" fill=\"{colour}\"/></svg> {} &ensp;", part.words());
    }
    out + "</p>\n"
}

fn number(row: &RankRow, at: usize) -> String {
    row.rank.map_or_else(|| format!("#{at}"), |rank| rank.to_string())
}

/// One row per rank. Steps have the same width on all ranks, as long as the longest one.
fn steps(answer: &Ranks, timelines: &HashMap<usize, String>) -> String {
    let numbers: Vec<u64> = if answer.steps.is_empty() { vec![0] } else { answer.steps.clone() };
    let lengths = answer.ranks.iter().flat_map(|row| row.steps.iter().map(|step| step.end - step.start));
    let longest = lengths.max().unwrap_or(0).max(1) as f64;
    let cell = WIDTH / numbers.len() as f64;
    let height = ROW * answer.ranks.len() as f64;
    let mut out = legend();
    out += &format!("<div class=\"table\"><svg width=\"{}\" height=\"{height}\" font-size=\"10\"", WIDTH + LABEL);
    out += " role=\"img\" aria-label=\"Steps of all ranks\">\n";
    for (at, row) in answer.ranks.iter().enumerate() {
        let link = timelines.get(&at).map(|page| escape(page));
        if let Some(page) = &link {
            out += &format!("<a href=\"{page}\">");
        }
        let label = number(row, at);
        let top = ROW * at as f64;
        out += &format!("<g><title>{}</title>", escape(&described(row, &label)));
        out += &format!("<text x=\"0\" y=\"{:.1}\" fill=\"currentColor\">{label}</text>", top + ROW - 3.0);
        for step in &row.steps {
            let Ok(column) = numbers.binary_search(&step.number) else { continue };
            bar(&mut out, &step.parts, LABEL + cell * column as f64, top, (cell - 2.0) / longest);
        }
        if row.steps.is_empty() {
            bar(&mut out, &row.parts, LABEL, top, (cell - 2.0) / row.step.max(1.0));
        }
        out.push_str(if link.is_some() { "</g></a>\n" } else { "</g>\n" });
    }
    out + "</svg></div>\n"
}

fn bar(out: &mut String, parts: &[f32; 7], mut left: f64, top: f64, scale: f64) {
    for (time, colour) in parts.iter().zip(COLOURS) {
        let width = f64::from(*time) * scale;
        if width >= 0.2 {
            let (top, height) = (top + 1.0, ROW - 2.0);
            *out += &format!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\"");
            *out += &format!(" fill=\"{colour}\"/>");
        }
        left += width;
    }
}

fn described(row: &RankRow, label: &str) -> String {
    let time = |nanos: f64| single(&Cell::Nanos(nanos.max(0.0) as u64));
    let parts =
        RankPart::ALL.iter().zip(row.parts).map(|(part, nanos)| format!("{} {}", part.words(), time(nanos.into())));
    let parts: Vec<String> = parts.collect();
    format!("rank {label}: late {} per step, waiting {}; {}", time(row.late), time(row.waiting), parts.join(", "))
}

type Class = (u32, CollectiveKind);

/// How often each rank came last at the collectives of a communicator.
fn matrix(answer: &Ranks) -> String {
    let mut counts: HashMap<(u32, Class), u64> = HashMap::new();
    let mut all: HashMap<Class, u64> = HashMap::new();
    for one in &answer.collectives {
        let class = (one.communicator, one.kind);
        *all.entry(class).or_default() += 1;
        if let Some(last) = one.last {
            *counts.entry((last, class)).or_default() += 1;
        }
    }
    let mut cells: Vec<((u32, Class), u64)> = counts.into_iter().collect();
    cells.sort_by_key(|((rank, class), count)| (std::cmp::Reverse(*count), *rank, *class));
    cells.truncate(MOST_CELLS);
    let mut ranks: Vec<u32> = cells.iter().map(|((rank, _), _)| *rank).collect();
    let mut classes: Vec<Class> = cells.iter().map(|((_, class), _)| *class).collect();
    ranks.sort_unstable();
    ranks.dedup();
    classes.sort_unstable();
    classes.dedup();
    if cells.is_empty() {
        return String::new();
    }
    let shares: HashMap<(u32, Class), u64> = cells.into_iter().collect();
    let mut out = String::from("<div class=\"table\"><table><thead><tr><th>group</th><th>collective</th>");
    ranks.iter().for_each(|rank| out += &format!("<th class=\"n\">{}</th>", answer.number(*rank)));
    out.push_str("</tr></thead><tbody>\n");
    for class in classes {
        let group =
            answer.communicators.get(class.0 as usize).map_or_else(String::new, laptime_analyze::Communicator::label);
        out += &format!("<tr><td>{}</td><td>{}</td>", escape(&group), class.1.words());
        for rank in &ranks {
            let share = shares.get(&(*rank, class)).map(|count| *count as f64 / all[&class] as f64);
            let text = share.map_or_else(String::new, |share| format!("{:.0} %", 100.0 * share));
            out += &format!("<td class=\"n\">{text}</td>");
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody></table></div>\n"
}

/// The most cells of the matrix: the ranks that came last most often.
const MOST_CELLS: usize = 100;
