//! The speed of gradients and AdamW: times inside a graph, with data in the L2 cache if it fits.

use half::bf16;
use laptime_cuda::nn::{
    AdamW, Attended, Attention, AttentionGradients, HeadNorm, HeadNormGradients, HeadSizes, Normed, Packed, Pairing,
    Parameter, Rates, Rotation,
};
use laptime_cuda::{Blas, Buffer, Cache};

use super::speed::{Table, Work, attention_operations, peak, random_buffer};
use super::{Answer, Bench, Failed, Lab, Number, backward::loaded, backward_heads::naive_backward_products};

/// A model's sizes: name, hidden, heads, kv heads, head_dim, ffn, vocabulary. Four sequences of 512 tokens.
const MODELS: [(&str, [u32; 6], bool); 4] = [
    ("small", [768, 12, 12, 64, 3072, 10_000], false),
    ("large", [1280, 20, 20, 64, 5120, 10_000], false),
    ("2.7B", [2560, 32, 32, 80, 10_240, 10_000], false),
    ("Qwen3-0.6B", [1024, 16, 8, 128, 3072, 151_936], true),
];
const BATCH: u32 = 4;
const TOKENS: u32 = 512;

pub fn gradients(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    for (name, sizes, is_qwen) in MODELS {
        model_of::<bf16>(bench, &mut table, name, sizes, is_qwen)?;
        if !is_qwen {
            model_of::<f32>(bench, &mut table, name, sizes, is_qwen)?;
        }
    }
    table.answer()
}

fn model_of<T: Number>(
    bench: &Bench,
    table: &mut Table<'_>,
    name: &str,
    [hidden, heads, kv_heads, head_dim, ffn, vocabulary]: [u32; 6],
    with_norm: bool,
) -> Result<(), Failed> {
    let lab = Lab::<T>::new(bench)?;
    let (gradients, stream, rows) = (loaded(&lab)?, bench.device.stream(), BATCH * TOKENS);
    let of = |what: &str| format!("{} {name} {what}", T::NAME);
    let count = |columns: u32| u64::from(rows) * u64::from(columns);
    let bytes = |numbers: f64| Work::Bytes(numbers * size_of::<T>() as f64);
    let widest = (2 * ffn).max(hidden);
    let mut scratch: Buffer<f32> = bench.device.allocate(gradients.scratch_length(widest))?;
    {
        let (x, weight, dy) = (
            random_buffer(&lab, count(hidden))?,
            random_buffer(&lab, hidden.into())?,
            random_buffer(&lab, count(hidden))?,
        );
        let (mut dx, mut d_weight) = (random_buffer(&lab, count(hidden))?, random_buffer(&lab, hidden.into())?);
        let norm = Normed { x: x.all(), weight: weight.all(), dy: dy.all(), epsilon: 1e-6 };
        table.row(&of("rms_norm_backward, added"), bytes(4.0 * count(hidden) as f64), || {
            gradients.rms_norm_backward(stream, &norm, &mut dx, &mut d_weight, &mut scratch, [rows, hidden], true)
        })?;
    }
    {
        let (mut gate_up, slopes, mut activated) =
            (random_buffer(&lab, count(2 * ffn))?, random_buffer(&lab, count(ffn))?, random_buffer(&lab, count(ffn))?);
        table.row(&of("swiglu_backward"), bytes(6.0 * count(ffn) as f64), || {
            gradients.swiglu_backward(stream, &mut gate_up, None, &slopes, Some(activated.all_mut()), [rows, ffn])
        })?;
        let mut sums = random_buffer(&lab, (2 * ffn).into())?;
        table.row(&of("column_sums, 2 ffn"), bytes(2.0 * count(ffn) as f64), || {
            gradients.column_sums(stream, &gate_up, &mut sums, &mut scratch, [rows, 2 * ffn])
        })?;
    }
    {
        let mut logits = random_buffer(&lab, count(vocabulary))?;
        let tokens: Vec<u32> = (0..rows).map(|at| at * 7919 % vocabulary).collect();
        let tokens = bench.device.upload(&tokens)?;
        let mut losses = bench.device.upload(&vec![0_f32; rows as usize])?;
        let mut mean = bench.device.upload(&[0_f32])?;
        table.row(&of("cross_entropy"), bytes(2.0 * count(vocabulary) as f64), || {
            gradients.cross_entropy(stream, &mut logits, &tokens, &mut losses, [rows, vocabulary], 1.0 / rows as f32)
        })?;
        table
            .row(&of("mean loss"), Work::Bytes(4.0 * f64::from(rows)), || gradients.mean(stream, &losses, &mut mean))?;
        let (d_rows, mut d_table) =
            (random_buffer(&lab, count(hidden))?, random_buffer(&lab, u64::from(vocabulary) * u64::from(hidden))?);
        let mut notes: Buffer<u32> = bench.device.allocate(gradients.embed_scratch_length(vocabulary))?;
        table.row(&of("embed_backward, added"), bytes(3.0 * count(hidden) as f64), || {
            gradients.embed_backward(stream, &tokens, &d_rows, &mut d_table, &mut notes, [vocabulary, hidden], true)
        })?;
    }
    let sizes = HeadSizes { batch: BATCH, tokens: TOKENS, heads, kv_heads, head_dim, capacity: TOKENS };
    heads_rows(&lab, table, name, &sizes, with_norm)
}

