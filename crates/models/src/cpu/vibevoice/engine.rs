//! A speech model whose numbers are all of one type.

use std::ops::Range;

use laptime_probe::sync_point;

use super::{
    super::{
        cache::{Cache, zeros},
        crew::Crew,
        model::Source,
        number::Number,
        stack::{Before, Stack},
        steps::embed,
    },
    connector::Connector,
    head::{Diffusion, Head},
    said::Speech,
    tokenizer::{Buffers, Tokenizer},
};
use crate::{
    LayerVisit, ModelError, Offloading, Options, Room, StreamMode,
    marks::stage_mark,
    vibevoice::{
        Guidance, Solver, SpokenToken, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, VoicePrompt,
        Way, no_token,
    },
};

/// A speech model whose numbers are all of one type.
pub struct Engine<T> {
    config: VibeVoiceConfig,
    options: VibeVoiceOptions,
    crew: Crew,
    embedding: Vec<T>,
    /// The rows of the language model's head that belong to tokens which may be chosen.
    choices: Vec<T>,
    /// The language model, with the cache of the positive stream.
    stack: Stack<T>,
    /// The cache of the negative stream.
    negative: Cache<T>,
    /// Whether both streams run as one batch.
    is_batched: bool,
    head: Head<T>,
    encoder: Tokenizer<T>,
    decoder: Tokenizer<T>,
    semantic: Tokenizer<T>,
    acoustic_connector: Connector<T>,
    semantic_connector: Connector<T>,
    /// What latents are divided by, and what is then taken from them.
    factors: [f32; 2],
    buffers: Buffers<T>,
    speech: Speech<T>,
}

impl<T: Number> Engine<T> {
    /// Puts the weights into memory.
    pub fn new(
        config: VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        options: VibeVoiceOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        let _stage = laptime_probe::stage!("weights");
        let crew = Crew::new(threads)?;
        let source = Source { weights: Some(weights), crew: &crew };
        let language_model = weights.decoder();
        let own = Source { weights: Some(&language_model), crew: &crew };
        let stepped = config.stepped_decoder();
        let head = config.decoder.head_tensor().unwrap_or_else(|| config.decoder.embedding_tensor());
        let [acoustic, semantic] = config.connector_tensors();
        let [scale, bias] = config.factor_tensors();
        let encoder = |tensors, part| Tokenizer::load(tensors, part, Way::Encoder, source);
        Ok(Self {
            embedding: own.stacked(&[&config.decoder.embedding_tensor()])?,
            choices: own.rows(&head, &config.ids.all())?,
            negative: Cache::new(&stepped, &decoder_options(&options, options.negative_room))?,
            stack: Stack::load(stepped, decoder_options(&options, options.room), own)?,
            is_batched: batches(&options),
            head: Head::load(&config, source)?,
            encoder: encoder(&config.acoustic_encoder_tensors(), &config.acoustic)?,
            decoder: Tokenizer::load(&config.acoustic_decoder_tensors(), &config.acoustic, Way::Decoder, source)?,
            semantic: encoder(&config.semantic_encoder_tensors(), &config.semantic)?,
            acoustic_connector: Connector::load(&acoustic, source)?,
            semantic_connector: Connector::load(&semantic, source)?,
            factors: [one(source.rounded::<T>(&[&scale])?), one(source.rounded::<T>(&[&bias])?)],
            buffers: Buffers::default(),
            speech: Speech::nothing(),
            config,
            options,
            crew,
        })
    }

    /// The rows of the latents of a voice, as the language model hears them.
    fn voice_rows(&mut self, voice: usize, samples: &[f32], guidance: &Guidance) -> Result<Vec<T>, ModelError> {
        let _stage = stage_mark!(self.options.marks, Pipeline, "voice_encode", voice = voice);
        let mut latents = self.encoder.run_all(&self.crew, samples, self.config.token_samples(), &mut self.buffers);
        guidance.vary(voice, self.config.voice_deviation, &mut latents);
        let [scale, bias] = self.factors;
        let latents: Vec<T> = latents.into_iter().map(|latent| T::narrow((latent + bias) * scale)).collect();
        self.acoustic_connector.run(&self.crew, &latents)
    }

