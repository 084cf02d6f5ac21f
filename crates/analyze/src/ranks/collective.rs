//! The collectives of one rank, as its trace describes them.
//!
//! torch.profiler writes the arguments of a collective to its kernel, or to the host operation `record_param_comms` that
//! launched it. NCCL's own NVTX ranges carry the communicator and the bytes. A kernel's name alone gives neither.

use std::collections::HashMap;

use laptime_trace::{Fields, NameId, SpanId, Trace, Value};

use crate::devices::{DeviceWork, Work, WorkKind, devices};
use crate::lap_unit::{LapUnit, unit_if_any};

laptime_trace::words! {
    /// The kind of a collective.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CollectiveKind: key, words {
        /// Every rank gets the reduction of all inputs.
        AllReduce = ("all_reduce", "all-reduce"),
        /// Every rank gets all inputs.
        AllGather = ("all_gather", "all-gather"),
        /// Every rank gets a part of the reduction.
        ReduceScatter = ("reduce_scatter", "reduce-scatter"),
        /// Every rank sends a part to every other.
        AllToAll = ("all_to_all", "all-to-all"),
        /// No rank continues before all have arrived.
        Barrier = ("barrier", "barrier"),
        /// One rank sends to all.
        Broadcast = ("broadcast", "broadcast"),
        /// One rank gets the reduction.
        Reduce = ("reduce", "reduce"),
        /// One rank gets all inputs.
        Gather = ("gather", "gather"),
        /// One rank sends a part to each.
        Scatter = ("scatter", "scatter"),
        /// To one other rank.
        Send = ("send", "send"),
        /// From one other rank.
        Recv = ("recv", "recv"),
        /// Sends and receives in one kernel.
        SendRecv = ("send_recv", "send/recv"),
        Other = ("other", "other"),
    }
}

impl CollectiveKind {
    /// The kind by the name of an operation, an NVTX range or a kernel: `_allgather_base`, `ncclDevKernel_Reduce_Sum`.
    pub fn of(name: &str) -> Option<Self> {
        let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = letters.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        Some(match () {
            () if has(&["reducescatter"]) => Self::ReduceScatter,
            () if has(&["allgather"]) => Self::AllGather,
            () if has(&["alltoall", "all2all", "epinternode", "epintranode", "deepep"]) => Self::AllToAll,
            () if has(&["allreduce", "crossdevicereduce", "oneshot", "twoshot"]) => Self::AllReduce,
            () if has(&["barrier"]) => Self::Barrier,
            () if has(&["broadcast"]) => Self::Broadcast,
            () if has(&["sendrecv"]) => Self::SendRecv,
            () if has(&["send"]) => Self::Send,
            () if has(&["recv"]) => Self::Recv,
            () if has(&["gather"]) => Self::Gather,
            () if has(&["scatter"]) => Self::Scatter,
            () if has(&["reduce"]) => Self::Reduce,
            () => return None,
        })
    }

    /// Whether no rank can end before the last one has started: each result depends on every input.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::Barrier)
    }

    /// Whether it is between two ranks.
    pub const fn is_between_two(self) -> bool {
        matches!(self, Self::Send | Self::Recv | Self::SendRecv)
    }

    /// Bus bandwidth / algorithm bandwidth, as nccl-tests define it; none where it has no meaning.
    pub fn bus_factor(self, ranks: u64) -> Option<f64> {
        let n = ranks as f64;
        match self {
            _ if ranks < 2 => None,
            Self::AllReduce => Some(2.0 * (n - 1.0) / n),
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter => {
                Some((n - 1.0) / n)
            }
            Self::Broadcast | Self::Reduce | Self::Send | Self::Recv | Self::SendRecv => Some(1.0),
            Self::Barrier | Self::Other => None,
        }
    }
}

/// A collective of one rank, from that rank's trace alone.
#[derive(Debug, Clone, PartialEq)]
pub struct RankCollective {
    /// The communicator as every rank of it names it; empty if unknown.
    pub communicator: String,
    /// Its number within the communicator; none if unknown.
    pub sequence: Option<u64>,
    /// What it is: `all_reduce`.
    pub operation: String,
    /// The algorithm, such as `ring`, if the kernel's name has it.
    pub algorithm: Option<String>,
    /// The index of the lap that it belongs to.
    pub step: Option<u64>,
    /// When its kernel began, in the trace's own clock.
    pub start_ns: u64,
    /// How long the kernel took.
    pub duration_ns: u64,
    /// The message as NCCL counts it: the larger of input and output.
    pub bytes: Option<u64>,
    /// The dtype.
    pub dtype: Option<String>,
    /// The number of ranks of the communicator.
    pub group_size: Option<u64>,
}

