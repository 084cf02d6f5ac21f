//! Stages inside a pass, marked as deep as was asked: one place for every device.

use std::{fmt, sync::Arc};

/// Names the stages of a pass while a device captures it as a graph, and stamps their borders.
pub trait StageNames: fmt::Debug + Send + Sync {
    /// Begins a stage, with a counter and its value: `layer`, 3.
    fn begin(&self, name: &'static str, place: Option<(&'static str, u32)>);

    /// Ends the stage that began last.
    fn end(&self);
}

#[cfg(feature = "cuda")]
impl StageNames for laptime_cuda::Stamper {
    fn begin(&self, name: &'static str, place: Option<(&'static str, u32)>) {
        Self::begin(self, name, place);
    }

    fn end(&self) {
        Self::end(self);
    }
}

/// A stage until it is dropped.
#[derive(Debug)]
#[allow(dead_code, reason = "what is inside ends the stage when it is dropped")]
pub enum OpenStage<S> {
    /// Recorded now, and shown to tools that listen to ranges.
    Recorded(ToolRange, S),
    /// Named in a capture.
    Named(NamedStage),
}

/// A stage of a capture until it is dropped.
#[derive(Debug)]
pub struct NamedStage(Arc<dyn StageNames>);

impl NamedStage {
    pub fn begin(names: &Arc<dyn StageNames>, name: &'static str, place: Option<(&'static str, u32)>) -> Self {
        names.begin(name, place);
        Self(Arc::clone(names))
    }
}

impl Drop for NamedStage {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The value of a counter, as graphs keep it.
pub fn counted(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// Opens a stage at any depth: on the device's lane, or in the capture that asks for names.
macro_rules! open_stage {
    ($marks:expr, $name:literal $(, $key:ident = $value:expr $(, $other:ident = $more:expr)*)?) => {
        match &$marks.names {
            None => $crate::marks::OpenStage::Recorded(
                $crate::tool_range($name),
                laptime_probe::stage!($name, on = $marks.lane $(, $key = $value $(, $other = $more)*)?),
            ),
            Some(names) => {
                let place = None::<(&'static str, u32)>$(.or(Some((stringify!($key), $crate::marks::counted($value)))))?;
                $crate::marks::OpenStage::Named($crate::marks::NamedStage::begin(names, $name, place))
            }
        }
    };
}

/// Opens a stage of a depth on the device's lane, if stages of that depth are marked; otherwise it is one compare. Tools
/// that listen to ranges hear it too.
macro_rules! stage_mark {
    ($marks:expr, $depth:ident, $name:literal $(, $key:ident = $value:expr)*) => {{
        const _: () = assert!($crate::stages::is_known($name), "`crates/models/src/stages.rs` lists every stage");
        ($marks.depth >= laptime_trace::run::Depth::$depth)
            .then(|| $crate::marks::open_stage!($marks, $name $(, $key = $value)*))
    }};
}

macro_rules! mark_embedding {
    ($marks:expr, $tokens:expr) => {
        match ($marks.embedding, $tokens) {
            (crate::EmbeddingStage::Base, 2..) => {
                Some(crate::marks::open_stage!($marks, "base_embedding", tokens = $tokens))
            }
            (crate::EmbeddingStage::Teacher, 2..) => {
                Some(crate::marks::open_stage!($marks, "teacher_embedding", tokens = $tokens))
            }
            _ => crate::marks::stage_mark!($marks, Layer, "embed"),
        }
    };
}

pub(crate) use {mark_embedding, open_stage, stage_mark};

#[cfg(feature = "cuda")]
type ToolRange = Option<laptime_cuda::nvtx::Range>;
#[cfg(not(feature = "cuda"))]
type ToolRange = Option<()>;

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
