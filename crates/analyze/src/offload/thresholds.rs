//! From where on something is good or bad.

/// The limits that offloaded layers are held against. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// The share of copies asked for ahead that is good.
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
    /// A token under this is fast enough. Where the run says how much audio a token is, that time counts instead.
    pub token_good_ns: f64,
    /// The share of the link's peak that copies reach at least.
    pub link_share: f64,
    /// The share of a token that waits, stalls and lateness of the host may take each.
    pub lost_share: f64,
}

/// A token of 7.5 a second of audio: below it speech is made faster than it is heard.
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
