//! Audio, and how it is written.

use std::io::{self, BufWriter, Seek, Write};
use std::{fs::File, path::Path};

use crate::{Done, ModelError};

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
    pub fn write_wav(&self, path: &Path) -> Done {
        let refuse = |source| ModelError::Write { path: path.to_owned(), source };
        let file = File::create(path).map_err(refuse)?;
        self.write_wav_to(BufWriter::new(file)).map_err(refuse)
    }

    /// Writes it as WAV of 16 bits.
    pub fn write_wav_to(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&header(self.rate, u32::try_from(self.samples.len().saturating_mul(2)).ok()))?;
        self.samples.iter().try_for_each(|sample| to.write_all(&as_16_bits(*sample).to_le_bytes()))?;
        to.flush()
    }
}

/// Audio that is written while it is made: WAV of 16 bits to something that cannot be gone back in.
///
/// A header tells lengths before anything is known of them: it has the largest there are, as is usual for pipes.
#[derive(Debug)]
pub struct WavStream<W> {
    to: W,
    rate: u32,
    bytes: u64,
}

const HEADER_BYTES: u32 = 44;

impl<W: Write> WavStream<W> {
    /// Writes the header.
    pub fn begin(mut to: W, rate: u32) -> io::Result<Self> {
        to.write_all(&header(rate, None))?;
        Ok(Self { to, rate, bytes: 0 })
    }

    /// Writes samples, and sees to it that whoever reads has them.
    pub fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| as_16_bits(*sample).to_le_bytes()).collect();
        self.to.write_all(&bytes)?;
        self.bytes += bytes.len() as u64;
        self.to.flush()
    }
}

impl<W: Write + Seek> WavStream<W> {
    /// Puts the true lengths into the header.
    pub fn finish(mut self) -> io::Result<()> {
        self.to.seek(io::SeekFrom::Start(0))?;
        self.to.write_all(&header(self.rate, u32::try_from(self.bytes).ok()))?;
        self.to.flush()
    }
}

fn header(rate: u32, bytes: Option<u32>) -> Vec<u8> {
    let whole = bytes.and_then(|bytes| bytes.checked_add(HEADER_BYTES - 8)).unwrap_or(u32::MAX);
    let mut header = Vec::with_capacity(HEADER_BYTES as usize);
    header.extend_from_slice(b"RIFF");
    header.extend_from_slice(&whole.to_le_bytes());
    header.extend_from_slice(b"WAVEfmt ");
    header.extend_from_slice(&16_u32.to_le_bytes());
    // Plain numbers, one channel.
    header.extend_from_slice(&[1, 0, 1, 0]);
    header.extend_from_slice(&rate.to_le_bytes());
    header.extend_from_slice(&rate.saturating_mul(2).to_le_bytes());
    // Two bytes a moment, sixteen bits a sample.
    header.extend_from_slice(&[2, 0, 16, 0]);
    header.extend_from_slice(b"data");
    header.extend_from_slice(&bytes.unwrap_or(u32::MAX).to_le_bytes());
    header
}

/// The nearest number of 16 bits. What is no number is silence.
fn as_16_bits(sample: f32) -> i16 {
    (sample * f32::from(i16::MAX)).round() as i16
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
    fn what_is_written_chunk_by_chunk_is_the_same_file_once_it_is_whole() {
        let audio = Audio { samples: vec![0.0, 1.0, -1.0, 0.5, 2.0, f32::NAN], rate: 24_000 };
        let (mut whole, mut streamed) = (io::Cursor::new(Vec::new()), io::Cursor::new(Vec::new()));
        audio.write_wav_to(&mut whole).unwrap();
        let mut stream = WavStream::begin(&mut streamed, audio.rate).unwrap();
        audio.samples.chunks(4).try_for_each(|chunk| stream.write(chunk)).unwrap();
        stream.finish().unwrap();
        assert_eq!(streamed.into_inner(), whole.into_inner());
    }

    #[test]
    fn a_pipe_has_the_header_of_an_endless_file() {
        let mut piped = Vec::new();
        WavStream::begin(&mut piped, 24_000).unwrap().write(&[0.5]).unwrap();
        assert_eq!((piped.len(), &piped[4..8], &piped[40..44]), (46, &[255; 4][..], &[255; 4][..]));
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
