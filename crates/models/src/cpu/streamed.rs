//! Offloaded layers on the CPU: a thread reads them from a file, one at a time, into alternating buffers.

mod copier;
mod file;

use std::{collections::VecDeque, time::Instant};

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
    /// The buffers; none if a buffer is missing or being copied to.
    buffers: Vec<Option<Box<Layer<T>>>>,
    /// The buffer of each outstanding copy, and whether the copy was requested ahead.
    requested: VecDeque<(usize, bool)>,
    wait_began: Instant,
    visit: LayerVisit,
    visits: VecDeque<LayerVisit>,
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
            buffers: (0..offload.mode.buffers()).map(|_| None).collect(),
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
        let buffer = self.buffers[buffer].take().ok_or_else(|| in_use(layer))?;
        self.copier.send(Request { direction, layer, pass, buffer })
    }
}

impl<T: Number> LayerCopies for FileCopies<T> {
    type Layer = Layer<T>;

    fn make_buffers(&mut self) -> Done {
        let mut stage = None;
        for (at, buffer) in self.buffers.iter_mut().enumerate() {
            if buffer.is_none() && self.requested.iter().all(|(copying, _)| *copying != at) {
                stage.get_or_insert_with(|| stage!("allocate"));
                *buffer = Some(Box::new(Layer::blank(&self.config, self.fp8)?));
            }
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
        self.requested.push_back((buffer, is_ahead));
        Ok(())
    }

    fn end_wait(&mut self, Place { layer, pass, .. }: Place, buffer: usize) -> Done {
        let Copied { request, copy_ns, outcome } = self.copier.wait()?;
        let (_, is_ahead) = self.requested.pop_front().unwrap_or_default();
        self.buffers[buffer] = Some(request.buffer);
        self.visit = LayerVisit { layer, pass, is_ahead, wait_ns: nanos(self.wait_began), release_ns: 0.0, copy_ns };
        outcome
    }

    fn layer(&self, buffer: usize) -> Result<&Layer<T>, ModelError> {
        self.buffers[buffer].as_deref().ok_or_else(|| in_use(self.visit.layer))
    }

    fn release(&mut self, place: Place, buffer: usize) -> Done {
        let began = Instant::now();
        if self.mode == StreamMode::Sync {
            self.send(Direction::Back, place, buffer)?;
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
        while let Some((buffer, _)) = self.requested.pop_front() {
            self.buffers[buffer] = Some(self.copier.wait()?.request.buffer);
        }
        Ok(())
    }

    fn clear(&mut self) -> Done {
        self.buffers.fill_with(|| None);
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
