//! What a case of `model` runs, and its short name: `pp512`, `tg128@d4096`, `forward512`, `step512`.

use std::{fmt, str::FromStr};

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Logits of every position, without a cache.
    Forward,
    /// Many tokens at once, after those in the cache.
    Prefill,
    /// Decode steps with a KV cache.
    Decode,
    /// Part of a training step.
    Training(Training),
}

/// Which part of a training step is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Training {
    /// Only the backward pass, after a forward pass that is not timed.
    Backward,
    /// Forward, loss and backward.
    ForwardBackward,
    /// The same, and an update of every parameter.
    Step,
}

/// The words of the passes.
pub const PASSES: &[&str] = &["forward", "prefill", "decode", "backward", "forward_backward", "step"];

impl Pass {
    const ALL: [Self; 6] = [
        Self::Forward,
        Self::Prefill,
        Self::Decode,
        Self::Training(Training::Backward),
        Self::Training(Training::ForwardBackward),
        Self::Training(Training::Step),
    ];

    /// Its name on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Training(Training::Backward) => "backward",
            Self::Training(Training::ForwardBackward) => "forward_backward",
            Self::Training(Training::Step) => "step",
        }
    }

    /// Whether it uses a cache.
    pub const fn has_cache(self) -> bool {
        matches!(self, Self::Prefill | Self::Decode)
    }

    /// The prefix of its short name; prefill and decode have the names of llama-bench.
    const fn short(self) -> &'static str {
        match self {
            Self::Prefill => "pp",
            Self::Decode => "tg",
            Self::Forward | Self::Training(_) => self.word(),
        }
    }
}

impl FromStr for Pass {
    type Err = NoTest;

    fn from_str(word: &str) -> Result<Self, NoTest> {
        Self::ALL.into_iter().find(|pass| pass.word() == word).ok_or_else(|| NoTest { text: word.to_owned() })
    }
}

/// The model and prompt of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// What runs.
    pub pass: Pass,
    /// Tokens of each sequence that are run and timed.
    pub tokens: usize,
    /// Tokens of each sequence that are in the cache before.
    pub cached: usize,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.pass.short(), self.tokens)?;
        if self.cached > 0 { write!(f, "@d{}", self.cached) } else { Ok(()) }
    }
}

/// A text that is not the name of a test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a test; examples: `pp512`, `tg128`, `tg128@d4096` or `forward512`")]
pub struct NoTest {
    text: String,
}

impl FromStr for Test {
    type Err = NoTest;

    fn from_str(text: &str) -> Result<Self, NoTest> {
        let wrong = || NoTest { text: text.to_owned() };
        let lower = text.to_ascii_lowercase();
        let (test, depth) = lower.split_once('@').map_or((lower.as_str(), None), |(test, depth)| (test, Some(depth)));
        let begins = |pass: &Pass| test.trim().starts_with(pass.short());
        // `forward_backward512` begins with `forward` too.
        let named = Pass::ALL.into_iter().filter(begins).max_by_key(|pass| pass.short().len());
        let pass = named.ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let tokens = number(&test.trim()[pass.short().len()..]).filter(|&tokens| tokens > 0).ok_or_else(wrong)?;
        let cached = match depth {
            None => 0,
            Some(depth) => depth.trim().strip_prefix('d').and_then(number).ok_or_else(wrong)?,
        };
        Ok(Self { pass, tokens, cached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tests_have_the_names_that_people_know() {
        let test = |pass, tokens, cached| Ok(Test { pass, tokens, cached });
        assert_eq!("pp512".parse(), test(Pass::Prefill, 512, 0));
        assert_eq!("tg128 @ d4096".parse(), test(Pass::Decode, 128, 4096));
        assert_eq!("PP8@d1".parse(), test(Pass::Prefill, 8, 1));
        assert_eq!("forward512".parse(), test(Pass::Forward, 512, 0));
        assert_eq!("backward64".parse(), test(Pass::Training(Training::Backward), 64, 0));
        assert_eq!("forward_backward64".parse(), test(Pass::Training(Training::ForwardBackward), 64, 0));
        assert_eq!("step64".parse(), test(Pass::Training(Training::Step), 64, 0));
    }

    #[test]
    fn what_is_no_test_is_told_with_examples() {
        for text in [
            "",
            "pp",
            "pp0",
            "pp-1",
            "tg128@",
            "tg128@4096",
            "xx512",
            "512",
            "pp512@d",
            "pp99999999999999999999",
            "forward_512",
        ] {
            let error = text.parse::<Test>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a test; examples: `pp512`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_test_is_read_back_from_its_name(pass in 0..6_usize, tokens in 1..usize::MAX, cached in any::<usize>()) {
            let test = Test { pass: Pass::ALL[pass], tokens, cached };
            prop_assert_eq!(test.to_string().parse::<Test>(), Ok(test));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            let _ = text.parse::<Test>();
        }
    }
}
