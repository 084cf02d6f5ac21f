//! Fusers on a GPU: all paths of all layers together, each product one batch of cuBLAS.
//!
//! A path is the keys or the values of a layer. The weights of all open paths lie one behind the other, so that they are
//! computed together as far as memory allows; one after another, it is the same with one path at a time.

mod buffers;
mod engine;
mod path;
mod weights;

use half::{bf16, f16};
use laptime_cuda::Device;

pub use self::buffers::needed_fuser_bytes;
use self::engine::Engine;
use crate::{
    Dtype, ModelError,
    fuser::{FuseOptions, FuserConfig, FuserWeights, Fusing},
};

/// Puts the fusers of one receiver on a device, one for each sharer. Weights by formula are made there; paths whose gate is
/// closed are left out.
///
/// A fuse works on the device's stream. Decoders may have streams of their own: those wait for each other as is needed,
/// and the host waits for nothing.
pub fn fuser<'a>(
    device: &'a Device,
    fusers: Vec<(FuserConfig, &FuserWeights)>,
    options: FuseOptions,
) -> Result<Box<dyn Fusing + 'a>, ModelError> {
    fusers.iter().try_for_each(|(config, _)| config.check())?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(device, fusers, options)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(device, fusers, options)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(device, fusers, options)?),
    })
}
