//! VibeVoice on a GPU: the language model, and the values that parts pass on.

// Copies keep addresses of pinned memory, and graphs those of buffers; the engine owns both.
#![allow(unsafe_code)]

use std::ops::Range;

use laptime_cuda::{Buffer, Device, Pinned, Sizes, Slice, SliceMut, nn::StreamingOperations};
use laptime_probe::sync_point;

use super::super::{audio::Kit, size, streamed::Streamed, weights::Number};
use super::graphs::{self, Graphs};
use super::{diffusion::Diffusion, language::Language, tokenizer::Flow};
use crate::tts::Linear;
use crate::vibevoice::{
    Backend, CONNECTOR_EPS, Connector, DiffusionOps, Done, Engine, Guidance, Part, Read, Side, VibeVoiceConfig,
    VibeVoiceOptions,
};
use crate::{LayerVisit, ModelError, Offloading, Replay};

/// VibeVoice on a GPU. The graphs are dropped first.
pub struct Cuda<'a, T> {
    pub graphs: Graphs,
    pub replay: Replay,
    pub kit: Kit<'a, T>,
    pub streams: StreamingOperations<T>,
    streamed: Option<Streamed<'a, T>>,
    pub language: Language<T>,
    pub diffusion: Diffusion<T>,
    pub connecting: Connecting<T>,
    audio: Buffer<f32>,
    choice: Pinned<u32>,
}

impl<'a, T: Number> Cuda<'a, T> {
    pub fn new(
        (kit, streams): (Kit<'a, T>, StreamingOperations<T>),
        config: &VibeVoiceConfig,
        options: &VibeVoiceOptions,
        replay: Replay,
        language: Language<T>,
        streamed: Option<Streamed<'a, T>>,
    ) -> Result<Self, ModelError> {
        let (device, capacity) = (kit.device, options.negative_capacity.max(1));
        Ok(Self {
            graphs: Graphs::default(),
            replay,
            streamed,
            language,
            diffusion: Diffusion::new(device, config, Guidance::default().steps, capacity)?,
            connecting: Connecting::new(device, 1, config.decoder.hidden)?,
            audio: device.allocate(capacity * config.token_samples())?,
            choice: device.allocate_pinned(1)?,
            kit,
            streams,
        })
    }
}

impl<T: Number> Backend for Cuda<'_, T> {
    type Voice = Buffer<T>;

    fn launch(engine: &mut Engine<Self>, part: Part) -> Done {
        let device = engine.backend.kit.device;
        match engine.backend.graphs.of(part) {
            // SAFETY: the buffers live in the engine, which waits for the stream before it is dropped.
            Some(graph) => unsafe { graph.launch(device.stream()) },
            None => engine.run_part(part),
        }
    }

    fn replay_number(&mut self, part: Part) -> Result<Option<u64>, ModelError> {
        let device = self.kit.device;
        self.graphs.of(part).as_mut().map_or(Ok(None), |graph| graph.next_number(device))
    }

    fn begin_diffusion(engine: &mut Engine<Self>, guidance: &Guidance, tokens: usize) -> Done {
        if engine.backend.steps() != guidance.steps {
            let Engine { backend, config, options, .. } = &mut *engine;
            backend.wait()?;
            *backend.graphs.of(Part::Diffusion) = None;
            backend.diffusion = Diffusion::new(backend.kit.device, config, guidance.steps, options.negative_capacity)?;
            // Decode and Connect have addresses of its buffers.
            graphs::prepare(engine, &[Part::Diffusion, Part::Decode, Part::Connect])?;
        }
        let Engine { backend: Self { kit, diffusion, .. }, config, weights, .. } = engine;
        diffusion.begin(kit, (config, &weights.diffusion_head), guidance, tokens)
    }

    fn begin_latent(&mut self, audio: usize) -> Done {
        Ok(self.diffusion.state.token.set_all(self.kit.device.stream(), size(audio)?)?)
    }

    fn place(&mut self, side: Side, position: usize) -> Done {
        self.language.place(&self.kit, side, position)
    }

    fn begin_pass(&mut self, side: Side) -> Result<Option<u64>, ModelError> {
        let Self { kit, language, streamed, .. } = self;
        language.stepped(side);
        let Some(streamed) = streamed else { return Ok(None) };
        language.begin_step(kit, streamed, side)?;
        Ok(Some(streamed.pass_number()))
    }

    fn step(&mut self, side: Side) -> Done {
        self.language.step(&self.kit, side)
    }

    fn take_samples(&mut self, decoder: &mut Flow<T>, semantic: &mut Flow<T>) -> Done {
        let Self { kit, streams, diffusion, audio, .. } = self;
        let (from, to) = ((&decoder.samples, &diffusion.state.token), semantic.entrance(1)?);
        let samples = size(to.length())?;
        Ok(streams.write_samples(kit.device.stream(), from, audio, to, samples)?)
    }

    fn voice(&mut self, latents: &[f32], connector: &Connector<Self>) -> Result<Buffer<T>, ModelError> {
        let (device, width) = (self.kit.device, self.language.row.length());
        let count = latents.len() / self.diffusion.row.length();
        let narrow: Vec<T> = latents.iter().map(|latent| T::narrowed(*latent)).collect();
        let (latents, mut rows) = (device.upload(&narrow)?, device.allocate(count * width)?);
        let mut connecting = Connecting::new(device, count, width)?;
        connecting.run(&self.kit, connector, latents.all(), rows.all_mut(), false)?;
        Ok(rows)
    }

