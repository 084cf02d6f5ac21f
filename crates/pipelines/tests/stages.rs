//! The recorded stages of the workloads: one test, since a program has one recording.

use laptime_bench::{Case, Prepared, Simulated, Workload};
use laptime_pipelines::{Attention, Chain, Matmul, MemoryCopy, Model};

/// Prepares and checks a case, and runs one iteration.
fn run_case(workload: &dyn Workload, case: &str) {
    let values = case.split(' ').filter_map(|word| word.split_once('='));
    let values = values.map(|(axis, value)| (axis.to_owned(), laptime_bench::AxisValue::parse(value)));
    let device = Simulated::new();
    let prepared = workload.prepare(&Case::new(values.collect()), &device).expect("it can be prepared");
    let Prepared::Ready(mut iteration) = prepared else { panic!("memory is unlimited") };
    iteration.check().expect("it is right");
    iteration.ready().expect("it can be made ready");
    iteration.run().expect("it runs");
}

#[test]
fn workloads_mark_their_inputs_and_iterations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    run_case(&Matmul, "size=8 dtype=f32 threads=2");
    run_case(&MemoryCopy, "op=read size=1 dtype=f32 threads=2");
    run_case(&MemoryCopy, "op=write size=1 dtype=f32 threads=1");
    run_case(&MemoryCopy, "op=copy size=1 dtype=f32 threads=2");
    run_case(&Chain, "small=4 large=8 graph=off threads=1");
    let model = "model=tiny seq_len=2 batch_size=1 dtype=f32 attention=dense graph=auto threads=1 seed=0";
    run_case(&Model::new(), &format!("{model} pass_type=prefill cache_tokens=0"));
    run_case(&Model::new(), &format!("{model} pass_type=decode cache_tokens=3"));
    let attention =
        "attention=sparse seq_len=9 batch_size=1 heads=1 kv_heads=1 head_dim=8 dtype=f32 window=2 global=1 random=1";
    run_case(&Attention, &format!("{attention} random_per=block causal=true block_mask=built-in threads=1 seed=0"));
    recording.finish().unwrap();

    let trace = laptime_trace::read(&path).unwrap();
    let names: Vec<&str> = trace.spans().map(|span| span.name).collect();
    let inputs = "prepare_inputs";
    let threads = "start_threads";
    let matmul = [threads, inputs, "matmul", "matmul"];
    let read_write = [threads, inputs, "read", "read", inputs, "write", "write"];
    let copy = [threads, inputs, inputs, "copy", "copy"];
    let chain = ["small", "large", "read_back", "read_result"];
    let prefill = ["load_weights", "weights", "prefill", "allocate", "prefill"];
    let decode = ["decode", "token", "token", "read_tokens"];
    let steps = ["load_weights", "weights", "prompt", "allocate", "check_steps"];
    let attention = [inputs, "build_pattern", "compute", "build_pattern", "compute"];
    let simple = [&matmul[..], &read_write, &copy, &[inputs], &chain, &chain].concat();
    assert_eq!(names, [&simple[..], &prefill, &steps, &decode, &decode, &attention].concat());
}
