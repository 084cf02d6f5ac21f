//! A text-to-speech model on a GPU as [`Speaking`] asks for it.

// Graphs keep addresses of buffers, and a copy those of pinned memory; the engine holds them as long as it lives.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use laptime_cuda::{
    Blas, Cache, CudaError, Device, Kernels, Pinned,
    decode::{Choice as Place, FrameStep, Frames, Rules, Sampler, Sampling as Rule, SamplingPart},
};
use laptime_probe::{stage, sync_point};
use laptime_trace::run::Depth;

use super::{
    super::{size, weights::Number},
    captured::{Border, Captured, is_stamped, untold},
    codec::Codec,
    predictor::{Choosing, Predictor},
    talker::Talker,
    weights::TtsGpuWeights,
};
use crate::{
    GraphMode, ModelError, Replay,
    marks::stage_mark,
    tts::{
        Choice, Frame, Prompt, Sampling, SpeakOptions, Speaking, Suppressed, TtsConfig, check_codes, check_frames,
        chunks, no_frame,
    },
};

/// A text-to-speech model on a GPU. The graphs come first: they go before the buffers that they use.
pub struct Engine<'a, T> {
    graphs: Graphs,
    replay: Replay,
    device: &'a Device,
    config: Arc<TtsConfig>,
    options: SpeakOptions,
    weights: Arc<TtsGpuWeights<T>>,
    blas: Blas,
    talker: Talker<T>,
    predictor: Predictor<T>,
    codec: Codec<T>,
    kernels: FrameStep<T>,
    sampler: Sampler<T>,
    /// How the talker's codes are chosen, and the predictor's.
    rules: [Rule; 2],
    frames: Frames,
    /// What the host reads of each semantic code.
    told: [Pinned<u32>; 2],
    speech: Speech,
}

/// The predictor of a frame, and a step of the talker.
#[derive(Default)]
struct Graphs {
    predictor: Option<Captured>,
    talker: Option<Captured>,
}

impl Graphs {
    /// Hands on what is stamped in them. Waits for the device.
    fn hand_on(&mut self, device: &Device) -> Result<(), CudaError> {
        [&mut self.predictor, &mut self.talker].into_iter().flatten().try_for_each(|graph| graph.hand_on(device))
    }
}

/// What is being said.
#[derive(Default)]
struct Speech {
    sampling: Sampling,
    most_frames: usize,
    made: usize,
    /// The semantic code of the next frame, once the host knows it.
    token: Option<u32>,
    has_next: bool,
    has_begun: bool,
}

impl<'a, T: Number> Engine<'a, T> {
    pub fn new(
        device: &'a Device,
        config: Arc<TtsConfig>,
        weights: Arc<TtsGpuWeights<T>>,
        options: SpeakOptions,
    ) -> Result<Self, ModelError> {
        if options.room == 0 || options.room > config.talker.context {
            let (what, room) = (config.name.clone(), config.talker.context);
            return Err(ModelError::TooLong { tokens: options.room, what, room });
        }
        let suppressed = Suppressed::of(&config);
        let suppressed: Vec<u32> =
            (0..).zip(suppressed.mask()).filter(|(_, never)| **never).map(|(id, _)| id).collect();
        let rules = [
            Rule::new(device, size(config.talker.vocab)?, &suppressed, true)?,
            Rule::new(device, size(config.predictor.vocab)?, &[], false)?,
        ];
        let mut engine = Self {
            graphs: Graphs::default(),
            replay: first_replay(&options)?,
            device,
            blas: Blas::new(device)?,
            talker: Talker::new(device, &config, &options)?,
            predictor: Predictor::new(device, &config, &options)?,
            codec: Codec::new(device, &config.codec, &options)?,
            kernels: FrameStep::load(device, &Cache::of_user())?,
            sampler: Sampler::load(device, &Cache::of_user())?,
            rules,
            frames: Frames::new(device, size(options.room)?, size(config.groups)?)?,
            told: [device.allocate_pinned(2)?, device.allocate_pinned(2)?],
            speech: Speech::default(),
            config,
            options,
            weights,
        };
        engine.capture()?;
        Ok(engine)
    }

    /// Captures what is replayed, where that is wanted and not done.
    fn capture(&mut self) -> Result<(), ModelError> {
        if !matches!(self.replay, Replay::Graph { .. }) || self.graphs.talker.is_some() {
            return Ok(());
        }
        let _stage = stage!("capture");
        match self.capture_both() {
            Ok([predictor, talker]) => {
                self.replay = Replay::Graph { nodes: predictor.nodes() + talker.nodes() };
                self.graphs = Graphs { predictor: Some(predictor), talker: Some(talker) };
                Ok(())
            }
            Err(error) if self.options.graph == GraphMode::On => Err(error.into()),
            Err(error) => {
                self.replay = Replay::FellBack(error.to_string());
                Ok(())
            }
        }
    }

