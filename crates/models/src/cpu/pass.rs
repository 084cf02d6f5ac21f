//! One pass of rows through the layers.

use laptime_probe::stage;

use super::{
    attention::{Heads, Inputs, Span, Strides, fused, naive},
    blocks,
    cache::{Cache, zeros},
    crew::Crew,
    model::{Body, Layer},
    number::Number,
    product::{Put, project},
    rows::Rows,
    steps::{Norm, Positions, add_bias, store, swiglu},
    streamed::Streamed,
};
use crate::{Attention, Config, ModelError, Options, attention::Layout, marks::stage_mark, rope::RopeTable};

/// What passes compute in, kept from one to the next.
#[derive(Default)]
pub struct Buffers<T> {
    /// What layers add to: a row for each token.
    pub stream: Vec<T>,
    pub normed: Vec<T>,
    qkv: Vec<T>,
    /// Values, weighted.
    mixed: Vec<T>,
    scores: Vec<T>,
    gate_up: Vec<T>,
    pub logits: Vec<T>,
}

/// How many numbers the buffers of a pass have.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub stream: usize,
    pub qkv: usize,
    pub mixed: usize,
    pub scores: usize,
    pub gate_up: usize,
    pub logits: usize,
}

impl Sizes {
    /// Those of a pass that gives logits of so many rows.
    pub fn new(config: &Config, attention: Attention, span: &Span, logits_rows: usize) -> Self {
        let rows = span.batch.saturating_mul(span.queries);
        let by_rows = |width: usize| rows.saturating_mul(width);
        Self {
            stream: by_rows(config.hidden),
            qkv: by_rows((config.heads + 2 * config.kv_heads) * config.head_dim),
            mixed: by_rows(config.heads * config.head_dim),
            scores: if attention == Attention::Naive { span.scores() } else { 0 },
            gate_up: by_rows(2 * config.ffn),
            logits: logits_rows.saturating_mul(config.vocab),
        }
    }

    /// All of them; what is normed is as large as the stream.
    pub fn numbers(&self) -> usize {
        let all = [self.stream, self.stream, self.qkv, self.mixed, self.scores, self.gate_up, self.logits];
        all.into_iter().fold(0, usize::saturating_add)
    }
}

impl<T: Number> Buffers<T> {
    /// Makes every buffer at least as large as a pass needs.
    pub fn fit(&mut self, sizes: &Sizes) -> Result<(), ModelError> {
        let all = [
            (&mut self.stream, sizes.stream),
            (&mut self.normed, sizes.stream),
            (&mut self.qkv, sizes.qkv),
            (&mut self.mixed, sizes.mixed),
            (&mut self.scores, sizes.scores),
            (&mut self.gate_up, sizes.gate_up),
            (&mut self.logits, sizes.logits),
        ];
        let mut stage = None;
        for (buffer, size) in all {
            if buffer.len() < size {
                stage.get_or_insert_with(|| stage!("allocate"));
                // The old one is not needed, and not both at once.
                *buffer = Vec::new();
                *buffer = zeros(size)?;
            }
        }
        Ok(())
    }
}

/// A pass of rows through the layers of a model.
pub struct Pass<'a, T> {
    pub config: &'a Config,
    pub options: &'a Options,
    pub crew: &'a Crew,
    pub body: &'a Body<T>,
    /// What makes logits, where they are wanted.
    pub head: Option<&'a [T]>,
    pub table: &'a RopeTable,
    /// What of the pairs is kept; none for all.
    pub layout: Option<&'a Layout>,
    /// What runs together: sequences of one cache, or of several that are at different positions. All have as many queries.
    pub spans: &'a [Span],
    /// Whether only the last row of each sequence is normed, and gets logits.
    pub is_last_only: bool,
}

