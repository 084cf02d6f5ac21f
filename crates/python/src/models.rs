//! The built-in models, for the functions of CS336 assignment 2.

use std::{collections::HashMap, num::NonZero, thread::available_parallelism};

use laptime::library::Failure;
use laptime_models::{Config, Dtype, ModelError, Tokens, TrainOptions, Trainer, Weights, cpu, gpu};
use pyo3::prelude::*;

use crate::raise;

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeModel>()?;
    module.add_function(wrap_pyfunction!(presets, module)?)
}

/// The name and sizes of a preset.
type Preset = (String, HashMap<&'static str, usize>);

/// The presets of these names.
#[pyfunction]
fn presets(py: Python<'_>, names: Vec<String>) -> PyResult<Vec<Preset>> {
    let preset = |name: String| {
        let config = Config::from_preset(&name).map_err(|error| failed(py, error))?;
        let sizes = [
            ("vocab_size", config.vocab),
            ("d_model", config.hidden),
            ("num_layers", config.layers),
            ("num_heads", config.heads),
            ("d_ff", config.ffn),
            ("context_length", config.context),
        ];
        Ok((name, sizes.into_iter().collect()))
    };
    names.into_iter().map(preset).collect()
}

fn failed(py: Python<'_>, error: ModelError) -> PyErr {
    raise(py, "BenchError", &Failure::from(anyhow::Error::new(error)))
}

/// A built-in model. Prepared when the first batch of a size arrives.
#[pyclass(unsendable, module = "laptime._native")]
pub struct NativeModel {
    config: Config,
    device: Option<&'static laptime_cuda::Device>,
    dtype: Dtype,
    ready: Option<(usize, usize, Box<dyn Trainer>)>,
}

/// Makes a closure for `Python::detach` [`Send`], which it need not be.
struct OnThisThread<T>(T);

// SAFETY: `Python::detach` calls its closure on the calling thread.
#[allow(unsafe_code)]
unsafe impl<T> Send for OnThisThread<T> {}

impl<T> OnThisThread<T> {
    fn get(self) -> T {
        self.0
    }
}

#[pymethods]
impl NativeModel {
    /// A preset with some sizes replaced.
    #[new]
    fn new(py: Python<'_>, preset: &str, sizes: HashMap<String, usize>, device: &str, dtype: &str) -> PyResult<Self> {
        let mut config = Config::from_preset(preset).map_err(|error| failed(py, error))?;
        for (name, size) in sizes {
            match name.as_str() {
                "vocab_size" => config.vocab = size,
                "d_model" => config.hidden = size,
                "num_layers" => config.layers = size,
                "num_heads" => (config.heads, config.kv_heads) = (size, size),
                "d_ff" => config.ffn = size,
                _ => config.context = size,
            }
        }
        config.head_dim = config.hidden / config.heads.max(1);
        let dtype = dtype.parse().map_err(|error| failed(py, error))?;
        Ok(Self { config, device: open(py, device)?, dtype, ready: None })
    }

    #[getter]
    fn parameters(&self) -> u64 {
        self.config.parameters()
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.config.vocab
    }

    /// Runs a batch forward, and backward if asked. Waits for the device.
    fn run(&mut self, py: Python<'_>, ids: Vec<u32>, batch: usize, backward: bool) -> PyResult<f32> {
        let length = ids.len() / batch.max(1);
        let work = OnThisThread(|| -> Result<f32, ModelError> {
            let trainer = self.ready_for(batch, length)?;
            // Targets are the next tokens; the last token's is the first token.
            let targets: Vec<u32> = ids.chunks(length.max(1)).flat_map(next_tokens).collect();
            trainer.forward(&Tokens { ids, batch }, &targets)?;
            if backward {
                trainer.backward()?;
            }
            trainer.loss()
        });
        py.detach(|| work.get()()).map_err(|error| failed(py, error))
    }
}

fn next_tokens(sequence: &[u32]) -> Vec<u32> {
    sequence.iter().skip(1).chain(sequence.first()).copied().collect()
}

impl NativeModel {
    fn ready_for(&mut self, batch: usize, tokens: usize) -> Result<&mut Box<dyn Trainer>, ModelError> {
        let is_ready = self.ready.as_ref().is_some_and(|(known, length, _)| (*known, *length) == (batch, tokens));
        if !is_ready {
            // Free the memory of the old trainer first.
            self.ready = None;
            let options = TrainOptions::new(self.dtype, batch, tokens);
            let weights = Weights::synthetic(&self.config, 0);
            let threads = available_parallelism().map_or(1, NonZero::get);
            let trainer = match self.device {
                Some(device) => gpu::trainer(device, &self.config, &weights, options)?,
                None => cpu::trainer(self.config.clone(), &weights, options, threads)?,
            };
            self.ready = Some((batch, tokens, trainer));
        }
        match &mut self.ready {
            Some((_, _, trainer)) => Ok(trainer),
            None => Err(ModelError::Refused("the model is not ready".to_owned())),
        }
    }
}

/// Opens a GPU, which stays open; none for the CPU.
fn open(py: Python<'_>, name: &str) -> PyResult<Option<&'static laptime_cuda::Device>> {
    if name == "cpu" {
        return Ok(None);
    }
    let index = name.strip_prefix("cuda").map(|rest| rest.strip_prefix(':').unwrap_or("0"));
    let Some(index) = index.and_then(|index| index.parse::<u32>().ok()) else {
        let message = format!("unknown device `{name}`");
        return Err(raise(py, "DeviceError", &Failure { message, hint: Some("use `cpu` or `cuda:0`".to_owned()) }));
    };
    let opened = py.detach(|| laptime_cuda::Device::open(index));
    opened.map(|device| Some(&*Box::leak(Box::new(device)))).map_err(|error| {
        let hint = Some("use device=\"cpu\"; `laptime doctor` shows the devices".to_owned());
        raise(py, "DeviceError", &Failure { message: format!("no usable GPU: {error}"), hint })
    })
}
