//! A speech model on a GPU as [`VibeVoice`] asks for it.

// A copy keeps the address of pinned memory; the engine holds it as long as it lives.
#![allow(unsafe_code)]

use std::ops::Range;

use laptime_cuda::{Blas, Buffer, CudaError, Device, Pinned, Slice};
use laptime_probe::sync_point;

use super::{
    super::{size, streamed::Streamed, weights::Number},
    batches,
    connect::Connecting,
    diffusion::Diffusion,
    language::{Language, Side},
    parts::{Graphs, Part, first_replay, parts},
    tokenizer::Flow,
    weights::SpeechGpuWeights,
};
use crate::{
    LayerVisit, ModelError, Offloading, Replay,
    marks::stage_mark,
    vibevoice::{
        Guidance, Solver, SpokenToken, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, VoicePrompt,
        no_token,
    },
};

/// A speech model on a GPU. The graphs come first: they go before the buffers that they use.
pub struct Engine<'a, T> {
    pub(super) graphs: Graphs,
    pub(super) replay: Replay,
    pub(super) device: &'a Device,
    pub(super) config: VibeVoiceConfig,
    pub(super) options: VibeVoiceOptions,
    pub(super) weights: SpeechGpuWeights<T>,
    pub(super) blas: Blas,
    /// The offloaded layers of the language model.
    pub(super) streamed: Option<Streamed<'a, T>>,
    pub(super) language: Language<T>,
    pub(super) diffusion: Diffusion<T>,
    /// How the acoustic decoder goes on, and the semantic encoder.
    pub(super) sounding: Flow<T>,
    pub(super) hearing: Flow<T>,
    pub(super) connecting: Connecting<T>,
    /// The samples of all tokens of audio.
    pub(super) audio: Buffer<f32>,
    /// What the host reads of a token.
    told: Pinned<u32>,
    speech: Speech,
}

/// What is being said.
#[derive(Debug, Clone, Default)]
struct Speech {
    is_endless: bool,
    steps: usize,
    most_tokens: usize,
    tokens: usize,
    audio_tokens: usize,
    /// Positions of the prompt.
    positions: usize,
    /// Positions of the negative stream since it began.
    negative: usize,
    has_negative: bool,
    /// Whether the negative stream ran the row of this token, beside the positive one.
    runs_beside: bool,
    has_begun: bool,
    is_over: bool,
}

impl<'a, T: Number> Engine<'a, T> {
    /// Loads the weights on a device. Offloaded layers are copied on the stream of `copies`.
    pub fn new(
        (device, copies): (&'a Device, Option<&'a Device>),
        config: VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        options: VibeVoiceOptions,
    ) -> Result<Self, ModelError> {
        let longest = options.room.max(options.negative_room);
        if longest > config.decoder.context {
            let (what, room) = (config.name.clone(), config.decoder.context);
            return Err(ModelError::TooLong { tokens: longest, what, room });
        }
        let replay = first_replay(&options)?;
        let weights = SpeechGpuWeights::load(device, &config, weights, options.offload.as_ref())?;
        let streamed = streamed(device, copies, &weights, &options)?;
        let (room, steps) = (options.negative_room.max(1), Guidance::default().steps);
        let mut engine = Self {
            graphs: Graphs::default(),
            replay,
            device,
            blas: Blas::new(device)?,
            streamed,
            language: Language::new(device, &config, &options)?,
            diffusion: Diffusion::new(device, &config, steps, room)?,
            sounding: Flow::new(device, &weights.decoder, 1)?,
            hearing: Flow::new(device, &weights.semantic, 1)?,
            connecting: Connecting::new(device, 1, config.decoder.hidden)?,
            audio: device.allocate(room * config.token_samples())?,
            told: device.allocate_pinned(1)?,
            speech: Speech::default(),
            weights,
            config,
            options,
        };
        let parts = parts(batches(&engine.options));
        engine.prepare(&parts)?;
        Ok(engine)
    }

    /// Lets the row of a token of text come next.
    pub(super) fn take_row(&mut self, id: u32) -> Result<(), CudaError> {
        let hidden = self.config.decoder.hidden;
        let row = self.weights.embedding.slice(id as usize * hidden..(id as usize + 1) * hidden)?;
        self.language.row.all_mut().copy_from(self.device.stream(), row)
    }

