//! Reads whole files with a size limit: a device such as `/dev/zero` never ends.

use std::io::{self, Read};
use std::{fs::File, path::Path};

/// The size limit of a configuration, a prompt, a plan, a tokenizer or a source file.
pub const LARGEST_SMALL_FILE: u64 = 256 << 20;

/// The size limit of the results of a run.
pub const LARGEST_RESULTS: u64 = 4 << 30;

/// The bytes of a file with at most `most` bytes. For a pipe or a device the limit is [`LARGEST_SMALL_FILE`].
pub fn read_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let is_plain = file.metadata()?.is_file();
    bytes_of(file, if is_plain { most } else { most.min(LARGEST_SMALL_FILE) })
}

/// The text of a file with at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8 text");
    String::from_utf8(read_bytes(path, most)?).map_err(not_text)
}

fn bytes_of(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Grows with the actual data, and reports a failed allocation as an error.
    input.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let limit = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{most} bytes") };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the file is larger than {limit}")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_beyond() {
        assert_eq!(bytes_of(&b"abc"[..], 3).unwrap(), b"abc");
        let error = bytes_of(&b"abcd"[..], 3).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "the file is larger than 3 bytes")
        );
    }

    #[test]
    fn a_source_without_an_end_is_refused() {
        let error = bytes_of(io::repeat(0), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "the file is larger than 1 MiB");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_without_an_end_is_refused_whatever_its_length_says() {
        let error = read_text(Path::new("/dev/zero"), 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
