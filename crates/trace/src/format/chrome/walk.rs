//! Finds where a JSON value ends, byte by byte, without parsing it.

/// The state of the walk; only the depth is stored, so nesting needs no memory.
#[derive(Debug, Default)]
pub struct Walk {
    depth: u64,
    in_string: bool,
    escaped: bool,
    started: bool,
}

impl Walk {
    /// Walks over some bytes: how many belong to the value, and whether it ended.
    pub fn over(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string && !self.escaped {
                // Most bytes of a trace are in strings.
                let Some(skip) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else { return (bytes.len(), false) };
                at += skip;
            }
            let byte = bytes[at];
            if !self.started || self.depth > 0 || self.in_string {
                self.started = true;
                at += 1;
                if self.step(byte) {
                    return (at, true);
                }
            } else if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() {
                return (at, true);
            } else {
                at += 1;
            }
        }
        (at, false)
    }

    /// Consumes one byte; true if it ends the value.
    fn step(&mut self, byte: u8) -> bool {
        if self.in_string {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
                return self.depth == 0;
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}
