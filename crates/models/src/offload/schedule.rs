//! The turns of offloaded layers in a pass, written once for every device.
//!
//! A decoder calls [`OffloadedLayers::begin`] before each pass, then [`OffloadedLayers::turn`] for each offloaded layer in
//! order. Copies are requested in the same order: at the turn of a layer, or ahead if the mode allows it and a buffer is free.

use laptime_probe::stage;

use super::order::{Order, Place};
use crate::{Done, LayerVisit, Marks, ModelError, Offload, Offloading, StreamMode, marks::stage_mark};

pub trait LayerCopies {
    type Layer;

    /// Allocates missing buffers: in mode `sync` before each turn, in others after unused memory was freed.
    fn make_buffers(&mut self) -> Done;

    /// Starts measuring how long a turn waits for its copy.
    fn begin_wait(&mut self) -> Done;

    /// Requests a copy into a buffer, at the turn of the layer or ahead.
    fn request(&mut self, place: Place, buffer: usize, is_ahead: bool) -> Done;

    /// Waits for the oldest requested copy.
    fn end_wait(&mut self, place: Place, buffer: usize) -> Done;

    fn layer(&self, buffer: usize) -> Result<&Self::Layer, ModelError>;

    /// Releases a buffer after the layer has computed. Mode `sync` copies the layer back and frees the buffer.
    fn release(&mut self, place: Place, buffer: usize) -> Done;

    /// Records the times of a finished turn.
    fn end_turn(&mut self, place: Place) -> Done;

    /// Waits for all requested copies and drops them.
    fn forget(&mut self) -> Done;

    fn clear(&mut self) -> Done;

    fn offloading(&self) -> Offloading;

    /// The finished visits since the last call, in order. Does not wait for the device.
    fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;
}

#[derive(Debug)]
pub struct OffloadedLayers<C> {
    copies: C,
    pub layers: usize,
    order: Order,
    mode: StreamMode,
    clear_every: Option<u64>,
    marks: Marks,
}

impl<C: LayerCopies> OffloadedLayers<C> {
    pub fn over(copies: C, layers: usize, offload: &Offload, marks: &Marks) -> Self {
        let Offload { mode, clear_every, .. } = *offload;
        let clear_every = clear_every.filter(|every| *every > 0).map(|every| every as u64);
        Self { copies, layers, order: Order::new(layers, mode), mode, clear_every, marks: marks.clone() }
    }

    pub fn offloading(&self) -> Offloading {
        self.copies.offloading()
    }

