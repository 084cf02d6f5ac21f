//! The kernels of a diffusion head compared with references on the CPU.

use half::{bf16, f16};
use laptime_cuda::{
    Buffer, Cache,
    decode::{AdaLn, AdaLnSizes, DiffusionSizes, DiffusionState, DiffusionStep, LatentTarget, Linear, Norm},
};

use crate::decode::{Both, EPSILON, Tested, both, narrow, random, widen};
use crate::reference::{decode as cpu, decode::diffusion, noise, worst_error};
use crate::{Answer, Bench, Failed, expect};

/// Vectors that run together.
const VECTORS: usize = 2;

pub fn products(bench: &Bench) -> Answer {
    let worst = [products_of::<f32>(bench)?, products_of::<bf16>(bench)?, products_of::<f16>(bench)?];
    Ok(format!("worst error f32 {:.0e}, bf16 {:.0e}, f16 {:.0e}", worst[0], worst[1], worst[2]))
}

/// Hidden and intermediate widths: those of published heads, small ones, and some that are not multiples of 16 bytes.
const SHAPES: [[usize; 2]; 5] = [[3584, 10_752], [1536, 4608], [64, 192], [48, 96], [101, 67]];

fn products_of<T: Tested>(bench: &Bench) -> Result<f64, Failed> {
    let mut worst = 0_f64;
    for shape in SHAPES {
        for (what, error) in layer::<T>(bench, shape)? {
            // What is scaled and shifted is rounded twice.
            expect(error < 2.0 * T::TOLERANCE, || format!("{} {what} {shape:?}: worst error {error:.1e}", T::NAME))?;
            worst = worst.max(error);
        }
    }
    Ok(worst)
}

/// The errors of a layer's products, each with separate inputs.
fn layer<T: Tested>(bench: &Bench, [width, ffn]: [usize; 2]) -> Result<Vec<(&'static str, f64)>, Failed> {
    let sizes = AdaLnSizes { batch: VECTORS as u32, hidden: width as u32, ffn: ffn as u32 };
    let adapted = AdaLn::<T>::load(&bench.device, &Cache::of_user(), sizes)?;
    let stream = bench.device.stream();
    let reach = 1.0 / (width as f32).sqrt();
    let x = random::<T>(bench, VECTORS * width, 1, 0.0, 1.0)?;
    let adapt = random::<T>(bench, VECTORS * 3 * width, 2, 0.0, 0.5)?;
    let norm = random::<T>(bench, width, 3, 1.0, 0.5)?;
    let gate_up = random::<T>(bench, 2 * ffn * width, 4, 0.0, reach)?;
    let mut errors = Vec::new();

    let mut out = spoiled::<T>(bench, VECTORS * ffn)?;
    let by = Norm { weight: &norm.device, epsilon: EPSILON };
    let linear = Linear { weight: &gate_up.device, bias: None, fp8: None };
    let shape = [ffn as u32, width as u32];
    adapted.gate_up(stream, (&x.device, &by), adapt.device.all(), &linear, &mut out, shape)?;
    let seen = seen::<T>(&x, Some(&norm.host), &adapt, 3);
    errors.push(("gate_up", error(&out, &each(&seen, |row, _| cpu::norm_gate_up::<T>(row, &gate_up.host, None)))?));

    let a = random::<T>(bench, VECTORS * ffn, 5, 0.0, 1.0)?;
    let down = random::<T>(bench, width * ffn, 6, 0.0, 1.0 / (ffn as f32).sqrt())?;
    let linear = Linear { weight: &down.device, bias: None, fp8: None };
    let mut out = both::<T>(bench, &x.host)?.device;
    adapted.add_gated(stream, &a.device, adapt.device.all(), &linear, &mut out, [width as u32, ffn as u32])?;
    let rows: Vec<Vec<f32>> = a.host.chunks(ffn).map(<[f32]>::to_vec).collect();
    let expected = each(&rows, |row, at| {
        let (adapt, x) = (&adapt.host[at * 3 * width..(at + 1) * 3 * width], &x.host[at * width..(at + 1) * width]);
        diffusion::add_gated::<T>(row, &down.host, adapt, x)
    });
    errors.push(("add_gated", error(&out, &expected)?));

    let leave = random::<T>(bench, 64 * width, 7, 0.0, reach)?;
    let linear = Linear { weight: &leave.device, bias: None, fp8: None };
    let last = random::<T>(bench, VECTORS * 2 * width, 8, 0.0, 0.5)?;
    let mut out = spoiled::<T>(bench, VECTORS * 64)?;
    adapted.linear(stream, (&x.device, EPSILON), last.device.all(), &linear, &mut out, [64, width as u32])?;
    let expected = each(&self::seen::<T>(&x, None, &last, 2), |row, _| cpu::norm_linear::<T>(row, &leave.host, None));
    errors.push(("linear", error(&out, &expected)?));
    Ok(errors)
}

