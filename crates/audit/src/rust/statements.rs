//! Finds where the statements around sites begin: a comment above a statement applies to all its lines.

use std::collections::HashMap;

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree, token_stream};

use super::nesting::begins_anew;

struct Open {
    tokens: std::iter::Peekable<token_stream::IntoIter>,
    /// It contains statements, arms or items; other groups are part of the enclosing statement.
    is_block: bool,
    /// The first line of the current statement; none if it begins with the next token.
    start: Option<usize>,
}

/// The first lines of the statements that contain the tokens at these positions, found without recursion.
pub fn statement_lines(tokens: TokenStream, places: impl Iterator<Item = LineColumn>) -> HashMap<LineColumn, usize> {
    let mut lines: HashMap<LineColumn, usize> = places.map(|place| (place, place.line)).collect();
    let mut open = vec![Open { tokens: tokens.into_iter().peekable(), is_block: true, start: None }];
    while let Some(last) = open.last_mut() {
        let Some(token) = last.tokens.next() else {
            open.pop();
            continue;
        };
        let place = token.span().start();
        let start = *last.start.get_or_insert(place.line);
        if let Some(line) = lines.get_mut(&place) {
            *line = start;
        }
        match token {
            TokenTree::Group(group) => {
                let is_block = group.delimiter() == Delimiter::Brace;
                if is_block && last.is_block && last.tokens.peek().is_none_or(begins_anew) {
                    last.start = None;
                }
                let start = (!is_block).then_some(start);
                open.push(Open { tokens: group.stream().into_iter().peekable(), is_block, start });
            }
            TokenTree::Punct(punct) if last.is_block && matches!(punct.as_char(), ';' | ',') => last.start = None,
            _ => {}
        }
    }
    lines
}