    fn connect(&mut self, semantic: &Flow<T>, [of_acoustic, of_semantic]: [&Connector<Self>; 2]) -> Done {
        let Self { kit, connecting, diffusion, language, .. } = self;
        connecting.run(kit, of_acoustic, diffusion.row.all(), language.row.all_mut(), false)?;
        let latent = semantic.x.slice(0..of_semantic.enter.weight.length() / of_semantic.norm.length())?;
        connecting.run(kit, of_semantic, latent, language.row.all_mut(), true)
    }

    fn take_row(&mut self, id: u32) -> Done {
        self.language.take_row(&self.kit, id)
    }

    fn prefill(&mut self, config: &VibeVoiceConfig, ids: &[u32], voices: &[Buffer<T>]) -> Done {
        let Self { kit, language, streamed, .. } = self;
        let (device, hidden) = (kit.device, config.decoder.hidden);
        let rows = voices.iter().flat_map(|voice| (0..voice.length() / hidden).map(move |row| (voice, row)));
        let places = (0..ids.len()).filter(|at| ids[*at] == config.ids.audio);
        let of_device = device.upload(ids)?;
        language.prefill(kit, streamed.as_mut(), &of_device, config.decoder.vocab, |x| {
            for (place, (voice, row)) in places.zip(rows) {
                let from = voice.slice(row * hidden..(row + 1) * hidden)?;
                x.slice_mut(place * hidden..(place + 1) * hidden)?.copy_from(device.stream(), from)?;
            }
            Ok(())
        })
    }

    fn choice(&mut self) -> Result<usize, ModelError> {
        let stream = self.kit.device.stream();
        // SAFETY: both live in this backend, and the word is read after a wait for the stream.
        unsafe { self.language.choice.begin_read(&mut self.choice, stream)? };
        stream.synchronise()?;
        Ok(self.choice[0] as usize)
    }

    fn read(&mut self, what: Read<'_, Self>, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let numbers = match what {
            Read::Latents => return Ok(self.diffusion.state.latents.slice(range)?.read()?),
            Read::Samples => return Ok(sync_point!("read_audio", self.audio.slice(range)?.read())?),
            Read::Hidden => self.language.hidden.slice(range)?.read()?,
            Read::Logits => self.language.logits(range)?.read()?,
            Read::Semantic(flow) => flow.x.slice(range)?.read()?,
        };
        Ok(numbers.into_iter().map(T::widened).collect())
    }

    fn offloading(&self) -> Option<Offloading> {
        self.streamed.as_ref().map(Streamed::offloading)
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.streamed.as_mut().map_or(Ok(Vec::new()), Streamed::visits)
    }

    fn replay(&self) -> Replay {
        self.replay.clone()
    }

    fn part_times(engine: &mut Engine<Self>, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        graphs::part_times(engine, times)
    }

    fn reset(&mut self) -> Done {
        self.wait()?;
        self.graphs.hand_on(self.kit.device)
    }

    fn wait(&mut self) -> Done {
        Ok(self.kit.device.stream().synchronise()?)
    }
}

impl<T> Drop for Cuda<'_, T> {
    fn drop(&mut self) {
        // Stamps of a failed device are lost.
        let _ = self.graphs.hand_on(self.kit.device);
    }
}

pub struct Connecting<T> {
    inner: Buffer<T>,
    normed: Buffer<T>,
    rows: u32,
    width: u32,
}

impl<T: Number> Connecting<T> {
    pub fn new(device: &Device, rows: usize, width: usize) -> Result<Self, ModelError> {
        let (inner, normed) = (device.allocate(rows * width)?, device.allocate(rows * width)?);
        Ok(Self { inner, normed, rows: size(rows)?, width: size(width)? })
    }

    pub fn run(
        &mut self,
        kit: &Kit<'_, T>,
        weights: &Connector<Cuda<'_, T>>,
        latents: Slice<'_, T>,
        mut out: SliceMut<'_, T>,
        is_added: bool,
    ) -> Done {
        let Self { inner, normed, rows, width } = self;
        let (stream, shape, operations) = (kit.device.stream(), [*rows, *width], &kit.operations);
        kit.product(latents, &weights.enter.weight, &mut *inner, shape)?;
        operations.add_bias(stream, &mut *inner, &weights.enter.bias, shape)?;
        operations.rms_norm(stream, &*inner, &weights.norm, &mut *normed, shape, CONNECTOR_EPS)?;
        let Linear { weight, bias } = &weights.leave;
        let sizes = Sizes { m: *rows, n: *width, k: *width, b_is_transposed: true };
        match is_added {
            true => kit.blas.multiply_add([normed.all(), weight.all()], out.borrowed(), sizes)?,
            false => kit.blas.multiply_slices([normed.all(), weight.all()], out.borrowed(), sizes)?,
        }
        Ok(operations.add_bias(stream, out, bias.all(), shape)?)
    }
}
