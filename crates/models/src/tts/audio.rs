//! Audio, and how it is written.

use std::{
    fs::File,
    io::{self, BufWriter, Seek, Write},
    path::Path,
};

use hound::{SampleFormat, WavSpec, WavWriter};

use crate::ModelError;

/// Samples of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Audio {
    /// The samples, between -1 and 1.
    pub samples: Vec<f32>,
    /// Samples a second.
    pub rate: u32,
}

impl Audio {
    /// How long it lasts.
    pub fn seconds(&self) -> f64 {
        match self.rate {
            0 => 0.0,
            rate => self.samples.len() as f64 / f64::from(rate),
        }
    }

    /// Writes it as a WAV file of 16 bits. A file that could not be written whole is an error, and is left as it is.
    pub fn write_wav(&self, path: &Path) -> Result<(), ModelError> {
        let refuse = |source| ModelError::Write { path: path.to_owned(), source };
        let file = File::create(path).map_err(refuse)?;
        self.write_wav_to(BufWriter::new(file)).map_err(refuse)
    }

    /// Writes it as WAV of 16 bits to something that can be gone back in.
    pub fn write_wav_to(&self, to: impl Write + Seek) -> io::Result<()> {
        let spec =
            WavSpec { channels: 1, sample_rate: self.rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
        let mut writer = WavWriter::new(to, spec).map_err(told)?;
        for sample in &self.samples {
            writer.write_sample(as_16_bits(*sample)).map_err(told)?;
        }
        writer.finalize().map_err(told)
    }
}

/// The nearest number of 16 bits. What is no number is silence.
fn as_16_bits(sample: f32) -> i16 {
    (sample * f32::from(i16::MAX)).round() as i16
}

fn told(error: hound::Error) -> io::Error {
    match error {
        hound::Error::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_samples_in_16_bits() {
        let audio = Audio { samples: vec![0.0, 1.0, -1.0, 0.5, 2.0, f32::NAN], rate: 24_000 };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.wav");
        audio.write_wav(&path).unwrap();
        let mut reader = hound::WavReader::open(&path).unwrap();
        assert_eq!((reader.spec().sample_rate, reader.spec().channels), (24_000, 1));
        let samples: Vec<i16> = reader.samples().map(Result::unwrap).collect();
        assert_eq!(samples, [0, 32_767, -32_767, 16_384, 32_767, 0]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 44 + 12);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let audio = Audio { samples: vec![0.0; 2400], rate: 24_000 };
        assert_eq!(audio.seconds(), 0.1);
        let error = audio.write_wav(Path::new("/nowhere/it.wav")).unwrap_err().to_string();
        assert_eq!(error, "cannot write `/nowhere/it.wav`");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error() {
        let audio = Audio { samples: vec![0.0; 100_000], rate: 24_000 };
        let error = audio.write_wav(Path::new("/dev/full")).unwrap_err();
        assert_eq!(error.to_string(), "cannot write `/dev/full`");
    }
}
