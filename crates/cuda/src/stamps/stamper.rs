//! The names of the stages of a step, and their borders, while the step is captured.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_trace::InnerStage;

use crate::error::CudaError;
use crate::stream::Border;

/// Lets a step name its stages while it is captured. Its clones name stages of the same capture.
#[derive(Debug, Clone)]
pub struct Stamper(Arc<Mutex<Naming>>);

#[derive(Debug, Default)]
struct Naming {
    border: Arc<Border>,
    /// The address of the first slot.
    slots: u64,
    capacity: u32,
    used: u32,
    is_full: bool,
    stages: Vec<(InnerStage, [u32; 2])>,
    /// The stages that did not end, by their places in the list.
    open: Vec<usize>,
}

impl Naming {
    /// The slot of a border here. Nothing was put on the stream since an open one, so they are the same.
    fn slot(&mut self) -> u32 {
        if self.border.is_open() || self.used == self.capacity {
            self.is_full |= !self.border.is_open();
            return self.used.saturating_sub(1);
        }
        self.border.set(self.slots + u64::from(self.used) * size_of::<u64>() as u64);
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
        if let Some((_, borders)) = self.open.pop().and_then(|open| self.stages.get_mut(open)) {
            borders[1] = end;
        }
    }

    /// The number of borders, and the number of the one that no kernel before the end of a replay writes; the former
    /// again if there is none.
    fn finish(&mut self) -> Result<[u32; 2], CudaError> {
        if self.is_full {
            let reason = format!("{} borders of stages fit, which are too few", self.capacity);
            return Err(CudaError::refused("stamping a graph", 0, reason));
        }
        let last = if self.border.take() == 0 { self.used } else { self.used.saturating_sub(1) };
        Ok([self.used, last])
    }
}

impl Stamper {
    /// Names stages whose borders are written from the address `slots` on, where this number fits.
    pub(super) fn new(border: &Arc<Border>, slots: u64, capacity: u32) -> Self {
        Self(Arc::new(Mutex::new(Naming { border: Arc::clone(border), slots, capacity, ..Naming::default() })))
    }

    fn naming(&self) -> MutexGuard<'_, Naming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn finish(&self) -> Result<[u32; 2], CudaError> {
        self.naming().finish()
    }

    /// The stages, in the order they begin, with the numbers of their borders.
    pub(super) fn stages(&self) -> Vec<(InnerStage, [u32; 2])> {
        std::mem::take(&mut self.naming().stages)
    }

    /// Begins a stage with what is put on the stream next.
    pub fn begin(&self, name: &str, place: Option<(&'static str, u32)>) {
        self.naming().begin(name, place);
    }

    /// Ends the stage that began last and has not ended.
    pub fn end(&self) {
        self.naming().end();
    }

    /// Puts a stage around what `work` puts on the stream.
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

    /// A capture on no device: its launches take the borders.
    fn naming(capacity: u32) -> Naming {
        Naming { slots: 1_000, capacity, ..Naming::default() }
    }

    fn outline(naming: &Naming) -> Vec<(&str, [u32; 2])> {
        naming.stages.iter().map(|(stage, borders)| (&stage.name[..], *borders)).collect()
    }

    #[test]
    fn stages_that_end_and_begin_at_one_place_share_a_border() {
        let mut naming = naming(8);
        for layer in 0..2 {
            naming.begin("layer", Some(("layer", layer)));
            naming.begin("attention", None);
            assert_eq!(naming.border.take(), 1_000 + 16 * u64::from(layer));
            assert_eq!(naming.border.take(), 0, "the second kernel of a stage writes nothing");
            naming.end();
            naming.begin("ffn", None);
            assert_ne!(naming.border.take(), 0);
            naming.end();
            naming.end();
        }
        let expected =
            [("layer", [0, 2]), ("attention", [0, 1]), ("ffn", [1, 2]), ("layer", [2, 4]), ("attention", [2, 3])];
        assert_eq!(outline(&naming)[..5], expected);
        assert_eq!(naming.finish().unwrap(), [5, 4], "the end of a replay writes the last border");
    }

    #[test]
    fn work_behind_the_last_stage_writes_its_border() {
        let mut naming = naming(8);
        naming.begin("layer", None);
        naming.border.take();
        naming.end();
        naming.border.take();
        assert_eq!(naming.finish().unwrap(), [2, 2]);
    }

    #[test]
    fn more_borders_than_there_is_room_for_are_refused() {
        let mut naming = naming(2);
        for _ in 0..2 {
            naming.begin("layer", None);
            naming.border.take();
            naming.end();
            naming.border.take();
        }
        assert!(naming.finish().unwrap_err().to_string().contains("too few"));
    }
}
