//! What a decoder on candle needs, before it allocates anything.

use crate::{Config, Dtype, ModelError, Options, Room, cpu};

/// What `gemm` keeps for each thread: as much as a second-level cache.
const SLAB_BYTES: u64 = 2 << 20;

/// Bytes of a number that candle multiplies in: it widens bf16 for every product.
const WIDE_BYTES: u64 = 4;

/// Bytes of the heap that a decoder on candle needs at most to run passes of so many tokens a sequence, those that are
/// in the cache already included.
pub fn needed_bytes(config: &Config, options: &Options, pass: cpu::Pass, tokens: usize, threads: usize) -> u64 {
    let running = [
        cache_bytes(config, options, pass, tokens),
        pass_bytes(config, options, pass, tokens),
        table_bytes(config, options, tokens),
        SLAB_BYTES.saturating_mul(threads.max(1) as u64),
    ];
    let running = running.into_iter().fold(0, u64::saturating_add);
    config.weight_bytes(options.dtype).saturating_add(running.max(loading_bytes(config, options)))
}

/// Refuses a pass whose tensors cannot even be counted.
pub fn check_countable(config: &Config, options: &Options, pass: cpu::Pass, tokens: usize) -> Result<(), ModelError> {
    let bytes = pass_bytes(config, options, pass, tokens);
    if bytes > isize::MAX as u64 { Err(no_memory(bytes)) } else { Ok(()) }
}

/// Refuses bytes that there is no memory for.
pub fn check_free(bytes: usize) -> Result<(), ModelError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| no_memory(bytes as u64))
}

fn no_memory(bytes: u64) -> ModelError {
    ModelError::Refused(format!("there is no memory for {} MiB", bytes >> 20))
}

/// Bytes beside the weights while they are put together: the widest tensor in f32.
fn loading_bytes(config: &Config, options: &Options) -> u64 {
    match options.dtype {
        Dtype::F32 => 0,
        Dtype::Bf16 | Dtype::F16 => largest_tensor(config).saturating_mul(WIDE_BYTES),
    }
}

fn largest_tensor(config: &Config) -> u64 {
    let rest = config.layer_tensors(0).into_iter().chain([config.embedding_tensor()]);
    rest.map(|spec| spec.shape.iter().fold(1, |count: u64, &size| count.saturating_mul(size as u64))).max().unwrap_or(0)
}

/// Bytes of the cache: of a growing one also what one layer had before, while it is concatenated anew.
fn cache_bytes(config: &Config, options: &Options, pass: cpu::Pass, tokens: usize) -> u64 {
    let bytes = |positions: usize| {
        let positions = (options.batch as u64).saturating_mul(positions as u64);
        config.kv_bytes_per_token(options.dtype).saturating_mul(positions)
    };
    match (options.room, pass) {
        (Room::Static(room), _) => bytes(room.min(config.context)),
        (Room::Growing, cpu::Pass::Forward) => 0,
        (Room::Growing, cpu::Pass::Cached) => bytes(tokens).saturating_add(bytes(tokens) / config.layers.max(1) as u64),
    }
}

/// Bytes of cosines and sines, in f32 and as tensors, and of the mask, in f32 and in its type.
fn table_bytes(config: &Config, options: &Options, tokens: usize) -> u64 {
    let (tokens, bytes) = (tokens as u64, options.dtype.bytes() + WIDE_BYTES);
    let angles = (config.head_dim as u64).saturating_mul(tokens).saturating_mul(2);
    angles.saturating_add(tokens.saturating_mul(tokens)).saturating_mul(bytes)
}

/// How many numbers the parts of a pass have.
struct Counts {
    stream: u64,
    queries: u64,
    /// Keys, and values as well.
    keys: u64,
    scores: u64,
    ffn: u64,
    logits: u64,
    /// Keys that there is memory for.
    room: u64,
}

impl Counts {
    fn new(config: &Config, options: &Options, pass: cpu::Pass, tokens: usize) -> Self {
        let product = |sizes: &[usize]| sizes.iter().fold(1, |all: u64, &size| all.saturating_mul(size as u64));
        let logits_rows = match pass {
            cpu::Pass::Forward => tokens,
            cpu::Pass::Cached => 1,
        };
        let room = match options.room {
            Room::Static(room) if pass == cpu::Pass::Cached => room.min(config.context),
            _ => tokens,
        };
        let batch = options.batch;
        Self {
            stream: product(&[batch, tokens, config.hidden]),
            queries: product(&[batch, tokens, config.heads, config.head_dim]),
            keys: product(&[batch, tokens, config.kv_heads, config.head_dim]),
            scores: product(&[batch, config.heads, tokens, tokens]),
            ffn: product(&[batch, tokens, config.ffn]),
            logits: product(&[batch, logits_rows, config.vocab]),
            room: product(&[batch, room, config.kv_heads, config.head_dim]),
        }
    }
}

/// Bytes of the tensors that live at once in the widest part of a pass, the cache and the weights left out.
fn pass_bytes(config: &Config, options: &Options, pass: cpu::Pass, tokens: usize) -> u64 {
    let counts = Counts::new(config, options, pass, tokens);
    let bytes = options.dtype.bytes();
    let total = |parts: &[(u64, u64)]| {
        parts.iter().fold(0_u64, |all, (times, count)| all.saturating_add(times.saturating_mul(*count)))
    };
    let Counts { stream, queries, keys, scores, ffn, logits, room } = counts;
    let attention = [(2, stream), (3, queries), (4, keys), (2, scores)];
    let entering = [(2, stream), (4, queries), (6, keys)];
    let feeding = [(3, stream), (4, ffn)];
    let heading = [(3, stream), (1, logits)];
    let widest = [total(&attention), total(&entering), total(&feeding), total(&heading)];
    let widest = widest.into_iter().max().unwrap_or(0).saturating_mul(bytes);
    let products = [total(&[(1, queries), (1, room), (1, scores)]), {
        let weights = largest_tensor(config);
        total(&[(1, stream), (1, weights), (1, ffn.max(logits).max(queries))])
    }];
    match options.dtype {
        Dtype::F32 | Dtype::F16 => widest,
        Dtype::Bf16 => widest.saturating_add(products.into_iter().max().unwrap_or(0).saturating_mul(WIDE_BYTES)),
    }
}
