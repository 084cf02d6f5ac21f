//! The names of stages and fields in a trace with offloaded layers.

/// The lap: one token.
pub const TOKEN: &str = "token";

/// The forward pass of the positive stream.
pub const POSITIVE: &str = "transformer_positive";

/// The forward pass of the negative stream.
pub const NEGATIVE: &str = "transformer_negative";

/// One forward pass of all streams.
pub const TRANSFORMER: &str = "transformer";

/// All steps of the diffusion head.
pub const DIFFUSION: &str = "diffusion";

/// Decoding a latent to audio.
pub const AUDIO_DECODE: &str = "audio_decode";

/// Encoding the audio again.
pub const SEMANTIC_ENCODE: &str = "semantic_encode";

/// Returning memory to the driver.
pub const CLEAR_CACHE: &str = "clear_cache";

/// Requesting memory from the driver.
pub const ALLOCATE: &str = "allocate";

/// The compute stream waits for the weights of a layer.
pub const LAYER_WAIT: &str = "layer_wait";

/// A layer computes.
pub const LAYER: &str = "layer";

/// The memory of a layer is released; in mode `sync` its weights are copied back.
pub const LAYER_RELEASE: &str = "layer_release";

/// The weights of a layer are copied: on the host the issuing, on the copy stream the copy.
pub const LAYER_COPY: &str = "layer_copy";

/// The copy of a layer was issued, where `layer_copy` itself is on the host.
pub const LAYER_ISSUE: &str = "layer_issue";

/// The field with the number of a layer.
pub const FIELD_LAYER: &str = "layer";

/// The field with the number of a forward pass, counted over the whole run.
pub const FIELD_FORWARD: &str = "forward";

/// The field with the bytes of a copy.
pub const FIELD_BYTES: &str = "bytes";

/// The field for whether a copy comes from pinned memory.
pub const FIELD_PINNED: &str = "pinned";
