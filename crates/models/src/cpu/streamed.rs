//! Offloaded layers: a thread reads them from a file, one at a time, into buffers that are reused in turn.
//!
//! A layer is asked for when its turn comes, or before, as far as the mode allows and a buffer is free: then the one that is
//! copied and the one that computes are two. Copies are asked for in the order in which passes need them, so that they also
//! come in it.

mod copier;
mod file;
mod link;

use std::{collections::VecDeque, time::Instant};

use laptime_probe::stage;

use self::{
    copier::{Copier, Copying, Done, Order, Way, nanos},
    file::LayerFile,
    link::Link,
};
use super::{
    model::{Layer, Source, layer_bytes},
    number::Number,
    pass::Pass,
};
use crate::{
    Config, Home, LayerVisit, Marks, ModelError, Offload, Offloading, Options, StreamMode, decoder::layers::Offloaded,
    marks::stage_mark,
};

/// Visits that are kept until they are asked for; older ones are forgotten.
const MOST_VISITS: usize = 1 << 13;

/// The offloaded layers of a model, which are the first ones.
pub struct Streamed<T> {
    config: Config,
    marks: Marks,
    mode: StreamMode,
    clear_every: Option<usize>,
    pub count: usize,
    layer_bytes: u64,
    copier: Copier<T>,
    /// Buffers that nothing is in.
    free: Vec<Layer<T>>,
    /// Buffers that are allocated when they are needed.
    unmade: usize,
    /// Copies that were asked for and not waited for, in order.
    asked: VecDeque<Asked>,
    /// The copy that is asked for next.
    next: Turn,
    /// The pass that runs, or that ran last, and how many there were.
    pass: u64,
    passes: u64,
    /// Copies since memory was given back.
    copies: usize,
    visits: VecDeque<LayerVisit>,
}

/// A layer's turn in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    pass: u64,
    layer: usize,
}

/// A copy that was asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    turn: Turn,
    is_ahead: bool,
}

/// A layer whose turn has come, with its weights.
struct Come<T> {
    buffer: Layer<T>,
    visit: LayerVisit,
}

impl<T: Number> Offloaded<Pass<'_, T>> for Streamed<T> {
    fn begin(&mut self) -> Result<(), ModelError> {
        self.pass = self.passes;
        self.passes += 1;
        Ok(())
    }

    fn count(&self) -> usize {
        self.count
    }

    fn pass(&self) -> u64 {
        self.pass
    }

    fn turn(&mut self, layer: usize, run: impl FnOnce(&Layer<T>) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let done = self.visit(layer, run);
        if done.is_err() {
            self.forget_asked();
        }
        done
    }
}

impl<T: Number> Streamed<T> {
    /// Writes the offloaded layers to a file, one at a time. None if all layers are resident.
    pub fn load(config: &Config, options: &Options, source: Source<'_>) -> Result<Option<Self>, ModelError> {
        let Some(offload) = &options.offload else { return Ok(None) };
        let count = offload.streamed_layers(config)?;
        if count == 0 {
            return Ok(None);
        }
        let link = Link::new(offload.link_gbps)?;
        let bytes = layer_bytes(config, options.dtype);
        let mut file = LayerFile::create(&offload.home, bytes)?;
        for layer in 0..count {
            file.append(&source.layer::<T>(config, layer)?.bytes())?;
        }
        let marks = Marks { lane: offload.lane.clone(), ..options.marks.clone() };
        let copier = Copier::start(Copying { file, link, bytes, marks })?;
        Self::new(config, options, offload, copier, count, bytes).map(Some)
    }

    fn new(
        config: &Config,
        options: &Options,
        offload: &Offload,
        copier: Copier<T>,
        count: usize,
        layer_bytes: u64,
    ) -> Result<Self, ModelError> {
        let Offload { mode, clear_every, .. } = *offload;
        let mut streamed = Self {
            config: config.clone(),
            marks: options.marks.clone(),
            mode,
            clear_every: clear_every.filter(|every| *every > 0),
            count,
            layer_bytes,
            copier,
            free: Vec::new(),
            unmade: buffers_of(mode),
            asked: VecDeque::new(),
            next: Turn { pass: 0, layer: 0 },
            pass: 0,
            passes: 0,
            copies: 0,
            visits: VecDeque::new(),
        };
        if mode != StreamMode::Sync {
            streamed.make_buffers()?;
        }
        Ok(streamed)
    }

    /// What came of the wish.
    pub fn offloading(&self) -> Offloading {
        let Self { count, layer_bytes, .. } = *self;
        Offloading { layers: self.config.layers, streamed: count, layer_bytes, home: Home::File }
    }

    /// The finished visits since the last call.
    pub fn visits(&mut self) -> Vec<LayerVisit> {
        self.visits.drain(..).collect()
    }

