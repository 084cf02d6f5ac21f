//! The time of day, for names and records.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in whole seconds since 1970, in universal time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// As a part of a name that sorts by time: `20261115-093000`.
    pub fn stamp(self) -> String {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time());
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// For records: `2026-11-15T09:30:00Z`.
    pub fn record(self) -> String {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time());
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    fn time(self) -> (u64, u64, u64) {
        (self.0 / 3600 % 24, self.0 / 60 % 60, self.0 % 60)
    }

    /// The date, by eras of 400 years that begin in March.
    fn date(self) -> (u64, u64, u64) {
        let days = self.0 / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        (400 * era + year_of_era + u64::from(month <= 2), month, day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_becomes_a_name_that_sorts_by_time() {
        assert_eq!(Moment(0).stamp(), "19700101-000000");
        assert_eq!(Moment(951_782_400).stamp(), "20000229-000000");
        assert_eq!(Moment(1_794_735_045).stamp(), "20261115-093045");
        assert_eq!(Moment(1_794_735_045).record(), "2026-11-15T09:30:45Z");
    }
}
