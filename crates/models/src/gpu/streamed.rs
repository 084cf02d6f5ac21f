//! Offloaded layers on a GPU: their weights are copied from host memory on a separate stream.
//!
//! Only mode `sync` waits on the host, so passes can be enqueued ahead of the device. Copies use the stream of a second
//! [`Device`] (see [`Device::with_new_stream`]).

// Copies run between regions and buffers, which are kept here until the streams have finished them.
#![allow(unsafe_code)]

mod host_layers;
mod visits;

use std::{collections::VecDeque, sync::Arc};

use laptime_cuda::{Buffer, CudaError, Device, Moment};
use laptime_probe::sync_point;

pub use self::host_layers::{HostLayers, Pin};
use self::visits::{Pending, Visits};
use super::weights::{LayerWeights, Number, layer_within};
use crate::offload::order::Place;
use crate::offload::schedule::{LayerCopies, OffloadedLayers};
use crate::{Done, Home, LayerVisit, Marks, ModelError, Offload, Offloading, StreamMode, marks::stage_mark};

pub type Streamed<'a, T> = OffloadedLayers<HostCopies<'a, T>>;

#[derive(Debug)]
pub struct HostCopies<'a, T> {
    device: &'a Device,
    copies: &'a Device,
    host_layers: Arc<HostLayers>,
    mode: StreamMode,
    resident: usize,
    copy_marks: Marks,
    slots: Vec<Slot<T>>,
    requested: VecDeque<Requested>,
    turn: Turn,
    visits: Visits,
}

#[derive(Debug)]
struct Slot<T> {
    whole: Arc<Buffer<T>>,
    layer: LayerWeights<T>,
    /// The end of its last use, if there was one.
    used: Option<Moment>,
}

#[derive(Debug)]
struct Requested {
    is_ahead: bool,
    copy: [Moment; 2],
}

#[derive(Debug, Default)]
struct Turn {
    wait: Option<[Moment; 2]>,
    requested: Option<Requested>,
    release: Option<[Moment; 2]>,
}

impl<'a, T: Number> Streamed<'a, T> {
    /// Allocates the buffers for the offloaded layers of a model, if it has any. Copies run on the stream of `copies`.
    pub fn of(
        (device, copies): (&'a Device, Option<&'a Device>),
        host_layers: Option<&Arc<HostLayers>>,
        offload: Option<&Offload>,
        marks: &Marks,
    ) -> Result<Option<Self>, ModelError> {
        let (Some(host_layers), Some(offload)) = (host_layers, offload) else { return Ok(None) };
        let no_stream = || ModelError::Refused("offloaded layers need a stream for copies".to_owned());
        let copies = copies.ok_or_else(no_stream)?;
        host_layers.check(offload.mode)?;
        let slots = if offload.mode == StreamMode::Sync { 0 } else { offload.mode.buffers() };
        let slots = (0..slots).map(|_| Slot::new(device, host_layers)).collect::<Result<_, _>>()?;
        // The buffers must be allocated before another stream writes to them.
        copies.stream().wait_for(device.stream())?;
        let copies = HostCopies {
            device,
            copies,
            host_layers: Arc::clone(host_layers),
            mode: offload.mode,
            resident: offload.resident,
            copy_marks: Marks { lane: offload.lane.clone(), ..marks.clone() },
            slots,
            requested: VecDeque::new(),
            turn: Turn::default(),
            visits: Visits::default(),
        };
        Ok(Some(Self::over(copies, host_layers.layers, offload, marks)))
    }
}

