//! The built-in texts.

/// The names of the texts, short ones first.
pub const LABELS: &[&str] = &["short", "medium", "long"];

/// 13 words.
const SHORT: &str = "The morning train leaves at seven, and the seats by the window fill.";

/// 53 words.
const MEDIUM: &str = "A lighthouse keeper once wrote down the weather every evening for thirty years. Rain, wind, \
    fog and the rare clear night all went into the same brown books. When the lamp was finally made automatic, \
    a young scientist borrowed those pages, and found in them the slow warming of a whole cold sea.";

/// 115 words.
const LONG: &str = "On the first day of the harvest the whole village walked down to the river before sunrise. Nobody \
    had asked them to; it was simply what people there had always done. The older ones carried baskets and the \
    children carried bread, and somewhere behind them a dog barked at the fading stars. When the light came over the \
    hills, the water turned from grey to silver, and the talking stopped for a while. Then someone laughed, a boat \
    was pushed from the bank, and the work began. By noon the baskets were full, the bread was gone, and the river \
    lay quiet again, as though nothing at all had happened there on that long morning.";

/// The text with this name.
pub fn text(label: &str) -> Option<&'static str> {
    match label {
        "short" => Some(SHORT),
        "medium" => Some(MEDIUM),
        "long" => Some(LONG),
        _ => None,
    }
}

/// The number of words of a text.
pub fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_have_as_many_words_as_those_of_the_kit() {
        let counts: Vec<usize> = LABELS.iter().map(|label| words(text(label).unwrap())).collect();
        assert_eq!(counts, [13, 53, 115]);
        assert_eq!(text("huge"), None);
    }
}
