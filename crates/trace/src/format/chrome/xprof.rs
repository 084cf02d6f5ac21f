//! Conventions of XProf (JAX, TensorFlow): events without categories, devices as processes with names such as
//! `/device:GPU:0`, streams as threads such as `Stream #13(Compute)`, launches by `correlation_id`.

use super::{read::Reader, tracks::Line};
use crate::activity::{MemoryKind, category};
use crate::builder::{SpanEntry, TraceBuilder};
use crate::track::{TrackId, TrackKind};
use crate::{fields::StoredValue, format::launches::Launches, names::NameId};

/// What a row of a device shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// Kernels, copies and memsets of the stream with this number.
    Stream(i64),
    /// Operations of a device without streams, such as a TPU.
    Operations,
    /// Rows that XProf derived from the work: modules, steps, name scopes.
    Derived,
}

/// The device of a process such as `/device:GPU:0`; none for the host.
pub fn device_of(process: &str) -> Option<i64> {
    let (_, path) = process.split_once("/device:")?;
    let (kind, number) = path.split_once(':')?;
    let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok().filter(|_| kind != "CPU")
}

/// The stream number of a thread such as `Stream #13(Compute)`.
fn stream_of(thread: &str) -> Option<i64> {
    let number = thread.strip_prefix("Stream #")?;
    let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok()
}

/// Assigns kinds to the rows of devices, and categories to spans without one.
pub fn settle(reader: &mut Reader) {
    let lines = reader.tracks.lines(&reader.builder);
    if !lines.iter().any(|line| device_of(&line.process).is_some()) {
        return;
    }
    let mut shown: Vec<Option<Shows>> = Vec::new();
    for line in &lines {
        let Some(device) = device_of(&line.process) else { continue };
        let shows = shown_by(line, &lines);
        let track = reader.builder.track_mut(line.track);
        (track.kind, track.device) = (TrackKind::Stream, Some(device));
        track.number = if let Shows::Stream(number) = shows { Some(number) } else { None };
        shown.resize(shown.len().max(line.track.index() + 1), None);
        shown[line.track.index()] = Some(shows);
    }
    let shown = |track: TrackId| shown.get(track.index()).copied().flatten();
    label(&mut reader.builder, &mut reader.launches, shown);
}

fn shown_by(line: &Line, all: &[Line]) -> Shows {
    let has_streams = all.iter().any(|other| other.process == line.process && stream_of(&other.thread).is_some());
    match stream_of(&line.thread) {
        Some(number) => Shows::Stream(number),
        None if !has_streams && line.thread.ends_with("XLA Ops") => Shows::Operations,
        None => Shows::Derived,
    }
}

fn label(builder: &mut TraceBuilder, launches: &mut Launches, shown: impl Fn(TrackId) -> Option<Shows>) {
    let correlation = builder.name("correlation_id");
    let details = builder.name("memcpy_details");
    for span in builder.entries() {
        let (name, known) = builder.label_of(span);
        if known != NameId::EMPTY {
            continue;
        }
        let number = builder.field_of(span, correlation).and_then(|value| whole(value, builder));
        match shown(builder.track_of(span)) {
            Some(Shows::Derived) => relabel(builder, span, category::DEVICE_STAGE),
            Some(Shows::Operations) => relabel(builder, span, category::KERNEL),
            Some(Shows::Stream(_)) => {
                label_work(builder, span, details);
                number.into_iter().for_each(|number| launches.work(number, span));
            }
            None => {
                let category = host_category(builder.text(name));
                category.into_iter().for_each(|category| relabel(builder, span, category));
                number.into_iter().for_each(|number| launches.call(number, span));
            }
        }
    }
}

/// A whole number above zero; XProf writes numbers as strings.
fn whole(value: StoredValue, builder: &TraceBuilder) -> Option<u64> {
    match value {
        StoredValue::Int(value) => u64::try_from(value).ok(),
        StoredValue::Uint(value) => Some(value),
        StoredValue::Str(text) => builder.text(text).parse().ok(),
        _ => None,
    }
    .filter(|&number| number > 0)
}

