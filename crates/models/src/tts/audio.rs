//! Audio and WAV files.

use std::io::{self, Seek, Write};
use std::{fs, path::Path};

use crate::{Done, ModelError};

/// Samples of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Audio {
    /// The samples, between -1 and 1.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
}

impl Audio {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        match self.rate {
            0 => 0.0,
            rate => self.samples.len() as f64 / f64::from(rate),
        }
    }

    /// Writes a 16-bit WAV file. After an error the incomplete file stays.
    pub fn write_wav(&self, path: &Path) -> Done {
        let samples = to_16_bits(&self.samples);
        let file = [header(self.rate, u32::try_from(samples.len()).ok()), samples].concat();
        fs::write(path, file).map_err(|source| ModelError::Write { path: path.to_owned(), source })
    }
}

/// Writes 16-bit WAV while the audio is generated, also to something that cannot seek.
///
/// The header precedes the samples, so it has the largest possible lengths, as is usual for pipes.
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

    /// Writes samples and flushes.
    pub fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        let bytes = to_16_bits(samples);
        self.to.write_all(&bytes)?;
        self.bytes += bytes.len() as u64;
        self.to.flush()
    }
}

impl<W: Write + Seek> WavStream<W> {
    /// Writes the actual lengths into the header.
    pub fn finish(mut self) -> io::Result<()> {
        self.to.seek(io::SeekFrom::Start(0))?;
        self.to.write_all(&header(self.rate, u32::try_from(self.bytes).ok()))?;
        self.to.flush()
    }
}

/// The header of this many bytes of samples.
fn header(rate: u32, bytes: Option<u32>) -> Vec<u8> {
    let file = bytes.and_then(|bytes| bytes.checked_add(HEADER_BYTES - 8)).unwrap_or(u32::MAX);
    let (length, bytes_per_second) = (bytes.unwrap_or(u32::MAX), rate.saturating_mul(2));
    let mut header = [&b"RIFF"[..], &file.to_le_bytes(), b"WAVEfmt ", &16_u32.to_le_bytes()].concat();
    // PCM, one channel; two bytes per frame, 16 bits per sample.
    header.extend([1, 0, 1, 0].iter().chain(&rate.to_le_bytes()).chain(&bytes_per_second.to_le_bytes()));
    header.extend([2, 0, 16, 0].iter().chain(b"data").chain(&length.to_le_bytes()));
    header
}

/// Samples as 16-bit PCM. NaN is silence.
fn to_16_bits(samples: &[f32]) -> Vec<u8> {
    let pcm = samples.iter().map(|sample| (sample * f32::from(i16::MAX)).round() as i16);
    pcm.flat_map(i16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_in_16_bits() {
        let audio = Audio { samples: vec![0.0, 1.0, -1.0, 0.5, 2.0, f32::NAN], rate: 24_000 };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.wav");
        audio.write_wav(&path).unwrap();
        let mut reader = hound::WavReader::open(&path).unwrap();
        assert_eq!((reader.spec().sample_rate, reader.spec().channels), (24_000, 1));
        let samples: Vec<i16> = reader.samples().map(Result::unwrap).collect();
        assert_eq!(samples, [0, 32_767, -32_767, 16_384, 32_767, 0]);
        assert_eq!(fs::metadata(&path).unwrap().len(), 44 + 12);
    }

    #[test]
    fn a_finished_stream_equals_the_file_written_at_once() {
        let audio = Audio { samples: vec![0.0, 1.0, -1.0, 0.5, 2.0, f32::NAN], rate: 24_000 };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole.wav");
        audio.write_wav(&path).unwrap();
        let mut streamed = io::Cursor::new(Vec::new());
        let mut stream = WavStream::begin(&mut streamed, audio.rate).unwrap();
        audio.samples.chunks(4).try_for_each(|chunk| stream.write(chunk)).unwrap();
        stream.finish().unwrap();
        assert_eq!(streamed.into_inner(), fs::read(&path).unwrap());
    }

    #[test]
    fn a_pipe_gets_the_header_of_an_endless_file() {
        let mut piped = Vec::new();
        WavStream::begin(&mut piped, 24_000).unwrap().write(&[0.5]).unwrap();
        assert_eq!((piped.len(), &piped[4..8], &piped[40..44]), (46, &[255; 4][..], &[255; 4][..]));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
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
