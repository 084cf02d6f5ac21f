//! The file of offloaded layers, with a checksum of each layer in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{Done, ModelError};

const PIECE: usize = 1 << 18;

/// The number of files of this process, for unique names.
static FILES: AtomicU64 = AtomicU64::new(0);

/// A file of layers of equal size. It is unlinked, so the system frees its space however the process ends.
#[derive(Debug)]
pub struct LayerFile {
    path: PathBuf,
    file: File,
    layer_bytes: u64,
    sums: Vec<u64>,
}

impl LayerFile {
    pub fn create(folder: &Path, layer_bytes: u64) -> Result<Self, ModelError> {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("laptime-layers-{}-{number}.bin", process::id()));
        let created = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        match created.and_then(|file| fs::remove_file(&path).map(|()| file)) {
            Ok(file) => Ok(Self { path, file, layer_bytes, sums: Vec::new() }),
            Err(source) => Err(ModelError::Write { path, source }),
        }
    }

    pub fn append(&mut self, parts: &[&[u8]]) -> Done {
        self.put(self.sums.len(), parts)?;
        self.sums.push(parts.iter().flat_map(|part| part.chunks(PIECE)).fold(0, sum_on));
        Ok(())
    }

    pub fn put(&mut self, layer: usize, parts: &[&[u8]]) -> Done {
        let written = self.seek(layer).and_then(|()| parts.iter().try_for_each(|part| self.file.write_all(part)));
        written.map_err(|source| ModelError::Write { path: self.path.clone(), source })
    }

    /// Reads a layer and compares its checksum. Stops early if it is no longer needed.
    pub fn get(&mut self, layer: usize, parts: &mut [&mut [u8]], is_over: &AtomicBool) -> Done {
        let mut sum = 0;
        self.seek(layer).map_err(|error| self.unread(layer, error))?;
        for piece in parts.iter_mut().flat_map(|part| part.chunks_mut(PIECE)) {
            if is_over.load(Relaxed) {
                return Ok(());
            }
            self.file.read_exact(piece).map_err(|error| self.unread(layer, error))?;
            sum = sum_on(sum, piece);
        }
        let is_same = self.sums.get(layer) == Some(&sum);
        if is_same { Ok(()) } else { Err(self.error(layer, "it was changed since it was written".to_owned())) }
    }

    fn seek(&mut self, layer: usize) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.layer_bytes.saturating_mul(layer as u64))).map(drop)
    }

    fn unread(&self, layer: usize, error: io::Error) -> ModelError {
        let whole = self.layer_bytes.saturating_mul(self.sums.len() as u64);
        match self.file.metadata() {
            Ok(found) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.error(layer, format!("truncated: {} of {whole} bytes", found.len()))
            }
            _ => self.error(layer, error.to_string()),
        }
    }

    fn error(&self, layer: usize, reason: String) -> ModelError {
        ModelError::LayerFile { path: self.path.clone(), layer, reason }
    }
}

/// The odd integer nearest to 2^64 over the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Continues a checksum: eight independent sums of every eighth word, combined at the end.
fn sum_on(sum: u64, bytes: &[u8]) -> u64 {
    let mut sums: [u64; 8] = std::array::from_fn(|at| sum.wrapping_add(at as u64));
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = mixed(*sum, u64::from_le_bytes(*word)));
    }
    let first = mixed(sum, bytes.len() as u64);
    let rest = rest.iter().fold(first, |sum, byte| mixed(sum, u64::from(*byte)));
    sums.into_iter().fold(rest, mixed)
}

/// Adds a word to a sum. Different words give different sums.
fn mixed(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(FACTOR).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three layers of two parts.
    fn file(folder: &Path) -> LayerFile {
        let mut file = LayerFile::create(folder, 300_000).unwrap();
        (0..3).for_each(|layer| file.append(&[&[layer; 299_999], &[9]]).unwrap());
        file
    }

    fn read(file: &mut LayerFile, layer: usize) -> Result<Vec<u8>, ModelError> {
        let (mut first, mut second) = (vec![0; 299_999], vec![0; 1]);
        file.get(layer, &mut [&mut first, &mut second], &AtomicBool::new(false))?;
        Ok([first, second].concat())
    }

    #[test]
    fn layers_are_read_as_written_from_an_unlinked_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(folder.path());
        for layer in [2, 0, 1, 1] {
            assert_eq!(read(&mut file, layer).unwrap(), [vec![layer as u8; 299_999], vec![9]].concat());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name while it is in use");
    }

    #[test]
    fn two_files_have_different_names() {
        let folder = tempfile::tempdir().unwrap();
        let files = [file(folder.path()), file(folder.path())];
        assert_ne!(files[0].path, files[1].path);
    }

    #[test]
    fn a_truncated_file_is_named_with_the_layer() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(folder.path());
        file.file.set_len(500_000).unwrap();
        assert!(read(&mut file, 0).is_ok());
        let error = read(&mut file, 1).unwrap_err();
        let path = file.path.display();
        let wanted = format!("layer 1 cannot be read back from `{path}`: truncated: 500000 of 900000 bytes");
        assert_eq!(error.to_string(), wanted);
        assert!(error.hint().is_some());
    }

    #[test]
    fn a_layer_that_cannot_be_read_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(folder.path());
        // It can be written and not read.
        file.file = File::create(folder.path().join("other")).unwrap();
        let error = read(&mut file, 0).unwrap_err().to_string();
        assert!(error.starts_with("layer 0 cannot be read back from") && !error.contains("truncated"), "{error}");
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(folder.path());
        for at in [0, 63, 64, PIECE - 1, PIECE, 299_990, 299_999] {
            let mut other = file.file.try_clone().unwrap();
            other.seek(SeekFrom::Start(300_000 + at as u64)).unwrap();
            other.write_all(&[77]).unwrap();
            let error = read(&mut file, 1).unwrap_err().to_string();
            assert!(error.starts_with("layer 1 ") && error.ends_with("it was changed since it was written"), "{error}");
            file.put(1, &[&[1; 299_999], &[9]]).unwrap();
            assert!(read(&mut file, 1).is_ok() && read(&mut file, 2).is_ok());
        }
    }

    #[test]
    fn words_that_change_places_change_the_sum() {
        let sum = |bytes: &[u8]| sum_on(0, bytes);
        let (mut bytes, mut other) = ([0; 256], [0; 256]);
        (bytes[0], other[64]) = (1, 1);
        assert_ne!(sum(&bytes), sum(&other));
        (other[64], other[8]) = (0, 1);
        assert_ne!(sum(&bytes), sum(&other));
        assert_ne!(sum(&[0; 64]), sum(&[0; 128]));
        assert_ne!(sum(&[0; 3]), sum(&[0; 4]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = LayerFile::create(&folder.path().join("none"), 1).unwrap_err();
        assert!(error.to_string().contains("none/laptime-layers-"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_with_a_hint() {
        let (path, full) = (PathBuf::from("/nowhere/full"), OpenOptions::new().write(true).open("/dev/full").unwrap());
        let mut file = LayerFile { path, file: full, layer_bytes: 8, sums: Vec::new() };
        let error = file.append(&[&[0; 8]]).unwrap_err();
        assert_eq!(error.to_string(), "cannot write `/nowhere/full`");
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("No space left"), "{reason}");
        assert_eq!(error.hint().unwrap(), "the disk is full: free some space, or use a folder on another disk");
    }
}
