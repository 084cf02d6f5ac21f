//! The content of a macro: expressions if it parses as such, statements, or tokens.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{Block, Expr, Stmt, Token, parse::Parser, punctuated::Punctuated};

pub enum Inside {
    /// Expressions: `println!("{}", x)`, `vec![x; n]`.
    Expressions(Vec<Expr>),
    Statements(Vec<Stmt>),
    /// Something else.
    Tokens(TokenStream),
}

impl Inside {
    pub fn of(tokens: TokenStream) -> Self {
        if let Ok(list) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(tokens.clone()) {
            return Self::Expressions(list.into_iter().collect());
        }
        if let Ok(list) = Punctuated::<Expr, Token![;]>::parse_terminated.parse2(tokens.clone()) {
            return Self::Expressions(list.into_iter().collect());
        }
        match Block::parse_within.parse2(tokens.clone()) {
            Ok(statements) => Self::Statements(statements),
            Err(_) => Self::Tokens(tokens),
        }
    }
}

/// A call as tokens: `. name (…)`, `name (…)`.
pub struct TokenCall {
    pub name: Ident,
    /// The line where the arguments end.
    pub end: proc_macro2::LineColumn,
    /// The arguments, if they are expressions.
    pub arguments: Vec<Expr>,
}

/// The maximum number of argument tokens: a device is a short name.
const MOST_ARGUMENTS: usize = 16;

/// Every call in unparsed tokens for which there is a rule.
pub fn token_calls(tokens: TokenStream, has_rule: &dyn Fn(&str) -> bool) -> Vec<TokenCall> {
    let mut calls = Vec::new();
    let mut open = vec![tokens.into_iter()];
    let mut name: Option<Ident> = None;
    // A turbofish may be between name and arguments: `to_vec1::<f32>()`.
    let mut is_in_turbofish = false;
    let mut is_definition = false;
    while let Some(last) = open.last_mut() {
        match last.next() {
            None => {
                open.pop();
                (name, is_in_turbofish) = (None, false);
            }
            Some(TokenTree::Ident(_)) if is_in_turbofish => {}
            Some(TokenTree::Ident(ident)) => {
                // After `fn` it is a definition.
                name = (!is_definition && has_rule(&ident.to_string())).then(|| ident.clone());
                is_definition = ident == "fn";
                continue;
            }
            Some(TokenTree::Group(group)) => {
                let name = name.take().filter(|_| group.delimiter() == Delimiter::Parenthesis);
                calls.extend(name.map(|name| token_call(name, &group)));
                is_in_turbofish = false;
                open.push(group.stream().into_iter());
            }
            Some(TokenTree::Punct(punct)) => match punct.as_char() {
                ':' => {}
                '>' => is_in_turbofish = false,
                '<' => is_in_turbofish = name.is_some(),
                _ if is_in_turbofish => {}
                _ => (name, is_in_turbofish) = (None, false),
            },
            Some(TokenTree::Literal(_)) => {}
        }
        is_definition = false;
    }
    calls
}

fn token_call(name: Ident, group: &Group) -> TokenCall {
    let is_short = group.stream().into_iter().nth(MOST_ARGUMENTS).is_none();
    let parsed = is_short.then(|| Punctuated::<Expr, Token![,]>::parse_terminated.parse2(group.stream()).ok());
    let arguments = parsed.flatten().map(|list| list.into_iter().collect()).unwrap_or_default();
    TokenCall { name, end: group.span_close().end(), arguments }
}
