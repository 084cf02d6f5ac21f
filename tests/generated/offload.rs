// A run of offloaded layers, played by rule: one link, one compute queue, two buffers. Tests of several crates include
// this file, so it uses nothing but `laptime_trace`.

use laptime_trace::{LAP, Nanos, SpanEntry, Trace, TraceBuilder, TrackId};

/// When the copy of a layer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// When the layer is needed.
    AtItsTurn,
    /// When the layer before it begins; the first of a pass at its turn.
    Prefetch,
    /// Likewise, and the last layer of a pass asks for the first of the next.
    Wrap,
}

/// What a run is made of; times in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct OffloadTrace {
    pub streaming: Streaming,
    pub tokens: u64,
    pub forwards: u64,
    pub layers: u64,
    pub copy: u64,
    pub compute: u64,
    pub resident: u64,
    pub release: u64,
    pub diffusion: u64,
    pub decode: u64,
    pub encode: u64,
    pub clear: u64,
    pub issue: u64,
    pub launch: u64,
    pub other: u64,
    pub bytes: u64,
    pub pinned: bool,
    /// Without a device everything is on the host, and copies are on a thread of their own.
    pub has_device: bool,
}

impl Default for OffloadTrace {
    /// A healthy run: copies of 4 ms hide behind layers of 5 ms.
    fn default() -> Self {
        Self {
            streaming: Streaming::Wrap,
            tokens: 5,
            forwards: 2,
            layers: 4,
            copy: 4_000,
            compute: 5_000,
            resident: 10_000,
            release: 10,
            diffusion: 8_000,
            decode: 3_000,
            encode: 2_000,
            clear: 0,
            issue: 5,
            launch: 2,
            other: 200,
            bytes: 100_000_000,
            pinned: true,
            has_device: true,
        }
    }
}

struct Player {
    made: OffloadTrace,
    builder: TraceBuilder,
    main: TrackId,
    streams: [TrackId; 2],
    /// When compute, the link and the two buffers are free.
    now: u64,
    link: u64,
    buffers: [u64; 2],
    /// When the copy of the next layer will be there, if it was asked for.
    asked: Option<u64>,
}

impl OffloadTrace {
    /// Plays the run.
    pub fn trace(self) -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let streams = if self.has_device {
            ["compute", "copies"].map(|name| {
                let track = builder.stream(1, 7, name);
                builder.track_mut(track).device = Some(0);
                track
            })
        } else {
            [main, builder.thread(1, 2, "copies")]
        };
        let mut player = Player { made: self, builder, main, streams, now: 0, link: 0, buffers: [0; 2], asked: None };
        (0..self.tokens).for_each(|token| player.token(token));
        player.builder.build().expect("what is played nests")
    }
}

impl Player {
    fn token(&mut self, token: u64) {
        let start = self.now;
        let lap = self.span(self.main, start, 0, "token", LAP);
        self.builder.span_field(lap, "token", token);
        if self.made.clear > 0 {
            let stall = self.made.clear;
            self.span(self.main, self.now, stall, "clear_cache", "");
            self.now += stall;
        }
        for at in 0..self.made.forwards {
            let name = match (self.made.forwards, at) {
                (1, _) => "transformer",
                (_, 0) => "transformer_positive",
                _ => "transformer_negative",
            };
            self.forward(token * self.made.forwards + at, name);
        }
        for (name, length) in [
            ("diffusion", self.made.diffusion),
            ("audio_decode", self.made.decode),
            ("semantic_encode", self.made.encode),
        ] {
            self.stage(name, self.now, self.now + length);
            self.now += length;
        }
        self.now += self.made.other;
        self.builder.end_span(lap, Nanos(1000 * self.now));
        self.now += 1;
    }

    fn forward(&mut self, forward: u64, name: &str) {
        let start = self.now;
        for layer in 0..self.made.layers {
            self.layer(forward, layer);
        }
        self.now += self.made.resident;
        self.stage(name, start, self.now);
    }

    fn layer(&mut self, forward: u64, layer: u64) {
        let turn = self.now;
        let there = self.asked.take().unwrap_or_else(|| self.ask(forward, layer));
        let ready = turn.max(there).max(turn + 1);
        self.of_layer("layer_wait", forward, layer, turn, ready);
        self.now = ready + self.made.launch;
        let end = self.now + self.made.compute;
        self.of_layer("layer", forward, layer, self.now, end);
        let is_last = layer + 1 == self.made.layers;
        let next = if is_last { (forward + 1, 0) } else { (forward, layer + 1) };
        let has_next = forward + 1 < self.made.tokens * self.made.forwards;
        let asks = match self.made.streaming {
            Streaming::AtItsTurn => false,
            Streaming::Prefetch => !is_last,
            Streaming::Wrap => !is_last || has_next,
        };
        // The buffer of this layer is taken until it has computed.
        self.buffers = [self.buffers[1], end];
        if asks {
            let there = self.ask(next.0, next.1);
            self.asked = Some(there);
        }
        self.now = end + self.made.release;
        if self.made.release > 0 {
            self.of_layer("layer_release", forward, layer, end, self.now);
        }
    }

    /// Asks for a copy now; returns when it will be there.
    fn ask(&mut self, forward: u64, layer: u64) -> u64 {
        let issued = self.now;
        let start = issued.max(self.link).max(self.buffers[0]);
        self.link = start + self.made.copy;
        if self.made.has_device {
            let host = self.span(self.main, issued, self.made.issue, "layer_copy", "");
            let device = self.span(self.streams[1], start, self.made.copy, "layer_copy", "");
            self.builder.flow(host, device);
            self.fields(host, forward, layer);
        } else {
            let issue = self.span(self.main, issued, 1, "layer_issue", "");
            self.fields(issue, forward, layer);
            let copy = self.span(self.streams[1], start, self.made.copy, "layer_copy", "");
            self.fields(copy, forward, layer);
        }
        self.link
    }

    fn fields(&mut self, span: SpanEntry, forward: u64, layer: u64) {
        self.builder.span_field(span, "layer", layer);
        self.builder.span_field(span, "forward", forward);
        self.builder.span_field(span, "bytes", self.made.bytes);
        self.builder.span_field(span, "pinned", self.made.pinned);
    }

    fn of_layer(&mut self, name: &str, forward: u64, layer: u64, start: u64, end: u64) {
        let span = self.stage(name, start, end);
        self.builder.span_field(span, "layer", layer);
        self.builder.span_field(span, "forward", forward);
    }

    /// A stage of the host and, where there is one, of the device.
    fn stage(&mut self, name: &str, start: u64, end: u64) -> SpanEntry {
        let host = self.span(self.main, start, end - start, name, "");
        if self.made.has_device {
            let device = self.span(self.streams[0], start, end - start, name, "");
            self.builder.flow(host, device);
        }
        host
    }

    fn span(&mut self, track: TrackId, start: u64, length: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(track, Nanos(1000 * start), Nanos(1000 * length), name, category)
    }
}
