//! Overlap of copies and communication with compute, as a table.

use laptime_analyze::{DeviceOverlap, Note, Overlap, Traffic};

use super::overview;
use crate::{Cell, Table, layout::single, table::table};

/// Lays out one row per copy direction and communication family, below their totals.
pub fn overlap(answer: &Overlap) -> Table {
    let rows = answer.devices.iter().flat_map(rows);
    let mut table = table!("overlap", rows, (device, depth, label, part, traffic):
        (&DeviceOverlap, usize, &str, &str, &Traffic) => [
        ("what", "what").human_only() => Cell::tree(depth, label, label),
        ("device", "device").shown_if(answer.devices.len() > 1) => Cell::text(device.name.clone()),
        ("part", "part").machine_only() => Cell::text(part),
        ("path", "path").machine_only() => Cell::text(if depth == 0 { "all" } else { label }),
        ("count", "count").drop(2) => Cell::Count(traffic.count),
        ("total_bytes", "bytes").drop(3) => Cell::from(traffic.bytes.map(Cell::Bytes)),
        ("time_ms", "time") => Cell::Nanos(traffic.time.0),
        // A total over directions of different speed has no rate.
        ("gb_s", "GB/s").drop(1) => Cell::number(traffic.gb_s().filter(|_| depth > 0)),
        ("hidden_ms", "hidden").in_unit_of("time_ms") => Cell::Nanos(traffic.hidden.0),
        ("exposed_ms", "exposed").in_unit_of("time_ms") => Cell::Nanos(traffic.exposed().0),
        ("hidden", "hidden") => Cell::share(traffic.hidden_share()),
        ("alone_ms", "alone").machine_only() => Cell::Nanos(traffic.alone.0),
    ]);
    add_remarks(&mut table, answer);
    table
}

/// The rows of a device: their depth, label and part, and the traffic.
fn rows(device: &DeviceOverlap) -> Vec<(&DeviceOverlap, usize, &str, &str, &Traffic)> {
    let copies = device.copies.iter().map(|(path, traffic)| (device, 1, path.words(), "copies", traffic));
    let families = device.communication.iter();
    let families = families.map(|(family, traffic)| (device, 1, family.word(), "communication", traffic));
    let mut rows = Vec::new();
    if let Some(all) = &device.all_copies {
        rows.push((device, 0, "copy and compute", "copies", all));
        rows.extend(copies);
    }
    if let Some(all) = &device.all_communication {
        rows.push((device, 0, "communication and compute", "communication", all));
        rows.extend(families);
    }
    rows
}

fn add_remarks(table: &mut Table, answer: &Overlap) {
    for device in &answer.devices {
        let of = if answer.devices.len() > 1 { format!("{}: ", device.name) } else { String::new() };
        table.human_fact(format!("{of}compute"), Cell::Nanos(device.compute.0));
        table.human_fact(format!("{of}first to last work"), Cell::Nanos(device.window.0));
    }
    overview::add(table, &answer.overview);
    if table.rows.is_empty() {
        table.note("There are no copies and no communication.");
    } else {
        table.legend(
            "Hidden time overlaps with compute on the same device, exposed time does not. Exposed time is not always a \
             wait: `laptime gaps` and `laptime syncs` show waits.",
        );
    }
    for device in answer.devices.iter().filter(|device| device.is_stages) {
        let compute = single(&Cell::Nanos(device.compute.0));
        let text = format!("no kernels of {} were recorded; {compute} of compute is an upper bound", device.name);
        table.warn(Note::new("stages-only", text));
    }
    for finding in &answer.findings {
        table.note(format!("{}. Try: {} [{}].", finding.evidence, finding.next, finding.rule));
    }
    let rules: Vec<&str> = answer.findings.iter().map(|finding| finding.rule).collect();
    if !rules.is_empty() {
        table.machine_fact("findings", Cell::text(rules.join(" ")));
    }
}
