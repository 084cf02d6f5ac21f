//! All tests that need a GPU, in one program that runs without cargo.
//!
//! `laptime-gpu-test [--fixtures FOLDER] [WORD…]` runs the tests whose names contain one of the words, or all.
//! `laptime-gpu-test --compile sm_90` compiles every kernel, which only needs the compiler's library.

mod blas;
mod clock;
mod cupti;
mod decode;
mod decode_batch_speed;
mod decode_diffusion;
mod decode_greedy;
mod decode_layer;
mod decode_sample;
mod decode_speed;
mod diffusion_speed;
mod fp8;
mod graphs;
mod harness;
mod kernels;
mod machine;
mod memory;
mod models;
mod nn;
mod reference;
mod variants;
mod workloads;

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, num::NonZero, path::PathBuf, process::ExitCode, thread, time::Instant};

use laptime_cuda::{Cache, CudaError, Device, Kernels, nvrtc};

use self::harness::{Answer, Failed, Test, expect, median, refuse, run};
use self::variants::Variant;

/// The inputs of every test.
struct Bench {
    device: Device,
    kernels: Kernels,
    /// The folder with the fixtures of the models.
    fixtures: PathBuf,
}

impl Bench {
    fn open(fixtures: &str) -> Result<Self, CudaError> {
        let device = Device::open(0)?;
        let kernels = Kernels::load(&device, &Cache::of_user())?;
        Ok(Self { device, kernels, fixtures: fixtures.into() })
    }
}

const TESTS: &[Test] = &[
    ("the device says what it is", machine::facts),
    ("the card is read by NVML", machine::card),
    ("kernels are compiled once and then cached", kernels::cached),
    ("kernels are compiled ahead on several threads", kernels::ahead),
    ("a compile error shows the kernel's lines", kernels::compile_error),
    ("fill agrees with the CPU", kernels::fill),
    ("read_sum agrees with the CPU", kernels::read_sum),
    ("copy agrees with the CPU", kernels::copy),
    ("f32 products agree with the CPU", blas::f32_product),
    ("bf16 products agree with the CPU", blas::bf16_product),
    ("f16 products agree with the CPU", blas::f16_product),
    ("speed of large products", blas::speed),
    ("nn: norms and biases agree with the CPU", nn::norms),
    ("nn: SwiGLU agrees with the CPU", nn::gating),
    ("nn: embedding and last rows agree with the CPU", nn::embedding),
    ("nn: the largest is found as on the CPU", nn::argmax),
    ("nn: causal softmax agrees with the CPU", nn::softmax),
    ("nn: random weights are those of the CPU", nn::random),
    ("nn: parts of buffers are copied", nn::memory),
    ("nn: heads are split as on the CPU", nn::heads),
    ("nn: fused attention agrees with the CPU", nn::fused),
    ("nn: naive attention agrees with the CPU", nn::naive),
    ("nn: dense block attention agrees with the CPU", nn::block_dense),
    ("nn: sparse block attention agrees with the CPU", nn::block_layouts),
    ("nn: block layouts that do not fit are refused", nn::block_refused),
    ("nn: a layer in a graph agrees with the CPU", nn::captured),
    ("fuse: caches are fused as on the CPU", nn::fuse_joins),
    ("fuse: norms of paths agree with the CPU", nn::fuse_norms),
    ("fuse: GELU agrees with the CPU", nn::fuse_gelu),
    ("fuse: additions to caches agree with the CPU", nn::fuse_additions),
    ("conv: convolutions agree with the CPU", nn::convolutions),
    ("conv: channels by themselves agree with the CPU", nn::conv_channels),
    ("conv: the rows between agree with the CPU", nn::conv_rows),
    ("stream: convolutions that go on agree with the CPU", nn::stream_convolutions),
    ("stream: the rows between agree with the CPU", nn::stream_rows),
    ("backward: losses agree with the CPU", nn::losses),
    ("backward: norms agree with the CPU", nn::norms_backward),
    ("backward: SwiGLU agrees with the CPU", nn::gates_backward),
    ("backward: causal softmax agrees with the CPU", nn::softmax_backward),
    ("backward: rows, tokens and columns agree", nn::rows_backward),
    ("backward: heads agree with the CPU", nn::heads_backward),
    ("backward: naive attention agrees with the CPU", nn::naive_backward),
    ("backward: fused attention agrees with the CPU", nn::fused_backward),
    ("backward: AdamW steps as on the CPU", nn::adamw),
    ("nn: speed of operations on rows", nn::row_speed),
    ("nn: speed of attention", nn::attention_speed),
    ("nn: speed of the parts of models", nn::model_speed),
    ("nn: speed of block attention", nn::block_speed),
    ("nn: speed of block attention at prefill", nn::block_prefill_speed),
    ("fuse: speed of the parts of a fuser", nn::fuse_speed),
    ("conv: speed of a codec's convolutions", nn::conv_speed),
    ("backward: speed of gradients", nn::gradient_speed),
    ("backward: speed of attention", nn::attention_backward_speed),
    ("backward: speed of AdamW", nn::adamw_speed),
    ("the global timer's resolution", clock::timer_resolution),
    ("what an event costs", clock::event_cost),
    ("the resolution of events", clock::event_resolution),
    ("the event clock agrees with known kernels", clock::known_lengths),
    ("the event clock agrees with the host's", clock::against_host),
    ("the device's clock drifts little", clock::drift),
    ("marking does not wait", clock::no_wait),
    ("what a stamp costs", graphs::stamp_cost),
    ("a graph replays a step", graphs::replay),
    ("the stages of a stamped graph are read back", graphs::stamped),
    ("a capture takes no marks and survives an error", graphs::spoiled_capture),
    ("decode: every kernel compiles", decode::compiles),
    ("decode: products agree with the CPU", decode::products),
    ("fp8: matrices are quantised and turned back as on the CPU", fp8::matrices),
    ("fp8: products agree with the CPU", fp8::products),
    ("decode: attention agrees with the CPU", decode::attention),
    ("decode: the ends of a step agree with the CPU", decode::ends),
    ("decode: a replayed step chooses the CPU's tokens", decode_greedy::greedy),
    ("decode: choices by chance are the CPU's", decode_sample::choices),
    ("decode: frames are added up as on the CPU", decode_sample::sums),
    ("diffusion: adapted products agree with the CPU", decode_diffusion::products),
    ("diffusion: both ends of steps agree with the CPU", decode_diffusion::steps),
    ("decode: sizes that do not fit are refused", decode::refused),
    ("speed of decode: Qwen3-0.6B", decode_speed::small),
    ("speed of decode: Qwen3-4B", decode_speed::large),
    ("speed of decode: the 7B of a speech model", decode_speed::speech),
    ("speed of decode: a diffusion head", diffusion_speed::steps),
    ("speed of decode: choices by chance", decode_sample::speed),
    ("speed of decode: long contexts", decode_batch_speed::long),
    ("speed of decode: several sequences", decode_batch_speed::batches),
    ("CUPTI's kernels agree with the event clock", cupti::against_events),
    ("CUPTI reports copies, syncs and stages", cupti::records),
    ("CUPTI reports the nodes of a graph", cupti::graph_nodes),
    ("CUPTI serves one session at a time", cupti::one_session),
    ("memory: every workload uses what was predicted", workloads::memory),
    ("the peak of a case is its own", memory::peak),
    ("a graph's memory is in the peak", memory::graph_peak),
    ("running out of memory ten times leaves nothing behind", memory::ten_lacks),
    ("a lost context is recognised", memory::lost_context),
    ("copies, pinned and pageable", memory::copies),
    ("speed of reading and copying on the device", memory::device_bandwidth),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let status = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--compile", architecture] => compile_all(architecture),
        [memory::LOSE_CONTEXT] => memory::lose_context(),
        ["--fixtures", folder, ref words @ ..] => run_all(folder, words),
        ref words => run_all("crates/models/tests/fixtures", words),
    };
    status.unwrap_or(ExitCode::from(2))
}