    pub fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.copies.visits()
    }

    pub fn pass_number(&self) -> u64 {
        self.order.pass()
    }

    /// Begins a pass over all layers. Drops the copies of an unfinished pass.
    pub fn begin(&mut self) -> Done {
        if self.order.begin() { Ok(()) } else { self.copies.forget() }
    }

    pub fn turn(&mut self, layer: usize, run: impl FnOnce(&C::Layer) -> Done) -> Done {
        let wrong = || ModelError::Refused(format!("layer {layer} is not the next layer of the pass"));
        let place = self.order.enter(layer).ok_or_else(wrong)?;
        let (pass, buffer) = (place.pass, self.buffer(place));
        if self.mode == StreamMode::Sync {
            self.copies.make_buffers()?;
        }
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer_wait", layer = layer, forward = pass);
            self.copies.begin_wait()?;
            if let Some(missed) = self.order.missed() {
                self.copies.request(missed, buffer, false)?;
                self.request_ahead(false)?;
            }
            self.copies.end_wait(place, buffer)?;
        }
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer", layer = layer, forward = pass, offloaded = true);
            run(self.copies.layer(buffer)?)?;
        }
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer_release", layer = layer, forward = pass);
            self.copies.release(place, buffer)?;
        }
        self.copies.end_turn(place)?;
        self.clear(place)?;
        self.request_ahead(true)?;
        self.order.leave();
        Ok(())
    }

    fn clear(&mut self, place: Place) -> Done {
        if self.clear_every.is_none_or(|every| !(place.copy + 1).is_multiple_of(every)) {
            return Ok(());
        }
        {
            let _stage = stage!("clear_cache");
            self.copies.clear()?;
        }
        if self.mode == StreamMode::Sync { Ok(()) } else { self.copies.make_buffers() }
    }

    fn request_ahead(&mut self, is_released: bool) -> Done {
        while let Some(place) = self.order.next(is_released) {
            self.copies.request(place, self.buffer(place), true)?;
        }
        Ok(())
    }

    fn buffer(&self, place: Place) -> usize {
        place.of(self.mode.buffers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Home, ModelError};

    /// Records the calls. A buffer has the number of its last copy.
    #[derive(Default)]
    struct Recorder {
        calls: Vec<String>,
        buffers: [u64; 2],
        requested: usize,
    }

    impl LayerCopies for Recorder {
        type Layer = u64;

        fn make_buffers(&mut self) -> Result<(), ModelError> {
            self.calls.push("make".to_owned());
            Ok(())
        }

        fn begin_wait(&mut self) -> Result<(), ModelError> {
            Ok(())
        }

        fn request(&mut self, place: Place, buffer: usize, is_ahead: bool) -> Result<(), ModelError> {
            self.calls.push(format!("{} {} into {buffer}", if is_ahead { "ahead" } else { "now" }, place.copy));
            self.buffers[buffer] = place.copy;
            self.requested += 1;
            Ok(())
        }

        fn end_wait(&mut self, place: Place, buffer: usize) -> Result<(), ModelError> {
            assert_eq!(self.buffers[buffer], place.copy, "the buffer holds the layer of the turn");
            self.requested -= 1;
            Ok(())
        }

        fn layer(&self, buffer: usize) -> Result<&u64, ModelError> {
            Ok(&self.buffers[buffer])
        }

        fn release(&mut self, place: Place, _: usize) -> Result<(), ModelError> {
            self.calls.push(format!("release {}", place.copy));
            Ok(())
        }

        fn end_turn(&mut self, _: Place) -> Result<(), ModelError> {
            Ok(())
        }

        fn forget(&mut self) -> Result<(), ModelError> {
            self.calls.push(format!("forget {}", self.requested));
            self.requested = 0;
            Ok(())
        }

        fn clear(&mut self) -> Result<(), ModelError> {
            self.calls.push("clear".to_owned());
            Ok(())
        }

        fn offloading(&self) -> Offloading {
            Offloading { layers: 2, streamed: 2, layer_bytes: 8, home: Home::File }
        }

        fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
            Ok(Vec::new())
        }
    }

    fn layers(mode: StreamMode, clear_every: Option<usize>) -> OffloadedLayers<Recorder> {
        let offload = Offload { clear_every, ..Offload::new(mode, 0, "") };
        OffloadedLayers::over(Recorder::default(), 2, &offload, &Marks::default())
    }

    /// The calls of a pass over two layers.
    fn pass(layers: &mut OffloadedLayers<Recorder>) -> Vec<String> {
        layers.begin().unwrap();
        (0..2).for_each(|layer| layers.turn(layer, |_| Ok(())).unwrap());
        std::mem::take(&mut layers.copies.calls)
    }

    #[test]
    fn the_mode_decides_when_a_layer_is_requested() {
        let turns = |mode| pass(&mut layers(mode, None));
        let sync = ["make", "now 0 into 0", "release 0", "make", "now 1 into 0", "release 1"];
        assert_eq!(turns(StreamMode::Sync), sync);
        assert_eq!(turns(StreamMode::Pinned), ["now 0 into 0", "release 0", "now 1 into 0", "release 1"]);
        assert_eq!(turns(StreamMode::Prefetch), ["now 0 into 0", "ahead 1 into 1", "release 0", "release 1"]);
        let wrap = ["now 0 into 0", "ahead 1 into 1", "release 0", "ahead 2 into 0", "release 1", "ahead 3 into 1"];
        assert_eq!(turns(StreamMode::Wrap), wrap);
    }

    #[test]
    fn memory_is_cleared_after_a_release_and_before_the_next_request() {
        let cleared = pass(&mut layers(StreamMode::Wrap, Some(2)));
        assert_eq!(cleared[4..], ["release 1", "clear", "make", "ahead 3 into 1"]);
        assert_eq!(pass(&mut layers(StreamMode::Sync, Some(2))).last().unwrap(), "clear");
        assert!(!pass(&mut layers(StreamMode::Wrap, Some(0))).contains(&"clear".to_owned()));
    }

    #[test]
    fn the_copies_of_a_failed_pass_are_dropped_and_the_next_pass_runs() {
        let mut layers = layers(StreamMode::Wrap, None);
        layers.begin().unwrap();
        let failed = layers.turn(0, |_| Err(ModelError::Refused("it failed".to_owned())));
        assert_eq!(failed.unwrap_err().to_string(), "it failed");
        layers.copies.calls.clear();
        assert_eq!(pass(&mut layers)[..2], ["forget 1", "now 2 into 0"]);
        let error = layers.turn(0, |_| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "layer 0 is not the next layer of the pass");
    }
}
