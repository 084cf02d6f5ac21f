//! Stages inside a pass, marked as deep as was asked: one place for every device.

/// Opens a stage of a depth on the device's lane, if stages of that depth are marked; otherwise it is one compare. Tools
/// that listen to ranges hear it too.
macro_rules! stage_mark {
    ($marks:expr, $depth:ident, $name:literal $(, $key:ident = $value:expr)*) => {{
        const _: () = assert!($crate::stages::is_known($name), "`crates/models/src/stages.rs` lists every stage");
        ($marks.depth >= laptime_trace::run::Depth::$depth).then(|| {
            ($crate::tool_range($name), laptime_probe::stage!($name, on = $marks.lane $(, $key = $value)*))
        })
    }};
}

macro_rules! mark_embedding {
    ($marks:expr, $tokens:expr) => {
        match ($marks.embedding, $tokens) {
            (crate::EmbeddingStage::Base, 2..) => Some((
                $crate::tool_range("base_embedding"),
                laptime_probe::stage!("base_embedding", on = $marks.lane, tokens = $tokens),
            )),
            (crate::EmbeddingStage::Teacher, 2..) => Some((
                $crate::tool_range("teacher_embedding"),
                laptime_probe::stage!("teacher_embedding", on = $marks.lane, tokens = $tokens),
            )),
            _ => crate::marks::stage_mark!($marks, Layer, "embed"),
        }
    };
}

pub(crate) use {mark_embedding, stage_mark};

/// A stage as Nsight Systems and its like show it, until it is dropped: an NVTX range, while one of them listens.
#[cfg(feature = "cuda")]
pub fn tool_range(name: &str) -> Option<laptime_cuda::nvtx::Range> {
    laptime_cuda::nvtx::is_on().then(|| laptime_cuda::nvtx::Range::push(name))
}

/// Without CUDA nothing listens.
#[cfg(not(feature = "cuda"))]
pub fn tool_range(_: &str) -> Option<()> {
    None
}
