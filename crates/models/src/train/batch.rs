//! A batch for models that have nothing to learn from.

use crate::synthetic::{Fill, key};
use crate::{Config, ModelError, Tokens};

/// Random tokens and the targets of each: the token behind it, and of the last a random one too.
pub fn random_batch(config: &Config, batch: usize, tokens: usize, seed: u64) -> Result<(Tokens, Vec<u32>), ModelError> {
    let too_many = || ModelError::Refused(format!("{batch} sequences of {tokens} tokens are too many"));
    let length = tokens.checked_add(1).ok_or_else(too_many)?;
    let count = batch.checked_mul(length).filter(|count| *count <= u32::MAX as usize).ok_or_else(too_many)?;
    let fill = Fill::Random { key: key(seed, "tokens"), amplitude: 0.5 };
    let last = config.vocab.saturating_sub(1);
    let id = |at: u64| (((f64::from(fill.at(at)) + 0.5) * config.vocab as f64) as usize).min(last) as u32;
    let ids: Vec<u32> = (0..count as u64).map(id).collect();
    let part = |from: usize| ids.chunks(length).flat_map(|ids| &ids[from..][..tokens]).copied().collect();
    let batch = Tokens { ids: part(0), batch };
    batch.check(config)?;
    Ok((batch, part(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_token_is_the_one_behind_it() {
        let config = Config::from_preset("tiny").unwrap();
        let (tokens, targets) = random_batch(&config, 3, 7, 1).unwrap();
        assert_eq!((tokens.batch, tokens.ids.len(), targets.len()), (3, 21, 21));
        for (ids, targets) in tokens.ids.chunks(7).zip(targets.chunks(7)) {
            assert_eq!(ids[1..], targets[..6]);
        }
        assert_ne!(random_batch(&config, 3, 7, 2).unwrap().0, tokens);
    }

    #[test]
    fn tokens_are_spread_over_the_vocabulary() {
        let config = Config::from_preset("tiny").unwrap();
        let (tokens, _) = random_batch(&config, 4, 500, 0).unwrap();
        let low = tokens.ids.iter().filter(|id| **id < 256).count();
        assert!((800..1200).contains(&low), "{low} of 2000 are in the lower half");
        assert!(tokens.ids.iter().all(|id| *id < 512));
    }

    #[test]
    fn a_batch_of_nothing_or_of_too_much_is_refused() {
        let config = Config::from_preset("tiny").unwrap();
        for (batch, tokens) in [(0, 5), (5, 0), (usize::MAX, 2), (1, usize::MAX), (1 << 30, 1 << 30)] {
            assert!(random_batch(&config, batch, tokens, 0).is_err(), "{batch} {tokens}");
        }
    }
}
