//! A small byte-level transformer that generates text: real work for a short trace.
//!
//! It is an example of a marked pipeline: stages with fields, one lap per token, a curve, a mark, and a second thread.

use std::sync::mpsc;

use laptime_probe::{lap, mark, stage, value};

use super::matrix::{Matrix, dot, normalised, softmax};

/// The dimensions of the model and of the text.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub tokens: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self { layers: 4, width: 192, heads: 6, tokens: 64 }
    }
}

const VOCABULARY: usize = 256;

struct Layer {
    query: Matrix,
    key: Matrix,
    value: Matrix,
    out: Matrix,
    up: Matrix,
    down: Matrix,
}

/// Keys and values of one layer, one row per token.
#[derive(Default)]
struct Cache {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

/// The model.
pub struct Generator {
    size: Size,
    embedding: Matrix,
    layers: Vec<Layer>,
}

impl Generator {
    /// Creates the model with seeded weights.
    pub fn new(size: Size) -> Self {
        let _stage = stage!("load_weights", layers = size.layers, width = size.width);
        let mut seed = 0x5eed;
        let mut matrix = |rows, columns| Matrix::seeded(rows, columns, &mut seed);
        let width = size.width;
        let embedding = matrix(VOCABULARY, width);
        let layers = (0..size.layers)
            .map(|_| Layer {
                query: matrix(width, width),
                key: matrix(width, width),
                value: matrix(width, width),
                out: matrix(width, width),
                up: matrix(4 * width, width),
                down: matrix(width, 4 * width),
            })
            .collect();
        Self { size, embedding, layers }
    }

    /// Generates text after a prompt; a second thread turns tokens into text.
    pub fn generate(&self, prompt: &str) -> String {
        let _stage = stage!("generate", prompt_bytes = prompt.len());
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            let text = std::thread::Builder::new()
                .name("detokenizer".to_owned())
                .spawn_scoped(scope, move || detokenize(receive));
            let mut caches: Vec<Cache> = self.layers.iter().map(|_| Cache::default()).collect();
            let mut last = self.prefill(prompt, &mut caches);
            for token in 0..self.size.tokens {
                let _lap = lap!("decode", token = token);
                last = self.step(last, &mut caches);
                value!("kv_cache", caches.iter().map(Cache::bytes).sum::<usize>(), unit = "bytes");
                // The receiver is missing only if the thread could not start; the text is then empty.
                let _ = send.send(last);
            }
            mark!("length_reached", tokens = self.size.tokens);
            drop(send);
            text.ok().and_then(|text| text.join().ok()).unwrap_or_default()
        })
    }

    fn prefill(&self, prompt: &str, caches: &mut [Cache]) -> u8 {
        let _stage = stage!("prefill", tokens = prompt.len());
        prompt.bytes().fold(0, |_, byte| self.step(byte, caches))
    }

    fn step(&self, token: u8, caches: &mut [Cache]) -> u8 {
        let mut hidden = self.embedding.row(usize::from(token)).to_vec();
        for (at, (layer, cache)) in std::iter::zip(&self.layers, caches).enumerate() {
            let _stage = stage!("layer", layer = at);
            let attended = self.attention(layer, cache, &normalised(&hidden));
            add(&mut hidden, &attended);
            let moved = mlp(layer, &normalised(&hidden));
            add(&mut hidden, &moved);
        }
        self.sample(&hidden)
    }

    fn attention(&self, layer: &Layer, cache: &mut Cache, input: &[f32]) -> Vec<f32> {
        let _stage = stage!("attention", context = cache.keys.len() + 1);
        let query = layer.query.times(input);
        cache.keys.push(layer.key.times(input));
        cache.values.push(layer.value.times(input));
        let head = self.size.width / self.size.heads;
        let mut mixed = vec![0.0; self.size.width];
        for (at, mixed) in mixed.chunks_exact_mut(head).enumerate() {
            let part = at * head..(at + 1) * head;
            let query = &query[part.clone()];
            let mut shares: Vec<f32> =
                cache.keys.iter().map(|key| dot(query, &key[part.clone()]) / (head as f32).sqrt()).collect();
            softmax(&mut shares);
            for (share, value) in std::iter::zip(shares, &cache.values) {
                std::iter::zip(&mut *mixed, &value[part.clone()]).for_each(|(sum, value)| *sum += share * value);
            }
        }
        layer.out.times(&mixed)
    }

    fn sample(&self, hidden: &[f32]) -> u8 {
        let _stage = stage!("sample");
        let scores = self.embedding.times(hidden);
        let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or(0, |(token, _)| token as u8)
    }
}

fn mlp(layer: &Layer, input: &[f32]) -> Vec<f32> {
    let _stage = stage!("mlp");
    let mut inner = layer.up.times(input);
    inner.iter_mut().for_each(|value| *value /= 1.0 + (-*value).exp());
    layer.down.times(&inner)
}

impl Cache {
    fn bytes(&self) -> usize {
        let rows = self.keys.iter().chain(&self.values);
        rows.map(|row| size_of_val(row.as_slice())).sum()
    }
}

fn add(sum: &mut [f32], more: &[f32]) {
    std::iter::zip(sum, more).for_each(|(sum, more)| *sum += more);
}

fn detokenize(tokens: mpsc::Receiver<u8>) -> String {
    let mut text = String::new();
    for (token, byte) in tokens.into_iter().enumerate() {
        let _stage = stage!("detokenize", token = token);
        text.push(char::from(byte));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_prompt_gives_the_same_text() {
        let size = Size { layers: 2, width: 32, heads: 2, tokens: 8 };
        let (first, second) = (Generator::new(size).generate("ab"), Generator::new(size).generate("ab"));
        assert_eq!(first.chars().count(), 8);
        assert_eq!(first, second);
    }
}
