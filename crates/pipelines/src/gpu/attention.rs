//! Attention on a GPU: blockwise by our own kernel, or with stored scores by cuBLAS.

use half::{bf16, f16};
use laptime_cuda::nn::{BlockAttention, BlockLayout, HeadSizes, LayoutParts, Operations, Rule, TILING};
use laptime_cuda::{Batch, Blas, Buffer, Cache, Element, Matrices};
use laptime_models::attention::{AttentionSizes, Input, Kept, Kind, Layout, Sampled, Tiling};
use laptime_models::{Dtype, Fill, Marks};
use laptime_probe::stage;

use super::{CudaDevice, SMALLEST_BYTES, WORKSPACE_BYTES, into_error};
use crate::attention::{
    Spec,
    engine::{Built, Engine},
};
use crate::product;

const LARGEST_HEAD: usize = 256;

/// How the kernels divide queries and keys.
const GPU_TILING: Tiling = Tiling { rows: TILING.rows, keys: TILING.keys };

/// Why a GPU cannot run a case, if it cannot.
pub fn refusal(spec: &Spec) -> Option<String> {
    let head_dim = spec.inputs.sizes.head_dim;
    (head_dim > LARGEST_HEAD && spec.kind != Kind::Naive)
        .then(|| format!("the kernels have heads of at most {LARGEST_HEAD} numbers, not {head_dim}"))
}

pub fn needed_bytes(spec: &Spec) -> u64 {
    let Spec { kind, inputs, kept, .. } = spec;
    let (sizes, bytes) = (inputs.sizes, inputs.dtype.bytes());
    let rest = match kind {
        // The scores, the mixed values before the heads are concatenated, what cuBLAS has, and one number.
        Kind::Naive => {
            let numbers = sizes.scores().saturating_add(sizes.query_numbers());
            numbers.saturating_mul(bytes).saturating_add(WORKSPACE_BYTES + SMALLEST_BYTES)
        }
        _ => Layout::most_bytes(kept, sizes.length, GPU_TILING),
    };
    sizes.bytes(inputs.dtype).saturating_add(rest)
}

pub fn make<'a>(spec: &Spec, gpu: &'a CudaDevice, marks: Marks) -> anyhow::Result<Box<dyn Engine + 'a>> {
    Ok(match spec.inputs.dtype {
        Dtype::F32 => Box::new(OnGpu::<f32>::new(spec, gpu, marks)?),
        Dtype::Bf16 | Dtype::Fp8 => Box::new(OnGpu::<bf16>::new(spec, gpu, marks)?),
        Dtype::F16 => Box::new(OnGpu::<f16>::new(spec, gpu, marks)?),
    })
}

struct OnGpu<'a, T> {
    gpu: &'a CudaDevice,
    spec: Spec,
    heads: HeadSizes,
    inputs: [Buffer<T>; 3],
    out: Buffer<T>,
    how: How<T>,
    marks: Marks,
}

enum How<T> {
    Blocks(Box<Blocks<T>>),
    Naive(Box<Naive<T>>),
}

struct Blocks<T> {
    attention: BlockAttention<T>,
    /// None before the pattern is built.
    layout: Option<BlockLayout>,
    dense: Built,
}

struct Naive<T> {
    blas: Blas,
    operations: Operations<T>,
    scores: Buffer<T>,
    /// How far queries see beyond their own position.
    beyond: Buffer<u32>,
    mixed: Buffer<T>,
}

impl<'a, T: Element + product::Element> OnGpu<'a, T> {
    fn new(spec: &Spec, gpu: &'a CudaDevice, marks: Marks) -> anyhow::Result<Self> {
        let (device, cache) = (gpu.cuda(), Cache::of_user());
        let sizes = spec.inputs.sizes;
        let operations = Operations::<T>::load(device, &cache).map_err(into_error)?;
        let make = |input: Input, numbers: u64| {
            let mut made = device.allocate::<T>(usize::try_from(numbers)?).map_err(into_error)?;
            if let Fill::Random { key, amplitude } = spec.inputs.fill(input) {
                operations.fill_random(device.stream(), &mut made, key, amplitude).map_err(into_error)?;
            }
            Ok::<_, anyhow::Error>(made)
        };
        let (queries, keys) = (sizes.query_numbers(), sizes.key_numbers());
        let inputs = [make(Input::Queries, queries)?, make(Input::Keys, keys)?, make(Input::Values, keys)?];
        let out = device.allocate(usize::try_from(queries)?).map_err(into_error)?;
        let how = match spec.kind {
            Kind::Naive => How::Naive(Box::new(Naive::new(spec, gpu, operations)?)),
            _ => {
                let attention =
                    BlockAttention::load(device, &cache, u32::try_from(sizes.head_dim)?).map_err(into_error)?;
                How::Blocks(Box::new(Blocks { attention, layout: None, dense: dense(spec) }))
            }
        };
        Ok(Self { gpu, spec: spec.clone(), heads: head_sizes(&sizes)?, inputs, out, how, marks })
    }
}

/// The size of dense attention, which has no lists.
fn dense(spec: &Spec) -> Built {
    match (&spec.kind, &spec.kept) {
        (Kind::Dense, kept) => {
            let layout = Layout::build(kept, spec.inputs.sizes.length, GPU_TILING);
            Built { connections: layout.connections(), executed: layout.executed(), bytes: 0 }
        }
        _ => Built::default(),
    }
}

