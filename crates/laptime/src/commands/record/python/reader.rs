//! Reads the stacks of a CPython interpreter from the memory of its process.

use std::{collections::HashMap, fs, io, os::unix::fs::MetadataExt, sync::Arc};

use laptime_capture::process::read_memory;

use super::layout::{Layout, SELF_DESCRIPTION_BYTES};
use super::{Line, elf, lines};

/// Outer frames of deeper stacks are cut off.
const DEEPEST: usize = 128;
const MOST_THREADS: usize = 64;
/// Longer texts and tables are damage.
const LONGEST: u64 = 1 << 20;
/// Frames with this owner or a higher one are not Python code.
const OWNED_BY_C: u8 = 3;
/// Offset of the native id in a `pthread_t` of glibc on x86-64.
const NATIVE_ID_IN_THREAD: u64 = 720;

pub struct Interpreter {
    pid: u32,
    layout: Layout,
    runtime: u64,
    codes: HashMap<u64, Code>,
}

/// A code object. Its addresses show whether another object has replaced it.
struct Code {
    addresses: [u64; 4],
    file: Arc<str>,
    name: Arc<str>,
    first_line: u32,
    table: Vec<u8>,
}

/// `_PyRuntime` and `Py_Version` by device and inode of the file, since worker processes share a Python.
pub type Symbols = HashMap<(u64, u64), Option<(elf::Symbol, Option<elf::Symbol>)>>;

impl Interpreter {
    /// Finds the interpreter of a process, if its version is known.
    pub fn find(pid: u32, symbols: &mut Symbols) -> Option<Self> {
        let mapped = elf::mapped(pid);
        let is_python = |name: &str| name.starts_with("libpython3") || name.starts_with("python");
        mapped.iter().filter(|mapped| is_python(&mapped.name)).find_map(|mapped| {
            let file = fs::metadata(&mapped.file).ok()?;
            let (runtime, version) = *symbols
                .entry((file.dev(), file.ino()))
                .or_insert_with(|| {
                    let bytes = fs::read(&mapped.file).ok()?;
                    Some((elf::symbol(&bytes, "_PyRuntime")?, elf::symbol(&bytes, "Py_Version")))
                })
                .as_ref()?;
            let address = |symbol: elf::Symbol| symbol.value + if symbol.is_address { 0 } else { mapped.start };
            let runtime = address(runtime);
            let minor = match version {
                Some(version) => (u32::try_from(number(pid, address(version)).ok()?).ok()? >> 16) & 0xFF,
                None => minor_of_name(&mapped.name)?,
            };
            let layout = layout(pid, minor, runtime)?;
            Some(Self { pid, layout, runtime, codes: HashMap::new() })
        })
    }

    /// The stacks of all threads, by native id, innermost line first.
    pub fn stacks(&mut self) -> io::Result<Vec<(u32, Vec<Line>)>> {
        let layout = self.layout;
        let mut found = Vec::new();
        let interpreter = self.pointer(self.runtime + layout.interpreters)?;
        if interpreter == 0 {
            return Ok(found);
        }
        let mut threads = Vec::new();
        let mut thread = self.pointer(interpreter + layout.threads)?;
        while thread != 0 && threads.len() < MOST_THREADS {
            threads.push(thread);
            thread = self.pointer(thread + layout.next_thread)?;
        }
        for (at, &thread) in threads.iter().enumerate() {
            // The oldest thread, the main one, is the last in the list.
            let is_main = at + 1 == threads.len();
            let Some(number) = self.thread_number(thread, is_main) else { continue };
            // Skip only the stacks that changed while they were read.
            if let Ok(stack) = self.stack(thread)
                && !stack.is_empty()
            {
                found.push((number, stack));
            }
        }
        Ok(found)
    }

