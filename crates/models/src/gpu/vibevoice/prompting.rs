//! What comes before the first token: voices are encoded, and the prompt is run.

use std::ops::Range;

use laptime_cuda::{Buffer, CudaError, Device};

use super::{
    super::{size, weights::Number},
    connect::Connecting,
    engine::Engine,
    language::Model,
    tokenizer::{Flow, Run},
    tokenizer_weights::TokenizerWeights,
};
use crate::{
    ModelError,
    marks::stage_mark,
    vibevoice::{Guidance, VoicePrompt},
};

/// Tokens of audio that are encoded at a time.
pub const TOGETHER: usize = 16;

impl<T: Number> Engine<'_, T> {
    /// What a tokenizer makes of numbers, from silence on, each token of which has this many.
    pub(super) fn out_of_silence(
        &self,
        of: &TokenizerWeights<T>,
        numbers: &[f32],
        each: usize,
    ) -> Result<Vec<f32>, ModelError> {
        whole(numbers, each)?;
        let tokens = (numbers.len() / each).clamp(1, TOGETHER);
        let run = Run { device: self.device, blas: &self.blas, kernels: &self.weights.kernels };
        let mut flow = Flow::new(self.device, of, tokens)?;
        Ok(flow.run_all(&run, of, numbers, each)?)
    }

    /// The rows of the latents of a voice, as the language model hears them.
    fn voice_rows(&self, voice: usize, samples: &[f32], guidance: &Guidance) -> Result<Buffer<T>, ModelError> {
        let _stage = stage_mark!(self.options.marks, Pipeline, "voice_encode", voice = voice);
        let mut latents = self.out_of_silence(&self.weights.encoder, samples, self.config.token_samples())?;
        guidance.vary(voice, self.config.voice_deviation, &mut latents);
        let [scale, bias] = self.weights.factors;
        let latents: Vec<T> = latents.into_iter().map(|latent| T::narrowed((latent + bias) * scale)).collect();
        let (rows, hidden) = (latents.len() / self.config.acoustic.latent, self.config.decoder.hidden);
        let latents = self.device.upload(&latents)?;
        let mut out = self.device.allocate(rows * hidden)?;
        let with = (self.device, &self.blas, &self.weights.kernels);
        let connector = &self.weights.connectors[0];
        Connecting::new(self.device, rows, hidden)?.run(with, connector, latents.all(), out.all_mut(), false)?;
        Ok(out)
    }

    pub(super) fn prefill(&mut self, prompt: &VoicePrompt, guidance: &Guidance) -> Result<(), ModelError> {
        let voices = prompt.voices.iter().enumerate().map(|(at, samples)| self.voice_rows(at, samples, guidance));
        let voices = voices.collect::<Result<Vec<_>, _>>()?;
        let positions = prompt.ids.len();
        let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
        let Self { device, blas, weights, language, streamed, config, .. } = self;
        let shape = [size(config.decoder.vocab)?, size(config.decoder.hidden)?];
        let ids = device.upload(&prompt.ids)?;
        let places = audio_places(&prompt.ids, config.ids.audio);
        language.prefill(&Model { device, blas, weights }, streamed.as_mut(), positions, |x| {
            weights.kernels.operations.embed(device.stream(), &ids, &weights.embedding, &mut *x, shape)?;
            put_voices(device, &voices, &places, x, config.decoder.hidden)
        })?;
        // What the negative stream begins with.
        self.take_row(self.config.ids.bos)?;
        Ok(())
    }
}

/// Runs of positions that are audio: where each begins, and how many there are.
fn audio_places(ids: &[u32], audio: u32) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    for at in (0..ids.len()).filter(|at| ids[*at] == audio) {
        match places.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => places.push(at..at + 1),
        }
    }
    places
}

/// Puts the rows of voices, one behind the other, to their places.
fn put_voices<T: Number>(
    device: &Device,
    voices: &[Buffer<T>],
    places: &[Range<usize>],
    x: &mut Buffer<T>,
    hidden: usize,
) -> Result<(), CudaError> {
    let mut rows = voices.iter().flat_map(|voice| (0..voice.length() / hidden).map(move |row| (voice, row)));
    for place in places.iter().flat_map(|place| place.clone()) {
        let Some((voice, row)) = rows.next() else { return Ok(()) };
        let from = voice.slice(row * hidden..(row + 1) * hidden)?;
        x.slice_mut(place * hidden..(place + 1) * hidden)?.copy_from(device.stream(), from)?;
    }
    Ok(())
}

/// Refuses numbers that are no whole tokens.
fn whole(numbers: &[f32], each: usize) -> Result<(), ModelError> {
    match numbers.len().is_multiple_of(each) {
        true => Ok(()),
        false => Err(ModelError::Refused(format!("{} numbers make no tokens of {each}", numbers.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voices_go_where_audio_is() {
        assert_eq!(audio_places(&[1, 9, 9, 2, 9], 9), [1..3, 4..5]);
        assert!(audio_places(&[1, 2], 9).is_empty());
        assert!(whole(&[0.0; 6], 3).is_ok() && whole(&[0.0; 7], 3).is_err());
    }
}
