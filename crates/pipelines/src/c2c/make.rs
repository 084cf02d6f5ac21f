//! Both models and the fuser on a device.

use laptime_bench::Device;
use laptime_models::{
    Config, Decoder, EmbeddingStage, GraphMode, Marks, ModelError, Options, Room, Weights, cpu,
    fuser::{FuseOptions, FuseOrder, Fused, FuserConfig, Fusing, Gates, Joined, Section},
};
use laptime_probe::{Lane, stage};

use super::{pair::Pair, spec::Spec};
use crate::model::{Found, checked_weights, decoder, into_error};

/// Why a device cannot run a case, if it cannot.
pub fn refusal(spec: &Spec, device: &dyn Device) -> Option<String> {
    let name = device.name();
    let has_streams = is_gpu(device);
    (spec.overlap && !has_streams).then(|| format!("`{name}` has no second stream for the second prompt"))
}

/// Whether a device is a GPU.
pub fn is_gpu(device: &dyn Device) -> bool {
    #[cfg(feature = "cuda")]
    return crate::gpu::gpu(device).is_some();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Both models and the fuser, and where the weights of each come from.
pub struct Loaded<'a> {
    /// All of them.
    pub joined: Joined<'a>,
    /// Where the weights of the base model, the teacher model and the fuser come from.
    pub weights: [&'static str; 3],
    /// The lane of the teacher's stages.
    pub teacher_lane: Option<&'a Lane>,
}

/// Prepares the models, without a fuser.
pub fn make<'a>(pair: &Pair, spec: &Spec, device: &'a dyn Device) -> anyhow::Result<Loaded<'a>> {
    let teacher_lane = teacher_lane(spec, device)?;
    let marks = |lane: Option<&Lane>, embedding: EmbeddingStage| Marks {
        depth: device.depth(),
        lane: lane.cloned(),
        embedding,
    };
    let [mut base, mut teacher] = options(pair, spec);
    base.marks = marks(device.lane(), EmbeddingStage::Base);
    teacher.marks = marks(teacher_lane, EmbeddingStage::Teacher);
    let (weights, of_base) = load(&pair.base, spec)?;
    let receiver = decoder(&pair.base, &weights, base, spec.threads, device).map_err(into_error)?;
    let (weights, of_teacher) = load(&pair.teacher, spec)?;
    let sharer = sharer(&pair.teacher, &weights, teacher, spec, device)?;
    let of_fuser = if pair.weights.is_synthetic() { "synthetic" } else { "folder" };
    pair.weights.check_finite(&pair.fuser).map_err(into_error)?;
    let joined = Joined { receiver, sharers: vec![sharer], fuser: Box::new(NoFuser::new()) };
    Ok(Loaded { joined, weights: [of_base, of_teacher, of_fuser], teacher_lane })
}

fn load(found: &Found, spec: &Spec) -> anyhow::Result<(Weights, &'static str)> {
    let _stage = stage!("load_weights", model = found.name);
    checked_weights(found, spec.seed)
}

fn teacher_lane<'a>(spec: &Spec, device: &'a dyn Device) -> anyhow::Result<Option<&'a Lane>> {
    #[cfg(feature = "cuda")]
    if let (true, Some(gpu)) = (spec.overlap, crate::gpu::gpu(device)) {
        return Ok(Some(gpu.side_stream()?.lane()));
    }
    let _ = spec;
    Ok(device.lane())
}

/// The teacher, on a separate stream if both run at the same time.
fn sharer<'a>(
    found: &Found,
    weights: &Weights,
    options: Options,
    spec: &Spec,
    device: &'a dyn Device,
) -> anyhow::Result<Box<dyn Decoder + 'a>> {
    #[cfg(feature = "cuda")]
    if let (true, Some(gpu)) = (spec.overlap, crate::gpu::gpu(device)) {
        use laptime_models::gpu::GpuModel;
        let side_stream = gpu.side_stream()?.cuda();
        let model = GpuModel::load(side_stream, &found.config, weights, options.dtype).map_err(into_error)?;
        return model.decoder(side_stream, options).map_err(into_error);
    }
    decoder(found, weights, options, spec.threads, device).map_err(into_error)
}

