//! The table of what a machine can do at most.

use laptime_trace::run::Peaks;

use crate::table::{Cell, Column, Table};

/// Lays peaks out, one row a kind of work.
pub fn peaks(peaks: &Peaks) -> Table {
    let columns = [
        Column::new("what", "what"),
        Column::new("rate", "rate"),
        Column::new("median", "median"),
        Column::new("unit", "unit"),
        Column::new("at", "reached with"),
    ];
    let mut table = Table::new("peaks", columns);
    for peak in &peaks.flops {
        let at = format!("size {}{}", peak.size, threads(&peaks.device, peak.threads));
        let rates = [Some(peak.flops_s), peak.median].map(billions);
        push(&mut table, format!("{} arithmetic", peak.dtype), rates, "GFLOP/s", at);
    }
    for peak in &peaks.bandwidth {
        let at = format!("buffers of {} MiB{}", peak.bytes >> 20, threads(&peaks.device, peak.threads));
        let rates = [Some(peak.bytes_s), peak.median].map(billions);
        push(&mut table, format!("memory, {}", peak.traffic.word()), rates, "GB/s", at);
    }
    table.machine_fact("device", Cell::text(&peaks.device));
    table.machine_fact("measured", Cell::text(&peaks.measured));
    table.note(format!(
        "The rate on `{}` is the one that the fastest tenth of the iterations reached; measured {}. A copy counts bytes \
         read and written.",
        peaks.device, peaks.measured
    ));
    table
}

fn push(table: &mut Table, what: String, rates: [Cell; 2], unit: &str, at: String) {
    let [rate, median] = rates;
    table.push([Cell::text(what), rate, median, Cell::text(unit), Cell::text(at)]);
}

fn billions(rate: Option<f64>) -> Cell {
    Cell::from(rate.map(|rate| Cell::Number(rate / 1e9)))
}

/// The threads of the host, which do not matter where a GPU does the work.
fn threads(device: &str, count: u32) -> String {
    match count {
        _ if device.starts_with("cuda") => String::new(),
        1 => ", 1 thread".to_owned(),
        _ => format!(", {count} threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::threads;

    #[test]
    fn threads_of_the_host_are_not_told_of_a_gpu() {
        assert_eq!(["cpu", "cuda:0"].map(|device| threads(device, 2)), [", 2 threads", ""]);
        assert_eq!(threads("cpu", 1), ", 1 thread");
    }
}
