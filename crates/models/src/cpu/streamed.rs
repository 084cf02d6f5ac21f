//! Offloaded layers on the CPU: a thread reads them from a file, one at a time, into alternating buffers.

mod copier;
mod file;

use std::{collections::VecDeque, mem, time::Instant};

use laptime_probe::stage;

use self::copier::{Copied, Copier, Copying, Direction, Link, Request, nanos};
use self::file::LayerFile;
use super::model::{Layer, Loader, layer_bytes};
use super::number::Number;
use crate::offload::order::Place;
use crate::offload::schedule::{LayerCopies, OffloadedLayers};
use crate::{
    Config, Done, Home, LayerVisit, Marks, ModelError, Offloading, Options, StreamMode, fp8::WeightScales,
    marks::stage_mark,
};

/// Visits that are kept until they are read; older ones are dropped.
const MOST_VISITS: usize = 1 << 13;

pub type Streamed<T> = OffloadedLayers<FileCopies<T>>;

pub struct FileCopies<T> {
    config: Config,
    fp8: Option<WeightScales>,
    marks: Marks,
    mode: StreamMode,
    layers: usize,
    layer_bytes: u64,
    copier: Copier<T>,
    buffers: Vec<Buffer<T>>,
    /// For each outstanding copy, whether it was requested ahead.
    requested: VecDeque<bool>,
    wait_began: Instant,
    visit: LayerVisit,
    visits: VecDeque<LayerVisit>,
}

enum Buffer<T> {
    Missing,
    Here(Box<Layer<T>>),
    Copying,
}

impl<T: Number> Streamed<T> {
    pub fn load(config: &Config, options: &Options, loader: Loader<'_, T>) -> Result<Option<Self>, ModelError> {
        let Some(offload) = &options.offload else { return Ok(None) };
        let layers = offload.streamed_layers(config)?;
        if layers == 0 {
            return Ok(None);
        }
        let link = Link::new(offload.link_gbps)?;
        let layer_bytes = layer_bytes(config, options.dtype);
        let mut file = LayerFile::create(&offload.home, layer_bytes)?;
        for layer in 0..layers {
            file.append(&loader.layer(config, layer)?.bytes())?;
        }
        let marks = Marks { lane: offload.lane.clone(), ..options.marks.clone() };
        let mut copies = FileCopies {
            config: config.clone(),
            fp8: loader.fp8,
            marks: options.marks.clone(),
            mode: offload.mode,
            layers,
            layer_bytes,
            copier: Copier::start(Copying { file, link, bytes: layer_bytes, marks })?,
            buffers: (0..offload.mode.buffers()).map(|_| Buffer::Missing).collect(),
            requested: VecDeque::new(),
            wait_began: Instant::now(),
            visit: LayerVisit { layer: 0, pass: 0, is_ahead: false, wait_ns: 0.0, release_ns: 0.0, copy_ns: 0.0 },
            visits: VecDeque::new(),
        };
        if offload.mode != StreamMode::Sync {
            copies.make_buffers()?;
        }
        Ok(Some(Self::over(copies, layers, offload, &options.marks)))
    }
}

impl<T: Number> FileCopies<T> {
    fn send(&mut self, direction: Direction, Place { layer, pass, .. }: Place, buffer: usize) -> Done {
        match mem::replace(&mut self.buffers[buffer], Buffer::Copying) {
            Buffer::Here(buffer) => self.copier.send(Request { direction, layer, pass, buffer }),
            Buffer::Missing | Buffer::Copying => Err(in_use(layer)),
        }
    }
}

impl<T: Number> LayerCopies for FileCopies<T> {
    type Layer = Layer<T>;

    fn make_buffers(&mut self) -> Done {
        let mut stage = None;
        for buffer in self.buffers.iter_mut().filter(|buffer| matches!(buffer, Buffer::Missing)) {
            stage.get_or_insert_with(|| stage!("allocate"));
            *buffer = Buffer::Here(Box::new(Layer::blank(&self.config, self.fp8)?));
        }
        Ok(())
    }

    fn begin_wait(&mut self) -> Done {
        self.wait_began = Instant::now();
        Ok(())
    }

    fn request(&mut self, place: Place, buffer: usize, is_ahead: bool) -> Done {
        let _stage = stage_mark!(self.marks, Pipeline, "layer_issue", layer = place.layer, forward = place.pass);
        self.send(Direction::In, place, buffer)?;
        self.requested.push_back(is_ahead);
        Ok(())
    }

    fn end_wait(&mut self, Place { layer, pass, .. }: Place, buffer: usize) -> Done {
        let Copied { request, copy_ns, outcome } = self.copier.wait()?;
        let is_ahead = self.requested.pop_front().unwrap_or_default();
        self.buffers[buffer] = Buffer::Here(request.buffer);
        self.visit = LayerVisit { layer, pass, is_ahead, wait_ns: nanos(self.wait_began), release_ns: 0.0, copy_ns };
        outcome
    }

    fn layer(&self, buffer: usize) -> Result<&Layer<T>, ModelError> {
        match &self.buffers[buffer] {
            Buffer::Here(layer) => Ok(layer),
            Buffer::Missing | Buffer::Copying => Err(in_use(self.visit.layer)),
        }
    }

    fn release(&mut self, place: Place, buffer: usize) -> Done {
        let began = Instant::now();
        if self.mode == StreamMode::Sync {
            self.send(Direction::Back, place, buffer)?;
            self.buffers[buffer] = Buffer::Missing;
            self.copier.wait()?.outcome?;
        }
        self.visit.release_ns = nanos(began);
        Ok(())
    }

    fn end_turn(&mut self, _: Place) -> Done {
        if self.visits.len() == MOST_VISITS {
            self.visits.pop_front();
        }
        self.visits.push_back(self.visit);
        Ok(())
    }

    fn forget(&mut self) -> Done {
        while self.requested.pop_front().is_some() {
            let buffer = self.copier.wait()?.request.buffer;
            if let Some(place) = self.buffers.iter_mut().find(|place| matches!(place, Buffer::Copying)) {
                *place = Buffer::Here(buffer);
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> Done {
        let unused = self.buffers.iter_mut().filter(|buffer| matches!(buffer, Buffer::Here(_)));
        unused.for_each(|buffer| *buffer = Buffer::Missing);
        Ok(())
    }

    fn offloading(&self) -> Offloading {
        let Self { layers: streamed, layer_bytes, .. } = *self;
        Offloading { layers: self.config.layers, streamed, layer_bytes, home: Home::File }
    }

    fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.visits.drain(..).collect())
    }
}

fn in_use(layer: usize) -> ModelError {
    ModelError::Refused(format!("the buffer of layer {layer} is in use"))
}