/// The collectives of one rank, in order of start.
pub fn rank_collectives(trace: &Trace) -> Vec<RankCollective> {
    let devices = devices(trace);
    let unit = unit_if_any(trace, &devices, None).ok().flatten();
    let describer = Describer::of(trace);
    let mut found: Vec<RankCollective> = Vec::new();
    for work in devices.devices.iter().flat_map(communication) {
        let described = describer.described(work).unwrap_or_default();
        let name = trace.span(work.id).name;
        found.push(RankCollective {
            communicator: described.communicator.as_ref().map_or_else(String::new, Communicator::label),
            sequence: described.sequence,
            operation: kind_of(&described, name).key().to_owned(),
            algorithm: algorithm(name).map(str::to_owned),
            step: step_of(trace, unit.as_ref(), work).map(|step| step as u64),
            start_ns: work.start,
            duration_ns: work.length(),
            bytes: described.bytes,
            dtype: described.dtype,
            group_size: described.communicator.and_then(|communicator| communicator.size).map(u64::from),
        });
    }
    found.sort_by_key(|one| (one.start_ns, one.duration_ns));
    found
}

/// The communication of a device, in order of start.
pub(crate) fn communication(device: &DeviceWork) -> impl Iterator<Item = &Work> {
    device.work.iter().filter(|work| work.kind == WorkKind::Communication)
}

/// The lap of a kernel.
pub(crate) fn step_of(trace: &Trace, unit: Option<&LapUnit>, work: &Work) -> Option<usize> {
    unit?.of_work(trace, work.start, work.launch)
}

/// What a collective is: as its operation says, else by the name of the kernel.
pub(crate) fn kind_of(described: &Described, kernel: &str) -> CollectiveKind {
    described.kind.or_else(|| CollectiveKind::of(kernel)).unwrap_or(CollectiveKind::Other)
}

fn algorithm(kernel: &str) -> Option<&'static str> {
    let name = kernel.to_ascii_lowercase();
    let known = ["ring", "tree", "nvlstree", "nvls", "collnetdirect", "collnetchain", "pat"];
    let has = |word: &&&str| name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part == **word);
    name.contains("nccl").then(|| known.iter().find(has).copied()).flatten()
}

/// A communicator as one rank's trace describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Communicator {
    /// Its name.
    pub name: String,
    /// What it is for: `default_pg`, `dp`.
    pub description: String,
    /// The number of its ranks.
    pub size: Option<u32>,
    /// Its ranks, if they are all listed.
    pub members: Option<Vec<u32>>,
    /// The listed ranks as text, if the list was cut.
    listed: String,
    /// Whether the trace names no communicators, and all ranks are assumed to be in one.
    pub(crate) is_assumed: bool,
}

impl Communicator {
    /// The communicator of a trace that names none.
    pub(crate) fn assumed(world: Option<u32>) -> Self {
        let members = world.filter(|world| (1..=MOST_ASSUMED).contains(world)).map(|world| (0..world).collect());
        Self { name: "all ranks".to_owned(), size: world, members, is_assumed: true, ..Self::default() }
    }

    /// Its identity, the same on every rank: its name and its ranks.
    pub fn label(&self) -> String {
        match (&self.members, self.size) {
            (Some(members), _) => format!("{} [{}]", self.name, ranges(members)),
            (None, Some(size)) if self.listed.is_empty() => format!("{} of {size} ranks", self.name),
            (None, Some(size)) => format!("{} {} of {size} ranks", self.name, self.listed),
            (None, None) => self.name.clone(),
        }
    }

    /// What people call it: its description, else its name.
    pub fn title(&self) -> &str {
        if self.description.is_empty() || self.description == "undefined" { &self.name } else { &self.description }
    }
}

/// Numbers in order as ranges: `0-7`, `3, 5`, `0-56/8` for every eighth.
pub fn ranges(numbers: &[u32]) -> String {
    let stride = |at: usize| numbers[at + 1].saturating_sub(numbers[at]);
    if numbers.len() > 3 && stride(0) > 1 && (1..numbers.len() - 1).all(|at| stride(at) == stride(0)) {
        return format!("{}-{}/{}", numbers[0], numbers[numbers.len() - 1], stride(0));
    }
    let runs = numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let text = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        [one] => one.to_string(),
        [] => String::new(),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// What a trace says about a collective.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    pub(crate) communicator: Option<Communicator>,
    pub(crate) sequence: Option<u64>,
    pub(crate) kind: Option<CollectiveKind>,
    pub(crate) bytes: Option<u64>,
    pub(crate) dtype: Option<String>,
    /// The other rank of a send or receive.
    pub(crate) peer: Option<u32>,
}

/// The names of the fields that describe a collective, looked up once.
pub(crate) struct Describer<'a> {
    trace: &'a Trace,
    names: HashMap<&'static str, NameId>,
    /// The ranks of each process group by its name, from the metadata.
    groups: HashMap<String, Vec<u32>>,
}

