//! Voice samples.

use std::path::Path;

use hound::{SampleFormat, WavReader, WavSpec};

use super::{VibeVoiceConfig, normal};
use crate::{ModelError, error::ensure};

const SYNTHETIC_SECONDS: f64 = 2.0;

/// The RMS loudness of voices: -25 dBFS.
const LOUDNESS: f64 = 0.056_234_132_519_034_91;

/// Avoids a division by 0.
const NOT_ZERO: f64 = 1e-6;

/// A voice sample: one channel, normalised to -25 dBFS.
#[derive(Debug, Clone, PartialEq)]
pub struct Voice {
    /// Its samples.
    pub samples: Vec<f32>,
    /// The sample rate of its file, if the samples were resampled.
    pub resampled_from: Option<u32>,
}

impl Voice {
    /// A voice of samples at the model's rate.
    pub fn new(mut samples: Vec<f32>) -> Result<Self, ModelError> {
        let are_numbers = !samples.is_empty() && samples.iter().all(|sample| sample.is_finite());
        ensure!(are_numbers, "a voice has no samples, or NaN or infinite ones");
        normalise(&mut samples);
        Ok(Self { samples, resampled_from: None })
    }

    /// The voice of a WAV file. Channels are averaged, and another rate than the model's is resampled linearly.
    pub fn read(path: &Path, config: &VibeVoiceConfig) -> Result<Self, ModelError> {
        let damaged = |reason: String| ModelError::damaged(path, reason);
        let mut reader = WavReader::open(path).map_err(|error| match error {
            hound::Error::IoError(source) => ModelError::Open { path: path.to_owned(), source },
            other => damaged(format!("not a WAV file: {other}")),
        })?;
        let spec = reader.spec();
        let samples = samples_of(&mut reader, spec).map_err(|error| damaged(format!("unreadable audio: {error}")))?;
        let samples = one_channel(&samples, spec.channels);
        if spec.sample_rate == 0 || samples.is_empty() {
            return Err(damaged("it has no audio".to_owned()));
        }
        let is_other = spec.sample_rate != config.sample_rate;
        let samples = if is_other { resampled(&samples, spec.sample_rate, config.sample_rate) } else { samples };
        let voice = Self::new(samples).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { resampled_from: is_other.then_some(spec.sample_rate), ..voice })
    }

    /// A synthetic voice: two tones and some noise, higher for each speaker.
    pub fn synthetic(config: &VibeVoiceConfig, seed: u64, speaker: usize) -> Self {
        let rate = f64::from(config.sample_rate.max(1));
        let count = (SYNTHETIC_SECONDS * rate) as usize;
        let noise = normal(seed, speaker as u32, count);
        let low = 120.0 + 70.0 * (speaker % 8) as f64;
        let tone = |at: usize, pitch: f64| (std::f64::consts::TAU * pitch * at as f64 / rate).sin();
        let one = |at: usize| (0.3 * tone(at, low) + 0.1 * tone(at, 4.1 * low)) as f32 + 0.02 * noise[at];
        let mut samples: Vec<f32> = (0..count).map(one).collect();
        normalise(&mut samples);
        Self { samples, resampled_from: None }
    }

    /// Its length in tokens of audio, rounded up.
    pub fn tokens(&self, config: &VibeVoiceConfig) -> usize {
        self.samples.len().div_ceil(config.token_samples().max(1))
    }
}

fn samples_of(reader: &mut WavReader<impl std::io::Read>, spec: WavSpec) -> Result<Vec<f32>, hound::Error> {
    match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().collect(),
        SampleFormat::Int => {
            let largest = 2.0_f64.powi(i32::from(spec.bits_per_sample.max(1)) - 1);
            reader.samples::<i32>().map(|sample| Ok((f64::from(sample?) / largest) as f32)).collect()
        }
    }
}

fn one_channel(samples: &[f32], channels: u16) -> Vec<f32> {
    let channels = usize::from(channels.max(1));
    samples.chunks_exact(channels).map(|each| each.iter().sum::<f32>() / channels as f32).collect()
}

