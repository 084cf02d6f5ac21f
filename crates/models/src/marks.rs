//! Stages inside a pass, for every device.

use std::{fmt, sync::Arc};

/// Names and stamps the stages of a pass while a device captures it as a graph.
pub trait StageNames: fmt::Debug + Send + Sync {
    /// Begins a stage, with a counter such as `layer` and its value.
    fn begin(&self, name: &'static str, place: Option<(&'static str, u32)>);

    /// Ends the last stage that began.
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

/// A stage, until it is dropped.
#[derive(Debug)]
#[allow(dead_code, reason = "the contents end the stage when they are dropped")]
pub enum OpenStage<S> {
    /// Recorded, and shown as a range in other tools.
    Recorded(ToolRange, S),
    /// Named during a capture.
    Named(NamedStage),
}

/// A stage of a capture, until it is dropped.
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

/// The value of a counter in a graph.
pub fn counted(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// Opens a stage at any depth, on the lane of the device or in a capture.
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

/// Opens a stage on the lane of the device if its depth is marked; otherwise it costs one comparison.
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

/// An NVTX range until it is dropped, while a tool such as Nsight Systems listens.
#[cfg(feature = "cuda")]
pub fn tool_range(name: &str) -> Option<laptime_cuda::nvtx::Range> {
    laptime_cuda::nvtx::is_on().then(|| laptime_cuda::nvtx::Range::push(name))
}

/// Without CUDA there are no ranges.
#[cfg(not(feature = "cuda"))]
pub fn tool_range(_: &str) -> Option<()> {
    None
}