const NAME: &str = "Collective name";
const GROUP: &str = "Process Group Name";
const COMMUNICATOR: &str = "NCCL communicator ID";
const FIELDS: [&str; 17] = [
    NAME,
    GROUP,
    COMMUNICATOR,
    "Process Group ID",
    "Process Group Description",
    "Process Group Ranks",
    "Group size",
    "Global rank start",
    "Global rank stride",
    "Seq",
    "In msg nelems",
    "Out msg nelems",
    "dtype",
    "Src Rank",
    "Dst Rank",
    "Message size [bytes]",
    "Peer rank",
];

/// The most ranks that are assumed to be in one communicator.
const MOST_ASSUMED: u32 = 1 << 16;

/// How many enclosing host spans are searched.
const MOST_OUTWARDS: usize = 64;

impl<'a> Describer<'a> {
    pub(crate) fn of(trace: &'a Trace) -> Self {
        let names = FIELDS.iter().filter_map(|name| Some((*name, trace.known_name(name)?))).collect();
        Self { trace, names, groups: trace.metadata.process_groups().into_iter().collect() }
    }

    /// What the trace says about the collective of a kernel; none if it says nothing.
    pub(crate) fn described(&self, work: &Work) -> Option<Described> {
        if self.names.is_empty() {
            return None;
        }
        let of_kernel = self.described_by(work.id);
        if of_kernel.is_some() {
            return of_kernel;
        }
        std::iter::successors(work.launch, |id| self.trace.span_parent(*id))
            .take(MOST_OUTWARDS)
            .find_map(|id| self.described_by(id))
    }

    /// A collective of which the trace has the kernel and the operation around its launch, `nccl:all_reduce`.
    pub(crate) fn assumed(&self, work: &Work, world: Option<u32>) -> Described {
        let around = std::iter::successors(work.launch, |id| self.trace.span_parent(*id)).take(MOST_OUTWARDS);
        let names = around.map(|id| self.trace.name(self.trace.span_name(id)));
        let kind = names.filter_map(|name| CollectiveKind::of(name.strip_prefix("nccl:")?)).next();
        Described { communicator: Some(Communicator::assumed(world)), kind, ..Described::default() }
    }

    /// What identifies the message of a collective: its bytes, or the dimensions of its tensors.
    pub(crate) fn message(&self, work: &Work) -> Option<String> {
        if let Some(bytes) = self.described(work).and_then(|described| described.bytes) {
            return Some(bytes.to_string());
        }
        let dims = self.trace.known_name("Input Dims")?;
        let around = std::iter::successors(work.launch, |id| self.trace.span_parent(*id)).take(MOST_OUTWARDS);
        let mut texts = around.filter_map(|id| self.trace.span(id).fields.named(dims)).map(|value| value.to_string());
        texts.find(|text| text.contains(|letter: char| letter.is_ascii_digit()))
    }

    fn described_by(&self, id: SpanId) -> Option<Described> {
        let span = self.trace.span(id);
        if span.fields.is_empty() {
            return None;
        }
        let read = Read { fields: span.fields, names: &self.names };
        if let Some(name) = read.text(NAME) {
            return Some(self.of_torch(&read, name));
        }
        let communicator = read.text(COMMUNICATOR)?;
        Some(Described {
            communicator: Some(Communicator { name: communicator, ..Communicator::default() }),
            kind: CollectiveKind::of(span.name),
            bytes: read.whole("Message size [bytes]"),
            peer: read.whole("Peer rank").and_then(|peer| u32::try_from(peer).ok()),
            ..Described::default()
        })
    }

    fn of_torch(&self, read: &Read<'_>, name: String) -> Described {
        let dtype = read.text("dtype");
        let elements = read.whole("In msg nelems").max(read.whole("Out msg nelems"));
        let size = dtype.as_deref().and_then(dtype_bytes);
        let peer = read.whole("Dst Rank").or_else(|| read.whole("Src Rank"));
        Described {
            communicator: self.process_group(read),
            sequence: read.whole("Seq"),
            kind: CollectiveKind::of(&name),
            bytes: elements.zip(size).and_then(|(elements, size)| elements.checked_mul(size)),
            dtype,
            peer: peer.and_then(|peer| u32::try_from(peer).ok()),
        }
    }

    fn process_group(&self, read: &Read<'_>) -> Option<Communicator> {
        let name = read.text(GROUP).or_else(|| read.text("Process Group ID"))?;
        let size = read.whole("Group size").and_then(|size| u32::try_from(size).ok());
        let listed = read.text("Process Group Ranks").unwrap_or_default();
        let is_whole = |members: &Vec<u32>| size.is_none_or(|size| members.len() == size as usize);
        let strided = || strided(read.whole("Global rank start")?, read.whole("Global rank stride")?, size?);
        let members = listed_ranks(&listed).filter(is_whole);
        let members = members.or_else(|| self.groups.get(&name).cloned().filter(is_whole)).or_else(strided);
        let listed = if members.is_some() { String::new() } else { listed };
        let description = read.text("Process Group Description").unwrap_or_default();
        Some(Communicator { name, description, size, members, listed, is_assumed: false })
    }
}

