//! Compiles kernels at run time with NVRTC, with a [`Cache`].
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::thread::{self, JoinHandle};
use std::{collections::HashMap, ptr, sync::Arc};

use cudarc::nvrtc::sys::{self, nvrtcResult};
use laptime_probe::stage;

use crate::cache::{Cache, Key};
use crate::device::{Device, DeviceFacts};
use crate::error::{CudaError, Done};
use crate::{blas::Element, compile_error::CompileError, kernel::Module, library};

/// A kernel source that depends on the dtype, after its headers.
macro_rules! source {
    ($($header:literal,)* in $file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/dtype.cuh"),
                $(include_str!(concat!("../kernels/", $header)),)*
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
}
pub(crate) use source;

/// A kernel source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source<'a> {
    /// The file name, for errors.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

/// A compiled source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code for one architecture.
    pub cubin: Vec<u8>,
    /// The compiler's warnings.
    pub log: String,
}

/// Where a module came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled now.
    Compiled,
    /// It was on disk.
    Cache,
}

const OPTIONS: [&str; 2] = ["--std=c++17", "--generate-line-info"];
/// Optimises the kernels of a source in parallel.
const IN_PARALLEL: &str = "--split-compile=0";
/// The first major version with this option.
const HAS_IN_PARALLEL: u32 = 13;
/// The sources that take longest to compile for a decoder. The option does not change their machine code, so it is not part of
/// the cache key.
const LONGEST: [&str; 4] = ["attention.cu", "attention_tensor.cu", "decode_linear.cu", "softmax.cu"];

