//! Checks of configurations, before anything is computed or allocated.

use crate::{Config, Done, Family, ModelError, error::require};

/// The most layers: far more than any model has, few enough to list.
const MOST_LAYERS: usize = 4096;

/// The largest size: devices count tokens and positions in 32 bits.
pub(crate) const LARGEST: usize = i32::MAX as usize;

/// The smallest context that Nano XYZ accepts.
const LEAST_NANO_CONTEXT: usize = 512;

/// The reason why a configuration is refused.
pub(crate) type Fault = Result<(), String>;

/// The error for a configuration of this name.
pub(crate) fn refused(name: &str, fault: Fault) -> Done {
    fault.map_err(|reason| ModelError::Refused(format!("`{name}`: {reason}")))
}

/// Refuses parameters whose bytes do not fit 63 bits.
pub(crate) fn check_parameters(checked: Option<u64>) -> Fault {
    require!(checked.is_some(), "the weights are too large to count their bytes");
    Ok(())
}

/// Refuses a size that is 0 or too large. `of` names its owner.
pub(crate) fn check_sizes<'f>(of: &str, sizes: impl IntoIterator<Item = (&'f str, usize)>) -> Fault {
    for (field, size) in sizes {
        require!((1..=LARGEST).contains(&size), "`{field}`{of} is {size}");
    }
    Ok(())
}

impl Config {
    /// Refuses an invalid configuration, naming the field.
    pub fn check(&self) -> Done {
        let fault = self.check_sizes().and_then(|()| self.check_numbers()).and_then(|()| self.check_nano());
        refused(&self.name, fault.and_then(|()| check_parameters(self.checked_parameters())))
    }

    fn check_sizes(&self) -> Fault {
        let Self { vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context, .. } = *self;
        let sizes =
            [("vocab", vocab), ("hidden", hidden), ("layers", layers), ("heads", heads), ("kv_heads", kv_heads)];
        check_sizes("", sizes.into_iter().chain([("head_dim", head_dim), ("ffn", ffn), ("context", context)]))?;
        require!(layers <= MOST_LAYERS, "`layers` is {layers}, the most is {MOST_LAYERS}");
        require!(heads.is_multiple_of(kv_heads), "`heads` is {heads}, expected a multiple of `kv_heads` {kv_heads}");
        require!(head_dim.is_multiple_of(2), "`head_dim` is {head_dim}, expected an even number for RoPE");
        Ok(())
    }

    fn check_numbers(&self) -> Fault {
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        let (theta, eps) = (self.rope.theta, self.norm_eps);
        require!(is_positive(theta), "`rope.theta` is {theta}, expected a positive number");
        require!(eps.is_finite() && eps >= 0.0, "`norm_eps` is {eps}, expected a non-negative number");
        require!(
            self.window.is_none_or(|window| window.size > 0 && window.full_every > 0 && is_positive(window.theta)),
            "`window` needs a size, an interval of full layers and a positive theta"
        );
        let Some(scaling) = self.rope.scaling else { return Ok(()) };
        let has_numbers = is_positive(scaling.factor) && is_positive(scaling.low) && scaling.high.is_finite();
        require!(
            has_numbers && scaling.high > scaling.low && scaling.trained > 0,
            "`rope.scaling` needs a positive factor, a positive `low` below `high`, and a trained length"
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
            "`context` (block size) is {context}, Nano models need at least {LEAST_NANO_CONTEXT}"
        );
        let is_divided = hidden.is_multiple_of(heads) && hidden / heads == head_dim;
        require!(is_divided, "`hidden` is {hidden}, expected `heads` {heads} x `head_dim` {head_dim}");
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
        assert_eq!(refused(|config| config.kv_heads = 3), "`tiny`: `heads` is 4, expected a multiple of `kv_heads` 3");
        assert_eq!(
            refused(|config| config.head_dim = 15),
            "`tiny`: `head_dim` is 15, expected an even number for RoPE"
        );
        assert_eq!(refused(|config| config.layers = 5000), "`tiny`: `layers` is 5000, the most is 4096");
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
        assert_eq!(error, "`tiny`: the weights are too large to count their bytes");
    }

    #[test]
    fn nano_models_have_additional_checks() {
        let nano = |change: fn(&mut Config)| {
            let mut config = Config::from_preset("decoder_tiny").unwrap();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(
            nano(|config| config.context = 511)
                .contains("`context` (block size) is 511, Nano models need at least 512")
        );
        assert!(nano(|config| config.hidden = 500).contains("`hidden` is 500, expected `heads` 8 x `head_dim` 64"));
    }

    #[test]
    fn rope_scaling_without_a_trained_length_is_refused() {
        let mut config = Config::from_preset("tiny-llama").unwrap();
        config.rope.scaling.as_mut().unwrap().trained = 0;
        assert!(config.check().unwrap_err().to_string().contains("`rope.scaling` needs"));
    }

    proptest! {
        #[test]
        fn any_sizes_are_accepted_or_refused_without_a_panic(
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
