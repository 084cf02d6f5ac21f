//! The stages that a fuse marks, recorded.

use crate::common::c2c::{c2c, expected, fuser, prompt};
use laptime_models::{
    Dtype, Marks, cpu,
    fuser::{FuseMode, FuseOptions, FuseOrder, Response},
};
use laptime_trace::run::Depth;

/// The stages of a prompt of two models whose fuser has two closed gates, with their layers.
fn stages(order: FuseOrder, depth: Depth) -> Vec<String> {
    let (config, weights) = fuser("short");
    let options = FuseOptions { order, marks: Marks { depth, ..Marks::default() }, ..FuseOptions::new(Dtype::F32) };
    let mut c2c = c2c(&["short"], Dtype::F32, FuseMode::Sequential);
    c2c.fuser = cpu::fuser(vec![(config, &weights)], options, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    c2c.read(&prompt(&expected(), 1), Response::Plain).unwrap();
    recording.finish().unwrap();
    let trace = laptime_trace::read(&path).unwrap();
    // The first pass of each model allocates buffers.
    let told = trace.spans().filter(|span| span.name != "allocate").map(|span| {
        let fields: Vec<String> = span.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        [span.name, &fields.join(" ")].join(" ").trim().to_owned()
    });
    told.collect()
}

#[test]
fn a_fuse_is_one_stage_or_one_per_open_path() {
    let _alone = crate::alone();
    assert_eq!(stages(FuseOrder::Batched, Depth::Pipeline), ["projector tokens=10 layers=3"]);
    assert_eq!(
        stages(FuseOrder::ByLayer, Depth::Pipeline),
        [
            "projector tokens=10 layers=3",
            "fuse_keys layer=0 sharer=0",
            "fuse_values layer=0 sharer=0",
            "fuse_values layer=1 sharer=0",
            "fuse_keys layer=2 sharer=0",
        ]
    );
    let inside = ["fuse_input", "fuse_common", "fuse_weight", "fuse_value", "fuse_add"];
    let ops = stages(FuseOrder::Batched, Depth::Ops);
    assert_eq!(ops[1..], inside.repeat(4));
}
