//! A plan: axes with their values, and the resulting cases.

use std::collections::HashSet;

use laptime_trace::run::{AxisValue, AxisValues, Case};

use crate::alias::Given;
use crate::axis::{AxisError, parse_names, parse_values};

/// The description of an axis of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisSpec {
    /// The name, such as `seq_len`.
    pub name: &'static str,
    /// What the axis means, in one line.
    pub about: &'static str,
    /// The kind of values.
    pub kind: ValueKind,
    /// The values if none are given; without any, only cases with given values have the axis.
    pub default: Vec<AxisValue>,
    /// How much preparation a new value costs; costly axes change least often.
    pub cost: Cost,
}

/// The kind of values of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// Whole numbers in a range.
    Int {
        /// The minimum.
        least: i64,
        /// The maximum.
        most: i64,
    },
    /// Any number.
    Number,
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// Any name.
    Name,
    /// A text, path or list that is one value: the words after the flag, joined by this separator.
    Text(&'static str),
    /// True or false; the flag alone means true.
    Switch,
}

impl ValueKind {
    fn accepts(self, value: &AxisValue) -> bool {
        match (self, value) {
            (Self::Int { least, most }, AxisValue::Int(value)) => (least..=most).contains(value),
            (Self::Number, AxisValue::Int(_) | AxisValue::Float(_)) => true,
            (Self::OneOf(names), AxisValue::Text(name)) => names.contains(&name.as_str()),
            (Self::Name | Self::Text(_), AxisValue::Text(_)) | (Self::Switch, AxisValue::Bool(_)) => true,
            _ => false,
        }
    }

    /// A description of the accepted values.
    pub fn words(self) -> String {
        match self {
            Self::Int { least, most: i64::MAX } => format!("whole numbers of at least {least}"),
            Self::Int { least, most } => format!("whole numbers from {least} to {most}"),
            Self::Number => "numbers".to_owned(),
            Self::OneOf(names) => format!("one of {}", names.join(", ")),
            Self::Name => "names".to_owned(),
            Self::Text(_) => "text".to_owned(),
            Self::Switch => "true or false".to_owned(),
        }
    }
}

