//! The lower bound for measured copies and computations: one link, one compute queue, two buffers.

/// The buffers for offloaded layers.
pub const BUFFERS: usize = 2;

/// After this many tokens, a state that does not repeat is given up.
const MOST_TOKENS: u64 = 64;

/// One step of a token on the compute queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A forward pass starts: without wrap-around, none of its copies starts earlier.
    Forward,
    /// Compute without a copy.
    Compute(u64),
    /// An offloaded layer computes once its copy is done.
    Layer {
        /// The time of its copy.
        copy: u64,
        /// The time that it computes.
        compute: u64,
    },
}

/// The lower bound of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minimum {
    /// The token as it was measured.
    pub measured: u64,
    /// The sum of its copies.
    pub copies: u64,
    /// The sum of its compute.
    pub compute: u64,
    /// The lower bound if no copy is under way when a forward pass starts.
    pub without_wrap: u64,
    /// The lower bound if the end of a forward pass starts the copies of the next.
    pub with_wrap: u64,
}

impl Minimum {
    /// Replays a token.
    pub fn of(measured: u64, steps: &[Step]) -> Self {
        let (copies, compute) = sums(steps);
        Self { measured, copies, compute, without_wrap: without_wrap(steps), with_wrap: with_wrap(steps) }
    }

    /// The lower bound in a mode.
    pub fn least(&self, wraps: bool) -> u64 {
        if wraps { self.with_wrap } else { self.without_wrap }
    }

    /// What perfect overlap would save in a mode.
    pub fn saves(&self, wraps: bool) -> u64 {
        self.measured.saturating_sub(self.least(wraps))
    }
}

/// The sums of copies and compute.
fn sums(steps: &[Step]) -> (u64, u64) {
    steps.iter().fold((0_u64, 0_u64), |(copies, compute), step| match *step {
        Step::Forward => (copies, compute),
        Step::Compute(time) => (copies, compute.saturating_add(time)),
        Step::Layer { copy, compute: time } => (copies.saturating_add(copy), compute.saturating_add(time)),
    })
}

/// When the link, the compute queue and the buffers are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Machine {
    link: u64,
    compute: u64,
    /// Buffers, in the order in which they become free.
    buffers: [u64; BUFFERS],
}

impl Machine {
    /// Executes a step; no copy starts before a moment.
    fn take(&mut self, step: Step, not_before: u64) {
        match step {
            Step::Forward => {}
            Step::Compute(time) => self.compute = self.compute.saturating_add(time),
            Step::Layer { copy, compute } => {
                self.link = self.link.max(self.buffers[0]).max(not_before).saturating_add(copy);
                self.compute = self.compute.max(self.link).saturating_add(compute);
                self.buffers.rotate_left(1);
                self.buffers[BUFFERS - 1] = self.compute;
            }
        }
    }

    /// The state relative to the compute queue, which decides how it continues.
    fn lag(&self) -> [u64; BUFFERS + 1] {
        let lag = |moment: u64| self.compute.saturating_sub(moment);
        [lag(self.link), lag(self.buffers[0]), lag(self.buffers[1])]
    }
}

fn without_wrap(steps: &[Step]) -> u64 {
    let mut machine = Machine::default();
    let mut begun = 0;
    for &step in steps {
        if step == Step::Forward {
            begun = machine.compute;
        }
        machine.take(step, begun);
    }
    machine.compute
}

/// The time of a token if the same token repeats.
fn with_wrap(steps: &[Step]) -> u64 {
    let (copies, compute) = sums(steps);
    let mut machine = Machine::default();
    let mut seen: Vec<([u64; BUFFERS + 1], u64)> = Vec::new();
    for token in 1..=MOST_TOKENS {
        steps.iter().for_each(|&step| machine.take(step, 0));
        if machine.compute == u64::MAX {
            break;
        }
        let state = machine.lag();
        if let Some(before) = seen.iter().position(|(known, _)| *known == state) {
            let tokens = token - 1 - before as u64;
            return machine.compute.saturating_sub(seen[before].1) / tokens.max(1);
        }
        seen.push((state, machine.compute));
    }
    // No state repeated: the mean of the second half, within the possible range.
    let half = MOST_TOKENS / 2;
    let since = seen.get(half as usize - 1).map_or(0, |(_, at)| *at);
    let mean = machine.compute.saturating_sub(since) / half;
    mean.clamp(copies.max(compute), copies.saturating_add(compute))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forward(layers: &[(u64, u64)], resident: u64) -> Vec<Step> {
        let layers = layers.iter().map(|&(copy, compute)| Step::Layer { copy, compute });
        std::iter::once(Step::Forward).chain(layers).chain([Step::Compute(resident)]).collect()
    }

    #[test]
    fn copy_bound_without_wrap_takes_all_copies_the_last_layer_and_resident_compute() {
        let least = Minimum::of(0, &forward(&[(30, 5); 8], 100));
        assert_eq!(least.without_wrap, 8 * 30 + 5 + 100);
    }

    #[test]
    fn copy_bound_with_wrap_takes_the_copies() {
        let least = Minimum::of(0, &forward(&[(30, 5); 8], 20));
        assert_eq!((least.copies, least.compute, least.with_wrap), (240, 60, 240));
    }

    #[test]
    fn compute_bound_with_wrap_takes_the_compute() {
        let least = Minimum::of(0, &forward(&[(5, 30); 8], 20));
        assert_eq!((least.with_wrap, least.without_wrap), (260, 265));
    }

    #[test]
    fn two_buffers_fill_during_a_long_computation() {
        // Two copies of 30 are done after 100 of resident compute; compute waits for the other six.
        let least = Minimum::of(0, &forward(&[(30, 5); 8], 100));
        assert_eq!(least.with_wrap, 100 + 5 + 6 * 30 + 5);
    }

    #[test]
    fn two_forward_passes_without_wrap_each_start_without_a_copy() {
        let once = forward(&[(30, 5); 8], 100);
        let twice = Minimum::of(1000, &[once.clone(), once].concat());
        assert_eq!((twice.without_wrap, twice.saves(false)), (2 * 345, 310));
    }

    #[test]
    fn an_empty_schedule_takes_no_time() {
        let least = Minimum::of(0, &[]);
        assert_eq!((least.without_wrap, least.with_wrap), (0, 0));
    }

    fn any_steps() -> impl Strategy<Value = Vec<Step>> {
        let size = prop::sample::select(vec![100_u64, 1_000_000, u64::MAX / 1000]);
        let step = (0_u8..4, 0_u64..50, 0_u64..50);
        (prop::collection::vec(step, 0..20), size).prop_map(|(steps, size)| {
            let step = |(kind, a, b): (u8, u64, u64)| match kind {
                0 => Step::Forward,
                1 => Step::Compute(a * (size / 50)),
                _ => Step::Layer { copy: a * (size / 50), compute: b * (size / 50) },
            };
            steps.into_iter().map(step).collect()
        })
    }

    proptest! {
        #[test]
        fn the_bound_is_between_the_maximum_and_the_sum_of_copies_and_compute(steps in any_steps()) {
            let least = Minimum::of(0, &steps);
            let (low, high) = (least.copies.max(least.compute), least.copies.saturating_add(least.compute));
            prop_assert!((low..=high).contains(&least.without_wrap), "{least:?}");
            prop_assert!((low..=high).contains(&least.with_wrap) || high == u64::MAX, "{least:?}");
            prop_assert!(least.with_wrap <= least.without_wrap);
        }
    }
}
