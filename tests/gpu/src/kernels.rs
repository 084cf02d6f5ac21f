//! Our kernels, their cache and their compiler, compared with references on the CPU.

use std::{env, fs, process, time::Instant};

use laptime_cuda::{Cache, CudaError, Kernels, nn::Operations, nvrtc, nvrtc::Origin};

use crate::{Answer, Bench, Failed, expect, reference};

pub fn cached(bench: &Bench) -> Answer {
    let folder = env::temp_dir().join(format!("laptime-gpu-test-{}", process::id()));
    let cache = Cache::at(&folder);
    let load = || {
        let began = Instant::now();
        let kernels = Kernels::load(&bench.device, &cache)?;
        Ok::<_, CudaError>((kernels.origin(), began.elapsed().as_secs_f64() * 1e3))
    };
    let (first, second) = (load(), load());
    // The folder is deleted in any event.
    let _ = fs::remove_dir_all(&folder);
    let ((first, compile_ms), (second, cached_ms)) = (first?, second?);
    expect(first == Origin::Compiled, || "they were not compiled at first".to_owned())?;
    expect(second == Origin::Cache, || "they were compiled again".to_owned())?;
    Ok(format!("compiled in {compile_ms:.0} ms, from the cache in {cached_ms:.1} ms"))
}

/// Sources that are compiled ahead are not compiled again, and end in the cache.
pub fn ahead(bench: &Bench) -> Answer {
    let folder = env::temp_dir().join(format!("laptime-gpu-test-ahead-{}", process::id()));
    let cache = Cache::at(&folder);
    let load = |is_ahead: bool| {
        let began = Instant::now();
        if is_ahead {
            nvrtc::compile_ahead(&bench.device, &cache, Operations::<f32>::requests());
        }
        Operations::<f32>::load(&bench.device, &cache)?;
        Ok::<_, CudaError>(began.elapsed().as_secs_f64() * 1e3)
    };
    let together = load(true);
    let (kept, cached) = (fs::read_dir(&folder).map(Iterator::count), load(true));
    let _ = fs::remove_dir_all(&folder);
    let one_by_one = load(false);
    let _ = fs::remove_dir_all(&folder);
    let requests = Operations::<f32>::requests().count();
    expect(kept.as_ref().is_ok_and(|kept| *kept == requests), || format!("{kept:?} of {requests} files in the cache"))?;
    let (together, cached, one_by_one) = (together?, cached?, one_by_one?);
    Ok(format!("{requests} sources together {together:.0} ms, one by one {one_by_one:.0} ms, cached {cached:.1} ms"))
}

pub fn compile_error(bench: &Bench) -> Answer {
    let text = "extern \"C\" __global__ void broken(float* out) {\n    out[0] = nothing;\n}\n";
    let source = nvrtc::Source { file: "broken.cu", text };
    match nvrtc::compile(source, &bench.device.facts().architecture(), &[]) {
        Err(CudaError::Compile(error)) => {
            let lines: Vec<usize> = error.problems.iter().map(|problem| problem.line).collect();
            expect(lines == [2], || format!("problems at lines {lines:?}: {}", error.log))?;
            expect(error.to_string().contains("out[0] = nothing;"), || error.to_string())?;
            Ok(error.problems[0].message.clone())
        }
        other => Err(Failed::Wrong(format!("{other:?}"))),
    }
}

pub fn fill(bench: &Bench) -> Answer {
    let mut out = bench.device.allocate::<f32>(1_000_003)?;
    bench.kernels.fill(bench.device.stream(), &mut out, 1.25)?;
    let wrong = out.read()?.iter().filter(|value| **value != 1.25).count();
    expect(wrong == 0, || format!("{wrong} values are wrong"))?;
    Ok("1000003 values".to_owned())
}

fn numbers(count: usize) -> Vec<u32> {
    reference::noise(count, 7).into_iter().map(|value| (value * 1e9) as i32 as u32).collect()
}

pub fn read_sum(bench: &Bench) -> Answer {
    let numbers = numbers(1 << 22);
    let values = bench.device.upload(&numbers)?;
    let mut sum = bench.device.upload(&[0_u64])?;
    bench.kernels.read_sum(bench.device.stream(), &values, &mut sum)?;
    let (found, expected) = (sum.read()?[0], reference::sum(&numbers));
    expect(found == expected, || format!("{found} and not {expected}"))?;
    Ok(format!("sum {found}"))
}

pub fn copy(bench: &Bench) -> Answer {
    let numbers = numbers(1 << 20);
    let from = bench.device.upload(&numbers)?;
    let mut to = bench.device.allocate(numbers.len())?;
    bench.kernels.copy(bench.device.stream(), &from, &mut to)?;
    expect(to.read()? == numbers, || "the copy differs".to_owned())?;
    Ok(format!("{} values", numbers.len()))
}