fn head_sizes(sizes: &AttentionSizes) -> anyhow::Result<HeadSizes> {
    let length = u32::try_from(sizes.length)?;
    Ok(HeadSizes {
        batch: u32::try_from(sizes.batch)?,
        tokens: length,
        heads: u32::try_from(sizes.heads)?,
        kv_heads: u32::try_from(sizes.kv_heads)?,
        head_dim: u32::try_from(sizes.head_dim)?,
        capacity: length,
    })
}

impl<T: Element + product::Element> Naive<T> {
    fn new(spec: &Spec, gpu: &CudaDevice, operations: Operations<T>) -> anyhow::Result<Self> {
        let (device, sizes) = (gpu.cuda(), spec.inputs.sizes);
        let beyond = if spec.kept.rule().is_causal { 0 } else { u32::try_from(sizes.length)? };
        Ok(Self {
            blas: Blas::new(device).map_err(into_error)?,
            operations,
            scores: device.allocate(usize::try_from(sizes.scores())?).map_err(into_error)?,
            beyond: device.upload(&[beyond]).map_err(into_error)?,
            mixed: device.allocate(usize::try_from(sizes.query_numbers())?).map_err(into_error)?,
        })
    }

    /// The scores of all pairs, their softmax, and the sum of values weighted by it.
    fn attend(
        &mut self,
        gpu: &CudaDevice,
        heads: &HeadSizes,
        [queries, keys, values]: &[Buffer<T>; 3],
        out: &mut Buffer<T>,
    ) -> anyhow::Result<()> {
        let HeadSizes { batch, tokens, kv_heads, head_dim, .. } = *heads;
        // The queries of a group are adjacent, so that keys are read once for all of them.
        let (count, rows, stream) = (batch * kv_heads, heads.group() * tokens, gpu.cuda().stream());
        let scores = Matrices::plain(rows, tokens);
        let product = |n, k, a, b, c| Batch { count, m: rows, n, k, a, b, c, scale: 1.0, is_added: false };
        let (a, b) = (Matrices::plain(rows, head_dim), Matrices::transposed(head_dim, tokens));
        let of_scores = product(tokens, head_dim, a, b, scores);
        self.blas.multiply_batch([queries.all(), keys.all()], self.scores.all_mut(), &of_scores).map_err(into_error)?;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let softmax =
            self.operations.softmax_causal(stream, &mut self.scores, &self.beyond, heads, (tokens, None), scale);
        softmax.map_err(into_error)?;
        let (b, c) = (Matrices::plain(tokens, head_dim), Matrices::plain(rows, head_dim));
        let of_values = product(head_dim, tokens, scores, b, c);
        self.blas
            .multiply_batch([self.scores.all(), values.all()], self.mixed.all_mut(), &of_values)
            .map_err(into_error)?;
        self.operations.merge_heads(stream, &self.mixed, out, heads).map_err(into_error)
    }
}

impl<T: Element + product::Element> Engine for OnGpu<'_, T> {
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built> {
        let length = self.spec.inputs.sizes.length;
        let How::Blocks(blocks) = &mut self.how else { return Ok(Built::naive(kept, length)) };
        let Blocks { layout, dense, .. } = &mut **blocks;
        // The calls never overlap.
        *layout = None;
        let (device, tokens) = (self.gpu.cuda(), self.heads.tokens);
        if self.spec.kind == Kind::Dense {
            let made = BlockLayout::dense(device, tokens, TILING, kept.rule().is_causal).map_err(into_error)?;
            let bytes = layout.insert(made).bytes() as u64;
            return Ok(Built { bytes, ..*dense });
        }
        let plan = Layout::build(kept, length, GPU_TILING);
        let rule =
            Rule { is_causal: plan.rule.is_causal, half_window: plan.rule.half_window, global: plan.rule.global };
        let parts = LayoutParts {
            tile_starts: &plan.tile_starts,
            tiles: &plan.tiles,
            column_starts: &plan.column_starts,
            columns: &plan.columns,
            column_rows: &plan.column_rows,
        };
        let made = BlockLayout::new(device, tokens, rule, TILING, &parts).map_err(into_error)?;
        let bytes = layout.insert(made).bytes() as u64;
        Ok(Built { connections: plan.connections(), executed: plan.executed(), bytes })
    }

    fn attend(&mut self) -> anyhow::Result<()> {
        let Self { gpu, heads, inputs, out, how, marks, .. } = self;
        match how {
            How::Naive(naive) => naive.attend(gpu, heads, inputs, out),
            How::Blocks(blocks) => {
                let Some(layout) = &blocks.layout else { anyhow::bail!("the pattern was not built") };
                let _op = (marks.depth >= laptime_bench::Depth::Ops).then(|| stage!("blocks", on = marks.lane));
                let of = [inputs[0].all(), inputs[1].all(), inputs[2].all()];
                blocks.attention.attend(gpu.cuda().stream(), heads, of, layout, out).map_err(into_error)
            }
        }
    }

    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>> {
        let numbers = self.out.read().map_err(into_error)?;
        let AttentionSizes { heads, head_dim, length, .. } = self.spec.inputs.sizes;
        Ok(Box::new(move |at| {
            let first = ((at.batch * length + at.row) * heads + at.head) * head_dim;
            numbers[first..first + head_dim].iter().map(|number| number.to_f64() as f32).collect()
        }))
    }

    fn kernel(&self) -> String {
        match &self.how {
            How::Naive(_) => "cuBLAS, scores stored".to_owned(),
            How::Blocks(blocks) => blocks.attention.engine().kernel().to_owned(),
        }
    }
}
