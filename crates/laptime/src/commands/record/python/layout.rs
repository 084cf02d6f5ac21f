//! The memory layout of CPython, by version.
//!
//! From 3.13 on the interpreter describes itself (`_Py_DebugOffsets` at the start of `_PyRuntime`). For older versions
//! the offsets are those of CPython's headers on 64-bit Linux; they did not change within a minor version.

/// Offsets in the structures of an interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The minor version: 12 of 3.12.
    pub minor: u32,
    /// In `_PyRuntime`: the first interpreter.
    pub interpreters: u64,
    pub next_interpreter: u64,
    /// In an interpreter: the newest thread.
    pub threads: u64,
    pub next_thread: u64,
    /// In a thread: its pthread id.
    pub thread_id: u64,
    /// In a thread: its native id.
    pub native_id: Option<u64>,
    /// In a thread: its frame, or the `_PyCFrame` that points to the frame.
    pub frame: u64,
    /// In a `_PyCFrame`: the frame.
    pub frame_in_holder: Option<u64>,
    /// In a frame: the calling frame.
    pub previous: u64,
    /// In a frame: the code object.
    pub code: u64,
    /// In a frame: the current instruction.
    pub instruction: u64,
    /// In a frame: its owner.
    pub owner: Option<u64>,
    /// In a code object: the file name.
    pub file: u64,
    pub name: u64,
    pub first_line: u64,
    /// In a code object: the line table.
    pub lines: u64,
    /// In a code object: the instructions. Frames of 3.10 have an index instead.
    pub instructions: Option<u64>,
    /// In an ASCII `str` object: the characters.
    pub letters: u64,
}

/// Size of the self-description.
pub const SELF_DESCRIPTION_BYTES: usize = 720;
const COOKIE: &[u8] = b"xdebugpy";

impl Layout {
    /// The layout of a version without a self-description.
    pub fn of(minor: u32) -> Option<Self> {
        match minor {
            10 => Some(V3_10),
            11 => Some(V3_11),
            12 => Some(V3_12),
            _ => None,
        }
    }

    /// The layout in the self-description of an interpreter.
    pub fn described(minor: u32, bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(COOKIE) {
            return None;
        }
        // Offsets in the description; each version adds entries.
        let places = match minor {
            13 => Places { thread: 168, frame: 232, owner: 264, code: 280, instructions: 344, letters: 560 },
            14 => Places { thread: 192, frame: 256, owner: 288, code: 320, instructions: 384, letters: 640 },
            _ => return None,
        };
        let at = |place: usize| -> Option<u64> {
            let value = u64::from_le_bytes(bytes.get(place..place + 8)?.try_into().ok()?);
            // Larger offsets are damage.
            (value < 1 << 24).then_some(value)
        };
        // The layout of free-threaded builds differs.
        const FREE_THREADED: usize = 16;
        if at(FREE_THREADED)? != 0 {
            return None;
        }
        Some(Self {
            minor,
            interpreters: at(40)?,
            next_interpreter: at(64)?,
            threads: at(72)?,
            next_thread: at(places.thread)?,
            frame: at(places.thread + 16)?,
            thread_id: at(places.thread + 24)?,
            native_id: Some(at(places.thread + 32)?),
            frame_in_holder: None,
            previous: at(places.frame)?,
            code: at(places.frame + 8)?,
            instruction: at(places.frame + 16)?,
            owner: Some(at(places.owner)?),
            file: at(places.code)?,
            // The qualified name, as for 3.11 and later.
            name: at(places.code + 16)?,
            lines: at(places.code + 24)?,
            first_line: at(places.code + 32)?,
            instructions: Some(at(places.instructions)?),
            letters: at(places.letters)?,
        })
    }
}

struct Places {
    thread: usize,
    frame: usize,
    owner: usize,
    code: usize,
    instructions: usize,
    letters: usize,
}

const V3_10: Layout = Layout {
    minor: 10,
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    thread_id: 176,
    native_id: None,
    frame: 24,
    frame_in_holder: None,
    previous: 24,
    code: 32,
    instruction: 96,
    owner: None,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    instructions: None,
    letters: 48,
};

const V3_11: Layout = Layout {
    minor: 11,
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    thread_id: 152,
    native_id: Some(160),
    frame: 56,
    frame_in_holder: Some(8),
    previous: 48,
    code: 32,
    instruction: 56,
    owner: Some(69),
    file: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    instructions: Some(184),
    letters: 48,
};

const V3_12: Layout = Layout {
    minor: 12,
    threads: 72,
    thread_id: 136,
    native_id: Some(144),
    frame_in_holder: Some(0),
    previous: 8,
    code: 0,
    owner: Some(70),
    first_line: 68,
    instructions: Some(192),
    letters: 40,
    ..V3_11
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_self_description_of_an_interpreter_is_read() {
        let mut bytes = vec![0_u8; SELF_DESCRIPTION_BYTES];
        bytes[..8].copy_from_slice(COOKIE);
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(40, 632);
        put(168, 8);
        put(184, 72);
        put(560, 40);
        let layout = Layout::described(13, &bytes).unwrap();
        assert_eq!((layout.interpreters, layout.next_thread, layout.frame, layout.letters), (632, 8, 72, 40));
        assert_eq!(Layout::described(15, &bytes), None);
        assert_eq!(Layout::described(13, &bytes[..100]), None);
        bytes[16] = 1;
        assert_eq!(Layout::described(13, &bytes), None);
        assert_eq!(Layout::described(13, b"something else"), None);
    }
}
