//! Offloaded layers: a [`Streamed`] copies the weights of each layer to the device for its turn in a pass.
//!
//! An engine that has such layers
//! - fills [`Homes`] with the first layers when it loads its weights, and loads only the others as [`LayerWeights`];
//! - makes one [`Streamed`] over them, whatever the number of its streams and caches;
//! - calls [`Streamed::begin`] before each pass over all layers, of however many rows, and [`Streamed::turn`] with each
//!   streamed layer of the pass, in order; what the layer is to compute is put on the compute stream in there;
//! - goes on with its resident layers, which it may replay as a graph; turns are never captured.
//!
//! Nothing of it waits on the host but mode `sync`, so that passes may be put on the stream ahead of the device. The copies
//! have a stream of their own, which is that of a second [`Device`] (see [`Device::beside`]).

// Copies are under way between regions and buffers; both are held here until the streams have done them.
#![allow(unsafe_code)]

mod homes;
mod order;
mod visits;

use std::{collections::VecDeque, sync::Arc};

use laptime_cuda::{Buffer, CudaError, Device, Moment, Stream};
use laptime_probe::{stage, sync_point};

pub use self::homes::{Homes, Pin};
use self::{
    order::{Order, Place},
    visits::{Pending, Visits},
};
use super::{
    pass::Pass,
    weights::{LayerWeights, Number, layer_within},
};
use crate::{
    Home, LayerVisit, Marks, ModelError, Offload, Offloading, StreamMode, decoder::layers::Offloaded, marks::stage_mark,
};

/// The streamed layers of an engine, and the buffers that they take turns in.
#[derive(Debug)]
pub struct Streamed<'a, T> {
    device: &'a Device,
    copies: &'a Device,
    homes: Arc<Homes>,
    mode: StreamMode,
    resident: usize,
    clear_every: Option<usize>,
    marks: Marks,
    copy_marks: Marks,
    order: Order,
    /// Two, or one where nothing is copied ahead, or none where each turn has its own.
    slots: Vec<Slot<T>>,
    /// Copies that were asked for and whose turn has not come.
    asked: VecDeque<Asked>,
    visits: Visits,
}

/// A buffer on the device that layers take turns in.
#[derive(Debug)]
struct Slot<T> {
    whole: Arc<Buffer<T>>,
    layer: LayerWeights<T>,
    /// When the last layer in it had computed; none if there was none.
    used: Option<Moment>,
}

/// A copy that was asked for.
#[derive(Debug)]
struct Asked {
    is_ahead: bool,
    copy: [Moment; 2],
}

