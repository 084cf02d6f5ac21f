//! Runs the PTX of kernels on the CPU. `tests/stand-in-gpu/cuda.c` loads this library if `STAND_IN_EMULATOR` names it,
//! and then computes what it otherwise leaves out.
//!
//! A kernel is translated once ([`Kernel`]). A warp runs one instruction after another in all lanes that are at it; the
//! lanes that are furthest behind run first. Warps of a block take turns at barriers, and blocks run on all threads of
//! the host. Copies and products that a device does meanwhile are done at once. Every address is checked.
//!
//! Not supported: functions that are called, and kernels whose blocks wait for other blocks outside of clusters, since a block
//! runs to its end before its thread begins the next one.
#![allow(unsafe_code, reason = "kernels read and write memory by addresses, and the interface is for C")]

mod cluster;
mod execute;
mod lanes;
mod launch;
mod machine;
mod numbers;
mod product;
mod program;
mod registers;
mod rows;
mod tensor_map;
mod text;
mod translate;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{panic, ptr, slice};

use self::machine::Launch;
pub use self::machine::Region;
pub use self::product::{Matrix, Product};
use self::program::Program;
use self::tensor_map::TensorMap;
use self::text::ModuleText;

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// The memory of a module's variables, as words, so that all numbers are aligned.
#[derive(Debug)]
struct Globals {
    words: Vec<u128>,
    addresses: HashMap<String, u64>,
}

/// A module.
#[derive(Debug)]
pub struct Module {
    text: ModuleText,
    globals: Arc<Globals>,
}

/// A kernel that can be launched.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    globals: Arc<Globals>,
}

/// The size of a launch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
}

impl Module {
    /// Reads the text of a module.
    pub fn new(ptx: &str) -> Result<Self, String> {
        let text = text::module(ptx)?;
        let mut offsets = Vec::new();
        let mut end = 0_usize;
        for variable in text.variables.iter().filter(|variable| matches!(variable.space.as_str(), ".global" | ".const"))
        {
            let at = end.next_multiple_of(variable.align.max(16));
            offsets.push((variable, at));
            end = at + variable.bytes;
        }
        let mut words = vec![0_u128; end.div_ceil(16)];
        let from = words.as_mut_ptr().cast::<u8>();
        for (variable, at) in &offsets {
            // SAFETY: the words are long enough, by the sum above.
            unsafe { from.add(*at).copy_from(variable.initial.as_ptr(), variable.initial.len().min(variable.bytes)) }
        }
        let addresses =
            offsets.iter().map(|(variable, at)| (variable.name.clone(), from as u64 + *at as u64)).collect();
        Ok(Self { text, globals: Arc::new(Globals { words, addresses }) })
    }

    /// Translates a kernel.
    pub fn kernel(&self, name: &str) -> Result<Kernel, String> {
        let entry = self.text.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| format!("no kernel `{name}`"))?;
        let shared: Vec<_> =
            self.text.variables.iter().filter(|variable| variable.space == ".shared").cloned().collect();
        let program = translate::translate(entry, &shared, &self.globals.addresses);
        let program = program.map_err(|why| format!("kernel `{name}`: {why}"))?;
        Ok(Kernel { program, globals: Arc::clone(&self.globals) })
    }

    /// The names of all kernels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.text.entries.iter().map(|entry| entry.name.as_str())
    }
}

impl Kernel {
    /// The bytes of all parameters together.
    pub fn parameter_bytes(&self) -> usize {
        self.program.parameter_bytes
    }

    /// Copies the parameters from where the arguments are.
    ///
    /// # Safety
    ///
    /// There is an argument of the right size for each parameter.
    pub unsafe fn gather(&self, arguments: *const *const c_void, to: &mut [u8]) {
        for (number, parameter) in self.program.parameters.iter().enumerate() {
            // SAFETY: the caller answers for the arguments.
            let argument = unsafe { slice::from_raw_parts((*arguments.add(number)).cast::<u8>(), parameter.bytes) };
            to[parameter.offset..parameter.offset + parameter.bytes].copy_from_slice(argument);
        }
    }

    /// Runs a launch. It may touch these regions, which are in the order of their addresses.
    ///
    /// # Safety
    ///
    /// The regions are memory that nobody else uses meanwhile.
    pub unsafe fn launch(&self, shape: Shape, parameters: &[u8], regions: &[Region]) -> Result<(), String> {
        let words = &self.globals.words;
        let own = [(parameters.as_ptr() as u64, parameters.len()), (words.as_ptr() as u64, size_of_val(&words[..]))];
        let own = own.map(|(from, bytes)| Region { from, end: from + bytes as u64 });
        let mut regions: Vec<Region> =
            regions.iter().copied().chain(own).filter(|region| region.from < region.end).collect();
        regions.sort_unstable_by_key(|region| region.from);
        let shared_end = self.program.shared_end + u64::from(shape.shared_bytes);
        let Shape { grid, block, .. } = shape;
        let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        launch::run(&Launch { number, program: &self.program, grid, block, shared_end, parameters, regions: &regions })
    }
}