/// Resamples by linear interpolation.
fn resampled(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    let step = f64::from(from) / f64::from(to.max(1));
    let count = (samples.len() as f64 / step).round().max(1.0) as usize;
    let at = |place: usize| f64::from(samples[place.min(samples.len() - 1)]);
    let one = |place: f64| {
        let (first, share) = (place.floor() as usize, place.fract());
        (at(first) * (1.0 - share) + at(first + 1) * share) as f32
    };
    (0..count).map(|place| one(place as f64 * step)).collect()
}

/// Normalises the RMS loudness, with a peak of at most 1.
fn normalise(samples: &mut [f32]) {
    let count = samples.len().max(1) as f64;
    let square = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / count;
    let factor = LOUDNESS / (square.sqrt() + NOT_ZERO);
    samples.iter_mut().for_each(|sample| *sample = (f64::from(*sample) * factor) as f32);
    let most = samples.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
    if most > 1.0 {
        let factor = 1.0 / (f64::from(most) + NOT_ZERO);
        samples.iter_mut().for_each(|sample| *sample = (f64::from(*sample) * factor) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::Audio;

    fn config() -> VibeVoiceConfig {
        VibeVoiceConfig::from_preset("tiny").unwrap()
    }

    #[test]
    fn voices_are_normalised() {
        let voice = Voice::synthetic(&config(), 1, 0);
        let square = voice.samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / 48_000.0;
        assert!((20.0 * square.sqrt().log10() + 25.0).abs() < 0.01);
        assert_eq!((voice.samples.len(), voice.tokens(&config())), (48_000, 15));
        assert_ne!(voice, Voice::synthetic(&config(), 1, 1));
        // One loud sample among many of silence is cut.
        let mut quiet = vec![0.0; 100_000];
        quiet[7] = 0.5;
        let most = Voice::new(quiet).unwrap().samples[7];
        assert!((most - 1.0).abs() < 1e-4, "{most}");
        assert!(Voice::new(vec![]).is_err() && Voice::new(vec![f32::NAN]).is_err());
    }

    #[test]
    fn a_file_is_read_and_another_rate_is_resampled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.wav");
        let samples: Vec<f32> = (0..4800).map(|at| (at as f32 / 20.0).sin() / 2.0).collect();
        Audio { samples: samples.clone(), rate: 24_000 }.write_wav(&path).unwrap();
        let plain = Voice::read(&path, &config()).unwrap();
        assert_eq!((plain.samples.len(), plain.resampled_from), (4800, None));
        let expected = Voice::new(samples.clone()).unwrap();
        assert!(plain.samples.iter().zip(&expected.samples).all(|(ours, expected)| (ours - expected).abs() < 1e-4));
        Audio { samples, rate: 12_000 }.write_wav(&path).unwrap();
        let other = Voice::read(&path, &config()).unwrap();
        assert_eq!((other.samples.len(), other.resampled_from), (9600, Some(12_000)));
    }

    #[test]
    fn resampling_is_linear() {
        assert_eq!(resampled(&[0.0, 1.0, 2.0, 3.0], 1, 2), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0]);
        assert_eq!(resampled(&[0.0, 1.0, 2.0, 3.0], 2, 1), [0.0, 2.0]);
        assert_eq!(one_channel(&[1.0, 3.0, 5.0, 7.0], 2), [2.0, 6.0]);
    }

    #[test]
    fn invalid_voice_files_are_named() {
        let missing = Voice::read(Path::new("/nowhere/it.wav"), &config()).unwrap_err().to_string();
        assert_eq!(missing, "cannot open `/nowhere/it.wav`");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.wav");
        std::fs::write(&path, "text").unwrap();
        let error = Voice::read(&path, &config()).unwrap_err().to_string();
        assert!(error.contains("not a WAV file") || error.starts_with("cannot open"), "{error}");
        Audio { samples: vec![], rate: 24_000 }.write_wav(&path).unwrap();
        let error = Voice::read(&path, &config()).unwrap_err().to_string();
        assert!(error.contains("it has no audio"), "{error}");
    }
}