impl<T: Number> LayerCopies for HostCopies<'_, T> {
    type Layer = LayerWeights<T>;

    fn make_buffers(&mut self) -> Done {
        if self.slots.is_empty() {
            self.slots.push(Slot::new(self.device, &self.host_layers)?);
        }
        Ok(())
    }

    fn begin_wait(&mut self) -> Done {
        let wait = self.visits.moments(self.device)?;
        wait[0].put(self.device.stream())?;
        self.turn.wait = Some(wait);
        Ok(())
    }

    /// Enqueues the copy after the last use of its buffer.
    fn request(&mut self, place: Place, buffer: usize, is_ahead: bool) -> Done {
        let Place { layer, pass, .. } = place;
        let (slot, stream) = (&self.slots[buffer], self.copies.stream());
        if let (false, Some(wait)) = (is_ahead, &self.turn.wait) {
            // The turn starts when the device reaches it, not when the host does.
            stream.wait_until(&wait[0])?;
        }
        if let Some(used) = &slot.used {
            stream.wait_until(used)?;
        }
        let copy = self.visits.moments(self.device)?;
        let (bytes, is_pinned) = (self.host_layers.layer_bytes, self.host_layers.home == Home::Pinned);
        {
            let _stage = stage_mark!(
                self.copy_marks,
                Pipeline,
                "layer_copy",
                layer = layer,
                forward = pass,
                bytes = bytes,
                pinned = is_pinned
            );
            copy[0].put(stream)?;
            // SAFETY: the stream waits for the last use of the buffer, and the home does not change.
            unsafe { self.host_layers.begin_write(layer, &slot.whole, stream)? };
            copy[1].put(stream)?;
        }
        self.requested.push_back(Requested { is_ahead, copy });
        Ok(())
    }

    fn end_wait(&mut self, _: Place, _: usize) -> Done {
        let unrequested = || ModelError::Refused("the copy of an offloaded layer was not requested".to_owned());
        let requested = self.requested.pop_front().ok_or_else(unrequested)?;
        let stream = self.device.stream();
        match self.mode {
            StreamMode::Sync => sync_point!("layer_copied", self.copies.stream().synchronise())?,
            _ => stream.wait_until(&requested.copy[1])?,
        }
        self.turn.requested = Some(requested);
        Ok(self.turn.wait.as_ref().map_or(Ok(()), |wait| wait[1].put(stream))?)
    }

    fn layer(&self, buffer: usize) -> Result<&LayerWeights<T>, ModelError> {
        Ok(&self.slots[buffer].layer)
    }

    fn release(&mut self, place: Place, buffer: usize) -> Done {
        let (compute, copies) = (self.device.stream(), self.copies.stream());
        if self.mode != StreamMode::Sync {
            let used = match self.slots[buffer].used.take() {
                Some(used) => used,
                None => Moment::new(self.device)?,
            };
            used.put(compute)?;
            self.slots[buffer].used = Some(used);
            return Ok(());
        }
        let (release, slot) = (self.visits.moments(self.device)?, self.slots.swap_remove(buffer));
        release[0].put(compute)?;
        copies.wait_until(&release[0])?;
        // SAFETY: both live until the stream is synchronised.
        unsafe { self.host_layers.begin_read(place.layer, &slot.whole, copies)? };
        sync_point!("layer_released", copies.synchronise())?;
        release[1].put(compute)?;
        self.turn.release = Some(release);
        Ok(())
    }

    fn end_turn(&mut self, Place { layer, pass, .. }: Place) -> Done {
        let Turn { wait: Some(wait), requested: Some(Requested { is_ahead, copy }), release } =
            std::mem::take(&mut self.turn)
        else {
            return Ok(());
        };
        Ok(self.visits.push(Pending { layer, pass, is_ahead, copy, wait, release })?)
    }

    fn forget(&mut self) -> Done {
        self.copies.stream().synchronise()?;
        self.device.stream().synchronise()?;
        self.turn = Turn::default();
        let requested = std::mem::take(&mut self.requested);
        requested.into_iter().for_each(|requested| self.visits.give_back(requested.copy));
        Ok(())
    }

    fn clear(&mut self) -> Done {
        Ok(self.device.trim_memory()?)
    }

    fn offloading(&self) -> Offloading {
        let streamed = self.host_layers.layers;
        let (layer_bytes, home) = (self.host_layers.layer_bytes as u64, self.host_layers.home.clone());
        Offloading { layers: streamed.saturating_add(self.resident), streamed, layer_bytes, home }
    }

    fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.visits.take()?)
    }
}

impl<T: Number> Slot<T> {
    fn new(device: &Device, host_layers: &HostLayers) -> Result<Self, CudaError> {
        let whole = Arc::new(device.allocate(host_layers.layer_bytes / size_of::<T>())?);
        Ok(Self { layer: layer_within(&whole, &host_layers.tensors, host_layers.fp8)?, whole, used: None })
    }
}

impl<T> Drop for HostCopies<'_, T> {
    fn drop(&mut self) {
        // Running copies write to memory that is freed now. A stream that failed runs nothing more.
        let _ = self.copies.stream().synchronise();
        let _ = self.device.stream().synchronise();
    }
}