    /// Runs the next row of the positive stream, unless the prompt has done so. Where the streams are one batch, the
    /// negative one runs it too, which is of use only if the token is one of audio.
    fn go_on(&mut self, token: usize) -> Result<(), CudaError> {
        if token == 0 {
            return Ok(());
        }
        self.language.place(self.device, Side::Positive, self.speech.positions + token - 1)?;
        if !batches(&self.options) {
            let _stage = stage_mark!(self.options.marks, Pipeline, "transformer_positive", token = token);
            return self.launch_step(Side::Positive);
        }
        self.language.place(self.device, Side::Negative, self.speech.negative)?;
        self.speech.runs_beside = true;
        let _stage = stage_mark!(self.options.marks, Pipeline, "transformer", token = token);
        self.launch_step(Side::Both)
    }

    /// Runs a row of the negative stream, the one that the positive stream ran last, unless both did.
    fn go_on_without(&mut self, token: usize) -> Result<(), CudaError> {
        if !std::mem::take(&mut self.speech.runs_beside) {
            self.language.place(self.device, Side::Negative, self.speech.negative)?;
            let _stage = stage_mark!(self.options.marks, Pipeline, "transformer_negative", token = token);
            self.launch_step(Side::Negative)?;
        }
        self.speech.negative += 1;
        self.speech.has_negative = true;
        Ok(())
    }

    /// The token that was chosen. Waits for the device.
    fn choose(&mut self) -> Result<u32, CudaError> {
        let ids = self.config.ids;
        let stream = self.device.stream();
        // SAFETY: both live in this engine, and the word is looked at when the stream has done it.
        unsafe { self.language.choice.begin_read(&mut self.told, stream)? };
        sync_point!("read_token", stream.synchronise())?;
        let chosen = ids.all().get(self.told[0] as usize).copied().unwrap_or(ids.end);
        Ok(if self.speech.is_endless { ids.audio } else { chosen })
    }

    /// Makes a token of audio, and the row that the positive stream runs next.
    fn speak(&mut self, token: usize) -> Result<(), CudaError> {
        self.go_on_without(token)?;
        {
            let steps = self.speech.steps;
            let _stage = stage_mark!(self.options.marks, Pipeline, "diffusion", token = token, steps = steps);
            let audio = size(self.speech.audio_tokens)?;
            self.diffusion.drawing.token.set_all(self.device.stream(), audio)?;
            self.launch(Part::Diffusion)?;
        }
        {
            let _stage = stage_mark!(self.options.marks, Pipeline, "audio_decode", token = token);
            self.launch(Part::Decode)?;
        }
        {
            let _stage = stage_mark!(self.options.marks, Pipeline, "semantic_encode", token = token);
            self.launch(Part::Encode)?;
        }
        let _stage = stage_mark!(self.options.marks, Layer, "connect");
        self.launch(Part::Connect)
    }

    /// Makes ready for latents of this many steps.
    fn set_steps(&mut self, steps: usize) -> Result<(), ModelError> {
        if self.diffusion.steps() != steps {
            self.device.stream().synchronise()?;
            self.graphs[Part::Diffusion as usize] = None;
            self.diffusion = Diffusion::new(self.device, &self.config, steps, self.options.negative_room)?;
            // What decodes reads which token it is, and what connects the latent.
            self.prepare(&[Part::Diffusion, Part::Decode, Part::Connect])?;
        }
        Ok(())
    }

    fn check(&self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Result<(), ModelError> {
        guidance.check()?;
        prompt.check(&self.config, most_tokens, self.options.room)?;
        if most_tokens > self.options.negative_room {
            let (what, room) = (self.config.name.clone(), self.options.negative_room);
            return Err(ModelError::TooLong { tokens: most_tokens, what, room });
        }
        Ok(())
    }

    /// Where the numbers of some tokens of audio are, each of which has this many.
    fn part(&self, tokens: &Range<usize>, each: usize) -> Result<Range<usize>, ModelError> {
        let (Range { start, end }, made) = (tokens.clone(), self.speech.audio_tokens);
        if start <= end && end <= made {
            return Ok(start * each..end * each);
        }
        Err(ModelError::Refused(format!("tokens of audio {start} to {end} were not made: there are {made}")))
    }
}

/// The offloaded layers, as requested and as the weights were loaded.
fn streamed<'a, T: Number>(
    device: &'a Device,
    copies: Option<&'a Device>,
    weights: &SpeechGpuWeights<T>,
    options: &VibeVoiceOptions,
) -> Result<Option<Streamed<'a, T>>, ModelError> {
    let (Some(homes), Some(offload)) = (&weights.homes, &options.offload) else { return Ok(None) };
    let none = || ModelError::Refused("offloaded layers need a stream for their copies".to_owned());
    Streamed::new(device, copies.ok_or_else(none)?, homes, offload, &options.marks).map(Some)
}

