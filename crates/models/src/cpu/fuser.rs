//! Fusers on the CPU.

mod engine;
mod memory;
mod model;
mod path;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::needed_fuser_bytes;
use crate::{
    Decoder, Dtype, ModelError,
    fuser::{FuseOptions, Fused, FuserConfig, FuserWeights, Fusing, Gates, Section},
};

/// The fusers of one receiver on the CPU, one for each sharer.
///
/// Layers are computed one after another whatever the order that was asked for: there is no more to be had of a CPU that
/// every product keeps busy. The order says which stages are marked.
pub struct CpuFuser {
    /// One for each number type.
    engine: Box<dyn Fusing>,
}

impl CpuFuser {
    /// Puts the weights of open paths into memory; fuses run on so many threads, of which the caller is one.
    pub fn new(
        fusers: Vec<(FuserConfig, &FuserWeights)>,
        options: FuseOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        fusers.iter().try_for_each(|(config, _)| config.check())?;
        let engine: Box<dyn Fusing> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(fusers, options, threads)?),
            Dtype::Bf16 => Box::new(Engine::<bf16>::new(fusers, options, threads)?),
            Dtype::F16 => Box::new(Engine::<f16>::new(fusers, options, threads)?),
        };
        Ok(Self { engine })
    }
}

impl Fusing for CpuFuser {
    fn configs(&self) -> &[FuserConfig] {
        self.engine.configs()
    }

    fn options(&self) -> &FuseOptions {
        self.engine.options()
    }

    fn gates(&self) -> &[Gates] {
        self.engine.gates()
    }

    fn fuse(
        &mut self,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<Fused, ModelError> {
        self.engine.fuse(receiver, sharers, section)
    }
}
