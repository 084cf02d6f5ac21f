//! Offloaded layers on a GPU compute the same as resident ones, within the predicted memory.

use laptime_cuda::{Buffer, CudaError, Device, Region};
use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Home, Marks, Offload, Options, StreamMode, Tokens,
    Weights,
    gpu::{GpuModel, logits_alone_and_apart, needed_bytes},
};

use crate::models::{fixture::distance, memory::compare};
use crate::{Answer, Bench, Failed, expect};

/// Steps after a prompt.
const STEPS: usize = 20;

pub fn options(dtype: Dtype, capacity: usize, offload: Option<Offload>) -> Options {
    Options {
        dtype,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Static(capacity),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload,
    }
}

pub fn offload(mode: StreamMode, resident: usize) -> Offload {
    Offload { mode, resident, home: "".into(), link_gbps: None, clear_every: None, lane: None }
}

/// What a decoder makes of a prompt in two pieces, steps behind it that are looked at one by one and others that are put
/// on the stream without a look, and of a pass without the cache.
fn run(decoder: &mut dyn Decoder, vocab: usize) -> Result<(Vec<f32>, Vec<u32>), Failed> {
    let prompt: Vec<u32> = (0..23).map(|at| (at * 7919 + 13) % vocab as u32).collect();
    decoder.prefill(&Tokens::one(prompt[..16].to_vec()))?;
    decoder.prefill(&Tokens::one(prompt[16..].to_vec()))?;
    let mut logits = decoder.logits()?;
    let mut tokens = decoder.sampled()?;
    for _ in 0..STEPS {
        decoder.step()?;
        logits.extend(decoder.logits()?);
        tokens.extend(decoder.sampled()?);
    }
    decoder.forward(&Tokens::one(prompt))?;
    logits.extend(decoder.logits()?);
    (0..STEPS).try_for_each(|_| decoder.step())?;
    logits.extend(decoder.logits()?);
    tokens.extend(decoder.sampled()?);
    Ok((logits, tokens))
}

/// Two pieces, all steps and the pass without the cache.
const PASSES: usize = 2 + 2 * STEPS + 1;

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

pub fn alike(bench: &Bench) -> Answer {
    let copies = bench.device.with_new_stream()?;
    let mut told = Vec::new();
    for preset in ["tiny", "tiny-qwen2", "decoder_tiny"] {
        let config = Config { layers: 6, ..Config::from_preset(preset)? };
        let weights = Weights::synthetic(&config, 5);
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let model = GpuModel::load(&bench.device, &config, &weights, dtype, None)?;
            let (logits, tokens) =
                run(&mut *model.decoder(&bench.device, None, options(dtype, 96, None))?, config.vocab)?;
            for mode in StreamMode::ALL {
                for resident in [5, 4, 3, 0] {
                    let offload = Offload { clear_every: Some(5), ..offload(mode, resident) };
                    let model =
                        GpuModel::load(&bench.device, &config, &weights, dtype, Some((&offload, &Region::pinned)))?;
                    let how = format!("{preset} {dtype} {mode}, {resident} of 6 stay");
                    let options = options(dtype, 96, Some(offload));
                    let mut decoder = model.decoder(&bench.device, Some(&copies), options)?;
                    let (seen, chosen) = run(&mut *decoder, config.vocab)?;
                    expect(bits(&seen) == bits(&logits), || format!("{how}: other logits"))?;
                    expect(chosen == tokens, || format!("{how}: other tokens"))?;
                    visits(&mut *decoder, mode, 6 - resident, &how)?;
                }
            }
            told.push(format!("{preset} {dtype}"));
        }
    }
    Ok(format!("{}: 5 modes, 1, 2, 3 and 6 layers streamed, bit by bit", told.join(", ")))
}