fn relabel(builder: &mut TraceBuilder, span: SpanEntry, category: &str) {
    let (name, category) = (builder.label_of(span).0, builder.name(category));
    builder.relabel(span, name, category);
}

fn label_work(builder: &mut TraceBuilder, span: SpanEntry, details: NameId) {
    let name = builder.text(builder.label_of(span).0);
    let Some(kind) = name.strip_prefix("Memcpy").map(str::to_owned) else {
        let is_memset = name.starts_with("Memset");
        return relabel(builder, span, if is_memset { category::MEMSET } else { category::KERNEL });
    };
    let details = match builder.field_of(span, details) {
        Some(StoredValue::Str(text)) => builder.text(text).to_owned(),
        _ => String::new(),
    };
    let copy = copy_name(&kind, &details);
    let (copy, category) = (builder.name(&copy), builder.name(category::COPY));
    builder.relabel(span, copy, category);
    if let Some(bytes) = detail(&details, "size").and_then(|bytes| bytes.parse::<i64>().ok()) {
        builder.span_field(span, "bytes", bytes);
    }
}

/// One of the details of a copy: `kind_src:pageable kind_dst:device size:4096 dest:0 async:1`.
fn detail<'a>(details: &'a str, key: &str) -> Option<&'a str> {
    details.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix(':'))
}

/// The name of a copy as torch.profiler writes it, from XProf's kind (`H2D`) and details.
fn copy_name(kind: &str, details: &str) -> String {
    let by_letter = |letter: Option<char>| match letter {
        Some('H') => MemoryKind::Host,
        Some('D' | 'P') => MemoryKind::Device,
        Some('A') => MemoryKind::Array,
        _ => MemoryKind::Unknown,
    };
    let end = |key: &str, letter: Option<char>| {
        detail(details, key).and_then(MemoryKind::from_word).unwrap_or_else(|| by_letter(letter))
    };
    let from = end("kind_src", kind.chars().next());
    let to = end("kind_dst", kind.chars().nth(2));
    format!("Memcpy {} ({} -> {})", from.direction_to(to), from.word(), to.word())
}

/// The category of a host span: a CUDA or HIP call, a Python function, an XLA operation. None for anything else, which
/// is an annotation.
fn host_category(name: &str) -> Option<&'static str> {
    let is_call = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
    };
    match () {
        () if is_call("cuda") || is_call("hip") => Some(category::RUNTIME),
        () if is_call("cu") => Some(category::DRIVER),
        () if name.starts_with('$') => Some(category::PYTHON),
        () if name.contains("::") || name.starts_with("PjitFunction(") => Some(category::OPERATION),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_threads_of_devices_have_numbers() {
        assert_eq!(device_of("/device:GPU:0"), Some(0));
        assert_eq!(device_of("/device:GPU:3 NVIDIA H100 80GB HBM3"), Some(3));
        assert_eq!(device_of("/job:localhost/replica:0/task:0/device:TPU:12"), Some(12));
        assert_eq!(["/device:CPU:0", "/host:CPU", "python", "/device:GPU:"].map(device_of), [None; 4]);
        assert_eq!([stream_of("Stream #13(Compute)"), stream_of("XLA Ops")], [Some(13), None]);
    }

    #[test]
    fn a_copy_is_named_by_its_ends() {
        let details = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1";
        assert_eq!(copy_name("H2D", details), "Memcpy HtoD (Pageable -> Device)");
        assert_eq!(copy_name("D2H", ""), "Memcpy DtoH (Device -> Host)");
        assert_eq!(copy_name("P2P", ""), "Memcpy DtoD (Device -> Device)");
        assert_eq!(copy_name("", ""), "Memcpy DtoD (Unknown -> Unknown)");
    }
}
