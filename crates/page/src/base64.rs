//! Base64, for the data of a page and the hashes of its policy.

use std::io::{self, Write};

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes bytes in base64.
pub(crate) fn write(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::with_capacity(1 << 16);
    // A whole number of letters per piece, so that only the last one is padded.
    for piece in bytes.chunks(3 << 14) {
        text.clear();
        for group in piece.chunks(3) {
            let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            let letter = |at: u32| LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.extend([letter(0), letter(1)]);
            text.push(if group.len() > 1 { letter(2) } else { b'=' });
            text.push(if group.len() > 2 { letter(3) } else { b'=' });
        }
        out.write_all(&text)?;
    }
    Ok(())
}

/// The same as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write(bytes, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn padding_follows_the_standard() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| super::text(text.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