fn heads_rows<T: Number>(
    lab: &Lab<'_, T>,
    table: &mut Table<'_>,
    name: &str,
    sizes: &HeadSizes,
    with_norm: bool,
) -> Result<(), Failed> {
    let (gradients, device) = (loaded(lab)?, &lab.bench.device);
    let stream = device.stream();
    let of = |what: &str| format!("{} {name} {what}", T::NAME);
    let bytes = |numbers: f64| Work::Bytes(numbers * size_of::<T>() as f64);
    let start = device.upload(&[0_u32])?;
    let packed_count = sizes.rows() * sizes.packed_width();
    let [dq, dk, dv] = [
        random_buffer(lab, sizes.query_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
    ];
    let (packed, mut d_packed) = (random_buffer(lab, packed_count)?, random_buffer(lab, packed_count)?);
    let weights = random_buffer(lab, sizes.head_dim.into())?;
    let [mut d_q_norm, mut d_k_norm] =
        [random_buffer(lab, sizes.head_dim.into())?, random_buffer(lab, sizes.head_dim.into())?];
    let mut scratch: Buffer<f32> = device.allocate(gradients.scratch_length(2 * sizes.head_dim))?;
    let turns = device.upload(&vec![0.5_f32; (TOKENS * sizes.head_dim / 2) as usize])?;
    let input = Packed {
        packed: packed.all(),
        bias: None,
        norm: with_norm.then(|| HeadNorm { q: weights.all(), k: weights.all(), epsilon: 1e-6 }),
        rotation: Rotation { cosines: turns.all(), sines: turns.all(), pairing: Pairing::Halves },
        start: start.all(),
    };
    let moved = if with_norm { 3.0 } else { 2.0 };
    table.row(&of("split_heads_backward"), bytes(moved * packed_count as f64), || {
        let norms = with_norm.then(|| HeadNormGradients {
            q: d_q_norm.all_mut(),
            k: d_k_norm.all_mut(),
            scratch: scratch.all_mut(),
        });
        let heads = [dq.all(), dk.all(), dv.all()];
        gradients.split_heads_backward(stream, &input, heads, &mut d_packed, norms, sizes)
    })?;
    let mut apart = random_buffer(lab, sizes.query_elements())?;
    table.row(&of("unmerge_heads"), bytes(2.0 * sizes.query_elements() as f64), || {
        lab.operations.unmerge_heads(stream, &dq, &mut apart, sizes)
    })?;
    let count = sizes.rows() * u64::from(sizes.heads) * u64::from(TOKENS);
    let (shares, mut slopes) = (random_buffer(lab, count)?, random_buffer(lab, count)?);
    // Half of both are not read.
    table.row(&of("softmax_causal_backward"), bytes(2.0 * count as f64), || {
        gradients.softmax_causal_backward(stream, &shares, &mut slopes, &start, sizes, TOKENS, 0.125)
    })?;
    Ok(())
}

pub fn attention(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    for (_, [_, heads, kv_heads, head_dim, ..], is_qwen) in MODELS {
        let sizes = HeadSizes { batch: BATCH, tokens: TOKENS, heads, kv_heads, head_dim, capacity: TOKENS };
        attention_rows(&Lab::<bf16>::new(bench)?, &mut table, &sizes)?;
        if !is_qwen {
            attention_rows(&Lab::<f32>::new(bench)?, &mut table, &sizes)?;
        }
    }
    for [heads, kv_heads, tokens, head_dim] in [[16, 16, 4096, 64], [16, 8, 4096, 128]] {
        let sizes = HeadSizes { batch: 1, tokens, heads, kv_heads, head_dim, capacity: tokens };
        attention_rows(&Lab::<bf16>::new(bench)?, &mut table, &sizes)?;
    }
    table.answer()
}

/// The gradients of attention, fused and naive. The operations are those of the five products that are needed.
fn attention_rows<T: Number>(lab: &Lab<'_, T>, table: &mut Table<'_>, sizes: &HeadSizes) -> Result<(), Failed> {
    let device = &lab.bench.device;
    let (stream, rows) = (device.stream(), (sizes.rows() * u64::from(sizes.heads)) as usize);
    let HeadSizes { batch, heads, kv_heads, tokens, head_dim, .. } = *sizes;
    let of = |what: &str| format!("{} {what} {batch} x {heads}/{kv_heads} x {tokens} x {head_dim}", T::NAME);
    let work = Work::Operations(2.5 * attention_operations(sizes), peak::<T>());
    let [q, out, d_out] = [0; 3].map(|_| random_buffer(lab, sizes.query_elements()));
    let (q, mut out, d_out, mut dq) = (q?, out?, d_out?, random_buffer(lab, sizes.query_elements())?);
    let [k, v, dk, dv] = [0; 4].map(|_| random_buffer(lab, sizes.cache_elements()));
    let (k, v, mut dk, mut dv, start) = (k?, v?, dk?, dv?, device.upload(&[0_u32])?);
    let (mut lse, mut dots): (Buffer<f32>, Buffer<f32>) = (device.allocate(rows)?, device.allocate(rows)?);
    let attention = Attention::<T>::load(device, &Cache::of_user(), head_dim, None)?;
    let gradients = AttentionGradients::<T>::load(device, &Cache::of_user(), head_dim)?;
    let inputs = [q.all(), k.all(), v.all()];
    attention.attend(stream, inputs, &start, (out.all_mut(), Some(lse.all_mut())), sizes, 0.125)?;
    let attended = Attended {
        q: q.all(),
        k: k.all(),
        v: v.all(),
        out: out.all(),
        d_out: d_out.all(),
        lse: lse.all(),
        start: start.all(),
    };
    table.row(&of("fused backward"), work, || {
        let there = [dq.all_mut(), dk.all_mut(), dv.all_mut()];
        gradients.attend_backward(stream, &attended, there, &mut dots, sizes, 0.125)
    })?;
    let count = sizes.rows() * u64::from(heads) * u64::from(tokens);
    let (blas, gradients) = (Blas::new(device)?, loaded(lab)?);
    let (shares, mut d_shares, mut apart) =
        (random_buffer(lab, count)?, random_buffer(lab, count)?, random_buffer(lab, sizes.query_elements())?);
    let [of_values, of_shares, of_queries, of_keys] = naive_backward_products(sizes, tokens);
    table.row(&of("naive backward"), work, || {
        lab.operations.unmerge_heads(stream, &d_out, &mut apart, sizes)?;
        blas.multiply_batch([shares.all(), apart.all()], dv.all_mut(), &of_values)?;
        blas.multiply_batch([apart.all(), v.all()], d_shares.all_mut(), &of_shares)?;
        gradients.softmax_causal_backward(stream, &shares, &mut d_shares, &start, sizes, tokens, 0.125)?;
        blas.multiply_batch([d_shares.all(), k.all()], dq.all_mut(), &of_queries)?;
        blas.multiply_batch([d_shares.all(), q.all()], dk.all_mut(), &of_keys)
    })?;
    Ok(())
}

/// A model with 2.7 billion parameters, as counted in CS336 assignment 2.
const PARAMETERS: u64 = 3_400_000_000;

pub fn adamw(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    adamw_row::<f32>(bench, &mut table, PARAMETERS)?;
    adamw_row::<bf16>(bench, &mut table, PARAMETERS)?;
    adamw_row::<f32>(bench, &mut table, 128_625_408)?;
    table.answer()
}

/// Parameters as of a model: matrices of 26 million numbers and norms between them.
fn adamw_row<T: Number>(bench: &Bench, table: &mut Table<'_>, numbers: u64) -> Result<(), Failed> {
    let lab = Lab::<T>::new(bench)?;
    let mut lengths = Vec::new();
    let mut left = numbers;
    while left > 0 {
        let next = if lengths.len() % 2 == 0 { 26_214_400 } else { 2560 };
        lengths.push(left.min(next));
        left -= left.min(next);
    }
    let mut there: Vec<[Buffer<T>; 4]> = Vec::new();
    for length in lengths {
        let mut zeros = [random_buffer(&lab, length)?, random_buffer(&lab, length)?];
        zeros.iter_mut().try_for_each(Buffer::zero)?;
        let [first, second] = zeros;
        there.push([random_buffer(&lab, length)?, random_buffer(&lab, length)?, first, second]);
    }
    let each = there.iter_mut().map(|[value, gradient, first, second]| Parameter {
        value: value.all_mut(),
        gradient: gradient.all(),
        first: first.all_mut(),
        second: second.all_mut(),
    });
    let mut parameters: Vec<Parameter<'_, T>> = each.collect();
    let optimizer = AdamW::new(&bench.device, &Cache::of_user(), &parameters)?;
    let what = format!("{} adamw {:.2}e9 parameters", T::NAME, numbers as f64 / 1e9);
    let bytes = 7.0 * numbers as f64 * size_of::<T>() as f64;
    table.row(&what, Work::Bytes(bytes), || {
        optimizer.step(bench.device.stream(), &mut parameters, &Rates::default(), 3)
    })?;
    drop(parameters);
    bench.device.synchronise()?;
    drop(there);
    Ok(bench.device.give_back_memory()?)
}