    /// The rows of a prompt: tokens looked up, and voices in the place of audio.
    fn prompt_rows(&mut self, prompt: &VoicePrompt, guidance: &Guidance) -> Result<Vec<T>, ModelError> {
        let mut voices = Vec::new();
        for (voice, samples) in prompt.voices.iter().enumerate() {
            voices.extend(self.voice_rows(voice, samples, guidance)?);
        }
        let hidden = self.config.decoder.hidden;
        let mut rows = zeros(prompt.ids.len() * hidden)?;
        embed(&self.crew, &prompt.ids, &self.embedding, hidden, &mut rows);
        let audio = self.config.ids.audio;
        let places = prompt.ids.iter().zip(rows.chunks_mut(hidden)).filter(|(id, _)| **id == audio);
        places.zip(voices.chunks(hidden)).for_each(|((_, row), voice)| row.copy_from_slice(voice));
        Ok(rows)
    }

    /// The row of a token of text.
    fn row_of(&self, id: u32) -> Vec<T> {
        let hidden = self.config.decoder.hidden;
        self.embedding[id as usize * hidden..][..hidden].to_vec()
    }

    /// Runs the next row of the positive stream, unless the prompt has done so.
    fn go_on(&mut self, token: usize) -> Result<(), ModelError> {
        let Some(row) = self.speech.next.take() else { return Ok(()) };
        if self.is_batched {
            return self.go_on_both(token, row);
        }
        let _stage = stage_mark!(self.options.marks, Pipeline, "transformer_positive", token = token);
        self.stack.run(&self.crew, 1, Before::Cache, Some(&self.choices), |to| to.copy_from_slice(&row))?;
        self.speech.last = Some(row);
        self.speech.hidden[0] = self.stack.normed().to_vec();
        Ok(())
    }

    /// Runs the next row of the positive stream, and the same row of the negative one, which is of use only if the token
    /// is one of audio.
    fn go_on_both(&mut self, token: usize, row: Vec<T>) -> Result<(), ModelError> {
        let _stage = stage_mark!(self.options.marks, Pipeline, "transformer", token = token);
        let hidden = row.len();
        let enter = |to: &mut [T]| to.chunks_mut(hidden).for_each(|to| to.copy_from_slice(&row));
        self.stack.run_both(&self.crew, &mut self.negative, Some(&self.choices), enter)?;
        let (positive, negative) = self.stack.normed().split_at(hidden);
        self.speech.hidden[0] = positive.to_vec();
        self.speech.beside = Some(negative.to_vec());
        self.speech.last = Some(row);
        Ok(())
    }

    /// Puts the negative stream where a token leaves it that is not of audio: it has not run.
    fn go_back_without(&mut self) {
        if self.speech.beside.take().is_some() {
            self.negative.truncate(self.negative.length().saturating_sub(1));
        }
    }

    /// Chooses a token: the likeliest of those that may be.
    fn choose(&self) -> u32 {
        if self.speech.guidance.is_endless {
            return self.config.ids.audio;
        }
        let logits = self.stack.logits().iter().map(|logit| logit.wide());
        let best = logits.zip(self.config.ids.all()).reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map_or(self.config.ids.end, |(_, id)| id)
    }

    /// Runs a row of the negative stream: the one that the positive stream ran last, unless both ran it together.
    fn go_on_without(&mut self, token: usize) -> Result<(), ModelError> {
        if let Some(row) = self.speech.beside.take() {
            self.speech.hidden[1] = row;
            return Ok(());
        }
        let _stage = stage_mark!(self.options.marks, Pipeline, "transformer_negative", token = token);
        let row = self.speech.last.clone().unwrap_or_else(|| self.row_of(self.config.ids.bos));
        std::mem::swap(&mut self.stack.cache, &mut self.negative);
        let ran = self.stack.run(&self.crew, 1, Before::Cache, None, |to| to.copy_from_slice(&row));
        std::mem::swap(&mut self.stack.cache, &mut self.negative);
        ran?;
        self.speech.hidden[1] = self.stack.normed().to_vec();
        Ok(())
    }

