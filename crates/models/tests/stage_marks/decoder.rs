//! The stages that a pass marks, at every depth, recorded.

use std::{
    error::Error,
    sync::{Arc, Mutex},
};

use laptime_models::{CacheCapacity, Config, Decoder, Dtype, Marks, Options, StageNames, Tokens, Weights, cpu};
use laptime_trace::{Trace, run::Depth};

use crate::trees::recorded_trace;

fn decoder(marks: Marks) -> Box<dyn Decoder> {
    let config = Config::from_preset("tiny").unwrap();
    let options = Options { marks, ..Options::new(Dtype::F32, CacheCapacity::Growing) };
    cpu::decoder(config.clone(), &Weights::synthetic(&config, 1), options, 2).unwrap()
}

/// The stages of one forward pass of a model with two layers, recorded.
fn recorded(depth: Depth) -> Trace {
    let mut decoder = decoder(Marks { depth, ..Marks::default() });
    // The first pass allocates, which is a stage of its own.
    decoder.forward(&Tokens::one(vec![1; 100])).unwrap();
    let trace = recorded_trace::<Box<dyn Error>>(|| Ok(decoder.forward(&Tokens::one(vec![1; 100]))?)).unwrap();
    assert!(trace.tracks().len() <= 1, "stages are on the track of the caller");
    trace
}

/// Their names, in order.
fn names(depth: Depth) -> Vec<String> {
    recorded(depth).spans().map(|span| span.name.to_owned()).collect()
}

/// A stage: how deep it is, its name and its layer.
type Outlined = (usize, String, Option<u32>);

/// How many stages are open, and all stages as a capture names them.
#[derive(Debug, Default)]
struct Named(Mutex<(usize, Vec<Outlined>)>);

impl StageNames for Named {
    fn begin(&self, name: &'static str, place: Option<(&'static str, u32)>) {
        let (depth, stages) = &mut *self.0.lock().unwrap();
        stages.push((*depth, name.to_owned(), place.map(|(_, number)| number)));
        *depth += 1;
    }

    fn end(&self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

#[test]
fn a_capture_names_the_stages_that_are_recorded() {
    let _alone = crate::alone();
    for depth in [Depth::Layer, Depth::Ops] {
        let trace = recorded(depth);
        let expected = trace.spans().map(|span| {
            let above = std::iter::successors(span.parent, |parent| trace.span(*parent).parent).count();
            let layer = span.fields.iter().find(|(name, _)| *name == "layer").map(|(_, value)| value.to_string());
            (above, span.name.to_owned(), layer.map(|layer| layer.parse().unwrap()))
        });
        let names = Arc::new(Named::default());
        let marks = Marks { depth, names: Some(Arc::clone(&names) as Arc<dyn StageNames>), ..Marks::default() };
        decoder(marks).forward(&Tokens::one(vec![1; 100])).unwrap();
        let (open, found) = &*names.0.lock().unwrap();
        assert_eq!(*open, 0, "every stage ends");
        assert_eq!(found, &expected.collect::<Vec<_>>());
    }
}

#[test]
fn stages_are_marked_to_the_requested_depth() {
    let _alone = crate::alone();
    assert!(names(Depth::Pipeline).is_empty());
    let layer = ["layer", "attention", "ffn"];
    assert_eq!(names(Depth::Layer), [&["embed"], &layer[..], &layer, &["head"]].concat());
}
