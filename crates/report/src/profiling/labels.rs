//! Labels of chart lines and summary rows: their kind, and the axes in which they differ.

use laptime_analyze::{CaseId, RUN_AXIS};
use laptime_trace::run::{AxisValue, Case};

/// Axes that are never part of a label: lines run along them.
const ALONG: [&str; 3] = ["seq_len", "test", "cache_tokens"];

/// What distinguishes series, apart from their first words.
pub(super) struct Labels<'a> {
    /// The axes whose values come first, varying or not.
    first: &'a [&'static str],
    /// Axes that vary, in the order of the workload.
    varying: Vec<String>,
    devices: bool,
}

impl<'a> Labels<'a> {
    pub(super) fn of<'b>(ids: impl Iterator<Item = &'b CaseId> + Clone, first: &'a [&'static str]) -> Self {
        let mut varying: Vec<String> = Vec::new();
        let Some(one) = ids.clone().next() else { return Self { first, varying, devices: false } };
        for (axis, value) in ids.clone().flat_map(|id| id.case.values()) {
            let is_own = first.contains(&axis) || ALONG.contains(&axis);
            if !is_own && one.case.get(axis) != Some(value) && !varying.iter().any(|known| known == axis) {
                varying.push(axis.to_owned());
            }
        }
        Self { first, varying, devices: ids.clone().any(|id| id.device != one.device) }
    }

    /// The first words only: `dense`.
    pub(super) fn kind(&self, case: &Case) -> String {
        let words: Vec<String> = self.first.iter().filter_map(|axis| case.get(axis)).map(ToString::to_string).collect();
        words.join(", ")
    }

    /// The other varying axes: `batch_size 4, cuda:0`; empty if there are none.
    pub(super) fn setting(&self, id: &CaseId) -> String {
        // The name of a pattern includes its values. The name of a test does not count: lengths vary along a line.
        let is_shown = |axis: &&String| *axis == "pass_type" || !id.case.is_implied(axis);
        let axes = self.varying.iter().filter(is_shown).filter_map(|axis| Some(word(axis, id.case.get(axis)?)));
        let device = self.devices.then(|| id.device.clone());
        axes.chain(device).collect::<Vec<_>>().join(", ")
    }

    /// Both.
    pub(super) fn label(&self, id: &CaseId) -> String {
        let parts = [self.kind(&id.case), self.setting(id)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

fn word(axis: &str, value: &AxisValue) -> String {
    match axis {
        RUN_AXIS => value.to_string(),
        "batch_size" => format!("batch {value}"),
        _ => format!("{} {value}", axis.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, batch: i64, length: i64) -> CaseId {
        let values = [("attention", kind.into()), ("seq_len", length.into()), ("batch_size", batch.into())];
        let case = Case::new(values.map(|(axis, value): (&str, AxisValue)| (axis.to_owned(), value)).to_vec());
        CaseId { workload: "attention".to_owned(), device: "cpu".to_owned(), case }
    }

    #[test]
    fn a_label_is_the_kind_and_all_varying_axes_except_the_length() {
        let ids = [id("dense", 1, 512), id("sparse", 1, 1024)];
        assert_eq!(Labels::of(ids.iter(), &["attention"]).label(&ids[1]), "sparse");
        let ids = [id("dense", 1, 512), id("sparse", 4, 1024)];
        let labels = Labels::of(ids.iter(), &["attention"]);
        assert_eq!((labels.label(&ids[1]), labels.setting(&ids[0])), ("sparse, batch 4".into(), "batch 1".into()));
    }
}
