//! Block attention compared with the CPU, with every supported engine.

use laptime_cuda::nn::{BlockAttention, BlockLayout, Engine, HeadSizes, LayoutParts, Rule, TILING, Tiling};
use laptime_cuda::{Buffer, Cache, CudaError, Slice};

use super::{Answer, Bench, Failed, Lab, Number, attention::sizes, block_layouts::HostLayout, expect, in_each_type};
use crate::reference::nn::blocks;

/// batch, tokens, heads, kv_heads, head_dim, capacity: a block that is not full, one and several, and few heads of many
/// tokens.
const DENSE: [[u32; 6]; 12] = [
    [1, 1, 2, 2, 64, 8],
    [1, 63, 4, 2, 64, 63],
    [3, 64, 4, 1, 64, 70],
    [1, 65, 8, 2, 128, 65],
    [1, 500, 2, 1, 64, 600],
    [1, 500, 1, 1, 80, 500],
    [3, 130, 2, 1, 16, 200],
    [1, 1000, 1, 1, 64, 1000],
    [1, 1000, 1, 1, 128, 1024],
    [1, 2048, 1, 1, 64, 2048],
    [1, 200, 2, 1, 88, 200],
    [1, 130, 1, 1, 256, 130],
];

pub fn dense(bench: &Bench) -> Answer {
    in_each_type!(bench, dense_of)
}

fn dense_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    for (case, is_causal) in DENSE.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        let sizes = sizes(case);
        let layout = BlockLayout::dense(&lab.bench.device, sizes.tokens, TILING, is_causal)?;
        let kept: Vec<Vec<u32>> =
            (0..sizes.tokens).map(|row| (0..if is_causal { row + 1 } else { sizes.tokens }).collect()).collect();
        one_layout(lab, &sizes, &layout, &kept, &format!("dense, causal {is_causal}"))?;
    }
    Ok(())
}

/// The same sizes, and how many columns are drawn for a block.
const SPARSE: [([u32; 6], u32); 9] = [
    ([1, 65, 4, 4, 64, 65], 10),
    ([3, 300, 2, 1, 64, 300], 64),
    ([1, 500, 4, 1, 64, 520], 65),
    ([1, 1000, 2, 2, 64, 1000], 700),
    ([3, 300, 2, 1, 128, 310], 200),
    ([1, 500, 2, 1, 128, 500], 20),
    ([1, 300, 2, 1, 80, 300], 70),
    ([3, 200, 4, 1, 16, 200], 40),
    ([1, 200, 2, 1, 24, 200], 40),
];

pub fn layouts(bench: &Bench) -> Answer {
    in_each_type!(bench, layouts_of)
}

fn layouts_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let rules = [
        Rule { is_causal: true, half_window: Some(70), global: 5 },
        Rule { is_causal: false, half_window: Some(31), global: 0 },
        Rule { is_causal: true, half_window: None, global: 0 },
        Rule { is_causal: false, half_window: Some(0), global: 100 },
    ];
    for (at, (case, columns)) in SPARSE.into_iter().enumerate() {
        let sizes = sizes(case);
        for (turn, rule) in rules.into_iter().enumerate() {
            let host = HostLayout::any(sizes.tokens, rule, columns, (at * 10 + turn) as u64 + 1);
            one_host_layout(lab, &sizes, &host, &format!("{rule:?}, {columns} columns"))?;
        }
        one_host_layout(lab, &sizes, &HostLayout::windowed(sizes.tokens, 64, 20, 16), "a window")?;
    }
    Ok(())
}

fn one_host_layout<T: Number>(
    lab: &mut Lab<'_, T>,
    sizes: &HeadSizes,
    host: &HostLayout,
    what: &str,
) -> Result<(), Failed> {
    let layout = BlockLayout::new(&lab.bench.device, sizes.tokens, host.rule, TILING, &host.parts())?;
    one_layout(lab, sizes, &layout, &host.kept(), what)
}

