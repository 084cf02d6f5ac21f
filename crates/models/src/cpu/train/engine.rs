//! A trainer whose numbers are all of one type.

use laptime_probe::stage;

use super::{
    super::{
        attention::Span,
        crew::Crew,
        model::{Model, Source},
        number::Number,
    },
    adamw::{Moments, update},
    buffers::{Buffers, Kept, Scratch},
    forward::Pass,
};
use crate::{
    Config, ModelError, TensorSpec, Tokens, TrainMemory, TrainOptions, TrainSizes, Trainer, Weights, rope::RopeTable,
    train::Ledger,
};

/// A trainer whose numbers are all of one type.
pub struct Engine<T> {
    given: Given<T>,
    gradients: Model<T>,
    /// None if it never updates.
    moments: Option<Moments<T>>,
    buffers: Buffers<T>,
    ids: Vec<u32>,
    progress: Progress,
    updates: u64,
}

/// What a pass only reads.
struct Given<T> {
    config: Config,
    options: TrainOptions,
    crew: Crew,
    model: Model<T>,
    table: RopeTable,
}

impl<T: Number> Given<T> {
    fn pass(&self) -> Pass<'_, T> {
        let Self { config, options, crew, model, table } = self;
        Pass { config, options, crew, model, table, span: Span::new(config, options.batch, options.tokens, 0) }
    }
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing was run.
    New,
    /// Forward was run, after a backward or not.
    Forward { has_gradients: bool },
    /// Backward was run.
    Backward,
}

impl<T: Number> Engine<T> {
    /// Loads the weights and allocates everything else.
    pub fn new(config: Config, weights: &Weights, options: TrainOptions, threads: usize) -> Result<Self, ModelError> {
        let crew = Crew::new(threads)?;
        let load = |weights| Source { weights, crew: &crew }.model(&config);
        let sizes = TrainSizes::new(&config, &options);
        let norms = if config.qk_norm { 2 * config.head_dim } else { 0 };
        let mut table = RopeTable::new(&config);
        table.reach(options.tokens);
        let (model, gradients) = (load(Some(weights))?, load(None)?);
        let moments = match options.adamw {
            Some(_) => Some(Moments { first: load(None)?, second: load(None)? }),
            None => None,
        };
        let buffers = {
            let _stage = stage!("allocate");
            let (kept, scratch) = (Kept::new(&sizes, config.layers)?, Scratch::new(&sizes, norms)?);
            Buffers { kept, scratch, ledger: Ledger::new(&config, &options) }
        };
        let given = Given { config, options, crew, model, table };
        Ok(Self { given, gradients, moments, buffers, ids: Vec::new(), progress: Progress::New, updates: 0 })
    }

    fn has_gradients(&self) -> bool {
        matches!(self.progress, Progress::Backward | Progress::Forward { has_gradients: true })
    }

    fn check_gradients(&self) -> Result<(), ModelError> {
        match self.has_gradients() {
            true => Ok(()),
            false => Err(ModelError::Refused("there are no gradients before a backward".to_owned())),
        }
    }
}

impl<T: Number> Trainer for Engine<T> {
    fn config(&self) -> &Config {
        &self.given.config
    }

    fn options(&self) -> &TrainOptions {
        &self.given.options
    }

    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Result<(), ModelError> {
        self.given.options.check_batch(&self.given.config, tokens, targets)?;
        self.ids.clone_from(&tokens.ids);
        self.given.pass().forward(&self.ids, targets, &mut self.buffers)?;
        self.progress = Progress::Forward { has_gradients: self.has_gradients() };
        Ok(())
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        if !matches!(self.progress, Progress::Forward { .. }) {
            return Err(ModelError::Refused("there is no forward that a backward was not run for".to_owned()));
        }
        self.given.pass().backward(&self.ids, &mut self.buffers, &mut self.gradients);
        self.progress = Progress::Backward;
        Ok(())
    }

    fn update(&mut self) -> Result<(), ModelError> {
        self.check_gradients()?;
        let Given { options, crew, model, .. } = &mut self.given;
        let (Some(adamw), Some(moments)) = (&options.adamw, &mut self.moments) else {
            return Err(ModelError::no_optimizer());
        };
        self.updates += 1;
        update(crew, adamw, self.updates, (model, &self.gradients), moments);
        self.buffers.ledger.update_ends();
        Ok(())
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        if self.progress == Progress::New {
            return Err(ModelError::Refused("there is no loss before a forward".to_owned()));
        }
        let losses = &self.buffers.kept.losses;
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        Ok((sum / losses.len() as f64) as f32)
    }

    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.check_gradients()?;
        self.gradients.numbers(&self.given.config, tensor)
    }

    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.given.model.numbers(&self.given.config, tensor)
    }

    fn memory(&self) -> TrainMemory {
        self.buffers.ledger.now()
    }
}
