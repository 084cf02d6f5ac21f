//! The rules that every model holds, checked before anything is computed or allocated.

use crate::{Config, Done, Family, ModelError};

/// Layers at most: far more than any model has, few enough to be listed.
const MOST_LAYERS: usize = 4096;

/// The largest width or count: tokens and positions are counted in 32 bits on devices.
const LARGEST: usize = i32::MAX as usize;

/// Positions at least of a Nano model, as its kit asks.
const LEAST_NANO_CONTEXT: usize = 512;

impl Config {
    /// Refuses what makes no model, and says which field is wrong.
    pub fn check(&self) -> Done {
        self.check_counts()?;
        self.check_heads()?;
        self.check_numbers()?;
        self.check_nano()?;
        match self.checked_parameters() {
            Some(_) => Ok(()),
            None => self.refuse("its weights are more bytes than can be counted".to_owned()),
        }
    }

    fn refuse(&self, reason: String) -> Done {
        Err(ModelError::BadConfig { config: format!("`{}`", self.name), reason })
    }

    fn check_counts(&self) -> Done {
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
            if count == 0 {
                return self.refuse(format!("`{field}` is 0"));
            }
            if count > most {
                return self.refuse(format!("`{field}` is {count}, and {most} is the most"));
            }
        }
        Ok(())
    }

    fn check_heads(&self) -> Done {
        let (heads, kv_heads, head_dim) = (self.heads, self.kv_heads, self.head_dim);
        if !heads.is_multiple_of(kv_heads) {
            return self.refuse(format!("`heads` is {heads}, which `kv_heads` {kv_heads} does not divide"));
        }
        if !head_dim.is_multiple_of(2) {
            return self.refuse(format!("`head_dim` is {head_dim}, and positions turn pairs of numbers"));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Done {
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        if !is_positive(self.rope.theta) {
            return self.refuse(format!("`rope.theta` is {}, and it must be above 0", self.rope.theta));
        }
        if !self.norm_eps.is_finite() || self.norm_eps < 0.0 {
            return self.refuse(format!("`norm_eps` is {}, and it must not be below 0", self.norm_eps));
        }
        if let Some(window) = self.window
            && (window.size == 0 || window.full_every == 0 || !is_positive(window.theta))
        {
            return self.refuse("`window` needs a size, a distance of full layers and a theta above 0".to_owned());
        }
        let Some(scaling) = self.rope.scaling else { return Ok(()) };
        let has_numbers = is_positive(scaling.factor) && is_positive(scaling.low) && scaling.high.is_finite();
        if !has_numbers || scaling.high <= scaling.low || scaling.trained == 0 {
            let rule = "it needs a factor above 0, `low` above 0 and under `high`, and a trained length";
            return self.refuse(format!("`rope.scaling` makes no sense: {rule}"));
        }
        Ok(())
    }

    fn check_nano(&self) -> Done {
        if self.family != Family::Nano {
            return Ok(());
        }
        let (context, hidden, heads) = (self.context, self.hidden, self.heads);
        if context < LEAST_NANO_CONTEXT {
            let reason =
                format!("`context` (block size) is {context}, and {LEAST_NANO_CONTEXT} is the least of its kind");
            return self.refuse(reason);
        }
        if !hidden.is_multiple_of(heads) || hidden / heads != self.head_dim {
            return self
                .refuse(format!("`hidden` is {hidden}, which is not `heads` {heads} x `head_dim` {}", self.head_dim));
        }
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
            "`tiny`: `head_dim` is 15, and positions turn pairs of numbers"
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
