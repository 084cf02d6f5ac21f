//! VibeVoice on any device: the state of a generation, and the order of the parts of a token.

use std::ops::Range;

use laptime_probe::sync_point;

use super::ops::{run_diffusion, run_tokenizer, run_whole};
use super::tensors::{Tokenizer, Weights};
use super::{
    Backend, Done, Guidance, Part, Read, Side, Solver, SpokenToken, VibeVoice, VibeVoiceConfig, VibeVoiceOptions,
    VibeVoiceWeights, VoicePrompt,
};
use crate::error::{ensure, fit};
use crate::{LayerVisit, ModelError, Offloading, Replay, marks::stage_mark};

/// VibeVoice on a device. The backend is dropped first, since its graphs refer to the other buffers.
pub struct Engine<B: Backend> {
    pub backend: B,
    pub config: VibeVoiceConfig,
    pub options: VibeVoiceOptions,
    pub weights: Weights<B>,
    /// For the acoustic decoder, latents are divided by the first and the second is subtracted.
    factors: [f32; 2],
    /// The streaming state of the acoustic decoder and of the semantic encoder.
    pub flows: [B::Flow; 2],
    state: Generation,
}

#[derive(Debug, Clone, Default)]
struct Generation {
    is_endless: bool,
    steps: usize,
    most_tokens: usize,
    tokens: usize,
    audio_tokens: usize,
    positions: usize,
    negative: usize,
    has_negative: bool,
    /// Whether both streams ran the row of this token as one batch.
    has_run_both: bool,
    has_begun: bool,
    is_over: bool,
}

impl<B: Backend> Engine<B> {
    pub fn new(
        backend: B,
        config: VibeVoiceConfig,
        options: VibeVoiceOptions,
        (source, weights): (&VibeVoiceWeights, Weights<B>),
    ) -> Result<Self, ModelError> {
        let flow = |tokenizer: &Tokenizer<B>| backend.flow(&tokenizer.shape, 1);
        let flows = [flow(&weights.acoustic_decoder)?, flow(&weights.semantic_encoder)?];
        let factors = source.factors(&config, options.dtype)?;
        Ok(Self { backend, config, options, weights, factors, flows, state: Generation::default() })
    }

    pub fn run_part(&mut self, part: Part) -> Done {
        let Self { backend, weights, factors, flows: [decoder, semantic], .. } = self;
        match part {
            Part::Positive => backend.step(Side::Positive),
            Part::Negative => backend.step(Side::Negative),
            Part::Both => backend.step(Side::Both),
            Part::Diffusion => run_diffusion(backend, &weights.diffusion_head, decoder, *factors),
            Part::Decode => {
                run_tokenizer(backend, &weights.acoustic_decoder, decoder, 1)?;
                backend.take_samples(decoder, semantic)
            }
            Part::Encode => run_tokenizer(backend, &weights.semantic_encoder, semantic, 1),
            Part::Connect => backend.connect(semantic, [&weights.acoustic_connector, &weights.semantic_connector]),
        }
    }

