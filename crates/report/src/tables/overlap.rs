//! Overlap of copies and communication with compute, as a table.

use laptime_analyze::{DeviceOverlap, Note, Overlap, Traffic};

use super::overview;
use crate::{Cell, Column, Table, layout::single};

/// Lays out one row per copy direction and communication family, below their totals.
pub fn overlap(answer: &Overlap) -> Table {
    let device = Column::new("device", "device");
    let mut table = Table::new(
        "overlap",
        [
            Column::new("what", "what").human_only(),
            if answer.devices.len() > 1 { device } else { device.machine_only() },
            Column::new("part", "part").machine_only(),
            Column::new("path", "path").machine_only(),
            Column::new("count", "count").drop(2),
            Column::new("total_bytes", "bytes").drop(3),
            Column::new("time_ms", "time"),
            Column::new("gb_s", "GB/s").drop(1),
            Column::new("hidden_ms", "hidden").in_unit_of("time_ms"),
            Column::new("exposed_ms", "exposed").in_unit_of("time_ms"),
            Column::new("hidden", "hidden"),
            Column::new("alone_ms", "alone").machine_only(),
        ],
    );
    for device in &answer.devices {
        add_device(&mut table, device);
    }
    add_remarks(&mut table, answer);
    table
}

fn add_device(table: &mut Table, device: &DeviceOverlap) {
    if let Some(all) = &device.all_copies {
        let whole = Place { depth: 0, label: "copy and compute", part: "copies", path: "all" };
        table.push(row(device, &whole, all));
        for (path, traffic) in &device.copies {
            let place = Place { depth: 1, label: path.words(), part: "copies", path: path.words() };
            table.push(row(device, &place, traffic));
        }
    }
    if let Some(all) = &device.all_communication {
        let whole = Place { depth: 0, label: "communication and compute", part: "communication", path: "all" };
        table.push(row(device, &whole, all));
        for (family, traffic) in &device.communication {
            let place = Place { depth: 1, label: family.word(), part: "communication", path: family.word() };
            table.push(row(device, &place, traffic));
        }
    }
}

/// The labels of a row, for people and for machines.
struct Place {
    depth: usize,
    label: &'static str,
    part: &'static str,
    path: &'static str,
}

fn row(device: &DeviceOverlap, place: &Place, traffic: &Traffic) -> Vec<Cell> {
    vec![
        Cell::tree(place.depth, place.label, place.label),
        Cell::text(device.name.clone()),
        Cell::text(place.part),
        Cell::text(place.path),
        Cell::Count(traffic.count),
        Cell::from(traffic.bytes.map(Cell::Bytes)),
        Cell::Nanos(traffic.time.0),
        // A total over directions of different speed has no rate.
        Cell::from(traffic.gb_s().filter(|_| place.path != "all").map(Cell::Number)),
        Cell::Nanos(traffic.hidden.0),
        Cell::Nanos(traffic.exposed().0),
        Cell::from(traffic.hidden_share().map(Cell::Share)),
        Cell::Nanos(traffic.alone.0),
    ]
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
