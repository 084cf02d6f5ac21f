//! Thresholds for good and bad.

use crate::units::per_cent;

/// The thresholds for offloaded layers. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// The share of prefetched copies that is good.
    pub async_good: f64,
    /// Below this share it is bad.
    pub async_bad: f64,
    /// A wait for a layer under this is good.
    pub pre_good_ns: f64,
    /// Over this it is bad.
    pub pre_bad_ns: f64,
    /// A release under this is good.
    pub post_good_ns: f64,
    /// Over this it is bad.
    pub post_bad_ns: f64,
    /// A token below this is fast enough. If the audio per token is known, that time is used instead.
    pub token_good_ns: f64,
    /// The smallest acceptable share of the link's rate.
    pub link_share: f64,
    /// The largest acceptable share of a token for waits, stalls and a slow host, each.
    pub lost_share: f64,
}

impl Thresholds {
    /// The largest acceptable share, in words.
    pub(super) fn lost_limit(&self) -> String {
        format!("{} of a token", per_cent(self.lost_share))
    }
}

/// The audio per token at 7.5 tokens per second: below it, speech is generated faster than real time.
pub const AUDIO_OF_A_TOKEN: f64 = 1e9 / 7.5;

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            async_good: 1.0,
            async_bad: 0.5,
            pre_good_ns: 100e6,
            pre_bad_ns: 300e6,
            post_good_ns: 1e6,
            post_bad_ns: 200e6,
            token_good_ns: AUDIO_OF_A_TOKEN,
            link_share: 0.6,
            lost_share: 0.05,
        }
    }
}
