//! A pass through the layers.

use laptime_probe::stage;

use super::attention::{self, Heads, Inputs, Span, Strides};
use super::cache::{Cache, fit};
use super::product::{Put, Weights, project_stored};
use super::steps::{Norm, Positions, add_bias, gate, store};
use super::{crew::Crew, model::Layer, number::Number, rows::Rows};
use crate::decoder::layers::{LinearAt, LinearOf, NormAt, Ops};
use crate::{
    Attention, Config, Done, Dtype, Marks, Options, attention::Layout as AttentionLayout, fp8::Layout, parts::parts,
    rope::RopeTable,
};

parts! {
    pub struct Parts { stream, normed, qkv, mixed, scores, gate_up, logits }
}

pub type Buffers<T> = Parts<Vec<T>>;

pub type Sizes = Parts<usize>;

impl Sizes {
    pub fn new(config: &Config, attention: Attention, span: &Span, logits_rows: usize) -> Self {
        let rows = span.batch.saturating_mul(span.queries);
        let by_rows = |width: usize| rows.saturating_mul(width);
        Self {
            stream: by_rows(config.hidden),
            normed: by_rows(config.hidden),
            qkv: by_rows((config.heads + 2 * config.kv_heads) * config.head_dim),
            mixed: by_rows(config.heads * config.head_dim),
            scores: if attention == Attention::Naive { span.scores() } else { 0 },
            gate_up: by_rows(2 * config.ffn),
            logits: logits_rows.saturating_mul(config.vocab),
        }
    }
}

impl<T: Number> Buffers<T> {
    pub fn fit(&mut self, sizes: Sizes) -> Done {
        let mut stage = None;
        let fit = |(buffer, size): (&mut Vec<T>, usize)| {
            if buffer.len() < size {
                stage.get_or_insert_with(|| stage!("allocate"));
            }
            fit(buffer, size)
        };
        self.each_mut().zip(sizes).try_map(fit).map(drop)
    }
}

pub struct Pass<'a, T> {
    pub config: &'a Config,
    pub options: &'a Options,
    pub crew: &'a Crew,
    pub table: &'a RopeTable,
    pub layout: Option<&'a AttentionLayout>,
    /// Sequences of one cache, or of several caches at different positions. All have as many queries.
    pub spans: &'a [Span],
    /// Whether only the last row of each sequence is normed for the head.
    pub is_last_only: bool,
    pub buffers: &'a mut Buffers<T>,
    pub caches: Vec<&'a mut Cache<T>>,
}

impl<T: Number> Pass<'_, T> {
    fn rows(&self) -> usize {
        self.spans.iter().map(Span::rows).sum()
    }

    fn norm_weight<'n>(&self, weight: &'n [f32]) -> Norm<'n> {
        Norm { weight, eps: self.config.norm_eps as f32 }
    }

    /// The rows of which the last goes to the head.
    fn every(&self) -> usize {
        if self.is_last_only { self.spans.first().map_or(1, |span| span.queries) } else { 1 }
    }

    fn qkv_width(&self) -> usize {
        (self.config.heads + 2 * self.config.kv_heads) * self.config.head_dim
    }

    /// Attends the rows of a span to its cache, or to the keys and values packed with the queries.
    fn attend_span(&mut self, at: usize, group: usize, first: usize, span: &Span) {
        let Span { heads, kv_heads, head_dim, queries, .. } = *span;
        let row = self.qkv_width();
        let Buffers { qkv, mixed, scores, .. } = &mut *self.buffers;
        let mut inputs = Inputs::packed(span, &qkv[first * row..]);
        if let Some(cache) = self.caches.get(group) {
            let head = cache.capacity * head_dim;
            let strides = Strides { batch: kv_heads * head, head, row: head_dim };
            let [keys, values] = cache.layers[at].each_ref().map(|numbers| Heads { numbers, strides });
            inputs = Inputs { keys, values, ..inputs };
        }
        let out = (&mut mixed[first * heads * head_dim..], Strides::by_token(queries, heads, head_dim));
        let attention = attention::Attention { crew: self.crew, marks: &self.options.marks, span: *span, inputs };
        match (self.layout, self.options.attention) {
            (None, Attention::Naive) => attention.naive(scores, out),
            (layout, _) => attention.fused(layout, out),
        }
    }
}

