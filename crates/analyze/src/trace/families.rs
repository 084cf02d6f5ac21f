//! Names that differ only in a counter, treated as one.

use hashbrown::HashMap;

use laptime_trace::{Activity, NameId, Trace};

use crate::lap_unit::family;

/// The families of the names of a trace; each name is analysed once.
#[derive(Debug, Default)]
pub struct Families {
    known: HashMap<NameId, NameId>,
    first: HashMap<String, NameId>,
}

impl Families {
    /// Whether names of such spans may contain a counter: stages, annotations, ranges and operations. A number in the name
    /// of a kernel, call or function is part of the name.
    pub const fn may_count(activity: Activity) -> bool {
        matches!(activity, Activity::Stage | Activity::DeviceStage | Activity::Operation)
    }

    /// The representative of a family: the first name that was looked up.
    pub fn of(&mut self, trace: &Trace, name: NameId) -> NameId {
        let first = &mut self.first;
        *self.known.entry(name).or_insert_with(|| match family(trace.name(name)) {
            std::borrow::Cow::Borrowed(_) => name,
            std::borrow::Cow::Owned(text) => *first.entry(text).or_insert(name),
        })
    }

    /// The same, if such spans may contain a counter.
    pub fn of_span(&mut self, trace: &Trace, name: NameId, activity: Activity) -> NameId {
        if Self::may_count(activity) { self.of(trace, name) } else { name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::TraceBuilder;

    #[test]
    fn a_number_after_a_hash_or_an_equals_sign_is_a_counter() {
        let same = [
            ("ProfilerStep#12", "ProfilerStep#*"),
            ("aten::linear, op_id = 314279", "aten::linear, op_id = *"),
            ("aten::mm, seq = 3, op_id = 7", "aten::mm, seq = *, op_id = *"),
            ("block.14, op_id = 7", "block.14, op_id = *"),
        ];
        for (name, expected) in same {
            assert_eq!(family(name), expected);
        }
        let others =
            ["layer 3", "conv2d", "op=7", "at = 0x7f", "alpha = 1.5", "a = 3rd", "sizes = [[1, 2]]", "#", "", "é#"];
        for name in others {
            assert_eq!(family(name), name);
        }
    }

    #[test]
    fn names_are_merged_into_families_except_kernels() {
        let mut builder = TraceBuilder::default();
        let names = ["step#1", "step#2", "layer 3", "layer 4"].map(|name| builder.name(name));
        let trace = builder.build().unwrap();
        let mut families = Families::default();
        let of = |name| families.of_span(&trace, name, Activity::Operation);
        assert_eq!(names.map(of), [names[0], names[0], names[2], names[3]]);
        assert_eq!(families.of_span(&trace, names[1], Activity::Kernel), names[1]);
    }
}
