//! The position of the walk through a Rust file: function, loops, test.

use syn::{Attribute, Block, Meta, Signature, Type};

#[derive(Debug, Clone)]
pub struct Scope {
    /// `module::Type::function`.
    pub path: String,
    /// The first and last line of the function, or of the file.
    pub lines: (u32, u32),
    /// The number of loops of the function around it.
    pub loop_depth: u32,
    pub is_test: bool,
    /// The number of macros around it.
    pub macros: u32,
}

impl Scope {
    pub fn named(&self, name: &str, attributes: &[Attribute]) -> Self {
        let path = match (self.path.as_str(), name) {
            (path, "") => path.to_owned(),
            ("", name) => name.to_owned(),
            (path, name) => format!("{path}::{name}"),
        };
        Self { path, is_test: self.is_test || is_test(attributes), ..self.clone() }
    }

    pub fn function(&self, signature: &Signature, attributes: &[Attribute], body: Option<&Block>) -> Self {
        // Computing the span of the whole item would join the spans of all its tokens.
        let first = signature.fn_token.span;
        let last = body.map_or(first, |body| body.brace_token.span.close());
        let lines = (line(first.start()), line(last.end()));
        Self { lines, loop_depth: 0, ..self.named(&signature.ident.to_string(), attributes) }
    }
}

pub fn line(place: proc_macro2::LineColumn) -> u32 {
    u32::try_from(place.line).unwrap_or(u32::MAX).max(1)
}

/// The name of a type, without generic arguments.
pub fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => type_name(&reference.elem),
        Type::Paren(inner) => type_name(&inner.elem),
        Type::Group(inner) => type_name(&inner.elem),
        _ => String::new(),
    }
}

/// Whether attributes mark a test or a benchmark: `#[test]`, `#[tokio::test]`, `#[cfg(test)]`.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let name = attribute.path().segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        match (name.as_str(), &attribute.meta) {
            ("test" | "bench", _) => true,
            ("cfg", Meta::List(list)) => list.parse_args().is_ok_and(|meta: Meta| needs_test(&meta)),
            _ => false,
        }
    })
}

/// Whether a condition holds only in tests.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            list.parse_args_with(parts).is_ok_and(|parts| parts.iter().any(needs_test))
        }
        _ => false,
    }
}