/// The compiler's version.
pub fn compiler_version() -> Result<(u32, u32), CudaError> {
    library::load(library::NVRTC)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded, and both pointers are valid.
    let result = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    check("querying the version of the compiler", result)?;
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

/// Compiles a source for an architecture such as `sm_90`, with further options.
pub fn compile(source: Source<'_>, architecture: &str, options: &[String]) -> Result<Compiled, CudaError> {
    let _stage = stage!("compile", file = source.file);
    compile_unmarked(source, architecture, options)
}

fn compile_unmarked(source: Source<'_>, architecture: &str, options: &[String]) -> Result<Compiled, CudaError> {
    library::load(library::NVRTC)?;
    let mut options = all_options(architecture, options);
    if LONGEST.contains(&source.file) && compiler_version()?.0 >= HAS_IN_PARALLEL {
        options.push(IN_PARALLEL.to_owned());
    }
    let program = Program::new(source)?;
    let result = program.compile(&options)?;
    let log = program.log()?;
    if result == nvrtcResult::NVRTC_ERROR_COMPILATION || result == nvrtcResult::NVRTC_ERROR_INVALID_OPTION {
        return Err(CompileError::new(source.file, source.text, &log).into());
    }
    check("compiling a kernel", result)?;
    Ok(Compiled { cubin: program.cubin()?, log })
}

/// A source to load, with its options.
#[derive(Debug, Clone)]
pub struct Request {
    source: Source<'static>,
    options: Vec<String>,
    /// None for that of the device.
    architecture: Option<&'static str>,
}

impl Request {
    /// A source without a dtype.
    pub(crate) fn new(source: Source<'static>) -> Self {
        Self { source, options: Vec::new(), architecture: None }
    }

    /// A source for one dtype, with further options.
    pub(crate) fn typed<T: Element>(source: Source<'static>, further: &[String]) -> Self {
        Self { options: [&[T::OPTION.to_owned()], further].concat(), ..Self::new(source) }
    }

    /// Compiles it for exactly this architecture, such as `sm_90a`.
    pub(crate) fn on(self, architecture: &'static str) -> Self {
        Self { architecture: Some(architecture), ..self }
    }

    fn architecture(&self, device: &Device) -> String {
        self.architecture.map_or_else(|| device.facts().architecture(), str::to_owned)
    }

    /// Loads it on a device, from the cache if possible.
    pub(crate) fn load(&self, device: &Device, cache: &Cache) -> Result<Arc<Module>, CudaError> {
        self.load_with_origin(device, cache).map(|(module, _)| module)
    }

    pub(crate) fn load_with_origin(&self, device: &Device, cache: &Cache) -> Result<(Arc<Module>, Origin), CudaError> {
        let key = key(device.facts(), self.source, &self.architecture(device), &self.options)?;
        if let Some(cubin) = compiled_ahead(device, &key, self.source) {
            return Ok((Module::load(device, &cubin)?, Origin::Compiled));
        }
        if let Some(cubin) = cache.find(&key) {
            // If the driver rejects a cached file, the source is compiled again.
            if let Ok(module) = Module::load(device, &cubin) {
                return Ok((module, Origin::Cache));
            }
        }
        let compiled = compile(self.source, &key.architecture, &self.options)?;
        let module = Module::load(device, &compiled.cubin)?;
        // If the cache cannot be written, the next process compiles again.
        let _ = cache.keep(&key, &compiled.cubin);
        Ok((module, Origin::Compiled))
    }
}

pub(crate) type Compiling = HashMap<Key, JoinHandle<Option<Vec<u8>>>>;

/// Starts to compile what is not in the cache, each source on its own thread. A load waits for its source. Errors are
/// reported when the source is loaded, which compiles it again.
pub fn compile_ahead(device: &Device, cache: &Cache, requests: impl IntoIterator<Item = Request>) {
    let mut compiling = device.compiling();
    for request in requests {
        let architecture = request.architecture(device);
        let Request { source, options, .. } = request;
        let Ok(key) = key(device.facts(), source, &architecture, &options) else { return };
        if compiling.contains_key(&key) || cache.has(&key) {
            continue;
        }
        let (cache, wanted) = (cache.clone(), key.clone());
        let compile = move || {
            let cubin = compile_unmarked(source, &wanted.architecture, &options).ok()?.cubin;
            let _ = cache.keep(&wanted, &cubin);
            Some(cubin)
        };
        if let Ok(thread) = thread::Builder::new().name(format!("compile {}", source.file)).spawn(compile) {
            compiling.insert(key, thread);
        }
    }
}

fn compiled_ahead(device: &Device, key: &Key, source: Source<'_>) -> Option<Vec<u8>> {
    let thread = device.compiling().remove(key)?;
    let _stage = stage!("compile", file = source.file);
    thread.join().ok()?
}

fn key(facts: &DeviceFacts, source: Source<'_>, architecture: &str, options: &[String]) -> Result<Key, CudaError> {
    let (major, minor) = compiler_version()?;
    Ok(Key {
        source: source.text.to_owned(),
        options: all_options(architecture, options),
        architecture: architecture.to_owned(),
        compiler: format!("{major}.{minor}"),
        driver: facts.driver_cuda.to_string(),
    })
}

fn all_options(architecture: &str, options: &[String]) -> Vec<String> {
    let mut all = vec![format!("--gpu-architecture={architecture}")];
    all.extend(OPTIONS.map(str::to_owned));
    all.extend_from_slice(options);
    all
}

struct Program {
    raw: sys::nvrtcProgram,
    _texts: [CString; 2],
}

impl Program {
    fn new(source: Source<'_>) -> Result<Self, CudaError> {
        let texts = [text(source.text)?, text(source.file)?];
        let mut raw = ptr::null_mut();
        // SAFETY: the texts are null-terminated and live as long as the program.
        let result = unsafe {
            sys::nvrtcCreateProgram(&mut raw, texts[0].as_ptr(), texts[1].as_ptr(), 0, ptr::null(), ptr::null())
        };
        check("reading a kernel", result)?;
        Ok(Self { raw, _texts: texts })
    }

    fn compile(&self, options: &[String]) -> Result<nvrtcResult, CudaError> {
        let texts: Vec<CString> = options.iter().map(|option| text(option)).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: there is this number of texts, which live during the call.
        Ok(unsafe { sys::nvrtcCompileProgram(self.raw, pointers.len() as i32, pointers.as_ptr()) })
    }

    fn log(&self) -> Result<String, CudaError> {
        let mut size = 0;
        // SAFETY: the program and the pointer are valid.
        check("reading the log of the compiler", unsafe { sys::nvrtcGetProgramLogSize(self.raw, &mut size) })?;
        let mut log = vec![0_u8; size.max(1)];
        // SAFETY: the buffer has the size of the log.
        check("reading the log of the compiler", unsafe {
            sys::nvrtcGetProgramLog(self.raw, log.as_mut_ptr().cast())
        })?;
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        Ok(String::from_utf8_lossy(&log[..end]).into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, CudaError> {
        let mut size = 0;
        // SAFETY: the program and the pointer are valid.
        check("reading the compiled kernel", unsafe { sys::nvrtcGetCUBINSize(self.raw, &mut size) })?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: the buffer has the size of the code.
        check("reading the compiled kernel", unsafe { sys::nvrtcGetCUBIN(self.raw, cubin.as_mut_ptr().cast()) })?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.raw) };
    }
}

fn text(text: &str) -> Result<CString, CudaError> {
    CString::new(text).map_err(|_| CudaError::refused("reading a kernel", 0, "the text contains a NUL"))
}

fn check(doing: &str, result: nvrtcResult) -> Done {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the text is static.
    let words = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
    Err(CudaError::refused(doing, result as i64, words.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_is_first_and_further_options_are_last() {
        assert_eq!(
            all_options("sm_90", &["-DWIDTH=4".to_owned()]),
            ["--gpu-architecture=sm_90", "--std=c++17", "--generate-line-info", "-DWIDTH=4"]
        );
    }
}
