//! Creates decoders of models: the built-in ones, and a scripted one for tests.

use laptime_bench::{Device, PlanError};
use laptime_models::{Config, Decoder, Options, TrainOptions, Trainer};

use super::{
    plan::{Found, Named},
    spec::Spec,
};

/// Creates decoders and trainers of models.
pub trait Maker: Send + Sync {
    /// Finds the model of a name.
    fn find(&self, named: Named<'_>) -> Result<Found, PlanError>;

    /// Why a device cannot run a case, if it cannot.
    fn refusal(&self, spec: &Spec, device: &dyn Device) -> Option<String>;

    /// The bytes that a case needs on a device.
    fn needed_bytes(&self, config: &Config, spec: &Spec, options: &Options, device: &dyn Device) -> u64;

    /// Prepares a decoder on a device.
    fn make<'a>(
        &'a self,
        found: &Found,
        spec: &Spec,
        options: Options,
        device: &'a dyn Device,
    ) -> anyhow::Result<Loaded<dyn Decoder + 'a>>;

    /// The bytes that training needs on a device.
    fn needed_train_bytes(&self, config: &Config, spec: &Spec, options: &TrainOptions, device: &dyn Device) -> u64;

    /// Prepares a trainer on a device.
    fn make_trainer<'a>(
        &'a self,
        found: &Found,
        spec: &Spec,
        options: TrainOptions,
        device: &'a dyn Device,
    ) -> anyhow::Result<Loaded<dyn Trainer + 'a>>;
}

/// A prepared decoder or trainer.
pub struct Loaded<Of: ?Sized> {
    /// It.
    pub model: Box<Of>,
    /// Where its weights come from: `synthetic` or `folder`.
    pub weights: &'static str,
    /// Bytes on the device that existed before and that it uses.
    pub kept_bytes: u64,
}