fn one_layout<T: Number>(
    lab: &mut Lab<'_, T>,
    sizes: &HeadSizes,
    layout: &BlockLayout,
    kept: &[Vec<u32>],
    what: &str,
) -> Result<(), Failed> {
    let device = &lab.bench.device;
    let inputs = Inputs::new(lab, sizes)?;
    let [q, k, v] = &inputs.host;
    let expected = blocks::attention([q, k, v], sizes, kept);
    let count = sizes.query_elements() as usize;
    let capability = device.facts().capability;
    let served = Engine::ALL.into_iter().filter(|engine| engine.serves(sizes.head_dim, size_of::<T>(), capability));
    for engine in served {
        let attention = BlockAttention::<T>::load_with(device, &Cache::of_user(), sizes.head_dim, engine)?;
        let mut out = lab.spoiled(count)?;
        attention.attend(device.stream(), sizes, inputs.there(), layout, &mut out)?;
        lab.judge(&format!("{engine:?} {sizes:?} {what}"), &out, &expected)?;
    }
    // At an address that is no multiple of 16.
    let attention = BlockAttention::<T>::load(device, &Cache::of_user(), sizes.head_dim)?;
    let mut shifted = lab.spoiled(count + 1)?;
    let part = shifted.slice_mut(1..count + 1)?;
    attention.attend(device.stream(), sizes, inputs.there(), layout, part)?;
    let found: Vec<f32> = shifted.slice(1..count + 1)?.read()?.into_iter().map(T::widened).collect();
    lab.judge_values(&format!("shifted {sizes:?} {what}"), &found, &expected)
}

/// Queries, keys and values, here and on the device, where what is beyond the tokens is no number.
struct Inputs<T> {
    host: [Vec<f32>; 3],
    device: [Buffer<T>; 3],
}

impl<T: Number> Inputs<T> {
    fn new(lab: &Lab<'_, T>, sizes: &HeadSizes) -> Result<Self, CudaError> {
        let scaled = |count: u64, seed| lab.noise(count as usize, seed).iter().map(|value| value * 2.0).collect();
        let host: [Vec<f32>; 3] = [
            scaled(sizes.query_elements(), 41),
            scaled(sizes.cache_elements(), 42),
            scaled(sizes.cache_elements(), 43),
        ];
        let [head, used] = [sizes.head_dim, sizes.tokens * sizes.head_dim].map(|count| count as usize);
        let spoiled = |values: &[f32]| {
            let mut values = values.to_vec();
            values.chunks_exact_mut(sizes.capacity as usize * head).for_each(|rows| rows[used..].fill(f32::NAN));
            lab.upload(&values)
        };
        let device = [lab.upload(&host[0])?, spoiled(&host[1])?, spoiled(&host[2])?];
        Ok(Self { host, device })
    }

    fn there(&self) -> [Slice<'_, T>; 3] {
        let [q, k, v] = &self.device;
        [q.all(), k.all(), v.all()]
    }
}

pub fn refused(bench: &Bench) -> Answer {
    let device = &bench.device;
    let rule = Rule { is_causal: true, half_window: None, global: 0 };
    let parts =
        LayoutParts { tile_starts: &[0, 1], tiles: &[9], column_starts: &[0, 0], columns: &[], column_rows: &[] };
    expect(BlockLayout::new(device, 100, rule, TILING, &parts).is_err(), || "a tile beyond the end was taken".into())?;
    let other = Tiling { rows: 64, keys: 64 };
    expect(BlockLayout::dense(device, 100, other, true).is_err(), || "another tiling was taken".into())?;
    let layout = BlockLayout::dense(device, 100, TILING, true)?;
    let attention = BlockAttention::<f32>::load(device, &Cache::of_user(), 64)?;
    let buffer: Buffer<f32> = device.allocate(100 * 64)?;
    let mut out: Buffer<f32> = device.allocate(100 * 64)?;
    let mut attend = |case: [u32; 6]| {
        attention.attend(device.stream(), &sizes(case), [buffer.all(), buffer.all(), buffer.all()], &layout, &mut out)
    };
    expect(attend([1, 99, 1, 1, 64, 100]).is_err(), || "a layout of another length was taken".into())?;
    expect(attend([1, 100, 1, 1, 64, 99]).is_err(), || "a cache that is too short was taken".into())?;
    expect(attend([2, 100, 1, 1, 64, 100]).is_err(), || "buffers that are too small were taken".into())?;
    expect(attend([1, 100, 1, 1, 32, 100]).is_err(), || "heads of another size were taken".into())?;
    Ok(format!("a dense layout of 16384 tokens is {} bytes", BlockLayout::dense(device, 16_384, TILING, true)?.bytes()))
}
