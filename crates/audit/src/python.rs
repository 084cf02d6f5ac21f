//! Finds host syncs in Python, parsed by tree-sitter.
//!
//! The tree is walked without recursion, and the parser does not recurse either, so nesting depth is not limited. The
//! parser skips what it cannot parse; the rest of the file is audited.

mod calls;
mod imports;
mod scope;

use tree_sitter::{Node, Parser, Tree};

use self::calls::{Called, Calls};
use self::imports::Imports;
use self::scope::{Frame, Scopes};
use crate::answer::{Audited, Problem};
use crate::comments::{Lines, Markers};
use crate::{rules::Rules, site::Site};

/// Finds the host syncs in Python source.
pub fn audit_python(text: &str, rules: &Rules) -> Audited {
    let Some(tree) = parse(text) else {
        let problem = Problem { line: None, reason: "cannot be parsed".to_owned() };
        return Audited { problem: Some(problem), ..Audited::default() };
    };
    let lines = Lines::of(text, "#");
    let walk = Walk {
        text,
        calls: Calls { rules, text, imports: Imports::default() },
        scopes: Scopes::new(lines.count()),
        markers: Markers::default(),
        found: Vec::new(),
        unknown: 0,
    };
    let mut audited = walk.run(&tree, &lines);
    audited.problem = tree.root_node().has_error().then(|| problem(&tree));
    audited
}

fn parse(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(text, None)
}

/// The first place that could not be parsed.
fn problem(tree: &Tree) -> Problem {
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            break;
        }
        // The first child that contains an error, as deep as possible.
        let mut is_deeper = cursor.goto_first_child();
        while is_deeper && !cursor.node().has_error() {
            is_deeper = cursor.goto_next_sibling();
        }
        if !is_deeper {
            break;
        }
    }
    Problem { line: Some(line(cursor.node().start_position().row)), reason: "invalid Python syntax".to_owned() }
}

fn line(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX).saturating_add(1)
}

struct Found {
    site: Site,
    statement_line: u32,
}

struct Walk<'a> {
    text: &'a str,
    calls: Calls<'a>,
    scopes: Scopes<'a>,
    markers: Markers,
    found: Vec<Found>,
    unknown: u64,
}

impl<'a> Walk<'a> {
    fn run(mut self, tree: &'a Tree, lines: &Lines<'_>) -> Audited {
        let mut cursor = tree.walk();
        loop {
            let (node, field) = (cursor.node(), cursor.field_name());
            let frame = self.scopes.enter(node, field, self.text);
            self.look_at(node, &frame);
            if cursor.goto_first_child() {
                self.scopes.push(frame);
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return self.finish(lines);
                }
                self.scopes.pop();
            }
        }
    }

    fn finish(self, lines: &Lines<'_>) -> Audited {
        let Self { markers, found, unknown, .. } = self;
        let allowed = |found: Found| {
            let Found { site, statement_line } = found;
            let allowed = markers.reason(lines, site.line, site.last_line, statement_line);
            Site { allowed, ..site }
        };
        Audited { sites: found.into_iter().map(allowed).collect(), unknown, ..Audited::default() }
    }

    fn look_at(&mut self, node: Node<'_>, frame: &Frame<'_>) {
        match node.kind() {
            "comment" => self.markers.read(line(node.start_position().row), self.calls.text_of(node)),
            "import_statement" | "import_from_statement" => self.calls.imports.read(node, self.text),
            "call" => match self.calls.called(node, frame.truth) {
                Some(Called::Wait(wait)) => self.add(node, wait, frame),
                Some(Called::Unknown) => self.unknown += 1,
                None => {}
            },
            _ => {}
        }
    }

    fn add(&mut self, node: Node<'_>, wait: calls::Wait<'_>, frame: &Frame<'_>) {
        let start = wait.place.start_position();
        let before = self.text.get(wait.place.start_byte() - start.column..wait.place.start_byte());
        let function = self.scopes.function(frame);
        let site = Site {
            line: line(start.row),
            column: line(before.map_or(start.column, |before| before.chars().count())),
            last_line: line(node.end_position().row),
            call: wait.call,
            name: wait.name.to_owned(),
            certainty: wait.certainty,
            function: function.path.clone(),
            function_lines: function.lines,
            loop_depth: frame.loop_depth,
            is_test: false,
            allowed: None,
        };
        self.found.push(Found { site, statement_line: frame.statement_line });
    }
}
