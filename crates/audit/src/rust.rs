//! Waits in Rust, by syn's parse.
//!
//! syn and its tree call themselves for everything that nests. A text is therefore read on a thread whose stack is large
//! enough for the nesting that `nesting` allows, and what could nest deeper is not parsed.

mod calls;
mod macros;
mod nesting;
mod scope;
mod statements;
mod visit;

use proc_macro2::{LineColumn, TokenStream};

use self::{nesting::Nesting, statements::statement_lines, visit::Visitor};
use crate::{
    answer::{Audited, Problem},
    comments::{Lines, MARKER, Markers},
    rules::Rules,
    site::Site,
};

/// Bytes of stack for every step of nesting; more than parsing, looking and dropping take in a debug build.
const STACK_PER_STEP: usize = 32 * 1024;

/// Steps of nesting beyond which a text is not parsed.
const MOST_NESTING: usize = 8_000;

/// Finds the waits in a text of Rust.
pub fn audit_rust(text: &str, rules: &Rules) -> Audited {
    let stack = STACK_PER_STEP * (MOST_NESTING + 64);
    let audited = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, || audit(text, rules)).ok()?;
        thread.join().ok()
    });
    audited.unwrap_or_else(|| failed(None, "no thread could read it".to_owned()))
}

fn failed(line: Option<u32>, reason: String) -> Audited {
    Audited { problem: Some(Problem { line, reason }), ..Audited::default() }
}

fn audit(text: &str, rules: &Rules) -> Audited {
    let code = code(text);
    let tokens: TokenStream = match code.parse() {
        Ok(tokens) => tokens,
        Err(error) => return failed(number(error.span()), "a bracket or a literal does not end".to_owned()),
    };
    let has_markers = text.contains(MARKER);
    let nesting = Nesting::of(tokens.clone(), has_markers);
    if nesting.depth > MOST_NESTING {
        return failed(None, format!("it nests deeper than {MOST_NESTING} steps"));
    }
    let file: syn::File = match syn::parse2(tokens.clone()) {
        Ok(file) => file,
        Err(error) => return failed(number(error.span()), error.to_string()),
    };
    let lines = Lines::of(text, "//");
    let mut visitor = Visitor::new(rules, lines.count());
    syn::visit::Visit::visit_file(&mut visitor, &file);
    if has_markers {
        allow(&mut visitor.found, tokens, &lines, &markers(&lines, &nesting));
    }
    Audited { sites: visitor.found, unknown: visitor.unknown, problem: None, test_modules: visitor.test_modules }
}

/// Marks the sites that comments allow.
fn allow(sites: &mut [Site], tokens: TokenStream, lines: &Lines<'_>, markers: &Markers) {
    let place = |site: &Site| LineColumn { line: site.line as usize, column: site.column as usize - 1 };
    let starts = statement_lines(tokens, sites.iter().map(place));
    for site in sites {
        let start = starts.get(&place(site)).and_then(|line| u32::try_from(*line).ok()).unwrap_or(site.line);
        site.allowed = markers.reason(lines, site.line, site.last_line, start);
    }
}

/// The text with blanks for what is no token of Rust: a mark of the encoding, and a first line for the shell.
fn code(text: &str) -> String {
    let mark = text.strip_prefix('\u{feff}').map_or(0, |rest| text.len() - rest.len());
    let is_for_shell = text[mark..].starts_with("#!") && !text[mark + 2..].trim_start().starts_with('[');
    let end = if is_for_shell { text.find('\n').unwrap_or(text.len()) } else { mark };
    " ".repeat(end) + &text[end..]
}

fn number(span: proc_macro2::Span) -> Option<u32> {
    u32::try_from(span.start().line).ok().filter(|line| *line > 0)
}

/// The comments that allow waits. A marker in a literal is none.
fn markers(lines: &Lines<'_>, nesting: &Nesting) -> Markers {
    let mut markers = Markers::default();
    for (number, line) in lines.iter() {
        let Some(at) = line.find(MARKER) else { continue };
        let is_comment = line[..at].contains("//") || line[..at].contains("/*");
        if is_comment && !nesting.is_in_literal(number, line[..at].chars().count()) {
            markers.read(number, &line[at..]);
        }
    }
    markers
}
