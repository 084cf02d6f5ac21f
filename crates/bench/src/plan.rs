//! A plan: axes with their values, and the cases they make.

use std::collections::HashSet;

use laptime_trace::run::{AxisValue, AxisValues, Case};

use crate::axis::{AxisError, parse_names, parse_values};

/// What a workload says of one of its axes.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisSpec {
    /// Its name, such as `seq_len`.
    pub name: &'static str,
    /// What it means, in a line.
    pub about: &'static str,
    /// What values it takes.
    pub takes: Takes,
    /// The values if none are given.
    pub default: Vec<AxisValue>,
    /// How much of the preparation a new value costs; cases are ordered so that costly axes change least often.
    pub cost: Cost,
}

/// What values an axis takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Takes {
    /// Whole numbers from one to another.
    Int {
        /// The least.
        least: i64,
        /// The most.
        most: i64,
    },
    /// Any number.
    Number,
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// Any name.
    Name,
    /// Yes or no; its flag alone says yes.
    Switch,
}

impl Takes {
    fn accepts(self, value: &AxisValue) -> bool {
        match (self, value) {
            (Self::Int { least, most }, AxisValue::Int(value)) => (least..=most).contains(value),
            (Self::Number, AxisValue::Int(_) | AxisValue::Float(_)) => true,
            (Self::OneOf(names), AxisValue::Text(name)) => names.contains(&name.as_str()),
            (Self::Name, AxisValue::Text(_)) | (Self::Switch, AxisValue::Bool(_)) => true,
            _ => false,
        }
    }

    /// The values, in words.
    pub fn words(self) -> String {
        match self {
            Self::Int { least, most: i64::MAX } => format!("whole numbers from {least} on"),
            Self::Int { least, most } => format!("whole numbers from {least} to {most}"),
            Self::Number => "numbers".to_owned(),
            Self::OneOf(names) => format!("one of {}", names.join(", ")),
            Self::Name => "names".to_owned(),
            Self::Switch => "true or false".to_owned(),
        }
    }
}

/// How much of the preparation a new value on an axis costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Everything is made anew: another model is loaded.
    High,
    /// Buffers are made anew.
    Middle,
    /// Next to nothing.
    Low,
}

/// Why there is no such plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The workload has no such axis.
    #[error("workload `{workload}` has no axis `{axis}`")]
    NoSuchAxis {
        /// The workload.
        workload: String,
        /// The axis asked for.
        axis: String,
        /// The axes it has.
        known: Vec<&'static str>,
    },

    /// The values of an axis cannot be read.
    #[error("the values of axis `{axis}` cannot be read")]
    Values {
        /// The axis.
        axis: &'static str,
        /// Why not.
        source: AxisError,
    },

    /// An axis does not take this value.
    #[error("axis `{axis}` takes {takes}, not `{value}`")]
    Value {
        /// The axis.
        axis: &'static str,
        /// What it takes.
        takes: String,
        /// What was given.
        value: String,
    },

    /// What was given makes no sense together, or names what is not there.
    #[error("{reason}")]
    Refused {
        /// What is wrong.
        reason: String,
        /// What to do.
        hint: String,
    },

    /// There are too many cases.
    #[error("the plan has {cases} cases, and at most {MOST_CASES} are run")]
    TooManyCases {
        /// How many there would be.
        cases: u128,
    },
}

/// Cases that a plan may have.
pub const MOST_CASES: usize = 100_000;

/// The axes of a run with their values.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    axes: Vec<(AxisSpec, Vec<AxisValue>)>,
    /// The cases, where they are not every combination of values.
    chosen: Vec<Case>,
}

