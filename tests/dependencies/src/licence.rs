//! Licence expressions: `MIT OR (Apache-2.0 AND BSD-3-Clause)`, and `MIT/Apache-2.0` as older manifests write it.

/// Whether an expression can be kept to with these licences alone; false if it cannot be read.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let answer = reader.any_of();
    answer == Some(true) && reader.words.is_empty()
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Reader<'a> {
    /// Alternatives: one must be allowed.
    fn any_of(&mut self) -> Option<bool> {
        let mut answer = self.all_of()?;
        while self.takes("OR") {
            answer |= self.all_of()?;
        }
        Some(answer)
    }

    /// Parts: each must be allowed. It binds closer than `OR`.
    fn all_of(&mut self) -> Option<bool> {
        let mut answer = self.one()?;
        while self.takes("AND") {
            answer &= self.one()?;
        }
        Some(answer)
    }

    /// A licence, with its exception if it has one, or an expression in parentheses.
    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let answer = self.any_of()?;
            return self.takes(")").then_some(answer);
        }
        let licence = self.next().filter(|word| ![")", "AND", "OR", "WITH"].contains(word))?;
        let licence = if self.takes("WITH") { format!("{licence} WITH {}", self.next()?) } else { licence.to_owned() };
        Some(self.allowed.contains(&licence))
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_it_can_be_kept_to() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("GPL-3.0-only/MIT", true),
            ("(GPL-3.0-only OR MIT) AND Apache-2.0", true),
            ("GPL-3.0-only AND MIT OR Apache-2.0", true),
            ("MIT AND (GPL-3.0-only OR Zlib)", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT Apache-2.0", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