/// How much preparation a new value on an axis costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Everything is prepared again, such as loading another model.
    High,
    /// Buffers are allocated again.
    Middle,
    /// Almost nothing.
    Low,
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum PlanError {
    #[error("workload `{workload}` has no axis `{axis}`")]
    NoSuchAxis { workload: String, axis: String, known: Vec<&'static str> },
    #[error("cannot parse the values of axis `{axis}`")]
    Values { axis: &'static str, source: AxisError },
    #[error("axis `{axis}` takes {expected}, not `{value}`")]
    Value { axis: &'static str, expected: String, value: String },
    #[error("{reason}")]
    Refused { reason: String, hint: String },
    #[error("the plan has {cases} cases; the maximum is {MOST_CASES}")]
    TooManyCases { cases: u128 },
}

/// The maximum number of cases in a plan.
pub const MOST_CASES: usize = 100_000;

/// The axes of a run with their values, and its cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    axes: Vec<(AxisSpec, Vec<AxisValue>)>,
    /// The selected cases, if they are not every combination of values.
    chosen: Vec<Case>,
}

impl Plan {
    /// Resolves the values of a workload's axes: the given ones, or the defaults.
    ///
    /// `given` holds the words after each flag; repeating a flag adds values.
    pub fn settle(workload: &str, axes: Vec<AxisSpec>, given: &[Given]) -> Result<Self, PlanError> {
        refuse_unknown(workload, &axes, given)?;
        let axes: Result<Vec<_>, PlanError> = axes
            .into_iter()
            .map(|axis| {
                let given = given.iter().filter(|(name, _)| name == axis.name);
                let words: Vec<&str> = given.flat_map(|(_, words)| words).map(String::as_str).collect();
                let values = if words.is_empty() { axis.default.clone() } else { read(&axis, words)? };
                Ok((axis, values))
            })
            .collect();
        let plan = Self { axes: axes?, chosen: Vec::new() };
        plan.check_size()?;
        Ok(plan)
    }

    /// A plan with exactly these cases, in this order; the axes list the values that occur.
    pub fn of_cases(axes: Vec<AxisSpec>, cases: Vec<Case>) -> Result<Self, PlanError> {
        refuse_too_many(cases.len() as u128)?;
        let occurring = |axis: AxisSpec| {
            let mut seen = HashSet::new();
            let all = cases.iter().filter_map(|case| case.get(axis.name));
            let values = all.filter(|value| seen.insert(value.to_string())).cloned().collect();
            (axis, values)
        };
        let axes = axes.into_iter().map(occurring).collect();
        Ok(Self { axes, chosen: cases })
    }

    /// The same plan with a function applied to every case; unchanged if no case changes.
    pub fn map(self, one: impl Fn(&Case) -> Case) -> Self {
        let cases = self.cases();
        let mapped: Vec<Case> = cases.iter().map(one).collect();
        if mapped == cases {
            return self;
        }
        let axes = self.axes.iter().map(|(axis, _)| axis.clone()).collect();
        // The number of cases does not grow.
        Self::of_cases(axes, mapped).unwrap_or(self)
    }

    /// The selected cases, if they are not every combination of values.
    pub fn chosen(&self) -> &[Case] {
        &self.chosen
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let cases =
            self.axes.iter().fold(1, |product: u128, (_, values)| product.saturating_mul(values.len().max(1) as u128));
        refuse_too_many(cases)
    }

    /// The axes with their values, in the workload's order.
    pub fn axes(&self) -> impl Iterator<Item = (&AxisSpec, &[AxisValue])> {
        self.axes.iter().map(|(axis, values)| (axis, values.as_slice()))
    }

    /// The axes with their values, as stored in `run.json`.
    pub fn record(&self) -> Vec<AxisValues> {
        self.axes().map(|(axis, values)| AxisValues { axis: axis.name.to_owned(), values: values.to_vec() }).collect()
    }

    /// The cases: the selected ones, or every combination of values. Costly axes change least often; values keep the
    /// given order.
    pub fn cases(&self) -> Vec<Case> {
        if !self.chosen.is_empty() {
            return self.chosen.clone();
        }
        let mut by_cost: Vec<usize> = (0..self.axes.len()).collect();
        by_cost.sort_by_key(|&at| self.axes[at].0.cost);
        let mut points: Vec<Vec<usize>> = vec![vec![0; self.axes.len()]];
        for at in by_cost {
            let choices = self.axes[at].1.len().max(1);
            let with = |point: Vec<usize>, choice: usize| {
                let mut point = point;
                point[at] = choice;
                point
            };
            points = points
                .into_iter()
                .flat_map(|point| (0..choices).map(move |choice| with(point.clone(), choice)))
                .collect();
        }
        points.into_iter().map(|point| self.case(&point)).collect()
    }

    fn case(&self, point: &[usize]) -> Case {
        let value = |((axis, values), &choice): (&(AxisSpec, Vec<AxisValue>), &usize)| {
            Some((axis.name.to_owned(), values.get(choice)?.clone()))
        };
        Case::new(self.axes.iter().zip(point).filter_map(value).collect())
    }
}

/// Refuses values of axes that a workload does not have, with the list of all that it has.
pub fn refuse_unknown(workload: &str, axes: &[AxisSpec], given: &[Given]) -> Result<(), PlanError> {
    let known: Vec<&'static str> = axes.iter().map(|axis| axis.name).collect();
    match given.iter().find(|(axis, _)| !known.contains(&axis.as_str())) {
        Some((axis, _)) => Err(PlanError::NoSuchAxis { workload: workload.to_owned(), axis: axis.clone(), known }),
        None => Ok(()),
    }
}

/// Refuses more cases than a plan may have.
pub fn refuse_too_many(cases: u128) -> Result<(), PlanError> {
    if cases > MOST_CASES as u128 { Err(PlanError::TooManyCases { cases }) } else { Ok(()) }
}

fn read(axis: &AxisSpec, words: Vec<&str>) -> Result<Vec<AxisValue>, PlanError> {
    let parsed = match axis.kind {
        ValueKind::Name => parse_names(words),
        ValueKind::Text(separator) => Ok(vec![words.join(separator).into()]),
        ValueKind::Int { .. } => parse_values(words).map(|values| values.into_iter().map(as_whole).collect()),
        _ => parse_values(words),
    };
    let values = parsed.map_err(|source| PlanError::Values { axis: axis.name, source })?;
    match values.iter().find(|value| !axis.kind.accepts(value)) {
        None => Ok(values),
        Some(value) => Err(PlanError::Value { axis: axis.name, expected: axis.kind.words(), value: value.to_string() }),
    }
}

/// Converts a number without a fraction to a whole number: `1e3` is 1000.
fn as_whole(value: AxisValue) -> AxisValue {
    /// Up to here every whole number has an exact float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        AxisValue::Float(number) if number.fract() == 0.0 && number.abs() < EXACT => AxisValue::Int(number as i64),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<AxisSpec> {
        let axis = |name, kind, default: &[AxisValue], cost| AxisSpec {
            name,
            about: "",
            kind,
            default: default.to_vec(),
            cost,
        };
        vec![
            axis("batch", ValueKind::Int { least: 1, most: i64::MAX }, &[1.into()], Cost::Low),
            axis("model", ValueKind::Name, &["tiny".into()], Cost::High),
            axis("dtype", ValueKind::OneOf(&["f32", "bf16"]), &["f32".into()], Cost::Middle),
        ]
    }

    fn cases(given: &[(&str, &[&str])]) -> Result<Vec<String>, PlanError> {
        let word = |word: &&str| (*word).to_owned();
        let given: Vec<_> = given.iter().map(|(axis, words)| (word(axis), words.iter().map(word).collect())).collect();
        let plan = Plan::settle("model", axes(), &given)?;
        Ok(plan.cases().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_values_there_is_one_case_of_defaults() {
        assert_eq!(cases(&[]).unwrap(), ["batch=1 model=tiny dtype=f32"]);
    }

    #[test]
    fn costly_axes_change_least_often() {
        let given: [(&str, &[&str]); 3] = [("batch", &["1,2"]), ("model", &["a", "b"]), ("dtype", &["f32,bf16"])];
        assert_eq!(
            cases(&given).unwrap(),
            [
                "batch=1 model=a dtype=f32",
                "batch=2 model=a dtype=f32",
                "batch=1 model=a dtype=bf16",
                "batch=2 model=a dtype=bf16",
                "batch=1 model=b dtype=f32",
                "batch=2 model=b dtype=f32",
                "batch=1 model=b dtype=bf16",
                "batch=2 model=b dtype=bf16",
            ]
        );
    }

    #[test]
    fn a_flag_given_twice_adds_to_its_values() {
        let given: [(&str, &[&str]); 2] = [("batch", &["1"]), ("batch", &["4-8*2"])];
        assert_eq!(cases(&given).unwrap().len(), 3);
    }

    #[test]
    fn values_that_a_workload_does_not_accept_are_refused() {
        let unknown = cases(&[("layers", &["1"])]).unwrap_err();
        assert_eq!(unknown.to_string(), "workload `model` has no axis `layers`");
        let wrong = cases(&[("dtype", &["f8"])]).unwrap_err();
        assert_eq!(wrong.to_string(), "axis `dtype` takes one of f32, bf16, not `f8`");
        let least = cases(&[("batch", &["0"])]).unwrap_err();
        assert_eq!(least.to_string(), "axis `batch` takes whole numbers of at least 1, not `0`");
    }

    #[test]
    fn a_text_is_one_value_and_an_axis_without_values_is_left_out() {
        let text = AxisSpec { name: "text", kind: ValueKind::Text(" "), default: Vec::new(), ..axes().remove(1) };
        let shown = |given: &[Given]| Plan::settle("model", vec![text.clone()], given).unwrap().cases()[0].to_string();
        assert_eq!(shown(&[]), "");
        assert_eq!(
            shown(&[("text".to_owned(), vec!["one, two".to_owned(), "1-3+1".to_owned()])]),
            "text=one, two 1-3+1"
        );
    }

    #[test]
    fn a_name_may_look_like_a_number() {
        assert_eq!(cases(&[("model", &["7", "true"])]).unwrap().len(), 2);
        let written = cases(&[("model", &["007,1e3"])]).unwrap();
        assert!(written[0].contains("model=007") && written[1].contains("model=1e3"), "{written:?}");
    }

    #[test]
    fn a_whole_number_may_be_written_with_an_exponent() {
        assert_eq!(cases(&[("batch", &["1e3"])]), cases(&[("batch", &["1000"])]));
        let refused = cases(&[("batch", &["1.5"])]).unwrap_err().to_string();
        assert_eq!(refused, "axis `batch` takes whole numbers of at least 1, not `1.5`");
    }

    #[test]
    fn chosen_cases_keep_their_order_and_axes_list_their_values() {
        let point = |batch: i64, dtype: &str| {
            let values = [("batch", batch.into()), ("model", "tiny".into()), ("dtype", dtype.into())];
            Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec())
        };
        let chosen = vec![point(2, "f32"), point(1, "bf16"), point(2, "bf16")];
        let plan = Plan::of_cases(axes(), chosen.clone()).unwrap();
        assert_eq!((plan.cases(), plan.chosen()), (chosen.clone(), &chosen[..]));
        let values: Vec<Vec<AxisValue>> = plan.axes().map(|(_, values)| values.to_vec()).collect();
        assert_eq!(values, [vec![2.into(), 1.into()], vec!["tiny".into()], vec!["f32".into(), "bf16".into()]]);
    }

    #[test]
    fn too_many_cases_are_refused_before_they_are_created() {
        let given: [(&str, &[&str]); 2] = [("batch", &["1-10000+1"]), ("model", &["a,b,c,d,e,f,g,h,i,j,k"])];
        assert_eq!(cases(&given), Err(PlanError::TooManyCases { cases: 110_000 }));
    }
}