/// Checks that every visit is reported once, with whether its copy was requested ahead.
fn visits(decoder: &mut dyn Decoder, mode: StreamMode, streamed: usize, how: &str) -> Result<(), Failed> {
    let visits = decoder.layer_visits()?;
    expect(visits.len() == PASSES * streamed, || format!("{how}: {} visits", visits.len()))?;
    for (at, visit) in visits.iter().enumerate() {
        let place = (visit.pass as usize, visit.layer);
        expect(place == (at / streamed, at % streamed), || format!("{how}: visit {at} is {place:?}"))?;
        let is_ahead = mode.is_ahead() && (visit.layer > 0 || (mode.wraps() && visit.pass > 0));
        expect(visit.is_ahead == is_ahead, || format!("{how}: visit {at} was asked for at another time"))?;
        expect((visit.release_ns > 0.0) == (mode == StreamMode::Sync), || format!("{how}: {visit:?}"))?;
    }
    let told = decoder.offloading().ok_or_else(|| Failed::Wrong(format!("{how}: nothing is streamed")))?;
    let home = if mode == StreamMode::Sync { Home::Pageable } else { Home::Pinned };
    expect((told.streamed, told.layers, &told.home) == (streamed, 6, &home), || format!("{how}: {told:?}"))?;
    expect(decoder.layer_visits()?.is_empty(), || format!("{how}: a visit was reported twice"))
}

pub fn apart(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for (preset, dtype, near) in
        [("tiny", Dtype::F32, 1e-5), ("tiny-qwen2", Dtype::F32, 1e-5), ("Qwen3-0.6B", Dtype::Bf16, 0.03)]
    {
        let config = Config::from_preset(preset)?;
        let weights = Weights::synthetic(&config, 4);
        let prompts: [Vec<u32>; 2] = [(3..40).collect(), (60..67).collect()];
        let prompts = [&prompts[0][..], &prompts[1][..]];
        let [alone, apart] = logits_alone_and_apart(&bench.device, &config, &weights, dtype, prompts, STEPS)?;
        let largest = alone.iter().fold(1e-6_f32, |most, logit| most.max(logit.abs()));
        let distance = distance(&apart, &alone)? / largest;
        expect(distance <= near, || format!("{preset} {dtype}: {distance:e} of the largest logit apart"))?;
        told.push(format!("{preset} {dtype} {distance:.0e}"));
    }
    Ok(told.join(", "))
}

pub fn refused(bench: &Bench) -> Answer {
    let copies = bench.device.with_new_stream()?;
    let config = Config { layers: 4, ..Config::from_preset("tiny")? };
    let (weights, dtype) = (Weights::synthetic(&config, 5), Dtype::F32);
    let load =
        |offload: &Offload| GpuModel::load(&bench.device, &config, &weights, dtype, Some((offload, &Region::pinned)));
    let decoder = |model: &GpuModel, offload: Offload| {
        model.decoder(&bench.device, Some(&copies), options(dtype, 96, Some(offload))).map(|_| ())
    };
    let wrap = load(&offload(StreamMode::Wrap, 2))?;
    let attempts = [
        load(&offload(StreamMode::Wrap, 5)).map(|_| ()),
        decoder(&wrap, offload(StreamMode::Wrap, 3)),
        decoder(&wrap, offload(StreamMode::Sync, 2)),
        wrap.decoder(&bench.device, None, options(dtype, 96, Some(offload(StreamMode::Wrap, 2)))).map(|_| ()),
        wrap.decoder(&bench.device, None, options(dtype, 96, None)).map(|_| ()),
    ];
    let mut told = Vec::new();
    for attempt in attempts {
        match attempt {
            Ok(()) => return Err(Failed::Wrong("what cannot be done was done".to_owned())),
            Err(error) => told.push(error.to_string()),
        }
    }
    let all = load(&offload(StreamMode::Wrap, 4))?;
    let all = all.decoder(&bench.device, None, options(dtype, 96, Some(offload(StreamMode::Wrap, 4))))?;
    expect(all.offloading().is_none(), || "layers that all stay are streamed".to_owned())?;
    told.push(unpinned(bench, &copies)?);
    Ok(told.join("\n"))
}

