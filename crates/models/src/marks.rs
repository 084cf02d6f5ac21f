//! Stages inside a pass, marked as deep as was asked: one place for every device.

/// Opens a stage of a depth on the device's lane, if stages of that depth are marked; otherwise it is one compare.
macro_rules! mark {
    ($marks:expr, $depth:ident, $name:literal $(, $key:ident = $value:expr)*) => {
        ($marks.depth >= laptime_trace::run::Depth::$depth)
            .then(|| laptime_probe::stage!($name, on = $marks.lane $(, $key = $value)*))
    };
}

pub(crate) use mark;