impl<T: Number> Offloaded<Pass<'_, T>> for Streamed<'_, T> {
    /// After a pass that failed half-way, its copies are waited for and forgotten.
    fn begin(&mut self) -> Result<(), CudaError> {
        if !self.order.begin() {
            self.copies.stream().synchronise()?;
            self.device.stream().synchronise()?;
            let asked = std::mem::take(&mut self.asked);
            asked.into_iter().for_each(|asked| self.visits.give_back(asked.copy));
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.layers()
    }

    fn pass(&self) -> u64 {
        self.pass_number()
    }

    fn turn(
        &mut self,
        layer: usize,
        run: impl FnOnce(&LayerWeights<T>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let place = self.order.enter(layer)?;
        match self.mode {
            StreamMode::Sync => self.turn_in_new(place, run)?,
            _ => self.turn_in_kept(place, run)?,
        }
        self.order.leave();
        self.clear(place)
    }
}

impl<'a, T: Number> Streamed<'a, T> {
    /// Makes the buffers for what is at home in `homes`. Copies go over the stream of `copies`, in the way and on the lane
    /// that `offload` says.
    pub fn new(
        device: &'a Device,
        copies: &'a Device,
        homes: &Arc<Homes>,
        offload: &Offload,
        marks: &Marks,
    ) -> Result<Self, ModelError> {
        homes.check(offload.mode)?;
        let slots = (0..slots(offload.mode)).map(|_| Slot::new(device, homes)).collect::<Result<_, _>>()?;
        // The buffers must be there before another stream writes to them.
        copies.stream().wait_for(device.stream())?;
        Ok(Self {
            device,
            copies,
            homes: Arc::clone(homes),
            mode: offload.mode,
            resident: offload.resident,
            clear_every: offload.clear_every,
            marks: marks.clone(),
            copy_marks: Marks { lane: offload.lane.clone(), ..marks.clone() },
            order: Order::new(homes.layers(), offload.mode),
            slots,
            asked: VecDeque::new(),
            visits: Visits::default(),
        })
    }

    /// The number of offloaded layers.
    pub fn layers(&self) -> usize {
        self.homes.layers()
    }

    /// The number of the pass that was begun last.
    pub fn pass_number(&self) -> u64 {
        self.order.pass()
    }

    /// What came of the wish for such layers.
    pub fn offloading(&self) -> Offloading {
        let streamed = self.layers();
        let (layer_bytes, home) = (self.homes.layer_bytes() as u64, self.homes.home().clone());
        Offloading { layers: streamed.saturating_add(self.resident), streamed, layer_bytes, home }
    }

    /// The finished visits since the last call, in order. Does not wait for the device.
    pub fn visits(&mut self) -> Result<Vec<LayerVisit>, CudaError> {
        self.visits.take()
    }

    /// A turn in one of the buffers that are kept.
    fn turn_in_kept(
        &mut self,
        place: Place,
        run: impl FnOnce(&LayerWeights<T>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let pending = self.wait(place)?;
        self.ask_ahead(false)?;
        let Place { layer, pass, .. } = place;
        let slot = place.of(self.slots.len());
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer", layer = layer, forward = pass, offloaded = true);
            run(&self.slots[slot].layer)?;
        }
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer_release", layer = layer, forward = pass);
            let used = match self.slots[slot].used.take() {
                Some(used) => used,
                None => Moment::new(self.device)?,
            };
            used.put(self.device.stream())?;
            self.slots[slot].used = Some(used);
        }
        self.visits.push(pending)?;
        self.ask_ahead(true)
    }

    /// Lets the compute stream wait for a layer, whose copy is asked for now if it was not before.
    fn wait(&mut self, place: Place) -> Result<Pending, CudaError> {
        let Place { layer, pass, .. } = place;
        let stream = self.device.stream();
        let _stage = stage_mark!(self.marks, Pipeline, "layer_wait", layer = layer, forward = pass);
        let wait = self.visits.moments(self.device)?;
        wait[0].put(stream)?;
        if let Some(missed) = self.order.missed() {
            // Its turn has come when the device is there, not when the host is.
            self.copies.stream().wait_until(&wait[0])?;
            self.ask(missed, false)?;
        }
        let lost = || CudaError::refused("waiting for a layer", 0, "its copy was not asked for");
        let Asked { is_ahead, copy } = self.asked.pop_front().ok_or_else(lost)?;
        stream.wait_until(&copy[1])?;
        wait[1].put(stream)?;
        Ok(Pending { layer, pass, is_ahead, copy, wait, release: None })
    }

    /// Asks for the copies that there is room for before the layer has computed, or after.
    fn ask_ahead(&mut self, is_released: bool) -> Result<(), CudaError> {
        while let Some(place) = self.order.next(is_released) {
            self.ask(place, true)?;
        }
        Ok(())
    }

    /// Puts a copy on its stream, behind the last use of its buffer.
    fn ask(&mut self, place: Place, is_ahead: bool) -> Result<(), CudaError> {
        let slot = &self.slots[place.of(self.slots.len())];
        let stream = self.copies.stream();
        if let Some(used) = &slot.used {
            stream.wait_until(used)?;
        }
        let copy = self.visits.moments(self.device)?;
        self.copy_in(place, &slot.whole, &copy, stream)?;
        self.asked.push_back(Asked { is_ahead, copy });
        Ok(())
    }

    fn copy_in(&self, place: Place, whole: &Buffer<T>, copy: &[Moment; 2], stream: &Stream) -> Result<(), CudaError> {
        let Place { layer, pass, .. } = place;
        let (bytes, is_pinned) = (self.homes.layer_bytes(), *self.homes.home() == Home::Pinned);
        let marks = &self.copy_marks;
        let _stage = stage_mark!(
            marks,
            Pipeline,
            "layer_copy",
            layer = layer,
            forward = pass,
            bytes = bytes,
            pinned = is_pinned
        );
        copy[0].put(stream)?;
        // SAFETY: the buffer is a slot's, whose last use the stream waits for, or new; the home stays as it is.
        unsafe { self.homes.begin_write(layer, whole, stream)? };
        copy[1].put(stream)
    }

    /// A turn in a buffer of its own, which the host waits for, and that is copied back.
    fn turn_in_new(
        &mut self,
        place: Place,
        run: impl FnOnce(&LayerWeights<T>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let Place { layer, pass, .. } = place;
        let (wait, copy) = (self.visits.moments(self.device)?, self.visits.moments(self.device)?);
        let (compute, copies) = (self.device.stream(), self.copies.stream());
        let slot = Slot::new(self.device, &self.homes)?;
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer_wait", layer = layer, forward = pass);
            wait[0].put(compute)?;
            copies.wait_until(&wait[0])?;
            self.copy_in(place, &slot.whole, &copy, copies)?;
            sync_point!("layer_copied", copies.synchronise())?;
            wait[1].put(compute)?;
        }
        {
            let _stage = stage_mark!(self.marks, Pipeline, "layer", layer = layer, forward = pass, offloaded = true);
            run(&slot.layer)?;
        }
        let release = self.copy_back(place, slot)?;
        let _ = self.order.missed();
        self.visits.push(Pending { layer, pass, is_ahead: false, copy, wait, release: Some(release) })
    }

    /// Copies the weights back to host memory, and frees the buffer.
    fn copy_back(&mut self, place: Place, slot: Slot<T>) -> Result<[Moment; 2], CudaError> {
        let Place { layer, pass, .. } = place;
        let release = self.visits.moments(self.device)?;
        let (compute, copies) = (self.device.stream(), self.copies.stream());
        let _stage = stage_mark!(self.marks, Pipeline, "layer_release", layer = layer, forward = pass);
        release[0].put(compute)?;
        copies.wait_until(&release[0])?;
        // SAFETY: both live until the stream was waited for.
        unsafe { self.homes.begin_read(layer, &slot.whole, copies)? };
        sync_point!("layer_released", copies.synchronise())?;
        release[1].put(compute)?;
        Ok(release)
    }

    /// Frees unused memory after every `clear_every` copies.
    fn clear(&self, place: Place) -> Result<(), CudaError> {
        let is_time = |every: usize| (place.copy + 1).is_multiple_of(every as u64);
        if self.clear_every.is_some_and(|every| every > 0 && is_time(every)) {
            let _stage = stage!("clear_cache");
            self.device.trim_memory()?;
        }
        Ok(())
    }
}

impl<T: Number> Slot<T> {
    fn new(device: &Device, homes: &Homes) -> Result<Self, CudaError> {
        let whole = Arc::new(device.allocate(homes.layer_bytes() / size_of::<T>())?);
        Ok(Self { layer: layer_within(&whole, homes.tensors())?, whole, used: None })
    }
}

impl<T> Drop for Streamed<'_, T> {
    fn drop(&mut self) {
        // Copies are under way into memory that goes now; a stream that failed does no more.
        let _ = self.copies.stream().synchronise();
        let _ = self.device.stream().synchronise();
    }
}

/// Buffers of a layer's size that a mode has on the device, for as long as there are streamed layers.
pub(super) fn slots(mode: StreamMode) -> usize {
    match mode {
        StreamMode::Sync => 0,
        StreamMode::Pinned => 1,
        StreamMode::Prefetch | StreamMode::Wrap | StreamMode::Batched => 2,
    }
}
