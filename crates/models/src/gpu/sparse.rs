//! Attention of the pairs that a pattern keeps: its kernel, and the layout of the last pass.

use laptime_cuda::nn::{BlockAttention, BlockLayout, LayoutParts, Rule, TILING};
use laptime_cuda::{Cache, Device};

use super::{size, weights::Number};
use crate::attention::{Kept, Layout, Tiling};
use crate::{Config, Marks, ModelError, marks::stage_mark};

/// How the kernels divide queries and keys.
pub(super) const GPU_TILING: Tiling = Tiling { rows: TILING.rows, keys: TILING.keys };

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

    /// Builds the layout of a pass that begins with the first token, unless the last pass had it.
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
