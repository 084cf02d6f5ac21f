//! Splits the name of a kernel: its function, its namespaces, and its template arguments by level.

/// The parts of a kernel name, by how much they describe its work.
#[derive(Debug, PartialEq, Eq)]
pub struct Levels {
    /// The function's own name.
    pub function: String,
    /// The function with its namespaces and without arguments.
    pub path: String,
    /// Template arguments, outer ones first, without types.
    pub arguments: Vec<String>,
}

/// Arguments nested deeper than this are treated as one level.
const DEEPEST: usize = 12;

/// Splits a name: a C++ declaration, a mangled name or a plain word.
pub fn levels(name: &str) -> Levels {
    let mut texts = mangled(name).unwrap_or_else(|| declared(name));
    let path = if texts.is_empty() { String::new() } else { texts.remove(0) };
    // The part before a space is the return type.
    let path = path.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let function = path.rsplit("::").next().unwrap_or_default().to_owned();
    Levels { function, path, arguments: texts.iter().map(|text| without_types(text)).collect() }
}

/// The text of a declaration at each depth of template arguments. Parameters are left out.
fn declared(name: &str) -> Vec<String> {
    let name = ANONYMOUS.iter().fold(name.to_owned(), |name, unnamed| name.replace(unnamed, ""));
    let mut texts = vec![String::new()];
    let (mut depth, mut parentheses, mut last) = (0_usize, 0_usize, ' ');
    for letter in name.chars() {
        match letter {
            '(' if depth == 0 => break,
            '(' => parentheses += 1,
            ')' => parentheses = parentheses.saturating_sub(1),
            _ if parentheses > 0 => {}
            '<' => {
                depth = (depth + 1).min(DEEPEST);
                texts.resize(texts.len().max(depth + 1), String::new());
                texts[depth].push(' ');
            }
            '>' if last != '-' => depth = depth.saturating_sub(1),
            _ => texts[depth].push(letter),
        }
        last = letter;
    }
    texts
}

/// How compilers and profilers write an anonymous namespace.
const ANONYMOUS: [&str; 2] = ["(anonymous namespace)::", "<unnamed>::"];

/// The function in a mangled name with its namespaces, and what follows: `_ZN5aiter3addIfEEvv` is `aiter::add` and
/// `IfEEvv`.
pub fn mangled_path(name: &str) -> Option<(String, &str)> {
    let mangled = name.strip_prefix("_Z")?;
    let is_nested = mangled.starts_with('N');
    let mut rest = mangled.trim_start_matches(['N', 'K', 'L']);
    let mut path: Vec<&str> = Vec::new();
    while let Some((part, after)) = identifier(rest).filter(|_| path.is_empty() || is_nested) {
        path.push(part);
        rest = after;
    }
    path.retain(|part| !part.starts_with("_GLOBAL__N_"));
    (!path.is_empty()).then(|| (path.join("::"), rest))
}

/// The names in a mangled name: those of the function, then those of its arguments, all as one level.
fn mangled(name: &str) -> Option<Vec<String>> {
    let (path, mut rest) = mangled_path(name)?;
    let mut arguments: Vec<&str> = Vec::new();
    while let Some(letter) = rest.chars().next() {
        if let Some((part, after)) = identifier(rest) {
            arguments.push(part);
            rest = after;
        } else {
            rest = literal(rest).unwrap_or(&rest[letter.len_utf8()..]);
        }
    }
    Some(vec![path, arguments.join(" ")])
}

/// An identifier of a mangled name (its length, then its letters) and what follows it.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let length: usize = text[..digits].parse().ok()?;
    let part = text[digits..].get(..length)?;
    Some((part, &text[digits + length..]))
}

/// What follows a literal of a mangled name, such as `Li64E`: its digits are not a length.
fn literal(text: &str) -> Option<&str> {
    let value = text.strip_prefix('L')?.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
    value.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == 'n').strip_prefix('E')
}

/// A level of arguments without type names: they describe the data, not the work.
fn without_types(text: &str) -> String {
    let is_in_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let names = text.split(|letter: char| !is_in_name(letter));
    names.filter(|name| !name.is_empty() && !is_type(name)).collect::<Vec<_>>().join(" ")
}

fn is_type(name: &str) -> bool {
    let name = name.trim_end_matches(':');
    ["_t", "Type", "Params", "Metadata", "Layout", "Traits", "_traits"].iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_split_by_the_depth_of_its_arguments() {
        let found =
            levels("void at::native::(anonymous namespace)::run<4, at::f<g<int>(at::Base&)>, c::half_t>(int, T)");
        assert_eq!((found.function.as_str(), found.path.as_str()), ("run", "at::native::run"));
        assert_eq!(found.arguments, ["4 at::f", "g", "int"]);
    }

    #[test]
    fn the_last_name_is_the_function_and_the_return_type_is_dropped() {
        let found = levels("std::enable_if<true, void>::type a::b<int>::run<float>(int)");
        assert_eq!((found.function.as_str(), found.path.as_str()), ("run", "a::b::run"));
    }

    #[test]
    fn a_mangled_name_is_split_and_its_literals_are_dropped() {
        let found = levels("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_5ShapeELb0EEEEvv");
        assert_eq!((found.function.as_str(), found.path.as_str()), ("kentry", "ck_tile::kentry"));
        assert_eq!(found.arguments, ["Rmsnorm2dFwd Shape"]);
    }

    #[test]
    fn plain_and_malformed_names_are_not_split() {
        for name in ["nvjet_tst_192x192_64x3_2x1_v_bz_TNT", "a>>b", "_Z", "_Z99x", "", "f<<<<"] {
            levels(name);
        }
        assert_eq!(levels("all-reduce.5").function, "all-reduce.5");
        assert_eq!(levels("_Z99x").function, "_Z99x");
    }
}
