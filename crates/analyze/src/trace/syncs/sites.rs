//! The site of a sync in the program.

use hashbrown::HashMap;

use laptime_trace::{Activity, NameId, SYNC, Span, SpanId, Trace, TrackId};

use crate::waits::{Found, Place};
use crate::{host::Host, lap_unit::counted};

/// How many innermost names of a path are shown.
const MOST_NAMES: usize = 8;

/// Python files of the framework, which are skipped for their caller.
const FRAMEWORK: &str = "torch/";

/// The sites of all spans of the threads that wait.
pub(super) struct Sites<'a> {
    trace: &'a Trace,
    host: Host<'a>,
    around: Vec<Around>,
    /// The paths of stages and operations: the parent path, and the name.
    paths: Vec<(u32, NameId)>,
}

/// The position of a span, itself included.
#[derive(Debug, Clone, Copy, Default)]
struct Around {
    /// Stages and operations, by path; 0 is none.
    path: u32,
    stage: Option<SpanId>,
    python: Option<SpanId>,
    /// The innermost Python function outside the framework.
    own_python: Option<SpanId>,
    /// What that function called, if known: a framework function or a built-in.
    called: Option<SpanId>,
}

/// The site of one sync.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Site {
    path: u32,
    python: Option<NameId>,
    called: Option<NameId>,
    /// The name of the sync ends the path: it is named after its place.
    pub(super) own_name: Option<NameId>,
    pub(super) stage: Option<NameId>,
}

impl<'a> Sites<'a> {
    /// Prepares the threads that wait. All laps of the unit are one place.
    pub(super) fn of(trace: &'a Trace, activities: &[Activity], waits: &[Found]) -> Self {
        let mut tracks: Vec<TrackId> = waits.iter().map(|wait| wait.track).collect();
        tracks.sort_unstable();
        tracks.dedup();
        let around = vec![Around::default(); trace.span_count()];
        let mut sites = Self { trace, host: Host::of(trace, tracks.clone()), around, paths: Vec::new() };
        let mut known: HashMap<(u32, NameId), u32> = HashMap::new();
        for span in tracks.iter().flat_map(|&track| trace.spans_on(track)) {
            sites.enter(&span, activities[span.id.index()], &mut known);
        }
        sites
    }

    fn enter(&mut self, span: &Span<'_>, activity: Activity, known: &mut HashMap<(u32, NameId), u32>) {
        let mut around = span.parent.map_or_else(Around::default, |parent| self.around[parent.index()]);
        match activity {
            Activity::Python if is_in_file(span.name) => {
                around.python = Some(span.id);
                if !span.name.starts_with(FRAMEWORK) {
                    (around.own_python, around.called) = (Some(span.id), None);
                } else if around.own_python.is_some() {
                    around.called = around.called.or(Some(span.id));
                }
            }
            Activity::Python if around.own_python.is_some() => around.called = around.called.or(Some(span.id)),
            Activity::Python => {}
            Activity::Wait if span.category != SYNC => {}
            Activity::Launch | Activity::Call => {}
            _ => around.path = self.deeper(around.path, self.trace.span_name(span.id), known),
        }
        if activity == Activity::Stage {
            around.stage = Some(span.id);
        }
        self.around[span.id.index()] = around;
    }

    fn deeper(&mut self, path: u32, name: NameId, known: &mut HashMap<(u32, NameId), u32>) -> u32 {
        *known.entry((path, name)).or_insert_with(|| {
            self.paths.push((path, name));
            self.paths.len() as u32
        })
    }

    /// The site of a sync.
    pub(super) fn site(&self, wait: &Found) -> Site {
        let end = wait.end.unwrap_or(wait.start);
        let (own, lane, own_name) = match wait.place {
            Place::Span(id) => (Some(self.around[id.index()]), Some(self.trace.span(id).lane), None),
            Place::Mark(_, name) => (None, None, Some(name)),
        };
        let others = self.host.around(wait.track, wait.start, end, lane);
        let all: Vec<Around> = own.into_iter().chain(others.iter().map(|id| self.around[id.index()])).collect();
        let innermost = |of: fn(&Around) -> Option<SpanId>| {
            all.iter().filter_map(of).max_by_key(|id| (self.trace.span(*id).start, *id))
        };
        let python = innermost(|around| around.own_python).or_else(|| innermost(|around| around.python));
        let called = python.and_then(|python| {
            let of_python = all.iter().filter(|around| around.own_python == Some(python));
            of_python.filter_map(|around| around.called).next()
        });
        let name = |id: SpanId| self.trace.span_name(id);
        Site {
            path: all.iter().map(|around| around.path).find(|path| *path != 0).unwrap_or(0),
            python: python.map(name),
            called: called.map(name),
            own_name,
            stage: innermost(|around| around.stage).map(name),
        }
    }

    /// The Python function of a site, and what it called, by name.
    pub(super) fn python(&self, site: &Site) -> Option<(&'a str, Option<&'a str>)> {
        let trace = self.trace;
        Some((trace.name(site.python?), site.called.map(|called| trace.name(called))))
    }

    /// The site in words: a Python function with file and line, else the path of stages and operations.
    pub(super) fn text(&self, site: &Site, lap: Option<&str>) -> String {
        if let Some(python) = site.python {
            return self.trace.name(python).to_owned();
        }
        let mut names: Vec<String> = site.own_name.map(|name| self.trace.name(name).to_owned()).into_iter().collect();
        let mut at = site.path;
        while let Some((around, name)) = (at as usize).checked_sub(1).and_then(|at| self.paths.get(at)) {
            if names.len() == MOST_NAMES {
                names.push("…".to_owned());
                break;
            }
            names.push(without_number(self.trace.name(*name), lap));
            at = *around;
        }
        names.reverse();
        names.join("/")
    }
}

/// The name of a stage or operation without its counter, so that all laps are one place.
///
/// Laps have no number, and operations in NVTX ranges (`aten::item, op_id = 4711`) no id.
pub(super) fn without_number(name: &str, lap: Option<&str>) -> String {
    let name = [", op_id = ", ", seq = "].iter().fold(name, |name, counts| name.split(counts).next().unwrap_or(name));
    let counted = counted(name);
    let is_lap = Some(counted.as_str()) == lap || counted == "ProfilerStep#*";
    if is_lap { counted } else { name.to_owned() }
}

/// Whether the name of a Python function has file and line: `sampler.py(41): sample`.
fn is_in_file(name: &str) -> bool {
    name.contains(".py(")
}