    fn capture_both(&mut self) -> Result<[Captured; 2], CudaError> {
        let device = self.device;
        let stamps = is_stamped(&self.options).then(|| Kernels::load(device, &Cache::of_user())).transpose()?;
        let [predictor, talker] = [self.predictor.stages(), self.talker.step_stages()];
        let predictor = Captured::new(device, stamps.as_ref(), predictor, |border| self.launch_predictor(border))?;
        let talker = Captured::new(device, stamps.as_ref(), talker, |border| self.launch_talker(border))?;
        Ok([predictor, talker])
    }

    fn launch_predictor(&mut self, border: Border<'_>) -> Result<(), CudaError> {
        let Self { device, blas, weights, talker, predictor, kernels, sampler, rules, frames, .. } = self;
        let mut choosing = Choosing { kernels, sampler, sampling: &mut rules[1], frames };
        predictor.run(device, blas, weights, &talker.stepper.buffers.x, &mut choosing, border)
    }

    fn launch_talker(&mut self, border: Border<'_>) -> Result<(), CudaError> {
        self.talker.step(self.device, &self.blas, &self.weights, (&self.kernels, &self.frames), border)
    }

    /// Chooses all codes of the frame but the first.
    fn predict(&mut self) -> Result<(), CudaError> {
        let (device, frame) = (self.device, self.speech.made);
        let Some(graph) = &mut self.graphs.predictor else {
            let _stage = stage_mark!(self.options.marks, Pipeline, "code_predictor", frame = frame);
            return self.launch_predictor(&mut untold);
        };
        let _stage = match graph.next_number(device)? {
            Some(replay) => stage_mark!(self.options.marks, Pipeline, "code_predictor", frame = frame, replay = replay),
            None => stage_mark!(self.options.marks, Pipeline, "code_predictor", frame = frame),
        };
        // SAFETY: the buffers live in this engine, which waits for the stream before it goes.
        unsafe { graph.launch(device.stream()) }
    }

    /// Runs the frame through the talker.
    fn step(&mut self) -> Result<(), CudaError> {
        let (device, frame) = (self.device, self.speech.made);
        let Some(graph) = &mut self.graphs.talker else {
            let _stage = stage_mark!(self.options.marks, Pipeline, "talker_step", frame = frame);
            return self.launch_talker(&mut untold);
        };
        let _stage = match graph.next_number(device)? {
            Some(replay) => stage_mark!(self.options.marks, Pipeline, "talker_step", frame = frame, replay = replay),
            None => stage_mark!(self.options.marks, Pipeline, "talker_step", frame = frame),
        };
        // SAFETY: as above.
        unsafe { graph.launch(device.stream()) }
    }

    /// Chooses the semantic code of a frame from the talker's logits, and puts it on its way to the host.
    fn choose(&mut self, frame: usize) -> Result<(), CudaError> {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Pipeline, "sampling", frame = frame);
        let (stream, is_first) = (self.device.stream(), frame == 0);
        let Self { talker, sampler, rules, frames, told, speech, .. } = self;
        let (logits, state) = (&talker.stepper.buffers.logits, &mut talker.state);
        let mut part = |part: SamplingPart| {
            let moves_on = !is_first && part == SamplingPart::Draw;
            let position = moves_on.then_some(&mut state.position);
            let place = Place { group: 0, begins: !is_first, position, is_reported: true, next: None };
            sampler.part(part, stream, logits, &mut rules[0], frames, place)
        };
        let (has_top_k, has_top_p) = match speech.sampling.talker {
            Choice::Likeliest => (false, false),
            Choice::Drawn { top_k, top_p, .. } => (top_k > 0, top_p < 1.0),
        };
        {
            // What was chosen before is made less likely there in any case.
            let _stage = has_top_k.then(|| stage_mark!(marks, Pipeline, "top_k"));
            part(SamplingPart::TopK)?;
        }
        if has_top_p {
            let _stage = stage_mark!(marks, Pipeline, "top_p");
            part(SamplingPart::TopP)?;
        }
        part(SamplingPart::Draw)?;
        // SAFETY: both live in this engine, and the word is looked at when the stream has done it.
        unsafe { frames.word.begin_read(&mut told[usize::from(!is_first)], stream) }
    }

    /// Waits for what the host reads of the next frame.
    fn read(&mut self) -> Result<(), CudaError> {
        sync_point!("read_frame", self.device.stream().synchronise())
    }

    fn begin_sampling(&mut self, sampling: &Sampling) -> Result<(), CudaError> {
        let stream = self.device.stream();
        let end = self.config.ids.eos;
        self.rules[0].begin(stream, &rules(sampling, sampling.talker, end))?;
        self.rules[1].begin(stream, &rules(sampling, sampling.predictor, end))?;
        self.frames.begin(stream)
    }
}

