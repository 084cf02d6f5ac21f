//! Checkpoints of synthetic weights whose matrices were rounded to e4m3.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

use half::bf16;
use laptime_models::fp8::{BLOCK, WeightScales, decode, quantise};
use laptime_models::{Config, Dtype, Role, TensorSpec, Weights, from_f32};
use serde_json::{Map, json};

type Outcome = Result<Weights, Box<dyn Error>>;

/// A tensor of a checkpoint: its name, dtype, shape and bytes.
type Stored = (String, &'static str, Vec<usize>, Vec<u8>);

/// The weights, rounded with the scales of the model and dequantised to bf16.
pub fn dequantised(config: &Config, seed: u64) -> Outcome {
    let store = |spec: TensorSpec, mut numbers: Vec<f32>| {
        if spec.role == Role::Linear {
            let width = spec.shape[1];
            let group = if config.weight_scales == WeightScales::Rows { width } else { BLOCK };
            numbers.chunks_mut(width).flat_map(|row| row.chunks_mut(group)).for_each(|group| drop(round(group)));
        }
        vec![(spec.name, "BF16", spec.shape, from_f32(Dtype::Bf16, &numbers))]
    };
    // A checkpoint without scales is opened as one of a model without blocks.
    open(&Config { weight_scales: WeightScales::Rows, ..config.clone() }, seed, store)
}

/// The weights as codes with a scale for each block of 128 x 128, as FP8 checkpoints are published.
pub fn published(config: &Config, seed: u64) -> Outcome {
    let store = |spec: TensorSpec, numbers: Vec<f32>| {
        if spec.role != Role::Linear {
            return vec![(spec.name, "BF16", spec.shape, from_f32(Dtype::Bf16, &numbers))];
        }
        let [rows, width] = [spec.shape[0], spec.shape[1]];
        let (mut codes, mut scales) = (vec![0; numbers.len()], Vec::new());
        for (top, left) in (0..rows).step_by(BLOCK).flat_map(|top| (0..width).step_by(BLOCK).map(move |x| (top, x))) {
            let block = (top..rows.min(top + BLOCK)).flat_map(|y| (left..width.min(left + BLOCK)).map(move |x| (y, x)));
            let places: Vec<usize> = block.map(|(y, x)| y * width + x).collect();
            let mut numbers: Vec<f32> = places.iter().map(|at| numbers[*at]).collect();
            let (of_block, scale) = round(&mut numbers);
            places.iter().zip(of_block).for_each(|(at, code)| codes[*at] = code);
            scales.push(scale);
        }
        let blocks = spec.shape.iter().map(|side| side.div_ceil(BLOCK)).collect();
        let scales = (format!("{}_scale_inv", spec.name), "BF16", blocks, from_f32(Dtype::Bf16, &scales));
        vec![(spec.name, "F8_E4M3", spec.shape, codes), scales]
    };
    open(config, seed, store)
}

/// Rounds numbers that share a scale. Returns their codes and the scale.
fn round(numbers: &mut [f32]) -> (Vec<u8>, f32) {
    numbers.iter_mut().for_each(|number| *number = bf16::from_f32(*number).to_f32());
    let mut codes = vec![0; numbers.len()];
    let scale = quantise(numbers, &mut codes);
    numbers.iter_mut().zip(&codes).for_each(|(number, code)| *number = decode(*code) * scale);
    (codes, scale)
}

/// Writes a checkpoint of synthetic weights, tensor by tensor, and opens it.
fn open(config: &Config, seed: u64, store: impl Fn(TensorSpec, Vec<f32>) -> Vec<Stored>) -> Outcome {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let synthetic = Weights::synthetic(config, seed);
    let (mut header, mut data) = (Map::new(), Vec::new());
    for spec in config.tensors() {
        let numbers = synthetic.tensor(&spec)?.to_f32();
        for (name, dtype, shape, bytes) in store(spec, numbers) {
            let offsets = [data.len(), data.len() + bytes.len()];
            header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
            data.extend(bytes);
        }
    }
    let header = serde_json::to_vec(&header)?;
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("laptime-e4m3-{}-{number}", process::id()));
    fs::create_dir_all(&folder)?;
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    fs::write(folder.join("model.safetensors"), file)?;
    let weights = Weights::open(&folder, config);
    // The file stays mapped.
    fs::remove_dir_all(&folder)?;
    Ok(weights?)
}
