//! Both models and the fuser on a device.

use laptime_bench::Device;
use laptime_models::{
    Config, EmbeddingStage, GraphMode, Marks, ModelError, Options, Room,
    cpu::{self, CpuFuser},
    fuser::{FuseOptions, FuseOrder, Fused, FuserConfig, Fusing, Gates, Joined, Section},
};
use laptime_probe::stage;

use super::{pair::Pair, wanted::Wanted};
use crate::model::{Found, checked_weights, decoder, told};

/// Why a device cannot run the workload, if it cannot.
pub fn refusal(device: &dyn Device) -> Option<String> {
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return Some("fusers run on the CPU alone so far: `--device cpu`".to_owned());
    }
    let _ = device;
    None
}

/// Both models and the fuser, and where the weights of each come from.
pub struct Made<'a> {
    /// All of them.
    pub joined: Joined<'a>,
    /// Where the weights of the base model, the teacher model and the fuser come from.
    pub weights: [&'static str; 3],
}

/// Makes models ready, without a fuser.
pub fn make<'a>(pair: &Pair, wanted: &Wanted, device: &'a dyn Device) -> anyhow::Result<Made<'a>> {
    let load = |found: &Found, options: Options| {
        let _stage = stage!("load_weights", model = found.name);
        let (weights, kind) = checked_weights(found, wanted.seed)?;
        anyhow::Ok((decoder(found, &weights, options, wanted.threads, device).map_err(told)?, kind))
    };
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    let [base, teacher] = options(pair, wanted, &marks);
    let (receiver, of_base) = load(&pair.base, base)?;
    let (sharer, of_teacher) = load(&pair.teacher, teacher)?;
    let of_fuser = if pair.weights.is_synthetic() { "synthetic" } else { "folder" };
    pair.weights.check_finite(&pair.fuser).map_err(told)?;
    let joined = Joined { receiver, sharers: vec![sharer], fuser: Box::new(NoFuser::new()) };
    Ok(Made { joined, weights: [of_base, of_teacher, of_fuser] })
}

/// Puts a fuser between them that computes in this order. What was there before is let go first: two may not fit.
pub fn set_fuser(
    joined: &mut Joined<'_>,
    pair: &Pair,
    wanted: &Wanted,
    order: FuseOrder,
    device: &dyn Device,
) -> anyhow::Result<()> {
    let _stage = stage!("load_fuser");
    joined.fuser = Box::new(NoFuser::new());
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    let options = FuseOptions { order, marks, ..FuseOptions::new(pair.dtype) };
    let fusers = vec![(pair.fuser.clone(), &pair.weights)];
    joined.fuser = Box::new(CpuFuser::new(fusers, options, wanted.threads).map_err(told)?);
    Ok(())
}

fn options(pair: &Pair, wanted: &Wanted, marks: &Marks) -> [Options; 2] {
    let one = |config: &Config, room: usize, embedding: EmbeddingStage| Options {
        dtype: pair.dtype,
        attention: config.attention_type,
        kept: None,
        batch: 1,
        room: Room::Static(room),
        graph: GraphMode::Auto,
        marks: Marks { embedding, ..marks.clone() },
    };
    [
        one(&pair.base.config, pair.positions(wanted), EmbeddingStage::Base),
        one(&pair.teacher.config, pair.heard().max(1), EmbeddingStage::Teacher),
    ]
}

/// Bytes of the heap that a case needs at most.
pub fn needed_bytes(pair: &Pair, wanted: &Wanted) -> u64 {
    let [base, teacher] = options(pair, wanted, &Marks::default());
    let behind = wanted.new_tokens.saturating_sub(1);
    // The check looks at two rows of logits as f32.
    let logits = (pair.base.config.vocab as u64).saturating_mul(8);
    let parts = [
        cpu::needed_bytes(&pair.base.config, &base, cpu::Pass::Cached, [behind, pair.tokens()], wanted.threads),
        cpu::needed_bytes(&pair.teacher.config, &teacher, cpu::Pass::Cached, [0, pair.heard().max(1)], wanted.threads),
        cpu::needed_fuser_bytes(
            std::slice::from_ref(&pair.fuser),
            &FuseOptions::new(pair.dtype),
            [1, pair.heard()],
            wanted.threads,
        ),
        logits,
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// The place of a fuser that is not there yet.
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

    fn fuse(
        &mut self,
        _: &mut dyn laptime_models::Decoder,
        _: &mut [&mut dyn laptime_models::Decoder],
        _: &Section,
    ) -> Result<Fused, ModelError> {
        Err(ModelError::Refused("there is no fuser".to_owned()))
    }
}