/// Runs something for C: 0 if it succeeded; otherwise the text of the error is at `message`.
fn answer(message: *mut c_char, room: usize, work: impl FnOnce() -> Result<(), String>) -> c_int {
    let panicked = |_| Err("the emulator panicked".to_owned());
    let Err(text) = panic::catch_unwind(panic::AssertUnwindSafe(work)).unwrap_or_else(panicked) else { return 0 };
    let bytes = &text.as_bytes()[..text.len().min(room.saturating_sub(1))];
    // SAFETY: the caller has this room for the message.
    unsafe {
        message.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len());
        *message.add(bytes.len()) = 0;
    }
    1
}

/// Reads a module.
///
/// # Safety
///
/// The text ends in a zero, and there is room for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_load(
    to: *mut *mut Module,
    ptx: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    answer(message, room, || {
        // SAFETY: the caller answers for the text.
        let text = unsafe { CStr::from_ptr(ptx) }.to_string_lossy();
        let module = Box::new(Module::new(&text)?);
        // SAFETY: the caller answers for the place.
        unsafe { *to = Box::into_raw(module) };
        Ok(())
    })
}

/// Drops a module. Its kernels stay.
///
/// # Safety
///
/// The module is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_unload(module: *mut Module) {
    // SAFETY: the caller answers for the module.
    drop(unsafe { Box::from_raw(module) });
}

/// Translates a kernel, which is never dropped.
///
/// # Safety
///
/// The module lives, the name ends in a zero, and there is room for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_find(
    to: *mut *const Kernel,
    module: *const Module,
    name: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    answer(message, room, || {
        // SAFETY: the caller answers for the module and the name.
        let (module, name) = unsafe { (&*module, CStr::from_ptr(name).to_string_lossy()) };
        let kernel = Box::new(module.kernel(&name)?);
        // SAFETY: the caller answers for the place.
        unsafe { *to = Box::into_raw(kernel) };
        Ok(())
    })
}

/// The bytes of all parameters of a kernel.
///
/// # Safety
///
/// There is such a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_parameter_bytes(kernel: *const Kernel) -> usize {
    // SAFETY: the caller answers for the kernel.
    unsafe { &*kernel }.parameter_bytes()
}

/// Copies the arguments of a launch.
///
/// # Safety
///
/// There is an argument for each parameter, and the place has [`emulator_parameter_bytes`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_gather(kernel: *const Kernel, arguments: *const *const c_void, to: *mut u8) {
    // SAFETY: the caller answers for the arguments and the place.
    unsafe {
        let kernel = &*kernel;
        kernel.gather(arguments, slice::from_raw_parts_mut(to, kernel.parameter_bytes()));
    }
}

/// Runs a kernel.
///
/// # Safety
///
/// The parameters are those of [`emulator_gather`], the regions are allocated, and there is room for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_launch(
    kernel: *const Kernel,
    shape: *const Shape,
    parameters: *const u8,
    regions: *const Region,
    count: usize,
    message: *mut c_char,
    room: usize,
) -> c_int {
    answer(message, room, || {
        // SAFETY: the caller answers for all of them.
        unsafe {
            let kernel = &*kernel;
            let parameters = slice::from_raw_parts(parameters, kernel.parameter_bytes());
            kernel.launch(*shape, parameters, slice::from_raw_parts(regions, count))
        }
    })
}

/// Computes a product of matrices.
///
/// # Safety
///
/// The regions are allocated, and there is room for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_multiply(
    product: *const Product,
    regions: *const Region,
    count: usize,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller answers for all of them.
    answer(message, room, || unsafe { (*product).run(slice::from_raw_parts(regions, count)) })
}

/// Writes a tensor map of three dimensions with rows of 128 swizzled bytes; others are refused.
///
/// # Safety
///
/// The arguments are those of `cuTensorMapEncodeTiled`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_map(
    to: *mut c_void,
    address: u64,
    dims: *const u64,
    strides: *const u64,
    tile: *const u32,
    bytes: u32,
) {
    // SAFETY: the caller answers for the arguments.
    unsafe {
        let map = TensorMap {
            address,
            strides: [*strides, *strides.add(1)],
            dims: [0, 1, 2].map(|side| *dims.add(side) as u32),
            tile: [0, 1, 2].map(|side| *tile.add(side)),
            bytes,
            magic: tensor_map::MAGIC,
            unused: 0,
        };
        ptr::write_unaligned(to.cast(), map);
    }
}
