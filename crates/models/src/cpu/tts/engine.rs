//! A text-to-speech model whose numbers are all of one type.

use std::ops::Range;

use laptime_probe::sync_point;

use super::{
    super::{crew::Crew, number::Number},
    codec::Codec,
    predictor::{Chosen, Predictor},
    talker::Talker,
};
use crate::{
    ModelError, Options, Room,
    attention::Kept,
    marks::stage_mark,
    tts::{
        Frame, Prompt, Sampling, SpeakOptions, Speaking, Suppressed, TtsConfig, TtsWeights, check_codes, check_frames,
        choose, chunks, no_frame, penalise, random_bits,
    },
};

/// A text-to-speech model whose numbers are all of one type.
pub struct Engine<T> {
    config: TtsConfig,
    options: SpeakOptions,
    crew: Crew,
    talker: Talker<T>,
    predictor: Predictor<T>,
    codec: Codec<T>,
    suppressed: Suppressed,
    speech: Speech,
}

/// What is being said.
struct Speech {
    sampling: Sampling,
    most_frames: usize,
    /// Codes of all frames, frame by frame.
    codes: Vec<u32>,
    /// Which semantic codes were chosen.
    chosen: Vec<bool>,
    /// The semantic code of the next frame, if there is one.
    next: Option<u32>,
    has_begun: bool,
}

impl Speech {
    fn nothing(vocab: usize) -> Self {
        let sampling = Sampling::default();
        Self { sampling, most_frames: 0, codes: Vec::new(), chosen: vec![false; vocab], next: None, has_begun: false }
    }
}

impl<T: Number> Engine<T> {
    /// Puts the weights into memory.
    pub fn new(
        config: TtsConfig,
        weights: &TtsWeights,
        options: SpeakOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        let _stage = laptime_probe::stage!("weights");
        let crew = Crew::new(threads)?;
        Ok(Self {
            talker: Talker::load(&config, weights, &options, &crew)?,
            predictor: Predictor::load(&config, weights, &options, &crew)?,
            codec: Codec::load(&config, weights, &options, &crew)?,
            suppressed: Suppressed::of(&config),
            speech: Speech::nothing(config.talker.vocab),
            config,
            options,
            crew,
        })
    }

    /// Chooses the semantic code of a frame from the talker's logits.
    fn choose(&mut self, frame: usize) -> u32 {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Pipeline, "sampling", frame = frame);
        let sampling = &self.speech.sampling;
        let mut scores: Vec<f32> = self.talker.stack.logits().iter().map(|logit| logit.wide()).collect();
        penalise(&mut scores, &self.speech.chosen, sampling.repetition_penalty);
        self.suppressed.apply(&mut scores, sampling.may_end(frame));
        let bits = random_bits(sampling.seed, frame as u32, 0);
        let code = choose(&mut scores, sampling.talker, bits, Some(marks));
        self.speech.chosen[code as usize] = true;
        code
    }

    /// Chooses the other codes of a frame, and gives the sum of the embeddings of all of them.
    fn predict(&mut self, frame: usize, token: u32) -> Result<Vec<T>, ModelError> {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Pipeline, "code_predictor", frame = frame);
        let hidden = self.config.talker.hidden;
        let mut heard = self.talker.stack.normed().to_vec();
        heard.extend_from_slice(&self.talker.embedding[token as usize * hidden..][..hidden]);
        let Sampling { predictor: choice, seed, .. } = self.speech.sampling;
        self.speech.codes.push(token);
        self.predictor.run(&self.crew, &mut heard, &mut self.speech.codes, Chosen { frame, choice, seed })?;
        Ok(heard.split_off(hidden))
    }
}

impl<T: Number> Speaking for Engine<T> {
    fn config(&self) -> &TtsConfig {
        &self.config
    }

    fn options(&self) -> &SpeakOptions {
        &self.options
    }

    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Result<(), ModelError> {
        sampling.check()?;
        prompt.check(&self.config, most_frames, self.options.room)?;
        self.reset()?;
        self.speech = Speech { sampling: *sampling, most_frames, ..Speech::nothing(self.config.talker.vocab) };
        {
            let positions = prompt.positions.len();
            let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
            self.talker.prefill(&self.crew, prompt)?;
        }
        self.speech.next = Some(self.choose(0));
        self.speech.has_begun = true;
        Ok(())
    }

    fn frame(&mut self) -> Result<Frame, ModelError> {
        let token = self.speech.next.take().ok_or_else(|| no_frame(self.speech.has_begun))?;
        let index = self.frames();
        let mut codes = self.predict(index, token)?;
        let mut next = None;
        if index + 1 < self.speech.most_frames {
            {
                let _stage = stage_mark!(self.options.marks, Pipeline, "talker_step", frame = index);
                self.talker.step(&self.crew, index, &mut codes)?;
            }
            next = Some(self.choose(index + 1));
        }
        self.speech.next = sync_point!("read_frame", next.filter(|next| *next != self.config.ids.eos));
        Ok(Frame { index, token, is_end: self.speech.next.is_none() })
    }

    fn frames(&self) -> usize {
        self.speech.codes.len() / self.config.groups
    }

    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        check_frames(&frames, self.frames())?;
        let groups = self.config.groups;
        Ok(self.speech.codes[frames.start * groups..frames.end * groups].to_vec())
    }

    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError> {
        check_frames(&frames, self.frames())?;
        let _stage = stage_mark!(self.options.marks, Pipeline, "decode", frames = frames.len());
        let (groups, length) = (self.config.groups, self.config.codec.frame_samples());
        let mut samples = Vec::new();
        for chunk in chunks(frames) {
            let codes = &self.speech.codes[chunk.frames.start * groups..chunk.frames.end * groups];
            self.codec.decode(&self.crew, codes, chunk.context * length, &mut samples)?;
        }
        Ok(samples)
    }

    fn set_codes(&mut self, codes: &[u32]) -> Result<(), ModelError> {
        check_codes(&self.config, codes)?;
        self.reset()?;
        self.speech.codes = codes.to_vec();
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.talker.stack.logits().iter().map(|logit| logit.wide()).collect())
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.talker.stack.normed().iter().map(|number| number.wide()).collect())
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        self.talker.stack.cache.truncate(0);
        self.speech = Speech::nothing(self.config.talker.vocab);
        Ok(())
    }
}

/// How one of the decoders inside is made ready.
pub fn decoder_options(options: &SpeakOptions, room: Room, kept: Option<Kept>) -> Options {
    Options { kept, marks: options.marks.clone(), ..Options::new(options.dtype, room) }
}
