//! The stages that a pass marks, at every depth, recorded.

use laptime_models::{Attention, Config, Dtype, GraphMode, Marks, Options, Room, Tokens, Weights, cpu};
use laptime_trace::run::Depth;

/// The names of the stages of one forward pass of a model with two layers, in order.
fn names(depth: Depth) -> Vec<String> {
    let config = Config::from_preset("tiny").unwrap();
    let marks = Marks { depth, ..Marks::default() };
    let options = Options {
        dtype: Dtype::F32,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        room: Room::Growing,
        graph: GraphMode::Auto,
        marks,
        offload: None,
    };
    let mut decoder = cpu::decoder(config.clone(), &Weights::synthetic(&config, 1), options, 2).unwrap();
    // The first pass allocates, which is a stage of its own.
    decoder.forward(&Tokens::one(vec![1; 100])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    decoder.forward(&Tokens::one(vec![1; 100])).unwrap();
    recording.finish().unwrap();
    let trace = laptime_trace::read(&path).unwrap();
    assert!(trace.tracks().len() <= 1, "stages are on the track of the caller");
    trace.spans().map(|span| span.name.to_owned()).collect()
}

#[test]
fn stages_are_marked_as_deep_as_was_asked() {
    let _alone = crate::alone();
    assert!(names(Depth::Pipeline).is_empty());
    let layer = ["layer", "attention", "ffn"];
    assert_eq!(names(Depth::Layer), [&["embed"], &layer[..], &layer, &["head"]].concat());
}
