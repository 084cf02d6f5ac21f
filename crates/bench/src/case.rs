//! A case: one point of a plan.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::axis::AxisValue;

/// One point of a plan: a value on each axis, in the order of the workload's axes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Case {
    values: Vec<(String, AxisValue)>,
}

/// Why a case does not give what a workload asked for: a fault of the workload, which declared the axis otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the case has no {wanted} on axis `{axis}`")]
pub struct NoSuchValue {
    axis: String,
    wanted: &'static str,
}

impl Case {
    /// Makes a case of values by axis.
    pub fn new(values: Vec<(String, AxisValue)>) -> Self {
        Self { values }
    }

    /// The axes and their values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &AxisValue)> {
        self.values.iter().map(|(axis, value)| (axis.as_str(), value))
    }

    /// The value on an axis.
    pub fn get(&self, axis: &str) -> Option<&AxisValue> {
        self.values.iter().find(|(known, _)| known == axis).map(|(_, value)| value)
    }

    /// The whole number on an axis.
    pub fn int(&self, axis: &str) -> Result<i64, NoSuchValue> {
        match self.get(axis) {
            Some(AxisValue::Int(value)) => Ok(*value),
            _ => Err(NoSuchValue { axis: axis.to_owned(), wanted: "whole number" }),
        }
    }

    /// The whole number on an axis, as a size.
    pub fn size(&self, axis: &str) -> Result<usize, NoSuchValue> {
        let wrong = || NoSuchValue { axis: axis.to_owned(), wanted: "size" };
        usize::try_from(self.int(axis)?).map_err(|_| wrong())
    }

    /// The name on an axis.
    pub fn text(&self, axis: &str) -> Result<&str, NoSuchValue> {
        match self.get(axis) {
            Some(AxisValue::Text(value)) => Ok(value),
            _ => Err(NoSuchValue { axis: axis.to_owned(), wanted: "name" }),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (axis, value)) in self.values.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{axis}={value}")?;
        }
        Ok(())
    }
}
