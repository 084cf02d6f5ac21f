//! A greedy tokenizer, and text to try it on.

use std::collections::HashMap;

use laptime_probe::stage;

/// The longest token, in bytes.
const LONGEST: usize = 12;

/// Tokens by their bytes.
pub struct Tokenizer {
    tokens: Vec<Vec<u8>>,
    ids: HashMap<Vec<u8>, usize>,
}

impl Tokenizer {
    /// Learns the most frequent pieces of a text; every byte is a token too.
    pub fn new(text: &[u8], vocab: usize) -> Self {
        let _stage = stage!("learn", vocab = vocab);
        let mut counts: HashMap<&[u8], usize> = HashMap::new();
        for length in 2..=LONGEST {
            text.windows(length).step_by(3).for_each(|piece| *counts.entry(piece).or_default() += 1);
        }
        let mut pieces: Vec<(&[u8], usize)> = counts.into_iter().collect();
        pieces.sort_by_key(|&(piece, count)| (std::cmp::Reverse(count * (piece.len() - 1)), piece));
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        let tokens: Vec<Vec<u8>> =
            bytes.chain(pieces.into_iter().map(|(piece, _)| piece.to_vec())).take(vocab.max(256)).collect();
        let ids = tokens.iter().cloned().enumerate().map(|(id, token)| (token, id)).collect();
        Self { tokens, ids }
    }

    /// Splits a text into the longest matching tokens, from left to right.
    pub fn split(&self, text: &[u8]) -> Vec<usize> {
        let _stage = stage!("split", bytes = text.len());
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let longest = (1..=LONGEST.min(rest.len())).rev();
            let found = longest.filter_map(|length| Some((length, *self.ids.get(&rest[..length])?)));
            let (length, token) = found.into_iter().next().unwrap_or((1, usize::from(rest[0])));
            tokens.push(token);
            rest = &rest[length..];
        }
        tokens
    }

    /// The text of tokens.
    pub fn join(&self, tokens: &[usize]) -> Vec<u8> {
        tokens.iter().flat_map(|&token| self.tokens[token].iter().copied()).collect()
    }
}

/// Words in a pseudorandom order.
pub fn text(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "where ",
        "does ",
        "the ",
        "time ",
        "go ",
        "when ",
        "nobody ",
        "measures ",
        "it ",
        "twice ",
        "or ",
        "at all? ",
    ];
    let mut state = 7_u32;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        WORDS[(state >> 24) as usize % WORDS.len()]
    });
    words.flat_map(str::bytes).take(bytes).collect()
}