/// Fields of one span by name.
struct Read<'a> {
    fields: Fields<'a>,
    names: &'a HashMap<&'static str, NameId>,
}

impl Read<'_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        self.fields.named(*self.names.get(name)?)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|value| value.to_string()).filter(|text| !text.is_empty())
    }

    fn whole(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Uint(number) => Some(number),
            Value::Str(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// `[0, 1, 2]`; none if the list was cut, which torch.profiler does after thirty entries.
fn listed_ranks(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut ranks: Vec<u32> = inner.split(',').map(|rank| rank.trim().parse().ok()).collect::<Option<_>>()?;
    ranks.sort_unstable();
    Some(ranks)
}

fn strided(start: u64, stride: u64, size: u32) -> Option<Vec<u32>> {
    const MOST: u32 = 1 << 20;
    let rank = |at: u32| u32::try_from(start.checked_add(stride.checked_mul(u64::from(at))?)?).ok();
    (stride > 0 && (1..=MOST).contains(&size)).then(|| (0..size).map(rank).collect::<Option<_>>()).flatten()
}

/// The bytes of an element of a dtype, as PyTorch names it.
fn dtype_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype.to_ascii_lowercase().as_str() {
        "double" | "long" | "uint64" | "complexfloat" | "c10::complex<float>" => 8,
        "complexdouble" | "c10::complex<double>" => 16,
        "float" | "int" | "uint32" | "complexhalf" | "unsigned int" => 4,
        "half" | "c10::half" | "bfloat16" | "c10::bfloat16" | "short" | "uint16" => 2,
        "byte" | "char" | "bool" | "uint8" | "int8" | "unsigned char" => 1,
        name if name.starts_with("float8") => 1,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_ranges_and_kernels_have_a_kind() {
        let of = |name: &str| CollectiveKind::of(name).map_or("none", CollectiveKind::key);
        for (name, kind) in [
            ("allreduce", "all_reduce"),
            ("_allgather_base", "all_gather"),
            ("all_gather_into_tensor_coalesced", "all_gather"),
            ("_reduce_scatter_base", "reduce_scatter"),
            ("all_to_allv", "all_to_all"),
            ("_broadcast_oop", "broadcast"),
            ("send", "send"),
            ("ncclRecv", "recv"),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
            ("void deep_ep::internode::dispatch<false, 8, true>(int4*)", "all_to_all"),
            ("void dpsk::ep::internode::combine<false, 8>(int)", "all_to_all"),
            ("barrier", "barrier"),
            ("coalesced", "none"),
        ] {
            assert_eq!(of(name), kind, "{name}");
        }
    }

    #[test]
    fn bus_bandwidth_uses_the_factors_of_nccl_tests() {
        assert_eq!(CollectiveKind::AllReduce.bus_factor(8), Some(1.75));
        assert_eq!(CollectiveKind::AllGather.bus_factor(8), Some(0.875));
        assert_eq!(CollectiveKind::ReduceScatter.bus_factor(4), Some(0.75));
        assert_eq!(CollectiveKind::Broadcast.bus_factor(4), Some(1.0));
        assert_eq!((CollectiveKind::AllReduce.bus_factor(1), CollectiveKind::Barrier.bus_factor(8)), (None, None));
    }

    #[test]
    fn ranks_are_read_from_lists_and_strides_and_printed_as_ranges() {
        assert_eq!(listed_ranks("[3, 1, 2]"), Some(vec![1, 2, 3]));
        assert_eq!(listed_ranks("[0, 1, ..., 1023]"), None);
        assert_eq!(strided(4, 8, 3), Some(vec![4, 12, 20]));
        assert_eq!((strided(0, 0, 3), strided(0, 1, u32::MAX)), (None, None));
        let shown = [vec![0, 1, 2, 7], vec![4, 12, 20, 28], vec![5], vec![0, 2]].map(|ranks| ranges(&ranks));
        assert_eq!(shown, ["0-2, 7", "4-28/8", "5", "0, 2"]);
    }

    #[test]
    fn the_algorithm_is_read_from_the_nccl_kernel_name() {
        assert_eq!(
            algorithm("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            Some("ring")
        );
        assert_eq!(algorithm("ncclKernel_AllReduce_TREE_LL_Sum_float"), Some("tree"));
        assert_eq!((algorithm("ncclDevKernel_SendRecv(x)"), algorithm("ring_copy")), (None, None));
    }
}