    fn thread_number(&self, thread: u64, is_main: bool) -> Option<u32> {
        let native = match self.layout.native_id {
            Some(offset) => self.pointer(thread + offset).ok()?,
            None if is_main => return Some(self.pid),
            None => {
                let own = self.pointer(thread + self.layout.thread_id).ok()?;
                self.pointer(own.checked_add(NATIVE_ID_IN_THREAD)?).ok()? & 0xFFFF_FFFF
            }
        };
        let native = u32::try_from(native).ok()?;
        fs::exists(format!("/proc/{}/task/{native}", self.pid)).ok()?.then_some(native)
    }

    fn stack(&mut self, thread: u64) -> io::Result<Vec<Line>> {
        let mut frame = self.pointer(thread + self.layout.frame)?;
        if let Some(offset) = self.layout.frame_in_holder.filter(|_| frame != 0) {
            frame = self.pointer(frame + offset)?;
        }
        let mut stack = Vec::new();
        for _ in 0..4 * DEEPEST {
            if frame == 0 || stack.len() >= DEEPEST {
                break;
            }
            let (line, previous) = self.frame(frame)?;
            stack.extend(line);
            frame = previous;
        }
        Ok(stack)
    }

    /// The line of a frame, if it is Python code, and the calling frame.
    fn frame(&mut self, frame: u64) -> io::Result<(Option<Line>, u64)> {
        let mut bytes = [0; 128];
        read_memory(self.pid, frame, &mut bytes)?;
        let at = |offset: u64| u64_at(&bytes, offset);
        let previous = at(self.layout.previous)?;
        let owner = self.layout.owner.map(|offset| bytes.get(offset as usize).copied().unwrap_or(0));
        // References in 3.14 have tags in their lowest bits.
        let code = at(self.layout.code)? & !3;
        if code == 0 || owner.is_some_and(|owner| self.layout.minor >= 12 && owner >= OWNED_BY_C) {
            return Ok((None, previous));
        }
        let instruction = at(self.layout.instruction)?;
        Ok((Some(self.line(code, instruction)?), previous))
    }

    fn line(&mut self, address: u64, instruction: u64) -> io::Result<Line> {
        let layout = self.layout;
        let code = self.code(address)?;
        let number = match layout.instructions {
            Some(offset) => {
                let units = (instruction.wrapping_sub(address + offset) as i64) / 2;
                lines::line(&code.table, code.first_line, units)
            }
            // The instruction index of 3.10 is the lower half of the word.
            None => lines::line_of_3_10(&code.table, code.first_line, 2 * i64::from(instruction as u32 as i32)),
        };
        let number = number.unwrap_or(code.first_line);
        Ok(Line { file: Arc::clone(&code.file), function: Arc::clone(&code.name), number })
    }

    fn code(&mut self, address: u64) -> io::Result<&Code> {
        let layout = self.layout;
        let mut bytes = [0; 192];
        read_memory(self.pid, address, &mut bytes)?;
        let at = |offset: u64| u64_at(&bytes, offset);
        let first_line = (at(layout.first_line)? & 0xFFFF_FFFF) as u32;
        let addresses = [at(layout.file)?, at(layout.name)?, at(layout.lines)?, first_line.into()];
        if self.codes.get(&address).is_none_or(|known| known.addresses != addresses) {
            let code = Code {
                addresses,
                file: self.text(addresses[0])?.into(),
                name: self.text(addresses[1])?.into(),
                first_line,
                table: self.bytes(addresses[2])?,
            };
            self.codes.insert(address, code);
        }
        self.codes.get(&address).ok_or_else(damaged)
    }

