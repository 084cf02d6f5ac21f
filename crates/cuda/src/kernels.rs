//! Our own kernels, with the checks that make them safe to call.
//!
//! The GPU tests compare each with a CPU reference.

use crate::launch::*;
use crate::nvrtc::Origin;

/// Every kernel source, by file.
pub const SOURCES: [Source<'static>; 6] = [SPIN, STAMP, FILL, ACCESS, READ, COPY];

const SPIN: Source<'static> = Source { file: "spin.cu", text: include_str!("../kernels/spin.cu") };
const STAMP: Source<'static> = Source { file: "stamp.cu", text: include_str!("../kernels/stamp.cu") };
const FILL: Source<'static> = Source { file: "fill.cu", text: include_str!("../kernels/fill.cu") };
const ACCESS: Source<'static> = Source { file: "access.cu", text: include_str!("../kernels/access.cu") };
const READ: Source<'static> = Source { file: "read.cu", text: include_str!("../kernels/read.cu") };
const COPY: Source<'static> = Source { file: "copy.cu", text: include_str!("../kernels/copy.cu") };

/// Threads per block of the kernels that stream over memory.
const THREADS: u32 = 256;
/// Blocks per multiprocessor of such kernels: enough to fill it.
const BLOCKS_EACH: u32 = 8;

/// The kernels of ours on one device.
#[derive(Debug)]
pub struct Kernels {
    spin_nanos: Kernel,
    timer_readings: Kernel,
    pub(crate) stamp: Kernel,
    pub(crate) end_replay: Kernel,
    fill: Kernel,
    illegal_access: Kernel,
    read_sum: Kernel,
    copy: Kernel,
    along_memory: Shape,
    compiled: usize,
}

impl Kernels {
    /// Loads all kernels, from the cache if possible.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        nvrtc::compile_ahead(device, cache, SOURCES.map(nvrtc::Request::new));
        let mut compiled = 0;
        let mut module = |source| {
            nvrtc::load(device, cache, source, &[]).map(|(module, origin)| {
                compiled += usize::from(origin == Origin::Compiled);
                module
            })
        };
        let (spin, stamp) = (module(SPIN)?, module(STAMP)?);
        let (fill, illegal) = (module(FILL)?.kernel("fill")?, module(ACCESS)?.kernel("illegal_access")?);
        let (read_sum, copy) = (module(READ)?.kernel("read_sum")?, module(COPY)?.kernel("copy")?);
        Ok(Self {
            spin_nanos: spin.kernel("spin_nanos")?,
            timer_readings: spin.kernel("timer_readings")?,
            stamp: stamp.kernel("stamp")?,
            end_replay: stamp.kernel("end_replay")?,
            fill,
            illegal_access: illegal,
            read_sum,
            copy,
            along_memory: Shape::line(device.facts().multiprocessors.max(1) * BLOCKS_EACH, THREADS),
            compiled,
        })
    }

    /// The number of [`SOURCES`] that had to be compiled; the others were cached.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// Keeps one thread of the device busy for this number of nanoseconds of its global timer.
    pub fn spin_nanos(&self, stream: &Stream, nanos: u64) -> Done {
        Launch::new(stream, "spinning").with(nanos).run(&self.spin_nanos, Shape::ONE)
    }

    /// Fills `readings` with consecutive readings of the global timer.
    pub fn timer_readings(&self, stream: &Stream, readings: &mut Buffer<u64>) -> Done {
        let count = blocks(readings.length());
        let launch = Launch::new(stream, "reading the timer").write(readings, count).with(count);
        launch.run(&self.timer_readings, Shape::ONE)
    }

    /// Fills a buffer with one value.
    pub fn fill(&self, stream: &Stream, out: &mut Buffer<f32>, value: f32) -> Done {
        let count = out.length() as u64;
        Launch::new(stream, "filling").write(out, count).with(value).with(count).run(&self.fill, self.along_memory)
    }

    /// Adds all values to `sum[0]`, wrapping around. Their number must be a multiple of four.
    pub fn read_sum(&self, stream: &Stream, values: &Buffer<u32>, sum: &mut Buffer<u64>) -> Done {
        let count = values.length() as u64;
        let launch = Launch::new(stream, "reading")
            .require(count.is_multiple_of(4), "the number of values is no multiple of four")
            .read(values, count)
            .with(count / 4)
            .write(sum, 1_u32);
        launch.run(&self.read_sum, self.along_memory)
    }

    /// Copies by a kernel. Both must have the same length, a multiple of four.
    pub fn copy(&self, stream: &Stream, from: &Buffer<u32>, to: &mut Buffer<u32>) -> Done {
        let count = from.length() as u64;
        let launch = Launch::new(stream, "copying")
            .require(from.length() == to.length(), "the lengths differ")
            .require(count.is_multiple_of(4), "the number of values is no multiple of four")
            .read(from, count)
            .write(to, count)
            .with(count / 4);
        launch.run(&self.copy, self.along_memory)
    }

    /// Destroys the context, for tests.
    ///
    /// # Safety
    ///
    /// Nothing of this process on the device can be used any more.
    #[allow(unsafe_code)]
    pub unsafe fn lose_context(&self, stream: &Stream) -> Done {
        // An address in the first page, which is nobody's.
        Launch::new(stream, "losing the context").with(16_u64).run(&self.illegal_access, Shape::ONE)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_kernel_in_the_folder_is_known() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> = names.filter(|name| name.ends_with(".cu")).collect();
        let mut known: Vec<String> = SOURCES.map(|source| source.file.to_owned()).to_vec();
        known.extend(crate::nn::SOURCES.iter().map(|source| source.file.to_owned()));
        known.extend(crate::decode::SOURCES.map(|source| source.file.to_owned()));
        there.sort();
        known.sort();
        assert_eq!(there, known);
    }
}
