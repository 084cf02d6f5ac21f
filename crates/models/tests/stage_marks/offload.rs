//! The stages of passes with streamed layers, recorded.

use laptime_models::{
    Attention, CacheCapacity, Config, Dtype, GraphMode, Marks, Offload, Options, StreamMode, Tokens, Weights, cpu,
};
use laptime_trace::{Trace, Value, run::Depth};

/// Two steps of a model with two streamed layers and one that stays.
fn recorded(mode: StreamMode, depth: Depth) -> Trace {
    let home = tempfile::tempdir().unwrap();
    let config = Config { layers: 3, ..Config::from_preset("tiny").unwrap() };
    let options = Options {
        dtype: Dtype::F32,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Static(32),
        graph: GraphMode::Auto,
        marks: Marks { depth, ..Marks::default() },
        offload: Some(Offload { clear_every: Some(3), ..Offload::new(mode, 1, home.path()) }),
    };
    let mut decoder = cpu::decoder(config.clone(), &Weights::synthetic(&config, 1), options, 1).unwrap();
    decoder.prefill(&Tokens::one(vec![1; 4])).unwrap();
    let path = home.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    decoder.step().unwrap();
    decoder.step().unwrap();
    // The thread that copies has ended when this returns.
    drop(decoder);
    recording.finish().unwrap();
    laptime_trace::read(&path).unwrap()
}

/// The stages of the caller, with layer and pass where they have them.
fn told(trace: &Trace, is_copy: bool) -> Vec<String> {
    let spans = trace.spans().filter(|span| (span.name == "layer_copy") == is_copy);
    let tell = |span: laptime_trace::Span<'_>| {
        let fields = ["forward", "layer"]
            .map(|field| span.fields.get(field).map_or_else(String::new, |value| format!(" {value}")))
            .concat();
        let streamed = matches!(span.fields.get("offloaded"), Some(Value::Bool(true)));
        format!("{}{fields}{}", span.name, if streamed { " offloaded" } else { "" })
    };
    spans.map(tell).collect()
}

#[test]
fn offloaded_layers_are_marked_at_every_depth() {
    let _alone = crate::alone();
    let wrap = recorded(StreamMode::Wrap, Depth::Pipeline);
    assert_eq!(
        told(&wrap, false),
        [
            "layer_wait 1 0",
            "layer 1 0 offloaded",
            "layer_release 1 0",
            "clear_cache",
            "allocate",
            "layer_issue 2 0",
            "layer_wait 1 1",
            "layer 1 1 offloaded",
            "layer_release 1 1",
            "layer_issue 2 1",
            "resident 1",
            "layer_wait 2 0",
            "layer 2 0 offloaded",
            "layer_release 2 0",
            "layer_issue 3 0",
            "layer_wait 2 1",
            "layer 2 1 offloaded",
            "layer_release 2 1",
            "clear_cache",
            "allocate",
            "layer_issue 3 1",
            "resident 2",
        ]
    );
    let copies: Vec<_> = wrap.spans().filter(|span| span.name == "layer_copy").collect();
    // What was asked for before the recording may be in it or not, and what comes last may be given up.
    assert!(copies.len() >= 2, "{copies:?}");
    assert_eq!(wrap.name(wrap.track(copies[0].track).name), "layer copies");
    for copy in &copies {
        assert_eq!(copy.fields.get("pinned"), None, "layers come from a file on a CPU");
        assert!(matches!(copy.fields.get("bytes"), Some(Value::Int(1..) | Value::Uint(1..))), "{copy:?}");
    }

    let sync = recorded(StreamMode::Sync, Depth::Pipeline);
    let one = |pass: usize, layer: usize| {
        let at = format!("{pass} {layer}");
        ["allocate".to_owned(), format!("layer_wait {at}"), format!("layer_issue {at}")]
            .into_iter()
            .chain([format!("layer {at} offloaded"), format!("layer_release {at}")])
    };
    let turns = [(1, 0), (1, 1), (2, 0), (2, 1)];
    let mut wanted: Vec<String> = turns.into_iter().flat_map(|(pass, layer)| one(pass, layer)).collect();
    // The resident layer runs after the offloaded ones. Memory is cleared after every third copy.
    wanted.insert(10, "resident 1".to_owned());
    wanted.insert(5, "clear_cache".to_owned());
    wanted.push("clear_cache".to_owned());
    wanted.push("resident 2".to_owned());
    assert_eq!(told(&sync, false), wanted);
    assert_eq!(told(&sync, true), ["layer_copy 1 0", "layer_copy 1 1", "layer_copy 2 0", "layer_copy 2 1"]);
    let copy = sync.spans().find(|span| span.name == "layer_copy").unwrap();
    assert_eq!(copy.fields.get("pinned"), None);

    let deep = told(&recorded(StreamMode::Pinned, Depth::Layer), false);
    let behind = ["resident 2", "layer 2", "attention", "ffn", "head", "sampling"];
    assert_eq!(deep[deep.len() - behind.len()..], behind);
    assert!(deep.contains(&"layer 1 0 offloaded".to_owned()), "{deep:?}");
}