fn numbered(spans: &[Span]) -> impl Iterator<Item = (usize, usize, &Span)> {
    let mut before = 0;
    spans.iter().enumerate().map(move |(group, span)| {
        let first = before;
        before += span.rows();
        (group, first, span)
    })
}

impl<T: Number> Ops for Pass<'_, T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;

    fn marks(&self) -> &Marks {
        &self.options.marks
    }

    fn norm(&mut self, at: NormAt, weight: &Vec<f32>) -> Done {
        let every = if at == NormAt::Final { self.every() } else { 1 };
        let stream = &self.buffers.stream[..self.rows() * self.config.hidden];
        self.norm_weight(weight).rows(self.crew, every, stream, &mut self.buffers.normed);
        Ok(())
    }

    /// RoPE adds the bias of queries, keys and values, and SwiGLU that of gate and up.
    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        let ([outputs, width], rows, every) = (at.shape(self.config), self.rows(), self.every());
        let norm = linear.post_norm.map(|weight| self.norm_weight(weight));
        let Buffers { stream, normed, qkv, mixed, gate_up, logits, .. } = &mut *self.buffers;
        // A product with a post-norm overwrites the normed states, which are no longer needed.
        let of_block = |x, normed, stream| match norm {
            Some(_) => (x, normed, Put::OVER),
            None => (x, stream, Put::ONTO),
        };
        let (x, out, put) = match at {
            LinearAt::Qkv(_) => (Rows::dense(normed, rows, width), qkv, Put::OVER),
            LinearAt::Output(_) => of_block(Rows::dense(mixed, rows, width), &mut *normed, &mut *stream),
            LinearAt::GateUp(_) => (Rows::dense(normed, rows, width), gate_up, Put::OVER),
            LinearAt::Down(_) => of_block(Rows::new(gate_up, rows, width, 2 * width), &mut *normed, &mut *stream),
            LinearAt::Head => (Rows::dense(normed, rows / every, width), logits, Put::OVER),
        };
        let weights = match (self.options.dtype, at) {
            (Dtype::Fp8, LinearAt::Qkv(_) | LinearAt::Output(_) | LinearAt::GateUp(_) | LinearAt::Down(_)) => {
                let layout = Layout::new([outputs, width], self.config.weight_scales);
                Weights::Fp8(layout, bytemuck::cast_slice(linear.weight))
            }
            _ => Weights::Plain(Rows::dense(linear.weight, linear.weight.len() / width, width)),
        };
        project_stored(self.crew, x, weights, out, put);
        if let (LinearAt::Down(_), Some(bias)) = (at, linear.bias) {
            add_bias(self.crew, bias, &mut out[..rows * outputs]);
        }
        if let Some(norm) = norm {
            norm.add_rows(self.crew, &normed[..rows * outputs], stream);
        }
        Ok(())
    }

    fn rope(&mut self, layer: usize, weights: &Layer<T>) -> Done {
        let width = self.qkv_width();
        for (group, first, span) in numbered(self.spans) {
            let positions = Positions {
                config: self.config,
                table: self.table.of_layer(self.config, layer),
                bias: weights.qkv_bias.as_deref(),
                query_norm: weights.query_norm.as_deref().map(|weight| self.norm_weight(weight)),
                key_norm: weights.key_norm.as_deref().map(|weight| self.norm_weight(weight)),
                tokens: span.queries,
                start: span.start,
            };
            let qkv = &mut self.buffers.qkv[first * width..][..span.rows() * width];
            positions.enter(self.crew, qkv);
            if let Some(cache) = self.caches.get_mut(group) {
                let capacity = cache.capacity;
                let [keys, values] = &mut cache.layers[layer];
                store(self.crew, span, qkv, capacity, (keys, values));
            }
        }
        Ok(())
    }

    fn attend(&mut self, layer: usize, _: &Layer<T>) -> Done {
        let window = self.config.window_of(layer);
        for (group, first, span) in numbered(self.spans) {
            self.attend_span(layer, group, first, &Span { window, ..*span });
        }
        Ok(())
    }

    fn swiglu(&mut self, _: usize, weights: &Layer<T>) -> Done {
        let (Config { ffn, activation, .. }, rows) = (self.config, self.rows());
        let (bias, gate_up) = (weights.gate_up_bias.as_deref(), &mut self.buffers.gate_up[..rows * 2 * ffn]);
        gate(self.crew, *activation, *ffn, bias, gate_up);
        Ok(())
    }
}