/// Pinned memory that is refused, at the third layer: all of it is pageable, and the numbers are the same.
fn unpinned(bench: &Bench, copies: &Device) -> Answer {
    let config = Config { layers: 4, ..Config::from_preset("tiny")? };
    let (weights, dtype) = (Weights::synthetic(&config, 5), Dtype::F32);
    let given = std::cell::Cell::new(0);
    let pin = |device: &Device, bytes: usize| {
        given.set(given.get() + 1);
        match given.get() {
            3.. => Err(CudaError::refused("allocating pinned memory", 2, "out of host memory")),
            _ => Region::pinned(device, bytes),
        }
    };
    let offload = offload(StreamMode::Wrap, 1);
    let model = GpuModel::load(&bench.device, &config, &weights, dtype, Some((&offload, &pin)))?;
    let mut decoder = model.decoder(&bench.device, Some(copies), options(dtype, 96, Some(offload)))?;
    let resident = GpuModel::load(&bench.device, &config, &weights, dtype, None)?;
    let mut resident = resident.decoder(&bench.device, None, options(dtype, 96, None))?;
    let (ours, theirs) = (run(&mut *decoder, config.vocab)?, run(&mut *resident, config.vocab)?);
    expect(ours == theirs, || "pageable memory gives other numbers".to_owned())?;
    let home = decoder.offloading().map(|told| told.home);
    expect(matches!(home, Some(Home::Refused(_))), || format!("{home:?}"))?;
    Ok(format!("{home:?}"))
}

/// Memory that is taken away between two steps makes an error of the second, and a third that has it goes on.
pub fn out_of_memory(bench: &Bench) -> Answer {
    let copies = bench.device.with_new_stream()?;
    let config = Config { layers: 4, ..Config::from_preset("Qwen3-0.6B")? };
    let weights = Weights::synthetic(&config, 5);
    let mut chosen = Vec::new();
    let mut told = String::new();
    for is_short in [false, true] {
        let offload = offload(StreamMode::Sync, 2);
        let model = GpuModel::load(&bench.device, &config, &weights, Dtype::Bf16, Some((&offload, &Region::pinned)))?;
        let mut decoder = model.decoder(&bench.device, Some(&copies), options(Dtype::Bf16, 96, Some(offload)))?;
        decoder.prefill(&Tokens::one((0..16).collect()))?;
        (0..3).try_for_each(|_| decoder.step())?;
        if is_short {
            let taken = take_all(&bench.device)?;
            let Err(error) = decoder.step() else {
                return Err(Failed::Wrong("a step went without memory".to_owned()));
            };
            told = format!("{} GB taken: {error}", taken.iter().map(Buffer::bytes).sum::<usize>() / 1_000_000_000);
        }
        (0..3).try_for_each(|_| decoder.step())?;
        chosen.push(decoder.sampled()?);
    }
    bench.device.give_back_memory()?;
    expect(chosen[0] == chosen[1], || format!("other tokens after a lack of memory: {chosen:?}"))?;
    Ok(told)
}

fn take_all(device: &Device) -> Result<Vec<Buffer<u8>>, Failed> {
    let mut taken = Vec::new();
    for bytes in [4 << 30, 128 << 20, 2 << 20] {
        while let Ok(buffer) = device.allocate(bytes) {
            taken.push(buffer);
        }
    }
    device.synchronise()?;
    Ok(taken)
}

/// The allocated memory is the predicted one.
pub fn memory(bench: &Bench) -> Answer {
    let copies = bench.device.with_new_stream()?;
    let config = Config::from_preset("Qwen2.5-7B")?;
    let weights = Weights::synthetic(&config, 1);
    let mut told = Vec::new();
    for (mode, resident, dtype) in [
        (StreamMode::Sync, 12, Dtype::Bf16),
        (StreamMode::Pinned, 20, Dtype::Bf16),
        (StreamMode::Wrap, 20, Dtype::Bf16),
        (StreamMode::Wrap, 0, Dtype::Bf16),
        (StreamMode::Wrap, 20, Dtype::Fp8),
    ] {
        let offload = offload(mode, resident);
        let options = options(dtype, 2048, Some(offload.clone()));
        let needed = needed_bytes(&config, &options, 512, false);
        let words = compare(bench, &format!("{mode} {dtype}, {resident} stay"), needed, || {
            let model = GpuModel::load(&bench.device, &config, &weights, dtype, Some((&offload, &Region::pinned)))?;
            let mut decoder = model.decoder(&bench.device, Some(&copies), options)?;
            decoder.prefill(&Tokens::one((0..512).collect()))?;
            (0..3).try_for_each(|_| decoder.step())?;
            Ok(decoder.sampled().map(drop)?)
        })?;
        told.push(words);
    }
    Ok(told.join("\n"))
}