fn read<T: Number>(slice: Slice<'_, T>) -> Result<Vec<f32>, CudaError> {
    Ok(slice.read()?.into_iter().map(T::widened).collect())
}

impl<T: Number> VibeVoice for Engine<'_, T> {
    fn replay(&self) -> Replay {
        self.replay.clone()
    }

    fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        self.time_parts(times)
    }

    fn config(&self) -> &VibeVoiceConfig {
        &self.config
    }

    fn options(&self) -> &VibeVoiceOptions {
        &self.options
    }

    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Result<(), ModelError> {
        self.check(prompt, guidance, most_tokens)?;
        let solver = Solver::new(guidance.steps)?;
        self.reset()?;
        self.set_steps(guidance.steps)?;
        let Self { device, blas, weights, diffusion, config, .. } = &mut *self;
        let (on, of) = ((*device, &*blas), (&*config, &weights.kernels, &weights.head));
        diffusion.begin(on, of, (guidance, &solver), most_tokens)?;
        self.sounding.forget(self.device)?;
        self.hearing.forget(self.device)?;
        self.prefill(prompt, guidance)?;
        self.speech = Speech {
            is_endless: guidance.is_endless,
            steps: guidance.steps,
            most_tokens,
            positions: prompt.ids.len(),
            has_begun: true,
            ..Speech::default()
        };
        Ok(())
    }

    fn token(&mut self) -> Result<SpokenToken, ModelError> {
        if !self.speech.has_begun || self.speech.is_over {
            return Err(no_token(self.speech.has_begun));
        }
        let index = self.speech.tokens;
        // What fails leaves nothing to go on from.
        self.speech.is_over = true;
        self.go_on(index)?;
        let (ids, id) = (self.config.ids, self.choose()?);
        if id == ids.bos {
            // The negative stream begins anew.
            self.speech.negative = 0;
        }
        let audio = (id == ids.audio).then_some(self.speech.audio_tokens);
        match audio {
            Some(_) => self.speak(index)?,
            None => {
                self.speech.runs_beside = false;
                self.take_row(id)?;
            }
        }
        self.speech.audio_tokens += usize::from(audio.is_some());
        self.speech.tokens += 1;
        self.speech.is_over = id == ids.end || self.speech.tokens >= self.speech.most_tokens;
        Ok(SpokenToken { index, id, audio, is_end: self.speech.is_over })
    }

    fn tokens(&self) -> usize {
        self.speech.tokens
    }

    fn audio_tokens(&self) -> usize {
        self.speech.audio_tokens
    }

    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let samples = self.audio.slice(self.part(&tokens, self.config.token_samples())?)?;
        let samples = sync_point!("read_audio", samples.read())?;
        Ok(samples.into_iter().map(|sample| sample.clamp(-1.0, 1.0)).collect())
    }

    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let place = self.part(&tokens, self.config.acoustic.latent)?;
        Ok(self.diffusion.drawing.latents.slice(place)?.read()?)
    }

    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError> {
        self.out_of_silence(&self.weights.decoder, latents, self.config.acoustic.latent)
    }

    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError> {
        let heard = |of| self.out_of_silence(of, samples, self.config.token_samples());
        Ok([heard(&self.weights.encoder)?, heard(&self.weights.semantic)?])
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        if self.speech.has_begun { Ok(read(self.language.logits()?)?) } else { Ok(Vec::new()) }
    }

    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError> {
        let (rows, width) = (&self.language.hidden, self.config.decoder.hidden);
        let row = |there: bool, at: usize| match there {
            true => read(rows.slice(at * width..(at + 1) * width)?),
            false => Ok(Vec::new()),
        };
        Ok([row(self.speech.has_begun, 0)?, row(self.speech.has_negative, 1)?])
    }

    fn semantic(&mut self) -> Result<Vec<f32>, ModelError> {
        match self.speech.audio_tokens {
            0 => Ok(Vec::new()),
            _ => Ok(read(self.hearing.x.slice(0..self.config.semantic.latent)?)?),
        }
    }

    fn offloading(&self) -> Option<Offloading> {
        self.streamed.as_ref().map(Streamed::offloading)
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.streamed.as_mut().map_or(Ok(Vec::new()), Streamed::visits)?)
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        Ok(self.device.stream().synchronise()?)
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        // What is on its way to the host must have come before it is asked for anew.
        self.device.stream().synchronise()?;
        self.speech = Speech::default();
        Ok(())
    }
}

impl<T> Drop for Engine<'_, T> {
    fn drop(&mut self) {
        // What is on the stream uses memory that goes now; a stream that failed does no more.
        let _ = self.device.stream().synchronise();
    }
}
