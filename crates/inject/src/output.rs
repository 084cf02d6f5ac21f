//! Writes blocks to part files. No file stays open: the program may close every descriptor it finds.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::{collections::VecDeque, io::Write, os::unix::fs::OpenOptionsExt};

use laptime_capture::part::{Device, Encoder, State};
use laptime_capture::{PART_ENDING, control::Settings, monotonic_nanos};

/// Blocks are written when they reach this size.
const BLOCK_BYTES: usize = 256 << 10;

/// The part files of a process.
#[derive(Debug)]
pub struct Output {
    /// Encodes the next block.
    pub encoder: Encoder,
    /// Kernels, and beats (syncs, copies and NVTX ranges), that were not yet reported on the control page.
    pub unreported: (u64, u64),
    settings: Settings,
    /// `PID-START`: a process number may be used again, also by the same process after `exec`.
    stem: String,
    number: u32,
    written: u64,
    began: u64,
    /// The facts at the start of every part.
    infos: Vec<(String, String)>,
    devices: Vec<Device>,
    state: Option<(u64, State)>,
    has_memory: bool,
    /// Parts that are finished, where only the past is kept: path, bytes and the time of the last event.
    old: VecDeque<(PathBuf, u64, u64)>,
}

impl Output {
    /// Begins the first part.
    pub fn new(settings: Settings, pid: u32, start: u64) -> Self {
        let mut output = Self {
            encoder: Encoder::default(),
            unreported: (0, 0),
            settings,
            stem: format!("{pid}-{start}"),
            number: 0,
            written: 0,
            began: start,
            infos: Vec::new(),
            devices: Vec::new(),
            state: None,
            has_memory: false,
            old: VecDeque::new(),
        };
        output.info("pid", &pid.to_string());
        output.info("start", &start.to_string());
        output
    }

    /// Adds a fact about the process, in this part and in every later one.
    pub fn info(&mut self, key: &str, value: &str) {
        self.encoder.info(key, value);
        self.infos.retain(|(known, _)| known != key);
        self.infos.push((key.to_owned(), value.to_owned()));
    }

    /// Says how much memory the process has, and how much of it our buffers are: CUPTI allocates too.
    pub fn memory(&mut self, resident: u64, buffers: usize) {
        if !self.has_memory {
            self.has_memory = true;
            self.info("resident_first", &resident.to_string());
        }
        self.encoder.info("resident_last", &resident.to_string());
        self.encoder.info("buffers", &buffers.to_string());
    }

    /// Describes a device, in this part and in every later one.
    pub fn device(&mut self, device: Device) {
        self.encoder.device(&device);
        self.devices.push(device);
    }

    /// Adds a change of the recording state.
    pub fn state(&mut self, since: u64, state: State) {
        self.state = Some((since, state));
        self.encoder.state(since, state);
    }

    /// Writes the block if it is large.
    pub fn write_if_large(&mut self) {
        if self.encoder.block_bytes() >= BLOCK_BYTES {
            self.write();
        }
    }

    /// Writes the block. What cannot be written is counted as dropped.
    pub fn write(&mut self) {
        let path = self.path();
        let Some(block) = self.encoder.block() else { return };
        let length = block.len() as u64;
        let is_written = append(&path, block, self.written);
        if is_written {
            self.written += length;
            self.encoder.written();
        } else {
            if self.written == 0 {
                let _ = fs::remove_file(&path);
            }
            self.encoder.failed();
            self.next_part();
        }
        self.rotate();
    }

    fn path(&self) -> PathBuf {
        self.settings.parts.join(format!("{}.{}.{PART_ENDING}", self.stem, self.number))
    }

    /// If only the recent past is kept: starts new parts early enough, and removes parts that are too old.
    fn rotate(&mut self) {
        let Some(keep) = self.settings.keep else { return };
        let (now, keep) = (monotonic_nanos(), keep.as_nanos() as u64);
        let is_full = self.written >= u64::from(self.settings.part_bytes);
        if self.written > 0 && (is_full || now.saturating_sub(self.began) > keep / 4) {
            self.old.push_back((self.path(), self.written, now));
            self.encoder.begin_part();
            self.next_part();
        }
        let mut total: u64 = self.old.iter().map(|(_, bytes, _)| bytes).sum();
        while let Some((path, bytes, last)) = self.old.front() {
            if now.saturating_sub(*last) <= keep && total <= self.settings.ring_bytes {
                break;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
            self.old.pop_front();
        }
    }

    fn next_part(&mut self) {
        self.number += 1;
        self.written = 0;
        self.began = monotonic_nanos();
        for (key, value) in &self.infos {
            self.encoder.info(key, value);
        }
        for device in &self.devices {
            self.encoder.device(device);
        }
        if let Some((at, state)) = self.state {
            self.encoder.state(at, state);
        }
    }
}

/// Appends a block, whole or not at all.
fn append(path: &Path, block: &[u8], length_before: u64) -> bool {
    let mut open = OpenOptions::new();
    let Ok(mut file) = open.append(true).create(true).mode(0o600).open(path) else { return false };
    if file.write_all(block).is_ok() {
        return true;
    }
    let _ = file.set_len(length_before);
    false
}
