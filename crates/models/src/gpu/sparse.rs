//! Block attention: its kernel, and the layout of the last pass.

use laptime_cuda::nn::{BlockAttention, BlockLayout, Engine, LayoutParts, Rule, TILING};
use laptime_cuda::{Cache, Device};

use super::{size, weights::Number};
use crate::attention::{Kept, Layout, Tiling};
use crate::{Attention, Config, Marks, ModelError, Options, marks::stage_mark};

/// The tiling of the kernels.
pub(super) const GPU_TILING: Tiling = Tiling { rows: TILING.rows, keys: TILING.keys };

/// The pairs of dense attention.
pub(super) const DENSE: Kept = Kept::All { is_causal: true };

/// Query rows of all heads per multiprocessor from which block attention is faster for dense attention.
const LEAST_ROWS: usize = 112;

#[derive(Debug)]
pub struct Sparse<T> {
    pub attention: BlockAttention<T>,
    pub layout: Option<BlockLayout>,
    kept: Kept,
}

impl<T: Number> Sparse<T> {
    pub fn load(device: &Device, config: &Config, kept: Kept) -> Result<Self, ModelError> {
        let attention = BlockAttention::load(device, &Cache::of_user(), size(config.head_dim)?)?;
        Ok(Self { attention, layout: None, kept })
    }

    /// Whether block attention is faster for dense prompts of this many tokens from the first position on: with warpgroups, and
    /// with enough blocks for the device. Measured on an H200.
    pub fn suits_dense(device: &Device, config: &Config, options: &Options, tokens: usize) -> Result<bool, ModelError> {
        let (heads, facts) = (options.batch.saturating_mul(config.heads), device.facts());
        let is_served = Engine::Warpgroups.serves(size(config.head_dim)?, size_of::<T>(), facts.capability);
        let is_dense = options.attention == Attention::Dense && options.kept.is_none() && config.window.is_none();
        let least = (facts.multiprocessors as usize).saturating_mul(LEAST_ROWS);
        Ok(is_served && is_dense && heads.saturating_mul(tokens) >= least)
    }

    /// The kernel and the layout of the last pass.
    pub fn parts(&self) -> Option<(&BlockAttention<T>, &BlockLayout)> {
        Some((&self.attention, self.layout.as_ref()?))
    }

    /// The same, if the layout is for this many tokens.
    pub fn parts_for(&self, tokens: usize) -> Option<(&BlockAttention<T>, &BlockLayout)> {
        self.parts().filter(|(_, layout)| layout.length() as usize == tokens)
    }

    /// Builds the layout of a pass from the first token on, unless the last pass had it.
    pub fn lay_out(&mut self, device: &Device, length: usize, marks: &Marks) -> Result<(), ModelError> {
        if let Some(reason) = self.kept.refusal(length) {
            return Err(ModelError::Refused(reason));
        }
        let wanted = size(length)?;
        if self.layout.as_ref().is_none_or(|layout| layout.length() != wanted) {
            let _stage = stage_mark!(marks, Layer, "build_pattern");
            self.layout = Some(upload(device, &Layout::build(&self.kept, length, GPU_TILING))?);
        }
        Ok(())
    }
}

fn upload(device: &Device, layout: &Layout) -> Result<BlockLayout, ModelError> {
    let rule = layout.rule;
    let rule = Rule { is_causal: rule.is_causal, half_window: rule.half_window, global: rule.global };
    let parts = LayoutParts {
        tile_starts: &layout.tile_starts,
        tiles: &layout.tiles,
        column_starts: &layout.column_starts,
        columns: &layout.columns,
        column_rows: &layout.column_rows,
    };
    Ok(BlockLayout::new(device, size(layout.length)?, rule, TILING, &parts)?)
}
