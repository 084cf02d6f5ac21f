//! Suggestions for misspelt names.

/// The known name closest to a misspelt one, if any is close.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known = known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let (distance, nearest) = known.min()?;
    (distance <= (name.chars().count() / 3).max(1)).then_some(nearest)
}

/// ``did you mean `NAME`? ``, for the start of a hint; empty if no name is close.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_has_a_suggestion_and_another_word_has_none() {
        let known = ["matmul", "copy", "model"];
        assert_eq!(nearest("matmull", known), Some("matmul"));
        assert_eq!(nearest("cpoy", known), Some("copy"));
        assert_eq!(nearest("attention", known), None);
    }
}
