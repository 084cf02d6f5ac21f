//! The turns of offloaded layers in a pass, written once for every device.
//!
//! A decoder calls [`OffloadedLayers::begin`] before each pass, and [`OffloadedLayers::turn`] with each offloaded layer, in
//! order. Copies are requested in the order in which passes need them: when the turn of a layer comes, or before, as far
//! as the mode allows and a buffer is free.

use laptime_probe::stage;

use super::order::{Order, Place};
use crate::{LayerVisit, Marks, Offload, Offloading, StreamMode, marks::stage_mark};

/// Copies layers from where they stay into buffers on the device of the passes.
pub trait LayerCopies {
    /// The weights of a layer in a buffer.
    type Layer;
    /// Why a copy failed.
    type Error;

    /// Allocates the buffers that are missing: in mode `sync` before each turn, in the others after unused memory was
    /// freed.
    fn make_buffers(&mut self) -> Result<(), Self::Error>;

    /// Begins to measure how long a turn waits for its copy.
    fn begin_wait(&mut self) -> Result<(), Self::Error>;

    /// Requests a copy into a buffer, before the turn of the layer or in it.
    fn request(&mut self, place: Place, buffer: usize, is_ahead: bool) -> Result<(), Self::Error>;

    /// Lets the turn wait for the first copy that was requested and not waited for.
    fn end_wait(&mut self, place: Place, buffer: usize) -> Result<(), Self::Error>;

    /// The layer in a buffer.
    fn layer(&self, buffer: usize) -> Result<&Self::Layer, Self::Error>;

    /// Releases a buffer after the layer has computed. In mode `sync` the layer is copied back, and the buffer freed.
    fn release(&mut self, place: Place, buffer: usize) -> Result<(), Self::Error>;

    /// Keeps the times of the turn that has ended.
    fn end_turn(&mut self, place: Place) -> Result<(), Self::Error>;

    /// Waits for all copies that were requested and drops them.
    fn forget(&mut self) -> Result<(), Self::Error>;

    /// Frees unused memory.
    fn clear(&mut self) -> Result<(), Self::Error>;

    /// The layers, and where they stay.
    fn offloading(&self) -> Offloading;

    /// The finished turns since the last call, in order. Does not wait for the device.
    fn visits(&mut self) -> Result<Vec<LayerVisit>, Self::Error>;

    /// An error.
    fn refused(reason: String) -> Self::Error;
}

/// The offloaded layers of a decoder, which are the first ones.
#[derive(Debug)]
pub struct OffloadedLayers<C> {
    copies: C,
    layers: usize,
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

    /// The number of offloaded layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// The number of the pass that was begun last.
    pub fn pass_number(&self) -> u64 {
        self.order.pass()
    }

    /// The layers, and where they stay.
    pub fn offloading(&self) -> Offloading {
        self.copies.offloading()
    }

    /// The finished turns since the last call, in order. Does not wait for the device.
    pub fn visits(&mut self) -> Result<Vec<LayerVisit>, C::Error> {
        self.copies.visits()
    }

    /// Begins a pass over all layers. After a pass that failed half-way, its copies are waited for and dropped.
    pub fn begin(&mut self) -> Result<(), C::Error> {
        if self.order.begin() { Ok(()) } else { self.copies.forget() }
    }

    /// Runs a layer once its weights are there.
    pub fn turn(&mut self, layer: usize, run: impl FnOnce(&C::Layer) -> Result<(), C::Error>) -> Result<(), C::Error> {
        let wrong = || C::refused(format!("layer {layer} is not the next of the pass"));
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

    /// Frees unused memory after every `clear_every` copies.
    fn clear(&mut self, place: Place) -> Result<(), C::Error> {
        if self.clear_every.is_none_or(|every| !(place.copy + 1).is_multiple_of(every)) {
            return Ok(());
        }
        {
            let _stage = stage!("clear_cache");
            self.copies.clear()?;
        }
        if self.mode == StreamMode::Sync { Ok(()) } else { self.copies.make_buffers() }
    }

    /// Requests the copies that there are buffers for before the layer has computed, or after.
    fn request_ahead(&mut self, is_released: bool) -> Result<(), C::Error> {
        while let Some(place) = self.order.next(is_released) {
            self.copies.request(place, self.buffer(place), true)?;
        }
        Ok(())
    }

    fn buffer(&self, place: Place) -> usize {
        place.of(self.mode.buffers())
    }
}