    /// A `str` object.
    fn text(&self, address: u64) -> io::Result<String> {
        let mut head = [0; 40];
        read_memory(self.pid, address, &mut head)?;
        let length = u64_at(&head, 16)?;
        let state = u64_at(&head, 32)? as u32;
        // From the lowest bit: interned (2), kind (3), compact, ascii.
        let (kind, is_ascii) = (state >> 2 & 7, state >> 6 & 1 == 1);
        if length > LONGEST {
            return Err(damaged());
        }
        if is_ascii {
            let mut letters = vec![0; length as usize];
            read_memory(self.pid, address + self.layout.letters, &mut letters)?;
            return Ok(String::from_utf8_lossy(&letters).into_owned());
        }
        // Non-ASCII strings have two more words before their characters.
        let start = address + self.layout.letters + 16 + if self.layout.letters == 48 { 8 } else { 0 };
        let mut bytes = vec![0; (length * u64::from(kind)) as usize];
        read_memory(self.pid, start, &mut bytes)?;
        let letter = |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |letter, byte| letter << 8 | u32::from(*byte));
        let letters = bytes.chunks_exact(kind.max(1) as usize).map(letter);
        Ok(letters.map(|letter| char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    }

    /// A `bytes` object.
    fn bytes(&self, address: u64) -> io::Result<Vec<u8>> {
        let length = self.pointer(address + 16)?;
        if length > LONGEST {
            return Err(damaged());
        }
        let mut bytes = vec![0; length as usize];
        read_memory(self.pid, address + 32, &mut bytes)?;
        Ok(bytes)
    }

    fn pointer(&self, address: u64) -> io::Result<u64> {
        number(self.pid, address)
    }
}

fn layout(pid: u32, minor: u32, runtime: u64) -> Option<Layout> {
    if let Some(known) = Layout::of(minor) {
        return Some(known);
    }
    let mut bytes = vec![0; SELF_DESCRIPTION_BYTES];
    read_memory(pid, runtime, &mut bytes).ok()?;
    Layout::described(minor, &bytes)
}

fn number(pid: u32, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    read_memory(pid, address, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn u64_at(bytes: &[u8], offset: u64) -> io::Result<u64> {
    let at = offset as usize;
    let found = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    found.map(u64::from_le_bytes).ok_or_else(damaged)
}

fn damaged() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

/// The minor version in a file name such as `python3.10` or `libpython3.10.so.1.0`.
fn minor_of_name(name: &str) -> Option<u32> {
    let after = name.split_once("python3.")?.1;
    after.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn the_minor_version_is_read_from_the_file_name() {
        assert_eq!(minor_of_name("libpython3.10.so.1.0"), Some(10));
        assert_eq!(minor_of_name("python3.12"), Some(12));
        assert_eq!(minor_of_name("python"), None);
    }

    /// Uses the installed Python: a function waits at a known line.
    #[test]
    fn the_stack_of_a_waiting_python_is_read_with_its_lines() {
        let code = "import sys\n\
                    def läuft(n):\n    \
                        if n:\n        \
                            return läuft(n - 1)\n    \
                        print('ready', flush=True)\n    \
                        return sys.stdin.read()\n\
                    läuft(2)\n";
        let python = Command::new("python3")
            .args(["-c", code])
            .env("PYTHONIOENCODING", "utf-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut python = python.expect("python3 is needed for the tests");
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let mut interpreter =
            Interpreter::find(python.id(), &mut Symbols::new()).expect("this version of Python is known");
        // It may not have reached `read` yet.
        let is_reading = |stack: &[Line]| stack.iter().any(|line| line.number == 6);
        let stack = loop {
            let stacks = interpreter.stacks().unwrap();
            if let Some((thread, stack)) = stacks.into_iter().find(|(_, stack)| is_reading(stack)) {
                assert_eq!(thread, python.id());
                break stack;
            }
        };
        drop(python.stdin.take());
        python.wait().unwrap();
        let seen: Vec<(&str, u32)> = stack.iter().map(|line| (&*line.function, line.number)).collect();
        let own: Vec<(&str, u32)> = seen.into_iter().filter(|(name, _)| ["läuft", "<module>"].contains(name)).collect();
        assert_eq!(own, [("läuft", 6), ("läuft", 4), ("läuft", 4), ("<module>", 7)]);
        assert_eq!(&*stack[0].file, "<string>");
    }
}
