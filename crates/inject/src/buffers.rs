//! The buffers that CUPTI fills: bounded in number and used again, so that their pages are touched once.

use std::alloc::{self, Layout};
use std::ptr;
use std::sync::Mutex;

use crate::locked;

/// Bytes of a buffer: some ten thousand records.
pub const BUFFER_BYTES: usize = 2 << 20;
/// The maximum number of buffers, 64 MiB in total. Beyond that CUPTI drops records and counts them.
const MOST_BUFFERS: usize = 32;
/// CUPTI asks for this alignment.
const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a buffer has a valid layout"),
};

/// The buffers of the process.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Buffers>);

#[derive(Debug, Default)]
struct Buffers {
    free: Vec<Address>,
    made: usize,
}

#[derive(Debug)]
struct Address(*mut u8);
// SAFETY: nothing else uses a buffer that is in the pool.
unsafe impl Send for Address {}

impl Pool {
    /// A buffer, or null if the maximum number is in use.
    pub fn take(&self) -> *mut u8 {
        let mut buffers = locked(&self.0);
        if let Some(Address(free)) = buffers.free.pop() {
            return free;
        }
        if buffers.made >= MOST_BUFFERS {
            return ptr::null_mut();
        }
        // SAFETY: the layout has a size. It comes from `malloc`, so another owner may free it.
        let made = unsafe { alloc::alloc(LAYOUT) };
        buffers.made += usize::from(!made.is_null());
        made
    }

    /// Returns a buffer to the pool.
    pub fn put(&self, buffer: *mut u8) {
        let mut buffers = locked(&self.0);
        buffers.free.push(Address(buffer));
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        locked(&self.0).made * BUFFER_BYTES
    }

    /// Buffers that CUPTI has.
    pub fn outstanding(&self) -> usize {
        let buffers = locked(&self.0);
        buffers.made - buffers.free.len()
    }
}