    /// The parts of a token. The first token always has a separate negative step.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<B> {
        let left_out = if self.options.is_batched() { Part::Positive } else { Part::Both };
        Part::ALL.into_iter().filter(move |part| *part != left_out)
    }

    pub fn launch(&mut self, part: Part) -> Done {
        let pass = part.side().map_or(Ok(None), |side| self.backend.begin_pass(side))?;
        let replay = if pass.is_some() { self.backend.replay_number(part)? } else { None };
        let marks = &self.options.marks;
        let _resident = pass.map(|pass| stage_mark!(marks, Pipeline, "resident", forward = pass, replay = replay));
        B::launch(self, part)
    }

    fn step(&mut self, side: Side, token: usize) -> Done {
        let part = Part::of_step(side);
        // With offloaded layers, the replay is that of the resident layers, inside this stage.
        let is_offloaded = self.backend.offloading().is_some();
        let replay = if is_offloaded { None } else { self.backend.replay_number(part)? };
        let marks = &self.options.marks;
        let _stage = match side {
            Side::Positive => stage_mark!(marks, Pipeline, "transformer_positive", token = token, replay = replay),
            Side::Negative => stage_mark!(marks, Pipeline, "transformer_negative", token = token, replay = replay),
            Side::Both => stage_mark!(marks, Pipeline, "transformer", token = token, replay = replay),
        };
        self.launch(part)
    }

    fn voice_rows(&mut self, voice: usize, samples: &[f32], guidance: &Guidance) -> Result<B::Voice, ModelError> {
        let _stage = stage_mark!(self.options.marks, Pipeline, "voice_encode", voice = voice);
        let Self { backend, weights, config, factors: [scale, bias], .. } = self;
        let mut latents = run_whole(backend, &weights.acoustic_encoder, samples, config.token_samples())?;
        guidance.vary(voice, config.voice_deviation, &mut latents);
        latents.iter_mut().for_each(|latent| *latent = (*latent + *bias) * *scale);
        backend.voice(&latents, &weights.acoustic_connector)
    }

    fn prefill(&mut self, prompt: &VoicePrompt, guidance: &Guidance) -> Done {
        let voices = prompt.voices.iter().enumerate().map(|(at, samples)| self.voice_rows(at, samples, guidance));
        let voices = voices.collect::<Result<Vec<_>, _>>()?;
        let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = prompt.ids.len());
        self.backend.prefill(&self.config, &prompt.ids, &voices)?;
        // The first input of the negative stream.
        self.backend.take_row(self.config.ids.bos)
    }

    /// Runs the next row of the positive stream; the first one is part of the prompt. In a batch the negative stream runs
    /// it too, which is of use only for a token of audio.
    fn step_positive(&mut self, token: usize) -> Done {
        if token == 0 {
            return Ok(());
        }
        self.backend.place(Side::Positive, self.state.positions + token - 1)?;
        if !self.options.is_batched() {
            return self.step(Side::Positive, token);
        }
        self.backend.place(Side::Negative, self.state.negative)?;
        self.state.has_run_both = true;
        self.step(Side::Both, token)
    }

    /// Runs the last row of the positive stream through the negative stream, unless both ran it together.
    fn step_negative(&mut self, token: usize) -> Done {
        if !std::mem::take(&mut self.state.has_run_both) {
            self.backend.place(Side::Negative, self.state.negative)?;
            self.step(Side::Negative, token)?;
        }
        self.state.negative += 1;
        self.state.has_negative = true;
        Ok(())
    }

    fn speak(&mut self, token: usize) -> Done {
        self.step_negative(token)?;
        for part in [Part::Diffusion, Part::Decode, Part::Encode, Part::Connect] {
            let (marks, steps) = (&self.options.marks, self.state.steps);
            let _stage = match part {
                Part::Diffusion => stage_mark!(marks, Pipeline, "diffusion", token = token, steps = steps),
                Part::Decode => stage_mark!(marks, Pipeline, "audio_decode", token = token),
                Part::Encode => stage_mark!(marks, Pipeline, "semantic_encode", token = token),
                _ => stage_mark!(marks, Layer, "connect"),
            };
            if part == Part::Diffusion {
                self.backend.begin_latent(self.state.audio_tokens)?;
            }
            self.launch(part)?;
        }
        Ok(())
    }

    fn check(&self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Done {
        guidance.check()?;
        prompt.check(&self.config, most_tokens, self.options.capacity)?;
        fit(most_tokens, &self.config.name, self.options.negative_capacity)
    }

    fn read_if(&mut self, is_there: bool, what: Read<'_, B>, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        if is_there { self.backend.read(what, range) } else { Ok(Vec::new()) }
    }

    /// The values of some tokens of audio, with this many per token.
    fn range(&self, Range { start, end }: Range<usize>, each: usize) -> Result<Range<usize>, ModelError> {
        let generated = self.state.audio_tokens;
        let is_there = start <= end && end <= generated;
        ensure!(is_there, "tokens of audio {start} to {end} do not exist: {generated} were generated");
        Ok(start * each..end * each)
    }
}