impl<T: Number> Pass<'_, T> {
    /// Runs the rows of the stream, with keys and values in the cache of each span if there are any, and leaves them
    /// normed, and their logits, in the buffers. Layers that do not stay come before those of the body.
    pub fn run(
        &self,
        buffers: &mut Buffers<T>,
        caches: &mut [&mut Cache<T>],
        streamed: Option<&mut Streamed<T>>,
    ) -> Result<(), ModelError> {
        let marks = &self.options.marks;
        if let Some(streamed) = streamed {
            streamed.begin_pass();
            for at in 0..streamed.count() {
                streamed.turn(at, |layer| self.layer(at, layer, buffers, caches))?;
            }
        }
        for (at, layer) in (self.body.first..).zip(&self.body.layers) {
            let _stage = stage_mark!(marks, Layer, "layer", layer = at);
            self.layer(at, layer, buffers, caches);
        }
        let _stage = stage_mark!(marks, Layer, "head");
        self.head(buffers);
        Ok(())
    }

    fn layer(&self, at: usize, layer: &Layer<T>, buffers: &mut Buffers<T>, caches: &mut [&mut Cache<T>]) {
        self.attention(at, layer, buffers, caches);
        self.ffn(layer, buffers);
    }

    fn rows(&self) -> usize {
        self.spans.iter().map(Span::rows).sum()
    }

    /// Each span, behind the number of the rows before it.
    fn spans(&self) -> impl Iterator<Item = (usize, &Span)> {
        let mut before = 0;
        self.spans.iter().map(move |span| {
            let first = before;
            before += span.rows();
            (first, span)
        })
    }

    fn norm<'n>(&self, weight: &'n [f32]) -> Norm<'n> {
        Norm { weight, eps: self.config.norm_eps as f32 }
    }

    /// Norms the stream.
    fn norm_stream(&self, weight: &[f32], every: usize, buffers: &mut Buffers<T>) {
        let _stage = stage_mark!(self.options.marks, Ops, "norm");
        let stream = &buffers.stream[..self.rows() * self.config.hidden];
        self.norm(weight).rows(self.crew, every, stream, &mut buffers.normed);
    }

    /// Multiplies rows with weights.
    fn project(&self, x: Rows<'_, T>, weights: &[T], out: &mut [T], put: Put) {
        let outputs = weights.len() / x.width;
        project(self.crew, x, Rows::dense(weights, outputs, x.width), out, put);
    }

    fn attention(&self, at: usize, layer: &Layer<T>, buffers: &mut Buffers<T>, caches: &mut [&mut Cache<T>]) {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Layer, "attention");
        self.norm_stream(&layer.attention_norm, 1, buffers);
        {
            let _stage = stage_mark!(marks, Ops, "qkv");
            let normed = Rows::dense(&buffers.normed, self.rows(), self.config.hidden);
            self.project(normed, &layer.qkv, &mut buffers.qkv, Put::OVER);
        }
        {
            let _stage = stage_mark!(marks, Ops, "rope");
            self.enter_positions(at, layer, &mut buffers.qkv, caches);
        }
        for (group, (first, span)) in self.spans().enumerate() {
            self.attend(at, (first, span), buffers, caches.get(group).map(|cache| &**cache));
        }
        let _stage = stage_mark!(marks, Ops, "output");
        let mixed = Rows::dense(&buffers.mixed, self.rows(), self.config.heads * self.config.head_dim);
        self.project(mixed, &layer.output, &mut buffers.stream, Put::ONTO);
    }

    /// Numbers of a row of queries, keys and values.
    fn qkv_width(&self) -> usize {
        (self.config.heads + 2 * self.config.kv_heads) * self.config.head_dim
    }

    fn enter_positions(&self, at: usize, layer: &Layer<T>, qkv: &mut [T], caches: &mut [&mut Cache<T>]) {
        let width = self.qkv_width();
        for (group, (first, span)) in self.spans().enumerate() {
            let positions = Positions {
                config: self.config,
                table: self.table,
                bias: layer.qkv_bias.as_deref(),
                query_norm: layer.query_norm.as_deref().map(|weight| self.norm(weight)),
                key_norm: layer.key_norm.as_deref().map(|weight| self.norm(weight)),
                tokens: span.queries,
                start: span.start,
            };
            let qkv = &mut qkv[first * width..][..span.rows() * width];
            positions.enter(self.crew, qkv);
            if let Some(cache) = caches.get_mut(group) {
                let room = cache.room();
                store(self.crew, span, qkv, room, cache.layer_mut(at, span.keys()));
            }
        }
    }

    /// Attends, in the rows of one span, to its cache, or to the keys and values beside the queries.
    fn attend(&self, at: usize, (first, span): (usize, &Span), buffers: &mut Buffers<T>, cache: Option<&Cache<T>>) {
        let Span { heads, kv_heads, head_dim, queries, .. } = *span;
        let Buffers { qkv, mixed, scores, .. } = buffers;
        let row = self.qkv_width();
        let qkv = &qkv[first * row..];
        let beside = |first: usize| {
            let strides = Strides { batch: queries * row, head: head_dim, row };
            Heads { numbers: &qkv[first * head_dim..], strides }
        };
        let (keys, values) = match cache {
            None => (beside(heads), beside(heads + kv_heads)),
            Some(cache) => {
                let head = cache.room() * head_dim;
                let strides = Strides { batch: kv_heads * head, head, row: head_dim };
                let (keys, values) = cache.layer(at);
                (Heads { numbers: keys, strides }, Heads { numbers: values, strides })
            }
        };
        let inputs = Inputs { queries: beside(0), keys, values };
        let width = heads * head_dim;
        let out = (&mut mixed[first * width..], Strides { batch: queries * width, head: head_dim, row: width });
        let marks = &self.options.marks;
        match (self.layout, self.options.attention) {
            (Some(layout), _) => blocks::attend(self.crew, marks, span, layout, &inputs, out),
            (None, Attention::Naive) => naive(self.crew, marks, span, &inputs, scores, out),
            (None, Attention::Dense) => fused(self.crew, marks, span, &inputs, out),
        }
    }

    fn ffn(&self, layer: &Layer<T>, buffers: &mut Buffers<T>) {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Layer, "ffn");
        self.norm_stream(&layer.ffn_norm, 1, buffers);
        let (rows, ffn) = (self.rows(), self.config.ffn);
        {
            let _stage = stage_mark!(marks, Ops, "gate_up");
            let normed = Rows::dense(&buffers.normed, rows, self.config.hidden);
            self.project(normed, &layer.gate_up, &mut buffers.gate_up, Put::OVER);
        }
        {
            let _stage = stage_mark!(marks, Ops, "swiglu");
            swiglu(self.crew, ffn, layer.gate_up_bias.as_deref(), &mut buffers.gate_up[..rows * 2 * ffn]);
        }
        let _stage = stage_mark!(marks, Ops, "down");
        let gated = Rows::new(&buffers.gate_up, rows, ffn, 2 * ffn);
        self.project(gated, &layer.down, &mut buffers.stream, Put::ONTO);
        if let Some(bias) = &layer.down_bias {
            add_bias(self.crew, bias, &mut buffers.stream[..rows * self.config.hidden]);
        }
    }

    fn head(&self, buffers: &mut Buffers<T>) {
        let every = if self.is_last_only { self.spans.first().map_or(1, |span| span.queries) } else { 1 };
        self.norm_stream(&self.body.norm, every, buffers);
        let Some(head) = self.head else { return };
        let normed = Rows::dense(&buffers.normed, self.rows() / every, self.config.hidden);
        self.project(normed, head, &mut buffers.logits, Put::OVER);
    }
}
