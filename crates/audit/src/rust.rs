//! Finds host syncs in Rust, parsed by syn.
//!
//! syn recurses for everything that nests. A text is therefore parsed on a thread with a stack that is large enough for
//! the nesting that `nesting` allows; a text that could nest deeper is not parsed.

mod calls;
mod macros;
mod nesting;
mod scope;
mod statements;
mod visit;

use proc_macro2::{LineColumn, TokenStream};

use self::{nesting::Nesting, statements::statement_lines, visit::Visitor};
use crate::answer::{Audited, Problem};
use crate::comments::{Lines, MARKER, Markers};
use crate::{rules::Rules, site::Site};

/// Bytes of stack per nesting level; more than parsing, visiting and dropping need in a debug build.
const STACK_PER_STEP: usize = 32 * 1024;

/// The maximum nesting depth of a text that is parsed.
const MOST_NESTING: usize = 8_000;

/// Finds the host syncs in Rust source.
pub fn audit_rust(text: &str, rules: &Rules) -> Audited {
    let stack = STACK_PER_STEP * (MOST_NESTING + 64);
    let audited = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, || audit(text, rules)).ok()?;
        thread.join().ok()
    });
    audited.unwrap_or_else(|| failed(None, "cannot start a thread to parse it".to_owned()))
}

fn failed(line: Option<u32>, reason: String) -> Audited {
    Audited { problem: Some(Problem { line, reason }), ..Audited::default() }
}

fn audit(text: &str, rules: &Rules) -> Audited {
    let code = code(text);
    let tokens: TokenStream = match code.parse() {
        Ok(tokens) => tokens,
        Err(error) => return failed(number(error.span()), "unclosed bracket or literal".to_owned()),
    };
    let has_markers = text.contains(MARKER);
    let nesting = Nesting::of(tokens.clone(), has_markers);
    if nesting.depth > MOST_NESTING {
        return failed(None, format!("nesting is deeper than {MOST_NESTING} levels"));
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

/// The text with blanks in place of a byte order mark and a shebang line, which are not Rust tokens.
fn code(text: &str) -> String {
    let mark = text.strip_prefix('\u{feff}').map_or(0, |rest| text.len() - rest.len());
    let is_for_shell = text[mark..].starts_with("#!") && !text[mark + 2..].trim_start().starts_with('[');
    let end = if is_for_shell { text.find('\n').unwrap_or(text.len()) } else { mark };
    " ".repeat(end) + &text[end..]
}

fn number(span: proc_macro2::Span) -> Option<u32> {
    u32::try_from(span.start().line).ok().filter(|line| *line > 0)
}

/// The comments that allow host syncs. A marker inside a literal is not one.
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
