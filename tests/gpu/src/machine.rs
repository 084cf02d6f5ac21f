//! What the machine reports about itself.

use laptime_cuda::nvml::Card;

use crate::{Answer, Bench, expect};

pub fn facts(bench: &Bench) -> Answer {
    let facts = bench.device.facts();
    expect(facts.memory_bytes > 0 && facts.multiprocessors > 0, || format!("{facts:?}"))?;
    Ok(format!(
        "{}, {}, {} multiprocessors, {} MiB, L2 {} MiB, driver knows CUDA {}, bus {}",
        facts.name,
        facts.architecture(),
        facts.multiprocessors,
        facts.memory_bytes >> 20,
        facts.l2_bytes >> 20,
        facts.driver_cuda,
        facts.bus,
    ))
}

pub fn card(bench: &Bench) -> Answer {
    let card = Card::open(&bench.device.facts().bus)?;
    let facts = card.facts()?;
    let began = std::time::Instant::now();
    let reading = card.read();
    let micros = began.elapsed().as_secs_f64() * 1e6;
    expect(facts.name == bench.device.facts().name, || format!("NVML calls the card `{}`", facts.name))?;
    expect(reading.sm_mhz.is_some() && reading.celsius.is_some(), || format!("{reading:?}"))?;
    let throttled: Vec<String> = reading.throttled().iter().map(ToString::to_string).collect();
    let throttled = if throttled.is_empty() { "not throttled".to_owned() } else { throttled.join(", ") };
    Ok(format!(
        "driver {}, SM {:?} of {:?} MHz, {:?} mW, {:?} C, {throttled}; read in {micros:.0} us",
        facts.driver, reading.sm_mhz, reading.sm_limit_mhz, reading.power_mw, reading.celsius
    ))
}
