//! The position of the walk through a Python file: function, loops, statement.

use tree_sitter::Node;

use super::line;

#[derive(Debug, Clone, Copy)]
pub struct Frame<'t> {
    kind: &'t str,
    /// The index of the enclosing function or class.
    function: usize,
    /// The number of loops of that function around the node.
    pub loop_depth: u32,
    /// The first line of the enclosing statement.
    pub statement_line: u32,
    /// What uses the truth value or number of the node: `if`, `bool`, `int`, `float`.
    pub truth: Option<&'static str>,
    start_line: u32,
    /// What the call does that the node is, or whose arguments it is.
    calling: Calling,
    /// The number of entered parts: clauses of a comprehension, or parts of a conditional expression.
    parts: u32,
}

/// What a call does with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calling {
    /// Nothing relevant.
    Other,
    /// It calls them for every element.
    Mapping,
    /// It uses their truth value or number.
    Number(&'static str),
}

/// A function or class, or the file itself.
#[derive(Debug)]
pub struct Function {
    /// `Class.method`; empty for the file.
    pub path: String,
    pub lines: (u32, u32),
}

/// The stack of nodes of the walk, and the functions found.
#[derive(Debug)]
pub struct Scopes<'t> {
    frames: Vec<Frame<'t>>,
    functions: Vec<Function>,
}

impl<'t> Scopes<'t> {
    pub fn new(lines: u32) -> Self {
        Self { frames: Vec::new(), functions: vec![Function { path: String::new(), lines: (1, lines) }] }
    }

    pub fn push(&mut self, frame: Frame<'t>) {
        self.frames.push(frame);
    }

    pub fn pop(&mut self) {
        self.frames.pop();
    }

    pub fn function(&self, frame: &Frame<'_>) -> &Function {
        &self.functions[frame.function]
    }

    /// The context of a child, given its `field` in the parent.
    pub fn enter(&mut self, node: Node<'t>, field: Option<&str>, text: &str) -> Frame<'t> {
        let (kind, start_line) = (node.kind(), line(node.start_position().row));
        let Some(parent) = self.frames.last().copied() else {
            return Frame {
                kind,
                function: 0,
                loop_depth: 0,
                statement_line: start_line,
                truth: None,
                start_line,
                calling: Calling::Other,
                parts: 0,
            };
        };
        let is_statement = matches!(parent.kind, "block" | "module") || kind == "elif_clause";
        let mut frame = Frame {
            kind,
            start_line,
            statement_line: if is_statement { start_line } else { parent.statement_line },
            truth: truth(&parent, field),
            loop_depth: parent.loop_depth.saturating_add(u32::from(is_turn(&parent, kind, field))),
            calling: calling(&parent, node, text),
            parts: 0,
            ..parent
        };
        self.count_part(node);
        if matches!(kind, "function_definition" | "class_definition") {
            frame.function = self.begin(&parent, node, text);
            frame.loop_depth = 0;
        }
        frame
    }

    fn count_part(&mut self, node: Node<'_>) {
        if let Some(parent) = self.frames.last_mut() {
            let is_part = match parent.kind {
                "conditional_expression" => node.is_named() && !node.is_extra(),
                _ => node.kind() == "for_in_clause",
            };
            parent.parts += u32::from(is_part);
        }
    }

    fn begin(&mut self, parent: &Frame<'_>, node: Node<'_>, text: &str) -> usize {
        let name = node.child_by_field_name("name").and_then(|name| text.get(name.byte_range())).unwrap_or("?");
        let around = &self.functions[parent.function].path;
        let path = if around.is_empty() { name.to_owned() } else { format!("{around}.{name}") };
        let first =
            if parent.kind == "decorated_definition" { parent.start_line } else { line(node.start_position().row) };
        self.functions.push(Function { path, lines: (first, line(node.end_position().row)) });
        self.functions.len() - 1
    }
}

/// Whether a node is repeated by a loop.
fn is_turn(parent: &Frame<'_>, kind: &str, field: Option<&str>) -> bool {
    match parent.kind {
        "for_statement" => field == Some("body"),
        "while_statement" => matches!(field, Some("body" | "condition")),
        "list_comprehension" | "set_comprehension" | "dictionary_comprehension" | "generator_expression" => {
            // The iterable of the first clause is evaluated once.
            field == Some("body") || kind == "if_clause" || kind == "for_in_clause" && parent.parts > 0
        }
        "argument_list" | "keyword_argument" => kind == "lambda" && parent.calling == Calling::Mapping,
        _ => false,
    }
}

/// What uses the truth value or number of a node.
fn truth(parent: &Frame<'_>, field: Option<&str>) -> Option<&'static str> {
    match parent.kind {
        "if_statement" | "elif_clause" | "while_statement" => (field == Some("condition")).then_some("if"),
        "if_clause" | "assert_statement" | "not_operator" | "boolean_operator" => Some("if"),
        // The parts are a value, the condition, and the other value.
        "conditional_expression" => (parent.parts == 1).then_some("if"),
        "parenthesized_expression" | "comparison_operator" => parent.truth,
        "argument_list" => match parent.calling {
            Calling::Number(number) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

fn calling(parent: &Frame<'_>, node: Node<'_>, text: &str) -> Calling {
    match node.kind() {
        "call" => {
            let function = node.child_by_field_name("function").and_then(|function| text.get(function.byte_range()));
            match function.unwrap_or_default() {
                "map" | "filter" | "sorted" | "min" | "max" | "reduce" => Calling::Mapping,
                "bool" => Calling::Number("bool"),
                "int" => Calling::Number("int"),
                "float" => Calling::Number("float"),
                _ => Calling::Other,
            }
        }
        "argument_list" | "keyword_argument" => parent.calling,
        _ => Calling::Other,
    }
}
