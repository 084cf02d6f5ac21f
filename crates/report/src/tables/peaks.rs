//! The measured peak rates of a machine, as a table.

use laptime_analyze::plural;
use laptime_trace::run::Peaks;

use crate::table::{Cell, Table, table};

/// Lays out peaks, one row per kind of work.
pub fn peaks(peaks: &Peaks) -> Table {
    let flops = peaks.flops.iter().map(|peak| {
        let at = format!("size {}{}", peak.size, threads(&peaks.device, peak.threads));
        (format!("{} arithmetic", peak.dtype), peak.flops_s, peak.median, "GFLOP/s", at)
    });
    let bandwidth = peaks.bandwidth.iter().map(|peak| {
        let at = format!("buffers of {} MiB{}", peak.bytes >> 20, threads(&peaks.device, peak.threads));
        (format!("memory, {}", peak.traffic.word()), peak.bytes_s, peak.median, "GB/s", at)
    });
    let mut table = table!("peaks", flops.chain(bandwidth), (what, rate, median, unit, at):
        (String, f64, Option<f64>, &str, String) => [
        ("what") => Cell::text(what),
        ("rate") => Cell::Number(rate / 1e9),
        ("median") => Cell::number(median.map(|median| median / 1e9)),
        ("unit") => Cell::text(unit),
        ("at", "with") => Cell::text(at),
    ]);
    table.machine_fact("device", Cell::text(&peaks.device));
    table.machine_fact("measured", Cell::text(&peaks.measured));
    table.human_fact("device", Cell::text(&peaks.device));
    table.human_fact("measured", Cell::text(&peaks.measured));
    table.legend(
        "The rate is what the fastest tenth of the iterations reached. A copy counts the bytes read and the bytes written.",
    );
    table
}

/// The host threads, which do not matter on a GPU.
fn threads(device: &str, count: u32) -> String {
    if device.starts_with("cuda") { String::new() } else { format!(", {}", plural(count, "thread", "threads")) }
}

#[cfg(test)]
mod tests {
    use super::threads;

    #[test]
    fn host_threads_are_not_shown_for_a_gpu() {
        assert_eq!(["cpu", "cuda:0"].map(|device| threads(device, 2)), [", 2 threads", ""]);
        assert_eq!(threads("cpu", 1), ", 1 thread");
    }
}