/// Both vectors as products see them.
fn seen<T: Tested>(x: &Both<T>, norm: Option<&[f32]>, adapt: &Both<T>, rows: usize) -> Vec<Vec<f32>> {
    let width = x.host.len() / VECTORS;
    let vectors = x.host.chunks(width).zip(adapt.host.chunks(rows * width));
    vectors.map(|(x, adapt)| diffusion::adapted::<T>(x, norm, EPSILON, adapt)).collect()
}

fn each(rows: &[Vec<f32>], of: impl Fn(&[f32], usize) -> Vec<f32>) -> Vec<f32> {
    rows.iter().enumerate().flat_map(|(at, row)| of(row, at)).collect()
}

fn spoiled<T: Tested>(bench: &Bench, length: usize) -> Result<Buffer<T>, Failed> {
    Ok(bench.device.upload(&narrow::<T>(&vec![f32::NAN; length]))?)
}

fn error<T: Tested>(found: &Buffer<T>, expected: &[f32]) -> Result<f64, Failed> {
    Ok(worst_error(&widen(&found.read()?), expected))
}

pub fn steps(bench: &Bench) -> Answer {
    let worst = [steps_of::<f32>(bench)?, steps_of::<bf16>(bench)?, steps_of::<f16>(bench)?];
    Ok(format!("worst error f32 {:.0e}, bf16 {:.0e}, f16 {:.0e}", worst[0], worst[1], worst[2]))
}

const SIZES: DiffusionSizes = DiffusionSizes { latent: 64, hidden: 1536, steps: 3, capacity: 4 };
const SCALE: f32 = 1.3;

/// A latent in a few steps whose velocities are noise: what steps begin with, and what is left at the end.
fn steps_of<T: Tested>(bench: &Bench) -> Result<f64, Failed> {
    let DiffusionSizes { latent, hidden, steps, capacity } = SIZES;
    let (latent, width) = (latent as usize, hidden as usize);
    let kernels = DiffusionStep::<T>::load(&bench.device, &Cache::of_user())?;
    let (stream, mut drawing) = (bench.device.stream(), DiffusionState::<T>::new(&bench.device, SIZES)?);
    let factors = noise(5 * steps as usize, 1).as_chunks().0.to_vec();
    let start = noise(capacity as usize * latent, 2);
    drawing.begin(&factors, SCALE, &start)?;
    drawing.token.set_all(stream, 2)?;
    let enter = random::<T>(bench, width * latent, 3, 0.0, 0.1)?;
    let (mut sample, mut before) = (start[2 * latent..3 * latent].to_vec(), None);
    let mut worst = 0_f64;
    for step in 0..steps {
        let mut x = spoiled::<T>(bench, 2 * width)?;
        kernels.begin(stream, &mut drawing, step, &enter.device, &mut x)?;
        let entered = diffusion::entered::<T>(&sample, &enter.host);
        worst = worst.max(error(&x, &[entered.clone(), entered].concat())?);
        let velocity = random::<T>(bench, 2 * latent, 10 + u64::from(step), 0.0, 1.0)?;
        drawing.velocity.write(&narrow::<T>(&velocity.host))?;
        let by = &factors[step as usize];
        let [next, guess] = diffusion::advanced(by, SCALE, &velocity.host, &sample, before.as_deref());
        (sample, before) = (next, Some(guess));
    }
    let (mut row, mut sound) = (spoiled::<T>(bench, latent)?, spoiled::<T>(bench, 2 * latent)?);
    let to =
        LatentTarget { connector: &mut row, decoder: sound.slice_mut(latent..2 * latent)?, divisor: 0.5, bias: 0.25 };
    kernels.end(stream, &mut drawing, to)?;
    let made = &drawing.latents.read()?[2 * latent..3 * latent];
    worst = worst.max(error(&row, &sample)?).max(worst_error(made, &sample));
    let sounded: Vec<f32> = sample.iter().map(|number| number / 0.5 - 0.25).collect();
    worst = worst.max(worst_error(&widen(&sound.read()?[latent..]), &sounded)).max(conditioning::<T>(bench, &kernels)?);
    expect(worst < 2.0 * T::TOLERANCE, || format!("{}: worst error {worst:.1e}", T::NAME))?;
    expect(kernels.begin(stream, &mut drawing, steps, &enter.device, &mut row).is_err(), || {
        "a step behind the last was taken".to_owned()
    })?;
    Ok(worst)
}

/// The conditioning of the head at three times.
fn conditioning<T: Tested>(bench: &Bench, kernels: &DiffusionStep<T>) -> Result<f64, Failed> {
    let width = 300;
    let (conditions, times) =
        (random::<T>(bench, 2 * width, 1, 0.0, 2.0)?, random::<T>(bench, 3 * width, 2, 0.0, 2.0)?);
    let mut conditioning = spoiled::<T>(bench, 6 * width)?;
    kernels.condition(
        bench.device.stream(),
        [&conditions.device, &times.device],
        &mut conditioning,
        [3, width as u32],
    )?;
    let expected: Vec<f32> =
        times.host.chunks(width).flat_map(|time| diffusion::conditioning::<T>(&conditions.host, time)).collect();
    error(&conditioning, &expected)
}