fn run_all(fixtures: &str, words: &[&str]) -> io::Result<ExitCode> {
    run(Bench::open(fixtures), &[TESTS, models::TESTS].concat(), words)
}

/// Compiles every kernel, on as many threads as there are cores.
fn compile_all(architecture: &str) -> io::Result<ExitCode> {
    let all = variants::all(architecture);
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), CudaError> {
        while let Some(variant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            // After an error no thread starts another compilation.
            compile_one(variant).inspect_err(|_| next.store(all.len(), Ordering::Relaxed))?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let done: Vec<Result<(), CudaError>> = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let gone = || Err(CudaError::refused("compiling kernels", 0, "a thread is gone"));
        all.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    match done.into_iter().find_map(Result::err) {
        None => Ok(ExitCode::SUCCESS),
        Some(error @ CudaError::Missing { .. }) => refuse(&error),
        Some(error) => refuse(&error).map(|_| ExitCode::FAILURE),
    }
}

fn compile_one((source, architecture, options): &Variant) -> Result<(), CudaError> {
    let bytes = nvrtc::compile(*source, architecture, options)?.cubin.len();
    // The exit status reports failures too.
    let _ = writeln!(io::stdout(), "{:<20} {architecture} {bytes:>7} bytes  {}", source.file, options.join(" "));
    Ok(())
}

/// The host time of an operation, in seconds: the median of several runs.
fn seconds(times: usize, mut work: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    let mut taken = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        work()?;
        taken.push(began.elapsed().as_secs_f64());
    }
    Ok(median(taken))
}
