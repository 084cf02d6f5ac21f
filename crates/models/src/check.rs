//! The rules that every model holds, checked before anything is computed or allocated.

use crate::{Config, Done, Family, ModelError, error::require};

/// Layers at most: far more than any model has, few enough to be listed.
const MOST_LAYERS: usize = 4096;

/// The largest width or count: tokens and positions are counted in 32 bits on devices.
pub(crate) const LARGEST: usize = i32::MAX as usize;

/// Positions at least of a Nano model, as its kit asks.
const LEAST_NANO_CONTEXT: usize = 512;

/// What is wrong with a configuration.
pub(crate) type Fault = Result<(), String>;

/// The error for a configuration of this name.
pub(crate) fn refused(name: &str, fault: Fault) -> Done {
    fault.map_err(|reason| ModelError::Refused(format!("`{name}`: {reason}")))
}

/// Refuses parameters whose bytes cannot be counted.
pub(crate) fn check_parameters(checked: Option<u64>) -> Fault {
    require!(checked.is_some(), "its weights are more bytes than can be counted");
    Ok(())
}

/// Refuses a size that is 0 or too large; `of` names what has it.
pub(crate) fn check_sizes<'f>(of: &str, sizes: impl IntoIterator<Item = (&'f str, usize)>) -> Fault {
    for (field, size) in sizes {
        require!((1..=LARGEST).contains(&size), "`{field}`{of} is {size}");
    }
    Ok(())
}

impl Config {
    /// Refuses what makes no model, and says which field is wrong.
    pub fn check(&self) -> Done {
        let fault = self.check_counts().and_then(|()| self.check_heads()).and_then(|()| self.check_numbers());
        let fault = fault.and_then(|()| self.check_nano());
        refused(&self.name, fault.and_then(|()| check_parameters(self.checked_parameters())))
    }

    fn check_counts(&self) -> Fault {
        let fields = [
            ("vocab", self.vocab),
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
            ("context", self.context),
        ];
        for (field, count) in fields {
            let most = if field == "layers" { MOST_LAYERS } else { LARGEST };
            require!(count > 0, "`{field}` is 0");
            require!(count <= most, "`{field}` is {count}, and {most} is the most");
        }
        Ok(())
    }

    fn check_heads(&self) -> Fault {
        let (heads, kv_heads, head_dim) = (self.heads, self.kv_heads, self.head_dim);
        require!(heads.is_multiple_of(kv_heads), "`heads` is {heads}, which `kv_heads` {kv_heads} does not divide");
        require!(head_dim.is_multiple_of(2), "`head_dim` is {head_dim}, and RoPE rotates pairs of numbers");
        Ok(())
    }

    fn check_numbers(&self) -> Fault {
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        let (theta, eps) = (self.rope.theta, self.norm_eps);
        require!(is_positive(theta), "`rope.theta` is {theta}, and it must be above 0");
        require!(eps.is_finite() && eps >= 0.0, "`norm_eps` is {eps}, and it must not be below 0");
        require!(
            self.window.is_none_or(|window| window.size > 0 && window.full_every > 0 && is_positive(window.theta)),
            "`window` needs a size, a distance of full layers and a theta above 0"
        );
        let Some(scaling) = self.rope.scaling else { return Ok(()) };
        let has_numbers = is_positive(scaling.factor) && is_positive(scaling.low) && scaling.high.is_finite();
        require!(
            has_numbers && scaling.high > scaling.low && scaling.trained > 0,
            "`rope.scaling` makes no sense: it needs a factor above 0, `low` above 0 and under `high`, and a trained length"
        );
        Ok(())
    }

    fn check_nano(&self) -> Fault {
        if self.family != Family::Nano {
            return Ok(());
        }
        let Self { context, hidden, heads, head_dim, .. } = *self;
        require!(
            context >= LEAST_NANO_CONTEXT,
            "`context` (block size) is {context}, and {LEAST_NANO_CONTEXT} is the least of its kind"
        );
        let is_divided = hidden.is_multiple_of(heads) && hidden / heads == head_dim;
        require!(is_divided, "`hidden` is {hidden}, which is not `heads` {heads} x `head_dim` {head_dim}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(change: impl Fn(&mut Config)) -> String {
        let mut config = Config::from_preset("tiny").unwrap();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn every_refusal_names_the_field() {
        assert_eq!(refused(|config| config.vocab = 0), "`tiny`: `vocab` is 0");
        assert_eq!(refused(|config| config.kv_heads = 3), "`tiny`: `heads` is 4, which `kv_heads` 3 does not divide");
        assert_eq!(
            refused(|config| config.head_dim = 15),
            "`tiny`: `head_dim` is 15, and RoPE rotates pairs of numbers"
        );
        assert_eq!(refused(|config| config.layers = 5000), "`tiny`: `layers` is 5000, and 4096 is the most");
        assert!(refused(|config| config.rope.theta = f64::NAN).contains("`rope.theta` is NaN"));
        let window = Some(crate::SlidingWindow { size: 0, full_every: 6, theta: 1e4 });
        assert!(refused(|config| config.window = window).contains("`window` needs a size"));
        assert!(refused(|config| config.norm_eps = -1.0).contains("`norm_eps` is -1"));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let error = refused(|config| {
            config.layers = 4096;
            config.hidden = LARGEST;
            config.ffn = LARGEST;
        });
        assert_eq!(error, "`tiny`: its weights are more bytes than can be counted");
    }

    #[test]
    fn nano_models_have_rules_of_their_own() {
        let nano = |change: fn(&mut Config)| {
            let mut config = Config::from_preset("decoder_tiny").unwrap();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(nano(|config| config.context = 511).contains("`context` (block size) is 511, and 512 is the least"));
        assert!(nano(|config| config.hidden = 500).contains("`hidden` is 500, which is not `heads` 8 x `head_dim` 64"));
    }

    #[test]
    fn a_stretch_without_a_trained_length_is_refused() {
        let mut config = Config::from_preset("tiny-llama").unwrap();
        config.rope.scaling.as_mut().unwrap().trained = 0;
        assert!(config.check().unwrap_err().to_string().contains("`rope.scaling` makes no sense"));
    }

    proptest! {
        #[test]
        fn any_sizes_are_taken_or_refused_without_a_panic(
            sizes in proptest::array::uniform8(prop_oneof![0_usize..100, Just(usize::MAX), Just(LARGEST)]),
        ) {
            let [vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context] = sizes;
            let base = Config::from_preset("tiny").unwrap();
            let config = Config { vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context, ..base };
            let bytes = config.weight_bytes(crate::Dtype::F32);
            if config.check().is_ok() {
                prop_assert_eq!(bytes, config.parameters() * 4);
                prop_assert!(config.kv_bytes_per_token(crate::Dtype::F32) > 0);
            }
        }
    }
}
