//! Fusers on the CPU.

mod engine;
mod memory;
mod model;
mod path;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::needed_fuser_bytes;
use crate::{
    Dtype, ModelError,
    fuser::{FuseOptions, FuserConfig, FuserWeights, Fusing},
};

/// Loads the open paths of the fusers of one receiver into memory, one fuser for each sharer. They run on this many
/// threads, including the caller's.
///
/// Layers are fused one after another in either order, since every product already uses all threads. The order selects
/// which stages are marked.
pub fn fuser(
    fusers: Vec<(FuserConfig, &FuserWeights)>,
    options: FuseOptions,
    threads: usize,
) -> Result<Box<dyn Fusing>, ModelError> {
    fusers.iter().try_for_each(|(config, _)| config.check())?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(fusers, options, threads)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(fusers, options, threads)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(fusers, options, threads)?),
    })
}