    /// Makes a latent of what both streams left.
    fn diffuse(&mut self, token: usize, audio: usize) -> Vec<f32> {
        let Speech { guidance, solver, times, hidden, .. } = &self.speech;
        let Some(solver) = solver else { return Vec::new() };
        let _stage = stage_mark!(self.options.marks, Pipeline, "diffusion", token = token, steps = guidance.steps);
        let noise = guidance.noise_of(audio, self.config.acoustic.latent);
        let diffusion = Diffusion { solver, times, scale: guidance.scale };
        self.head.sample(&self.crew, &hidden.concat(), noise, &diffusion)
    }

    /// Makes audio of a latent and hears it: gives what was heard.
    fn sound(&mut self, token: usize, latent: &[f32]) -> Vec<T> {
        let Self { crew, options, decoder, semantic, buffers, speech, factors, .. } = self;
        let [scale, bias] = *factors;
        let [sounding, hearing] = speech.streams.get_or_insert_with(|| [decoder.stream(), semantic.stream()]);
        let samples: Vec<T> = {
            let _stage = stage_mark!(options.marks, Pipeline, "audio_decode", token = token);
            let latent: Vec<T> = latent.iter().map(|number| T::narrow(number / scale - bias)).collect();
            decoder.run(crew, &latent, sounding, buffers).to_vec()
        };
        speech.samples.extend(samples.iter().map(|sample| sample.wide()));
        let _stage = stage_mark!(options.marks, Pipeline, "semantic_encode", token = token);
        let heard = semantic.run(crew, &samples, hearing, buffers).to_vec();
        speech.heard = heard.iter().map(|number| number.wide()).collect();
        heard
    }

    /// Makes a token of audio: gives the row that the positive stream runs next.
    fn speak(&mut self, token: usize) -> Result<Vec<T>, ModelError> {
        let audio = self.audio_tokens();
        self.go_on_without(token)?;
        let latent = self.diffuse(token, audio);
        let heard = self.sound(token, &latent);
        let _stage = stage_mark!(self.options.marks, Layer, "connect");
        let narrow: Vec<T> = latent.iter().map(|number| T::narrow(*number)).collect();
        self.speech.latents.extend(latent);
        let mut row = self.acoustic_connector.run(&self.crew, &narrow)?;
        let heard = self.semantic_connector.run(&self.crew, &heard)?;
        row.iter_mut().zip(heard).for_each(|(to, heard)| *to = T::narrow(to.wide() + heard.wide()));
        Ok(row)
    }

    /// Makes the next token.
    fn make_token(&mut self) -> Result<SpokenToken, ModelError> {
        let (index, ids) = (self.speech.tokens, self.config.ids);
        self.go_on(index)?;
        let id = sync_point!("read_token", self.choose());
        let audio = (id == ids.audio).then(|| self.audio_tokens());
        let row = match audio {
            Some(_) => self.speak(index)?,
            None => {
                self.go_back_without();
                self.row_of(id)
            }
        };
        if id == ids.bos {
            // The negative stream begins anew.
            self.negative.truncate(0);
        }
        self.speech.next = Some(row);
        self.speech.tokens += 1;
        self.speech.is_over = id == ids.end || self.speech.tokens >= self.speech.most_tokens;
        Ok(SpokenToken { index, id, audio, is_end: self.speech.is_over })
    }
}

impl<T: Number> VibeVoice for Engine<T> {
    fn config(&self) -> &VibeVoiceConfig {
        &self.config
    }

