//! Training on a GPU: what forward keeps, and the backward of every block, written out.
#![allow(unsafe_code)]

mod backward;
mod buffers;
mod forward;

use std::{marker::PhantomData, sync::Arc};

use half::bf16;
use laptime_cuda::{
    Blas, Buffer, Cache, Device,
    nn::{AdamW, Attention, AttentionGradients, Gradients, HeadSizes, Parameter, Rates},
};

use self::buffers::{Kept, Scratch};
use super::{
    pass::{Turns, head_sizes},
    weights::{GpuWeights, Number, Parameters, Zeros},
};
use crate::{
    Config, Dtype, ModelError, TensorSpec, Tokens, TrainMemory, TrainOptions, TrainSizes, Trainer, Weights,
    train::Ledger,
};

/// Puts a model on a device to be trained.
pub fn trainer<'a>(
    device: &'a Device,
    config: &Config,
    weights: &Weights,
    options: TrainOptions,
) -> Result<Box<dyn Trainer + 'a>, ModelError> {
    options.check(config)?;
    let config = Arc::new(config.clone());
    Ok(match options.dtype {
        Dtype::F32 => Box::new(GpuTrainer::<f32>::new(device, config, weights, options)?),
        Dtype::Bf16 => Box::new(GpuTrainer::<bf16>::new(device, config, weights, options)?),
        Dtype::F16 => return Err(ModelError::Refused("there is no training in f16".to_owned())),
    })
}

/// A model that learns on a GPU. Everything is allocated when it is made.
struct GpuTrainer<'a, T> {
    device: &'a Device,
    config: Arc<Config>,
    options: TrainOptions,
    weights: GpuWeights<T>,
    gradients: Parameters<T>,
    /// None if it never updates.
    optimizer: Option<Optimizer<T>>,
    operations: Gradients<T>,
    blas: Blas,
    attention: Attention<T>,
    attention_gradients: AttentionGradients<T>,
    turns: Turns,
    heads: HeadSizes,
    ids: Buffer<u32>,
    targets: Buffer<u32>,
    /// Zero: every sequence begins at its first position.
    start: Buffer<u32>,
    kept: Kept<T>,
    scratch: Scratch<T>,
    sizes: TrainSizes,
    ledger: Ledger,
    state: State,
    updates: u64,
}

/// What updates parameters.
struct Optimizer<T> {
    adamw: AdamW<T>,
    moments: [Parameters<T>; 2],
    rates: Rates,
}

impl From<crate::AdamW> for Rates {
    fn from(crate::AdamW { lr, betas, eps, weight_decay }: crate::AdamW) -> Self {
        Self {
            learning_rate: lr as f32,
            betas: [betas.0 as f32, betas.1 as f32],
            epsilon: eps as f32,
            weight_decay: weight_decay as f32,
        }
    }
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    New,
    HasLoss,
    HasGradients,
}

impl<'a, T: Number> GpuTrainer<'a, T> {
    fn new(
        device: &'a Device,
        config: Arc<Config>,
        weights: &Weights,
        options: TrainOptions,
    ) -> Result<Self, ModelError> {
        let cache = Cache::of_user();
        let mut weights = GpuWeights::load(device, &config, weights)?;
        let zeros = || Parameters::load(&config, 0, &mut Zeros { device, of: PhantomData });
        let gradients = zeros()?;
        let optimizer = match options.adamw {
            Some(rates) => {
                let mut moments = [zeros()?, zeros()?];
                let all = parameters(&mut weights.parameters, &gradients, &mut moments);
                let adamw = AdamW::new(device, &cache, &all)?;
                Some(Optimizer { adamw, moments, rates: rates.into() })
            }
            None => None,
        };
        let operations = Gradients::load(device, &cache)?;
        let sizes = TrainSizes::new(&config, &options);
        let heads = head_sizes(&config, options.batch, options.tokens, options.tokens)?;
        let mut start = device.allocate(1)?;
        start.set_all(device.stream(), 0)?;
        Ok(Self {
            blas: Blas::new(device)?,
            attention: Attention::load(device, &cache, heads.head_dim)?,
            attention_gradients: AttentionGradients::load(device, &cache, heads.head_dim)?,
            turns: Turns::new(device, &config, options.tokens)?,
            ids: device.allocate(sizes.rows)?,
            targets: device.allocate(sizes.rows)?,
            kept: Kept::new(device, &config, &sizes)?,
            scratch: Scratch::new(device, &config, &sizes, &operations)?,
            operations,
            ledger: Ledger::new(&config, &options),
            state: State::New,
            updates: 0,
            device,
            config,
            options,
            weights,
            gradients,
            optimizer,
            heads,
            start,
            sizes,
        })
    }
}

impl<T: Number> Trainer for GpuTrainer<'_, T> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &TrainOptions {
        &self.options
    }

    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Result<(), ModelError> {
        self.options.check_batch(&self.config, tokens, targets)?;
        let stream = self.device.stream();
        // SAFETY: lists of the host's own memory are no pinned memory.
        unsafe {
            self.ids.put(stream, &tokens.ids)?;
            self.targets.put(stream, targets)?;
        }
        self.ledger.forward_begins();
        self.run_forward()?;
        self.state = State::HasLoss;
        self.ledger.forward_ends();
        Ok(())
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        if self.state != State::HasLoss {
            return Err(ModelError::Refused("there is no forward to go back from".to_owned()));
        }
        self.run_backward()?;
        self.state = State::HasGradients;
        self.ledger.backward_ends();
        Ok(())
    }

    fn update(&mut self) -> Result<(), ModelError> {
        if self.state != State::HasGradients {
            return Err(ModelError::Refused("there are no gradients to update by".to_owned()));
        }
        let Some(Optimizer { adamw, moments, rates }) = &mut self.optimizer else {
            return Err(ModelError::no_optimizer());
        };
        self.updates += 1;
        let number = u32::try_from(self.updates).unwrap_or(u32::MAX);
        let mut all = parameters(&mut self.weights.parameters, &self.gradients, moments);
        adamw.step(self.device.stream(), &mut all, rates, number)?;
        self.ledger.update_ends();
        Ok(())
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        if self.state == State::New {
            return Err(ModelError::Refused("no forward has run yet".to_owned()));
        }
        Ok(self.kept.loss.read()?.first().copied().unwrap_or(f32::NAN))
    }

    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        if self.state != State::HasGradients {
            return Err(ModelError::Refused("no backward has run yet".to_owned()));
        }
        self.gradients.read(&self.config, tensor)
    }

    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.weights.parameters.read(&self.config, tensor)
    }

    fn memory(&self) -> TrainMemory {
        self.ledger.now()
    }
}

impl<T> Drop for GpuTrainer<'_, T> {
    fn drop(&mut self) {
        // What is on the stream uses memory that goes now; a stream that failed does no more.
        let _ = self.device.stream().synchronise();
    }
}

/// Every parameter with its gradient and moments.
fn parameters<'a, T: Number>(
    values: &'a mut Parameters<T>,
    gradients: &'a Parameters<T>,
    [first, second]: &'a mut [Parameters<T>; 2],
) -> Vec<Parameter<'a, T>> {
    let moments = first.parts_mut().zip(second.parts_mut());
    let all = values.parts_mut().zip(gradients.parts()).zip(moments);
    all.map(|((value, gradient), (first, second))| Parameter {
        value: value.into_inner().all_mut(),
        gradient: gradient.into_inner().all(),
        first: first.into_inner().all_mut(),
        second: second.into_inner().all_mut(),
    })
    .collect()
}
