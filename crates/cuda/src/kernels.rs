//! Kernels for timing and memory bandwidth.
//!
//! The GPU tests compare each with a CPU reference.

use crate::launch::*;
use crate::nvrtc::Origin;

/// The source of these kernels.
pub const BASICS: Source<'static> = Source { file: "basics.cu", text: include_str!("../kernels/basics.cu") };

/// Threads per block of the memory kernels.
const THREADS: u32 = 256;
/// Blocks per multiprocessor of the memory kernels: enough to fill it.
const BLOCKS_EACH: u32 = 8;

/// The kernels on one device.
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
    all_memory: Shape,
    origin: Origin,
}

impl Kernels {
    /// Loads all kernels, from the cache if possible.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let (module, origin) = Request::new(BASICS).load_with_origin(device, cache)?;
        let [spin_nanos, timer_readings, stamp, end_replay] =
            module.kernels(["spin_nanos", "timer_readings", "stamp", "end_replay"])?;
        let [fill, illegal_access, read_sum, copy] = module.kernels(["fill", "illegal_access", "read_sum", "copy"])?;
        let all_memory = Shape::line(device.facts().multiprocessors.max(1) * BLOCKS_EACH, THREADS);
        Ok(Self {
            spin_nanos,
            timer_readings,
            stamp,
            end_replay,
            fill,
            illegal_access,
            read_sum,
            copy,
            all_memory,
            origin,
        })
    }

    /// Where they came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Spins for this number of nanoseconds of the device's global timer.
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
        Launch::new(stream, "filling").write(out, count).with(value).with(count).run(&self.fill, self.all_memory)
    }

    /// Adds all values to `sum[0]`, wrapping around. Their number must be a multiple of four.
    pub fn read_sum(&self, stream: &Stream, values: &Buffer<u32>, sum: &mut Buffer<u64>) -> Done {
        let count = values.length() as u64;
        let launch = Launch::new(stream, "reading")
            .require(count.is_multiple_of(4), "the number of values must be a multiple of four")
            .read(values, count)
            .with(count / 4)
            .write(sum, 1_u32);
        launch.run(&self.read_sum, self.all_memory)
    }

    /// Copies with a kernel. Both must have the same length, a multiple of four.
    pub fn copy(&self, stream: &Stream, from: &Buffer<u32>, to: &mut Buffer<u32>) -> Done {
        let count = from.length() as u64;
        let launch = Launch::new(stream, "copying")
            .require(from.length() == to.length(), "the lengths differ")
            .require(count.is_multiple_of(4), "the number of values must be a multiple of four")
            .read(from, count)
            .write(to, count)
            .with(count / 4);
        launch.run(&self.copy, self.all_memory)
    }

    /// Destroys the context, for tests.
    ///
    /// # Safety
    ///
    /// The device cannot be used by this process any more.
    #[allow(unsafe_code)]
    pub unsafe fn lose_context(&self, stream: &Stream) -> Done {
        // An address in the first page, which is never mapped.
        Launch::new(stream, "destroying the context").with(16_u64).run(&self.illegal_access, Shape::ONE)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_kernel_source_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> = names.filter(|name| name.ends_with(".cu")).collect();
        let mut known: Vec<String> = vec![BASICS.file.to_owned()];
        known.extend(crate::nn::SOURCES.iter().map(|source| source.file.to_owned()));
        known.extend(crate::decode::SOURCES.map(|source| source.file.to_owned()));
        there.sort();
        known.sort();
        assert_eq!(there, known);
    }
}