    fn visit(
        &mut self,
        layer: usize,
        compute: impl FnOnce(&Layer<T>) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let Come { buffer, mut visit } = self.come(Turn { pass: self.pass, layer })?;
        {
            let _stage =
                stage_mark!(self.marks, Pipeline, "layer", layer = layer, forward = self.pass, offloaded = true);
            compute(&buffer)?;
        }
        visit.release_ns = self.release(layer, buffer)?;
        if self.visits.len() == MOST_VISITS {
            self.visits.pop_front();
        }
        self.visits.push_back(visit);
        self.clear()?;
        self.ask_ahead()
    }

    /// Waits until the weights of a layer are there.
    fn come(&mut self, turn: Turn) -> Result<Come<T>, ModelError> {
        if self.asked.front().is_some_and(|asked| asked.turn != turn) {
            self.forget_asked();
        }
        let buffer = if self.asked.is_empty() { Some(self.take_buffer()?) } else { None };
        let began = Instant::now();
        let _stage = stage_mark!(self.marks, Pipeline, "layer_wait", layer = turn.layer, forward = turn.pass);
        if let Some(buffer) = buffer {
            self.ask(turn, buffer, false)?;
            self.ask_ahead()?;
        }
        let Done { order, copy_ns, outcome } = self.copier.wait()?;
        let is_ahead = self.asked.pop_front().is_some_and(|asked| asked.is_ahead);
        match outcome {
            Ok(()) => {
                let (wait_ns, Turn { pass, layer }) = (nanos(began), turn);
                let visit = LayerVisit { layer, pass, is_ahead, wait_ns, release_ns: 0.0, copy_ns };
                Ok(Come { buffer: order.buffer, visit })
            }
            Err(error) => {
                self.free.push(order.buffer);
                Err(error)
            }
        }
    }

    /// Gives a buffer up; gives the time that it took.
    fn release(&mut self, layer: usize, buffer: Layer<T>) -> Result<f64, ModelError> {
        let began = Instant::now();
        let _stage = stage_mark!(self.marks, Pipeline, "layer_release", layer = layer, forward = self.pass);
        self.copies += 1;
        if self.mode != StreamMode::Sync {
            self.free.push(buffer);
            return Ok(nanos(began));
        }
        self.unmade += 1;
        self.copier.ask(Order { way: Way::Back, layer, pass: self.pass, buffer })?;
        self.copier.wait()?.outcome?;
        Ok(nanos(began))
    }

    /// Frees unused buffers after every `clear_every` copies. They are allocated again when needed.
    fn clear(&mut self) -> Result<(), ModelError> {
        if self.clear_every.is_some_and(|every| self.copies >= every) {
            self.copies = 0;
            {
                let _stage = stage!("clear_cache");
                self.unmade += self.free.len();
                self.free.clear();
            }
            if self.mode != StreamMode::Sync {
                self.make_buffers()?;
            }
        }
        Ok(())
    }

    /// Asks for what comes next, as long as the mode allows it and a buffer is free.
    fn ask_ahead(&mut self) -> Result<(), ModelError> {
        while self.mode.is_ahead() && !self.free.is_empty() && (self.mode.wraps() || self.next.pass == self.pass) {
            let buffer = self.take_buffer()?;
            self.ask(self.next, buffer, true)?;
        }
        Ok(())
    }

    /// Asks for a copy into a buffer.
    fn ask(&mut self, turn: Turn, buffer: Layer<T>, is_ahead: bool) -> Result<(), ModelError> {
        let Turn { pass, layer } = turn;
        let _stage = stage_mark!(self.marks, Pipeline, "layer_issue", layer = layer, forward = pass);
        self.copier.ask(Order { way: Way::In, layer, pass, buffer })?;
        self.asked.push_back(Asked { turn, is_ahead });
        self.next = match layer + 1 < self.count {
            true => Turn { pass, layer: layer + 1 },
            false => Turn { pass: pass + 1, layer: 0 },
        };
        Ok(())
    }

    /// Waits for all that was asked for and forgets it: a pass that stopped does not go on.
    fn forget_asked(&mut self) {
        while self.asked.pop_front().is_some() {
            match self.copier.wait() {
                Ok(done) => self.free.push(done.order.buffer),
                Err(_) => return,
            }
        }
    }

    /// A buffer to copy into.
    fn take_buffer(&mut self) -> Result<Layer<T>, ModelError> {
        if self.free.is_empty() {
            self.make_buffers()?;
        }
        self.free.pop().ok_or_else(|| ModelError::Refused("every buffer of a layer is in use".to_owned()))
    }

    fn make_buffers(&mut self) -> Result<(), ModelError> {
        if self.unmade > 0 {
            let _stage = stage!("allocate");
            while self.unmade > 0 {
                self.free.push(Layer::blank(&self.config)?);
                self.unmade -= 1;
            }
        }
        Ok(())
    }
}

/// Buffers of a mode: one that computes, and one that is copied into where that is done ahead.
pub fn buffers_of(mode: StreamMode) -> usize {
    if mode.is_ahead() { 2 } else { 1 }
}
