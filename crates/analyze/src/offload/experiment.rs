//! The conclusion from three runs: with G layers on the device, with all layers, and with a few more than G.

/// One of the runs: medians of its tokens, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Layers on the device.
    pub layers: u64,
    /// A token.
    pub token_ns: f64,
    /// How long compute waited for copies; none if nothing is copied.
    pub exposed_ns: Option<f64>,
    /// The time of copies; none if nothing is copied.
    pub copied_ns: Option<f64>,
}

/// Thresholds of the conclusion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExperimentLimits {
    /// Up to this ratio of a token with offloading to one without, the overhead is minimal.
    pub minimal: f64,
    /// More layers on the device help if a token takes at most this ratio of the previous time.
    pub helps: f64,
    /// Overlap is broken if offloading costs more than this multiple of its copies.
    pub beyond_copies: f64,
    /// Without a baseline run: waits up to this share of a token are minimal.
    pub waits: f64,
}

impl Default for ExperimentLimits {
    fn default() -> Self {
        Self { minimal: 1.1, helps: 0.95, beyond_copies: 1.5, waits: 0.05 }
    }
}

laptime_trace::words! {
    /// The conclusion.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Conclusion: words {
        /// A token takes about as long as without offloading.
        Minimal = "overhead minimal",
        /// A token takes longer; more layers do not help, and copies do not explain it.
        Broken = "offloading broken",
        /// A token takes longer by the time of its copies, and more layers help.
        NeedsLayers = "works, needs more GPU layers",
    }
}

/// The answer of an experiment, with its ratios; none if a run is missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// The conclusion.
    pub conclusion: Conclusion,
    /// A token with offloading / a token without.
    pub overhead: Option<f64>,
    /// A token with more layers on the device / a token with the requested layers.
    pub with_more: Option<f64>,
    /// The cost of offloading / the time of its copies.
    pub by_copies: Option<f64>,
    /// The waiting time / the time of a token.
    pub waits: Option<f64>,
    /// The thresholds.
    pub limits: ExperimentLimits,
}

/// Draws the conclusion from a run with some layers on the device, one with all and one with more, if the last two could
/// run. If all layers is the only larger number, that run is used for both.
pub fn experiment(some: &Trial, all: Option<&Trial>, more: Option<&Trial>, limits: ExperimentLimits) -> Experiment {
    let over = |one: f64, other: f64| (other > 0.0 && one.is_finite()).then(|| one / other);
    let overhead = all.and_then(|all| over(some.token_ns, all.token_ns));
    let with_more = more.or(all).and_then(|more| over(more.token_ns, some.token_ns));
    let costs = all.map(|all| (some.token_ns - all.token_ns).max(0.0));
    let by_copies = costs.zip(some.copied_ns).and_then(|(costs, copied)| over(costs, copied));
    let waits = some.exposed_ns.and_then(|exposed| over(exposed, some.token_ns));
    let is_minimal = match (overhead, waits) {
        (Some(overhead), _) => overhead <= limits.minimal,
        (None, waits) => waits.is_none_or(|waits| waits <= limits.waits),
    };
    let helps = with_more.is_some_and(|more| more <= limits.helps);
    let is_due_to_copies = by_copies.is_none_or(|costs| costs <= limits.beyond_copies);
    let conclusion = match (is_minimal, helps && is_due_to_copies) {
        (true, _) => Conclusion::Minimal,
        (false, true) => Conclusion::NeedsLayers,
        (false, false) => Conclusion::Broken,
    };
    Experiment { conclusion, overhead, with_more, by_copies, waits, limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(layers: u64, token: f64, exposed: f64, copied: f64) -> Trial {
        Trial { layers, token_ns: 1e6 * token, exposed_ns: Some(1e6 * exposed), copied_ns: Some(1e6 * copied) }
    }

    fn whole(token: f64) -> Trial {
        Trial { layers: 28, token_ns: 1e6 * token, exposed_ns: None, copied_ns: None }
    }

    fn concluded(some: Trial, all: Option<Trial>, more: Option<Trial>) -> Conclusion {
        experiment(&some, all.as_ref(), more.as_ref(), ExperimentLimits::default()).conclusion
    }

    #[test]
    fn a_token_as_fast_as_without_offloading_has_minimal_overhead() {
        let more = trial(24, 108.0, 5.0, 50.0);
        assert_eq!(concluded(trial(20, 110.0, 9.0, 100.0), Some(whole(100.0)), Some(more)), Conclusion::Minimal);
        assert_eq!(concluded(trial(20, 110.1, 9.0, 100.0), Some(whole(100.0)), Some(more)), Conclusion::Broken);
    }

    #[test]
    fn a_token_slowed_by_copies_and_faster_with_more_layers_needs_more_layers() {
        let (some, more) = (trial(20, 400.0, 290.0, 300.0), trial(24, 250.0, 140.0, 150.0));
        assert_eq!(concluded(some, Some(whole(100.0)), Some(more)), Conclusion::NeedsLayers);
        let found = experiment(&some, Some(&whole(100.0)), Some(&more), ExperimentLimits::default());
        assert_eq!((found.overhead, found.with_more, found.by_copies), (Some(4.0), Some(0.625), Some(1.0)));
    }

    #[test]
    fn more_layers_help_from_a_gain_of_a_twentieth_on() {
        let some = trial(20, 200.0, 90.0, 100.0);
        let with = |token| concluded(some, Some(whole(100.0)), Some(trial(24, token, 80.0, 90.0)));
        assert_eq!((with(190.0), with(190.1)), (Conclusion::NeedsLayers, Conclusion::Broken));
    }

    #[test]
    fn overlap_is_broken_if_offloading_costs_far_more_than_its_copies() {
        let with = |copied| {
            let (some, more) = (trial(20, 400.0, 300.0, copied), trial(24, 250.0, 150.0, copied / 2.0));
            concluded(some, Some(whole(100.0)), Some(more))
        };
        assert_eq!((with(200.0), with(199.0)), (Conclusion::NeedsLayers, Conclusion::Broken));
    }

    #[test]
    fn without_a_baseline_waits_and_layers_decide() {
        let (slow, more) = (trial(4, 400.0, 300.0, 320.0), trial(8, 340.0, 240.0, 260.0));
        assert_eq!(concluded(slow, None, Some(more)), Conclusion::NeedsLayers);
        assert_eq!(concluded(slow, None, Some(trial(8, 399.0, 300.0, 260.0))), Conclusion::Broken);
        assert_eq!(concluded(trial(4, 400.0, 20.0, 320.0), None, Some(more)), Conclusion::Minimal);
    }

    #[test]
    fn the_run_with_all_layers_also_serves_as_the_run_with_more() {
        assert_eq!(concluded(trial(3, 200.0, 90.0, 100.0), Some(whole(100.0)), None), Conclusion::NeedsLayers);
    }

    #[test]
    fn a_time_of_zero_gives_no_ratio() {
        let found = experiment(&trial(1, 0.0, 0.0, 0.0), Some(&whole(0.0)), None, ExperimentLimits::default());
        assert_eq!((found.overhead, found.with_more, found.by_copies, found.waits), (None, None, None, None));
        assert_eq!(found.conclusion, Conclusion::Minimal);
    }
}