/// How codes are chosen, as the device has it.
fn rules(sampling: &Sampling, choice: Choice, end: u32) -> Rules {
    let (temperature, top_k, top_p) = match choice {
        Choice::Likeliest => (0.0, 0, 1.0),
        Choice::Drawn { temperature, top_k, top_p } => (temperature, top_k, top_p),
    };
    let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Rules {
        temperature,
        repetition_penalty: sampling.repetition_penalty,
        top_k: counted(top_k),
        top_p,
        seed: sampling.seed,
        least_frames: if sampling.is_endless { u32::MAX } else { counted(sampling.least_frames) },
        end,
    }
}

/// What is known of graphs before anything ran.
fn first_replay(options: &SpeakOptions) -> Result<Replay, ModelError> {
    let is_deep = options.marks.depth > Depth::Layer;
    let reason = "the operations inside a frame are marked, so its kernels are launched one by one";
    match options.graph {
        GraphMode::Off => Ok(Replay::Launches),
        GraphMode::On if is_deep => Err(ModelError::Refused(format!("there is no graph: {reason}"))),
        GraphMode::Auto if is_deep => Ok(Replay::FellBack(reason.to_owned())),
        _ => Ok(Replay::Graph { nodes: 0 }),
    }
}

impl<T: Number> Speaking for Engine<'_, T> {
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
        if self.talker.make_room(self.device, prompt.following.len() + 1)? {
            // What they stamped was handed on by the reset.
            self.graphs = Graphs::default();
        }
        self.capture()?;
        self.begin_sampling(sampling)?;
        self.speech = Speech { sampling: *sampling, most_frames, ..Speech::default() };
        {
            let positions = prompt.positions.len();
            let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
            self.talker.prefill(self.device, &self.blas, &self.weights, prompt)?;
        }
        self.choose(0)?;
        self.speech.has_begun = true;
        self.speech.has_next = true;
        Ok(())
    }

    fn frame(&mut self) -> Result<Frame, ModelError> {
        if !self.speech.has_next {
            return Err(no_frame(self.speech.has_begun));
        }
        let index = self.speech.made;
        // What fails leaves nothing to go on from.
        self.speech.has_next = false;
        self.predict()?;
        let is_last = index + 1 >= self.speech.most_frames;
        if !is_last {
            self.step()?;
            self.choose(index + 1)?;
        }
        self.read()?;
        let token = self.speech.token.unwrap_or(self.told[0][0]);
        self.speech.token = Some(self.told[1][0]);
        self.speech.has_next = !is_last && self.told[1][1] == 0;
        self.speech.made = index + 1;
        Ok(Frame { index, token, is_end: !self.speech.has_next })
    }

    fn frames(&self) -> usize {
        self.speech.made
    }

    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        check_frames(&frames, self.speech.made)?;
        Ok(sync_point!("read_codes", self.frames.read(frames))?)
    }

    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError> {
        check_frames(&frames, self.speech.made)?;
        let _stage = stage_mark!(self.options.marks, Pipeline, "decode", frames = frames.len());
        let (groups, length) = (self.config.groups, self.config.codec.frame_samples());
        let mut samples = Vec::new();
        for chunk in chunks(frames) {
            let codes = self.frames.codes.slice(chunk.frames.start * groups..chunk.frames.end * groups)?;
            let made = self.codec.decode(self.device, &self.blas, &self.weights, codes)?;
            let heard = made.slice(chunk.context * length..made.length())?;
            samples.extend(sync_point!("read_audio", heard.read())?);
        }
        Ok(samples)
    }

    fn set_codes(&mut self, codes: &[u32]) -> Result<(), ModelError> {
        let frames = check_codes(&self.config, codes)?;
        self.reset()?;
        if frames > self.frames.room() as usize {
            // What was captured has the old place.
            self.graphs = Graphs::default();
            self.frames = Frames::new(self.device, size(frames)?, size(self.config.groups)?)?;
        }
        self.frames.codes.write(codes)?;
        self.speech.made = frames;
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.talker.stepper.buffers.logits.read()?.into_iter().map(T::widened).collect())
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        let hidden = self.config.talker.hidden;
        let mut normed = self.device.allocate::<T>(hidden)?;
        let (x, norm) = (&self.talker.stepper.buffers.x, &self.weights.talker.norm);
        let (shape, epsilon) = ([1, size(hidden)?], self.config.talker.norm_eps as f32);
        self.weights.operations.rms_norm(self.device.stream(), x, norm, &mut normed, shape, epsilon)?;
        Ok(normed.read()?.into_iter().map(T::widened).collect())
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        Ok(self.device.stream().synchronise()?)
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        // What is on its way to the host must have come before it is asked for anew.
        self.device.stream().synchronise()?;
        self.graphs.hand_on(self.device)?;
        self.speech = Speech::default();
        Ok(())
    }
}

impl<T> Drop for Engine<'_, T> {
    fn drop(&mut self) {
        // What is on the stream uses memory that goes now; a stream that failed does no more.
        let _ = self.device.stream().synchronise();
        let _ = self.graphs.hand_on(self.device);
    }
}
