//! Formats that other tools write and that cannot be read here, and the way from each to a file that can be.

use std::path::Path;

/// A known format that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// The format in words.
    pub format: &'static str,
    /// How to get a file that can be read.
    pub way: &'static str,
}

const NSYS: Unsupported = Unsupported {
    format: "an Nsight Systems report",
    way: "export it to SQLite: `nsys export --type sqlite REPORT.nsys-rep`, and read the `.sqlite` file",
};

const XPLANE: Unsupported = Unsupported {
    format: "an XProf profile (`.xplane.pb`)",
    way: "read the `.trace.json.gz` next to it, or record with `jax.profiler.trace(DIR, create_perfetto_trace=True)` \
          and read `perfetto_trace.json.gz`",
};

const CHROME_WAY: &str = "record a trace instead: `prof.export_chrome_trace(\"trace.json\")` in PyTorch, \
                          `nsys profile` for any CUDA program";

/// By the first bytes.
const MAGICS: [(&[u8], Unsupported); 11] = [
    (b"PK\x03\x04", Unsupported { format: "a zip archive", way: "unpack it: `unzip FILE`, and read the trace in it" }),
    (b"\x28\xb5\x2f\xfd", Unsupported { format: "zstd data", way: "unpack it: `zstd -d FILE`; gzip is read as it is" }),
    (b"\xfd7zXZ\0", Unsupported { format: "xz data", way: "unpack it: `xz -d FILE`; gzip is read as it is" }),
    (b"BZh", Unsupported { format: "bzip2 data", way: "unpack it: `bzip2 -d FILE`; gzip is read as it is" }),
    (b"\x80\x02", PICKLE),
    (b"\x80\x03", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x80\x05", PICKLE),
    (b"QDSTRM", NSYS),
    (
        b"NVR\0",
        Unsupported {
            format: "an Nsight Compute report",
            way: "it has metrics of kernels, no timeline; `nsys profile` records one",
        },
    ),
    (b"PERFILE2", Unsupported { format: "data of `perf record`", way: CHROME_WAY }),
];

const PICKLE: Unsupported =
    Unsupported { format: "a Python pickle, such as a memory snapshot of PyTorch", way: CHROME_WAY };

/// By the ending of the name, where the content does not say.
const ENDINGS: [(&str, Unsupported); 4] =
    [(".nsys-rep", NSYS), (".qdrep", NSYS), (".qdstrm", NSYS), (".xplane.pb", XPLANE)];

/// By members of a JSON object that is no trace: all of them are there.
const MEMBERS: [(&[&str], Unsupported); 6] = [
    (
        &["rocprofiler-sdk-tool"],
        Unsupported {
            format: "JSON of rocprofv3",
            way: "record with `rocprofv3 --sys-trace --output-format pftrace -- PROGRAM`, or convert its database: \
                  `rocpd convert -i RESULTS.db --output-format pftrace`",
        },
    ),
    (
        &["meta", "threads"],
        Unsupported { format: "a profile of Firefox or samply, which has stack samples and no spans", way: CHROME_WAY },
    ),
    (
        &["nodes", "samples", "timeDeltas"],
        Unsupported {
            format: "a CPU profile of V8 (`.cpuprofile`), which has stack samples and no spans",
            way: CHROME_WAY,
        },
    ),
    (
        &["samples", "stackFrames"],
        Unsupported { format: "a Chrome trace that has stack samples and no events", way: CHROME_WAY },
    ),
    (
        &["schema", "nodes"],
        Unsupported {
            format: "an execution trace of PyTorch (Chakra), which has no times of a device",
            way: "read the trace that `prof.export_chrome_trace(\"trace.json\")` writes next to it",
        },
    ),
    (&["segments", "device_traces"], PICKLE),
];

impl Unsupported {
    /// The format that a file's beginning or name shows.
    pub fn of(start: &[u8], path: Option<&Path>) -> Option<Self> {
        let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().to_ascii_lowercase());
        let by_name = || name.and_then(|name| ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)));
        let by_magic = MAGICS.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, known)| *known);
        by_magic.or_else(|| is_xspace(start).then_some(XPLANE)).or_else(|| by_name().map(|(_, known)| *known))
    }

    /// The format of a JSON object with these members and no events.
    pub fn of_members(members: &[String]) -> Option<Self> {
        let has = |wanted: &&str| members.iter().any(|member| member == wanted);
        MEMBERS.iter().find(|(wanted, _)| wanted.iter().all(has)).map(|(_, known)| *known)
    }
}

/// Whether bytes begin like XProf's `XSpace`: its first plane has a number and a name such as `/host:CPU`. The first byte
/// is that of a Perfetto packet too.
fn is_xspace(start: &[u8]) -> bool {
    let head = &start[..start.len().min(64)];
    head.first() == Some(&0x0a)
        && ["/host:", "/device:", "Task Environment"].iter().any(|name| {
            let found = memchr::memmem::find(head, name.as_bytes());
            // In front of the name: its tag, and its length in a byte.
            found.is_some_and(|at| at >= 4 && head[at - 2] == 0x12)
        })
}
