//! A program with every command of laptime and a workload of its own.
//!
//! ```sh
//! cargo run --release -p laptime-example-custom-workload -- list tokenize
//! cargo run --release -p laptime-example-custom-workload -- bench tokenize --vocab 256-4096*4
//! cargo run --release -p laptime-example-custom-workload -- profile tokenize
//! ```

mod tokenizer;

use std::process::ExitCode;

use laptime::bench::{
    AxisSpec, Better, Case, Cost, Device, Iteration, MetricSpec, Nanos, Prepared, ValueKind, Workload,
};

use crate::tokenizer::{Tokenizer, text};

/// Counts the heap, for the column `peak_mib`.
#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

fn main() -> ExitCode {
    laptime::main_with(vec![Box::new(Tokenize)])
}

/// Splits text into the longest tokens of a vocabulary.
struct Tokenize;

impl Workload for Tokenize {
    fn name(&self) -> &'static str {
        "tokenize"
    }

    fn about(&self) -> &'static str {
        "splits text into the longest tokens of a vocabulary"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        let axis = |name, about, most, default: i64, cost| AxisSpec {
            name,
            about,
            kind: ValueKind::Int { least: 1, most },
            default: vec![default.into()],
            cost,
        };
        vec![
            axis("kib", "length of the text in KiB", 1 << 20, 256, Cost::Low),
            axis("vocab", "tokens in the vocabulary", 1 << 16, 1024, Cost::High),
        ]
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        vec![
            MetricSpec { name: "tok_s", about: "tokens per second", better: Better::Higher },
            MetricSpec { name: "bytes_a_token", about: "mean length of a token", better: Better::Higher },
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (bytes, vocab) = (case.size("kib")? * 1024, case.size("vocab")?);
        // The text, and at worst a token of eight bytes per byte.
        let needed = 9 * bytes as u64;
        Prepared::if_it_fits(needed, device, || {
            let text = text(bytes);
            let tokenizer = Tokenizer::new(&text, vocab);
            Ok(Box::new(TokenizeIteration { text, tokenizer, tokens: Vec::new() }))
        })
    }
}

struct TokenizeIteration {
    text: Vec<u8>,
    tokenizer: Tokenizer,
    tokens: Vec<usize>,
}

impl Iteration for TokenizeIteration {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        anyhow::ensure!(self.tokenizer.join(&self.tokens) == self.text, "the tokens do not add up to the text");
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        self.tokens = self.tokenizer.split(&self.text);
        Ok(())
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let tokens = self.tokens.len() as f64;
        vec![Some(tokens / (wall.0 as f64 / 1e9)), Some(self.text.len() as f64 / tokens)]
    }
}