impl<B: Backend> VibeVoice for Engine<B> {
    fn config(&self) -> &VibeVoiceConfig {
        &self.config
    }

    fn options(&self) -> &VibeVoiceOptions {
        &self.options
    }

    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Done {
        self.check(prompt, guidance, most_tokens)?;
        Solver::new(guidance.steps)?;
        self.reset()?;
        B::begin_diffusion(self, guidance, most_tokens)?;
        self.flows.iter_mut().try_for_each(|flow| self.backend.forget(flow))?;
        self.prefill(prompt, guidance)?;
        self.state = Generation {
            is_endless: guidance.is_endless,
            steps: guidance.steps,
            most_tokens,
            positions: prompt.ids.len(),
            has_begun: true,
            ..Generation::default()
        };
        Ok(())
    }

    fn token(&mut self) -> Result<SpokenToken, ModelError> {
        let reason = if self.state.has_begun { "the last one was generated" } else { "no prompt has run yet" };
        ensure!(self.state.has_begun && !self.state.is_over, "there is no next token: {reason}");
        let (index, ids) = (self.state.tokens, self.config.ids);
        // A failed token cannot be continued.
        self.state.is_over = true;
        self.step_positive(index)?;
        let choice = sync_point!("read_token", self.backend.choice())?;
        let id = if self.state.is_endless { ids.audio } else { ids.all().get(choice).copied().unwrap_or(ids.end) };
        if id == ids.bos {
            // The negative stream restarts.
            self.state.negative = 0;
        }
        let audio = (id == ids.audio).then_some(self.state.audio_tokens);
        match audio {
            Some(_) => self.speak(index)?,
            None => {
                self.state.has_run_both = false;
                self.backend.take_row(id)?;
            }
        }
        self.state.audio_tokens += usize::from(audio.is_some());
        self.state.tokens += 1;
        self.state.is_over = id == ids.end || self.state.tokens >= self.state.most_tokens;
        Ok(SpokenToken { index, id, audio, is_end: self.state.is_over })
    }

    fn audio_tokens(&self) -> usize {
        self.state.audio_tokens
    }

    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let range = self.range(tokens, self.config.token_samples())?;
        let mut samples = self.backend.read(Read::Samples, range)?;
        samples.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        Ok(samples)
    }

    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let range = self.range(tokens, self.config.acoustic.latent)?;
        self.backend.read(Read::Latents, range)
    }

    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError> {
        let Self { backend, weights, config, .. } = self;
        run_whole(backend, &weights.acoustic_decoder, latents, config.acoustic.latent)
    }

    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError> {
        let Self { backend, weights, config, .. } = self;
        let mut encode = |encoder| run_whole(backend, encoder, samples, config.token_samples());
        Ok([encode(&weights.acoustic_encoder)?, encode(&weights.semantic_encoder)?])
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.read_if(self.state.has_begun, Read::Logits, 0..self.config.ids.all().len())
    }

    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError> {
        let width = self.config.decoder.hidden;
        let positive = self.read_if(self.state.has_begun, Read::Hidden, 0..width)?;
        Ok([positive, self.read_if(self.state.has_negative, Read::Hidden, width..2 * width)?])
    }

    fn semantic(&mut self) -> Result<Vec<f32>, ModelError> {
        match self.state.audio_tokens {
            0 => Ok(Vec::new()),
            _ => self.backend.read(Read::Semantic(&self.flows[1]), 0..self.config.semantic.latent),
        }
    }

    fn offloading(&self) -> Option<Offloading> {
        self.backend.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.backend.layer_visits()
    }

    fn replay(&self) -> Replay {
        self.backend.replay()
    }

    fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        B::part_times(self, times)
    }

    fn wait(&mut self) -> Done {
        self.backend.wait()
    }

    fn reset(&mut self) -> Done {
        self.state = Generation::default();
        self.backend.reset()
    }
}

impl<B: Backend> Drop for Engine<B> {
    fn drop(&mut self) {
        // Pending work uses memory that is freed now.
        let _ = self.backend.wait();
    }
}