/// Loads a fuser with this order of computation. The old one is dropped first, because two may not fit.
pub fn set_fuser<'a>(
    joined: &mut Joined<'a>,
    pair: &Pair,
    spec: &Spec,
    order: FuseOrder,
    device: &'a dyn Device,
) -> anyhow::Result<()> {
    let _stage = stage!("load_fuser");
    joined.fuser = Box::new(NoFuser::new());
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    let options = FuseOptions { order, marks, ..FuseOptions::new(pair.dtype) };
    joined.fuser = fuser(pair, options, spec, device).map_err(into_error)?;
    Ok(())
}

fn fuser<'a>(
    pair: &Pair,
    options: FuseOptions,
    spec: &Spec,
    device: &'a dyn Device,
) -> Result<Box<dyn Fusing + 'a>, ModelError> {
    let fusers = vec![(pair.fuser.clone(), &pair.weights)];
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::gpu::gpu(device) {
        return laptime_models::gpu::fuser(gpu.cuda(), fusers, options);
    }
    let _ = device;
    cpu::fuser(fusers, options, spec.threads)
}

/// Prepares both models, without marks.
fn options(pair: &Pair, spec: &Spec) -> [Options; 2] {
    let one = |config: &Config, room: usize| Options {
        dtype: pair.dtype,
        attention: config.attention_type,
        kept: None,
        batch: 1,
        room: Room::Static(room),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    };
    [one(&pair.base.config, pair.positions(spec)), one(&pair.teacher.config, pair.teacher_positions(spec).max(1))]
}

/// Bytes that a case needs at most: of the heap, or of a GPU.
pub fn needed_bytes(pair: &Pair, spec: &Spec, device: &dyn Device) -> u64 {
    let [base, teacher] = options(pair, spec);
    let text = spec.text_tokens.unwrap_or(0);
    let read = pair.tokens().saturating_add(text);
    let heard = pair.heard(spec).max(if text > 0 { pair.teacher_prompt().len() } else { 1 });
    let (fusers, fuse) = (std::slice::from_ref(&pair.fuser), FuseOptions::new(pair.dtype));
    let parts = match is_gpu(device) {
        #[cfg(feature = "cuda")]
        true => {
            use laptime_models::gpu;
            vec![
                gpu::needed_bytes(&pair.base.config, &base, read, false),
                gpu::needed_bytes(&pair.teacher.config, &teacher, heard, false),
                gpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()]),
            ]
        }
        _ => {
            let behind = pair.positions(spec).saturating_sub(read);
            let behind_heard = pair.teacher_positions(spec).saturating_sub(heard);
            let (threads, cached) = (spec.threads, cpu::Pass::Cached);
            vec![
                cpu::needed_bytes(&pair.base.config, &base, cached, [behind, read], threads),
                cpu::needed_bytes(&pair.teacher.config, &teacher, cached, [behind_heard, heard], threads),
                cpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()], threads),
                // The check looks at two rows of logits as f32.
                (pair.base.config.vocab as u64).saturating_mul(8),
            ]
        }
    };
    parts.into_iter().fold(0, u64::saturating_add)
}

/// A placeholder until the fuser is loaded.
struct NoFuser {
    options: FuseOptions,
}

impl NoFuser {
    fn new() -> Self {
        Self { options: FuseOptions::new(laptime_models::Dtype::F32) }
    }
}

impl Fusing for NoFuser {
    fn configs(&self) -> &[FuserConfig] {
        &[]
    }

    fn options(&self) -> &FuseOptions {
        &self.options
    }

    fn gates(&self) -> &[Gates] {
        &[]
    }

    fn fuse(&mut self, _: &mut dyn Decoder, _: &mut [&mut dyn Decoder], _: &Section) -> Result<Fused, ModelError> {
        Err(ModelError::Refused("there is no fuser".to_owned()))
    }
}