    fn options(&self) -> &VibeVoiceOptions {
        &self.options
    }

    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Result<(), ModelError> {
        guidance.check()?;
        prompt.check(&self.config, most_tokens, self.options.room)?;
        if most_tokens > self.options.negative_room {
            let (what, room) = (self.config.name.clone(), self.options.negative_room);
            return Err(ModelError::TooLong { tokens: most_tokens, what, room });
        }
        let solver = Solver::new(guidance.steps)?;
        self.reset()?;
        let rows = self.prompt_rows(prompt, guidance)?;
        let times = self.head.times(&self.crew, &solver);
        {
            let positions = prompt.ids.len();
            let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
            self.stack
                .run(&self.crew, positions, Before::Cache, Some(&self.choices), |to| to.copy_from_slice(&rows))?;
        }
        let hidden = [self.stack.normed().to_vec(), Vec::new()];
        let (guidance, solver) = (guidance.clone(), Some(solver));
        self.speech = Speech { guidance, solver, times, most_tokens, hidden, has_begun: true, ..Speech::nothing() };
        Ok(())
    }

    fn token(&mut self) -> Result<SpokenToken, ModelError> {
        if !self.speech.has_begun || self.speech.is_over {
            return Err(no_token(self.speech.has_begun));
        }
        let made = self.make_token();
        // What was made before it stays, but nothing can go on from half a token.
        self.speech.is_over |= made.is_err();
        made
    }

    fn tokens(&self) -> usize {
        self.speech.tokens
    }

    fn audio_tokens(&self) -> usize {
        self.speech.latents.len() / self.config.acoustic.latent
    }

    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let each = [self.config.acoustic.latent, self.config.token_samples()];
        Ok(self.speech.samples_of(&tokens, each)?.iter().map(|sample| sample.clamp(-1.0, 1.0)).collect())
    }

    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        Ok(self.speech.latents_of(&tokens, self.config.acoustic.latent)?.to_vec())
    }

    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError> {
        whole(latents, self.config.acoustic.latent, "latents")?;
        Ok(self.decoder.run_all(&self.crew, latents, self.config.acoustic.latent, &mut self.buffers))
    }

    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError> {
        let hop = self.config.token_samples();
        whole(samples, hop, "tokens")?;
        let Self { crew, encoder, semantic, buffers, .. } = self;
        Ok([encoder, semantic].map(|tokenizer| tokenizer.run_all(crew, samples, hop, buffers)))
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        let hidden: Vec<f32> = self.speech.hidden[0].iter().map(|number| number.wide()).collect();
        if hidden.is_empty() {
            return Ok(Vec::new());
        }
        // The stack may have run the negative stream since.
        let of_row = |row: &[T]| row.iter().zip(&hidden).map(|(weight, number)| weight.wide() * number).sum();
        Ok(self.choices.chunks(hidden.len()).map(of_row).collect())
    }

    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError> {
        let [positive, negative] = &self.speech.hidden;
        Ok([positive, negative].map(|row| row.iter().map(|number| number.wide()).collect()))
    }

    fn semantic(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.speech.heard.clone())
    }

    fn offloading(&self) -> Option<Offloading> {
        self.stack.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.stack.visits())
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        self.stack.cache.truncate(0);
        self.negative.truncate(0);
        self.speech = Speech::nothing();
        Ok(())
    }
}

/// Refuses numbers that are no whole tokens.
fn whole(numbers: &[f32], each: usize, what: &str) -> Result<(), ModelError> {
    match numbers.len().is_multiple_of(each) {
        true => Ok(()),
        false => Err(ModelError::Refused(format!("{} numbers make no {what} of {each}", numbers.len()))),
    }
}

/// The number of a tensor that has one.
fn one(numbers: Vec<f32>) -> f32 {
    numbers.first().copied().unwrap_or_default()
}

/// Whether both streams run as one batch: where layers are streamed so.
fn batches(options: &VibeVoiceOptions) -> bool {
    options.offload.as_ref().is_some_and(|offload| offload.mode == StreamMode::Batched)
}

/// How the language model is made ready, with a cache of this many positions.
fn decoder_options(options: &VibeVoiceOptions, room: usize) -> Options {
    Options {
        marks: options.marks.clone(),
        offload: options.offload.clone(),
        ..Options::new(options.dtype, Room::Static(room))
    }
}
