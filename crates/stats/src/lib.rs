//! Statistics of measured samples: numbers in, numbers out.
//!
//! Nothing here knows the meaning of a number, reads a clock or does I/O. A question without an answer (the median of
//! no values) gives `None`, never `0`. Every resampling takes a seed and gives the same answer for the same seed.

pub mod bootstrap;
pub mod changepoint;
pub mod compare;
pub mod group;
pub mod interval;
pub mod outliers;
mod paired;
pub mod quantile;
pub mod random;
pub mod shift;
pub mod spread;
pub mod steady;
pub mod student;
pub mod summary;
pub mod trend;

pub use bootstrap::median_interval;
pub use changepoint::change_points;
pub use compare::{Comparison, Judged, Level, Reason, Settings, Tally, Verdict, compare, judge, judge_all};
pub use group::{Group, Unfit};
pub use interval::Interval;
pub use outliers::{Mark, SlowStart, marks, slow_start};
pub use paired::{Cost, cost_of_first};
pub use quantile::{NotFinite, Sorted, Value, quantile_by, quantile_of_sorted};
pub use random::Rng;
pub use shift::{Shift, shift};
pub use steady::{Steadiness, SteadyFrom, steadiness};
pub use summary::Summary;
pub use trend::{mann_kendall, theil_sen};