impl Plan {
    /// Settles the values of a workload's axes: those given, else the defaults.
    ///
    /// `given` has the words that followed each flag; one flag given twice adds to its values.
    pub fn settle(workload: &str, axes: Vec<AxisSpec>, given: &[(String, Vec<String>)]) -> Result<Self, PlanError> {
        let known: Vec<&'static str> = axes.iter().map(|axis| axis.name).collect();
        if let Some((axis, _)) = given.iter().find(|(axis, _)| !known.contains(&axis.as_str())) {
            return Err(PlanError::NoSuchAxis { workload: workload.to_owned(), axis: axis.clone(), known });
        }
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

    /// A plan of these cases alone, in this order; the axes have the values that occur.
    pub fn of_cases(axes: Vec<AxisSpec>, cases: Vec<Case>) -> Result<Self, PlanError> {
        if cases.len() > MOST_CASES {
            return Err(PlanError::TooManyCases { cases: cases.len() as u128 });
        }
        let occurring = |axis: AxisSpec| {
            let mut seen = HashSet::new();
            let all = cases.iter().filter_map(|case| case.get(axis.name));
            let values = all.filter(|value| seen.insert(value.to_string())).cloned().collect();
            (axis, values)
        };
        let axes = axes.into_iter().map(occurring).collect();
        Ok(Self { axes, chosen: cases })
    }

    /// The same plan with every case made another; unless one changes it stays as it is.
    pub fn map(self, one: impl Fn(&Case) -> Case) -> Self {
        let cases = self.cases();
        let mapped: Vec<Case> = cases.iter().map(one).collect();
        if mapped == cases {
            return self;
        }
        let axes = self.axes.iter().map(|(axis, _)| axis.clone()).collect();
        // There are no more cases than before.
        Self::of_cases(axes, mapped).unwrap_or(self)
    }

    /// The cases that were chosen, if they are not every combination of values.
    pub fn chosen(&self) -> &[Case] {
        &self.chosen
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let cases = self.axes.iter().fold(1_u128, |product, (_, values)| product.saturating_mul(values.len() as u128));
        if cases > MOST_CASES as u128 { Err(PlanError::TooManyCases { cases }) } else { Ok(()) }
    }

    /// The axes with their values, in the workload's order.
    pub fn axes(&self) -> impl Iterator<Item = (&AxisSpec, &[AxisValue])> {
        self.axes.iter().map(|(axis, values)| (axis, values.as_slice()))
    }

    /// The axes with their values, as the record of a run keeps them.
    pub fn record(&self) -> Vec<AxisValues> {
        self.axes().map(|(axis, values)| AxisValues { axis: axis.name.to_owned(), values: values.to_vec() }).collect()
    }

    /// The cases: those that were chosen, or every combination of values, costly axes changing least often, values in
    /// the order given.
    pub fn cases(&self) -> Vec<Case> {
        if !self.chosen.is_empty() {
            return self.chosen.clone();
        }
        let mut by_cost: Vec<usize> = (0..self.axes.len()).collect();
        by_cost.sort_by_key(|&at| self.axes[at].0.cost);
        let mut points: Vec<Vec<usize>> = vec![vec![0; self.axes.len()]];
        for at in by_cost {
            let choices = self.axes[at].1.len();
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
            (axis.name.to_owned(), values[choice].clone())
        };
        Case::new(self.axes.iter().zip(point).map(value).collect())
    }
}

fn read(axis: &AxisSpec, words: Vec<&str>) -> Result<Vec<AxisValue>, PlanError> {
    let parsed = match axis.takes {
        Takes::Name => parse_names(words),
        Takes::Int { .. } => parse_values(words).map(|values| values.into_iter().map(as_whole).collect()),
        _ => parse_values(words),
    };
    let values = parsed.map_err(|source| PlanError::Values { axis: axis.name, source })?;
    match values.iter().find(|value| !axis.takes.accepts(value)) {
        None => Ok(values),
        Some(value) => Err(PlanError::Value { axis: axis.name, takes: axis.takes.words(), value: value.to_string() }),
    }
}

/// A number without a fraction as a whole number: `1e3` is 1000.
fn as_whole(value: AxisValue) -> AxisValue {
    /// Up to here every whole number is a different float.
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
        let axis = |name, takes, default: &[AxisValue], cost| AxisSpec {
            name,
            about: "",
            takes,
            default: default.to_vec(),
            cost,
        };
        vec![
            axis("batch", Takes::Int { least: 1, most: i64::MAX }, &[1.into()], Cost::Low),
            axis("model", Takes::Name, &["tiny".into()], Cost::High),
            axis("dtype", Takes::OneOf(&["f32", "bf16"]), &["f32".into()], Cost::Middle),
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
    fn what_a_workload_does_not_take_is_refused() {
        let unknown = cases(&[("layers", &["1"])]).unwrap_err();
        assert_eq!(unknown.to_string(), "workload `model` has no axis `layers`");
        let wrong = cases(&[("dtype", &["f8"])]).unwrap_err();
        assert_eq!(wrong.to_string(), "axis `dtype` takes one of f32, bf16, not `f8`");
        let least = cases(&[("batch", &["0"])]).unwrap_err();
        assert_eq!(least.to_string(), "axis `batch` takes whole numbers from 1 on, not `0`");
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
        assert_eq!(refused, "axis `batch` takes whole numbers from 1 on, not `1.5`");
    }

    #[test]
    fn chosen_cases_are_kept_in_their_order_and_axes_have_the_values_that_occur() {
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
    fn ten_million_cases_are_refused_before_they_are_made() {
        let given: [(&str, &[&str]); 2] = [("batch", &["1-10000+1"]), ("model", &["a,b,c,d,e,f,g,h,i,j,k"])];
        assert_eq!(cases(&given), Err(PlanError::TooManyCases { cases: 110_000 }));
    }
}
