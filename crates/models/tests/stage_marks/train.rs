//! The stages that a training step marks and the memory that it leaves on the trace, recorded.

use laptime_models::{Attention, Config, Dtype, Marks, TrainOptions, Weights, cpu, random_batch};
use laptime_trace::{Trace, run::Depth};

/// What one step of a model with two layers leaves.
fn step(depth: Depth, attention: Attention) -> Trace {
    let config = Config::from_preset("tiny").unwrap();
    let marks = Marks { depth, ..Marks::default() };
    let options = TrainOptions { attention, marks, ..TrainOptions::new(Dtype::F32, 1, 100) };
    let (tokens, targets) = random_batch(&config, 1, 100, 1).unwrap();
    let mut trainer = cpu::trainer(config.clone(), &Weights::synthetic(&config, 1), options, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    trainer.forward(&tokens, &targets).unwrap();
    trainer.backward().unwrap();
    trainer.update().unwrap();
    recording.finish().unwrap();
    laptime_trace::read(&path).unwrap()
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.spans().map(|span| span.name).collect()
}

/// The points of a curve.
fn curve(trace: &Trace, name: &str) -> Vec<f64> {
    let is_named = |track| trace.name(trace.track(track).name) == name;
    trace.values().filter(|point| is_named(point.track)).map(|point| point.number.as_f64()).collect()
}

#[test]
fn a_training_step_marks_its_stages_and_records_its_memory() {
    let _alone = crate::alone();
    let trace = step(Depth::Pipeline, Attention::Naive);
    assert!(names(&trace).is_empty(), "the three stages are marked by who runs them");
    assert_eq!(curve(&trace, "activations_memory").len(), 3, "one for each of them");

    let trace = step(Depth::Layer, Attention::Dense);
    let (forward, backward) = (["layer", "attention", "ffn"], ["layer", "ffn", "attention"]);
    let all =
        [&["embed"], &forward[..], &forward, &["head", "loss", "head"], &backward, &backward, &["embed"]].concat();
    assert_eq!(names(&trace), all);
    let activations = curve(&trace, "activations_memory");
    assert_eq!(activations.len(), 2 + 1 + 1 + 2 + 1 + 1);
    assert!(activations[..3].is_sorted() && activations[2..].is_sorted_by(|a, b| a >= b), "{activations:?}");
    let (gradients, optimizer) = (curve(&trace, "gradients_memory"), curve(&trace, "optimizer_memory"));
    assert!(gradients.is_sorted() && gradients[0] == 0.0 && optimizer[6] == 0.0);
    let weights = curve(&trace, "weights_memory")[7];
    assert!(gradients[7] == weights && optimizer[7] == 2.0 * weights && weights > 0.0);
}
