//! The stages of a step and their boundaries, while the step is captured.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_trace::InnerStage;

use crate::error::CudaError;
use crate::stream::Boundary;

/// Lets a step name its stages while it is captured. Its clones name stages of the same capture.
#[derive(Debug, Clone)]
pub struct Stamper(Arc<Mutex<Naming>>);

#[derive(Debug, Default)]
struct Naming {
    boundary: Arc<Boundary>,
    /// The address of the first slot.
    slots: u64,
    capacity: u32,
    used: u32,
    is_full: bool,
    stages: Vec<(InnerStage, [u32; 2])>,
    /// The indices of the stages that have not ended.
    open: Vec<usize>,
}

impl Naming {
    /// The slot of a boundary here: that of the last boundary if nothing was launched since.
    fn slot(&mut self) -> u32 {
        if self.boundary.is_open() || self.used == self.capacity {
            self.is_full |= !self.boundary.is_open();
            return self.used.saturating_sub(1);
        }
        self.boundary.set(self.slots + u64::from(self.used) * size_of::<u64>() as u64);
        self.used += 1;
        self.used - 1
    }

    fn begin(&mut self, name: &str, place: Option<(&'static str, u32)>) {
        let begin = self.slot();
        self.open.push(self.stages.len());
        self.stages.push((InnerStage { name: name.to_owned(), place }, [begin, begin]));
    }

    fn end(&mut self) {
        let end = self.slot();
        if let Some((_, slots)) = self.open.pop().and_then(|open| self.stages.get_mut(open)) {
            slots[1] = end;
        }
    }

    /// The number of boundaries, and the slot of the one that the last kernel of a replay writes; if there is none, the number of
    /// boundaries again.
    fn finish(&mut self) -> Result<[u32; 2], CudaError> {
        if self.is_full {
            let reason = format!("more than {} stage boundaries", self.capacity);
            return Err(CudaError::refused("stamping a graph", 0, reason));
        }
        let last = if self.boundary.take() == 0 { self.used } else { self.used.saturating_sub(1) };
        Ok([self.used, last])
    }
}

impl Stamper {
    /// Timestamps are written from the address `slots` on, up to this number.
    pub(super) fn new(boundary: &Arc<Boundary>, slots: u64, capacity: u32) -> Self {
        Self(Arc::new(Mutex::new(Naming { boundary: Arc::clone(boundary), slots, capacity, ..Naming::default() })))
    }

    fn naming(&self) -> MutexGuard<'_, Naming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn finish(&self) -> Result<[u32; 2], CudaError> {
        self.naming().finish()
    }

    /// The stages, in the order they begin, with the slots of their boundaries.
    pub(super) fn stages(&self) -> Vec<(InnerStage, [u32; 2])> {
        std::mem::take(&mut self.naming().stages)
    }

    /// Begins a stage with the next work on the stream.
    pub fn begin(&self, name: &str, place: Option<(&'static str, u32)>) {
        self.naming().begin(name, place);
    }

    /// Ends the innermost stage.
    pub fn end(&self) {
        self.naming().end();
    }

    /// Runs `work` as a stage.
    pub fn stage<T>(&self, name: &str, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        self.begin(name, None);
        let done = work();
        self.end();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture without a device: the test takes the boundaries in place of launches.
    fn naming(capacity: u32) -> Naming {
        Naming { slots: 1_000, capacity, ..Naming::default() }
    }

    fn outline(naming: &Naming) -> Vec<(&str, [u32; 2])> {
        naming.stages.iter().map(|(stage, slots)| (&stage.name[..], *slots)).collect()
    }

    #[test]
    fn a_stage_that_begins_where_another_ends_shares_its_boundary() {
        let mut naming = naming(8);
        for layer in 0..2 {
            naming.begin("layer", Some(("layer", layer)));
            naming.begin("attention", None);
            assert_eq!(naming.boundary.take(), 1_000 + 16 * u64::from(layer));
            assert_eq!(naming.boundary.take(), 0, "the second kernel of a stage writes nothing");
            naming.end();
            naming.begin("ffn", None);
            assert_ne!(naming.boundary.take(), 0);
            naming.end();
            naming.end();
        }
        let expected =
            [("layer", [0, 2]), ("attention", [0, 1]), ("ffn", [1, 2]), ("layer", [2, 4]), ("attention", [2, 3])];
        assert_eq!(outline(&naming)[..5], expected);
        assert_eq!(naming.finish().unwrap(), [5, 4], "the end of a replay writes the last boundary");
    }

    #[test]
    fn work_after_the_last_stage_writes_its_boundary() {
        let mut naming = naming(8);
        naming.begin("layer", None);
        naming.boundary.take();
        naming.end();
        naming.boundary.take();
        assert_eq!(naming.finish().unwrap(), [2, 2]);
    }

    #[test]
    fn more_boundaries_than_the_capacity_are_refused() {
        let mut naming = naming(2);
        for _ in 0..2 {
            naming.begin("layer", None);
            naming.boundary.take();
            naming.end();
            naming.boundary.take();
        }
        assert!(naming.finish().unwrap_err().to_string().contains("more than 2 stage boundaries"));
    }
}
