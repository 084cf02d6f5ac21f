//! An upper bound of the nesting depth of a text, computed without recursion.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree, token_stream};

/// The nesting depth of a text, and its literals that look like comments.
#[derive(Debug, Default)]
pub struct Nesting {
    /// The upper bound of the nesting depth.
    pub depth: usize,
    literals: Vec<(LineColumn, LineColumn)>,
}

struct Open {
    tokens: std::iter::Peekable<token_stream::IntoIter>,
    /// The depth at the start of the group.
    base: usize,
    /// Tokens since the last one that ended all nesting.
    steps: usize,
    /// Tokens that may nest across commas: `A<B, A<B, …`, `|a, b| |c, d| …`.
    crossing: usize,
}

impl Open {
    fn new(tokens: TokenStream, base: usize) -> Self {
        Self { tokens: tokens.into_iter().peekable(), base, steps: 0, crossing: 0 }
    }

    fn depth(&self) -> usize {
        self.base + self.steps + self.crossing
    }
}

impl Nesting {
    /// Measures a text.
    ///
    /// Every token counts as nested in the one before it, until a token ends the nesting: a `;`, a `,`, or a block that
    /// no operator follows. A sum of a thousand terms therefore counts as two thousand levels, which is the depth of
    /// its tree.
    pub fn of(tokens: TokenStream, keeps_literals: bool) -> Self {
        let mut nesting = Self::default();
        let mut open = vec![Open::new(tokens, 0)];
        while let Some(last) = open.last_mut() {
            let Some(token) = last.tokens.next() else {
                open.pop();
                continue;
            };
            last.steps += 1;
            nesting.depth = nesting.depth.max(last.depth());
            match token {
                TokenTree::Group(group) => {
                    let base = last.depth();
                    if group.delimiter() == Delimiter::Brace && last.tokens.peek().is_none_or(begins_anew) {
                        (last.steps, last.crossing) = (0, 0);
                    }
                    open.push(Open::new(group.stream(), base));
                }
                TokenTree::Punct(punct) => match punct.as_char() {
                    ';' => (last.steps, last.crossing) = (0, 0),
                    ',' => last.steps = 0,
                    '<' | '|' => last.crossing += 1,
                    _ => {}
                },
                TokenTree::Literal(literal) if keeps_literals => {
                    nesting.literals.push((literal.span().start(), literal.span().end()));
                }
                TokenTree::Ident(_) | TokenTree::Literal(_) => {}
            }
        }
        nesting
    }

    /// Whether a position (line from 1, column from 0) is in a literal.
    pub fn is_in_literal(&self, line: u32, column: usize) -> bool {
        let place = LineColumn { line: line as usize, column };
        self.literals.iter().any(|(start, end)| *start <= place && place < *end)
    }
}

/// Whether a token after a block can only begin something new.
pub fn begins_anew(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(ident) => *ident != "else" && *ident != "as",
        TokenTree::Literal(_) => true,
        TokenTree::Punct(punct) => punct.as_char() == '#',
        TokenTree::Group(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(text: &str) -> usize {
        Nesting::of(text.parse().unwrap(), false).depth
    }

    #[test]
    fn siblings_do_not_nest() {
        assert!(depth(&"fn f() { g(); }\n".repeat(1000)) < 20);
        assert!(depth(&format!("const X: [u32; 1000] = [{}];", "1, ".repeat(1000))) < 20);
        assert!(depth(&format!("fn f() {{ match x {{ {} }} }}", "A(x) => {} ".repeat(1000))) < 30);
    }

    #[test]
    fn the_depth_is_an_upper_bound() {
        assert!(depth(&format!("fn f() {{ {}x{} }}", "(".repeat(500), ")".repeat(500))) >= 500);
        assert!(depth(&format!("fn f() {{ x{} }}", " + x".repeat(500))) >= 500);
        assert!(depth(&format!("fn f() {{ {} }}", "if x {} else ".repeat(500))) >= 500);
        assert!(depth(&format!("type T = {}u8{};", "A<u8, ".repeat(500), ">".repeat(500))) >= 500);
        assert!(depth(&format!("const X: F = {}1;", "|a, b| ".repeat(500))) >= 500);
        assert!(depth(&format!("const X: u8 = {}{{}};", "{} + ".repeat(500))) >= 500);
        assert!(depth(&format!("const X: u8 = {}{{}};", "{} as u8 ".repeat(500))) >= 500);
    }
}
