//! A case: one combination of axis values.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One value on an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum AxisValue {
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A name.
    Text(String),
}

impl AxisValue {
    /// Parses one value: a number, a boolean, or else a name.
    pub fn parse(text: &str) -> Self {
        if let Ok(whole) = text.parse() {
            return Self::Int(whole);
        }
        // `nan` and `inf` are names, not numbers.
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Self::Float(number),
            _ => text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Bool),
        }
    }
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value}"),
        }
    }
}

macro_rules! axis_value_from {
    ($($type:ty => $variant:ident,)*) => {
        $(impl From<$type> for AxisValue {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
axis_value_from!(i64 => Int, bool => Bool, String => Text, &str => Text,);

/// One case of a plan: a value on each axis, in the order of the workload's axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    values: Vec<(String, AxisValue)>,
}

/// Why a case does not have the value that a workload requested; this is a bug in the workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the case has no {kind} on axis `{axis}`")]
pub struct NoSuchValue {
    axis: String,
    kind: &'static str,
}

impl Case {
    /// Creates a case from axes and values.
    pub fn new(values: Vec<(String, AxisValue)>) -> Self {
        Self { values }
    }

    /// The axes and their values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &AxisValue)> {
        self.values.iter().map(|(axis, value)| (axis.as_str(), value))
    }

    /// The same case with another value on an axis; an unknown axis is ignored.
    pub fn with(&self, axis: &str, value: impl Into<AxisValue>) -> Self {
        let mut values = self.values.clone();
        if let Some((_, known)) = values.iter_mut().find(|(known, _)| known == axis) {
            *known = value.into();
        }
        Self { values }
    }

    /// Whether another axis implies the value on this one: the short name of a test, such as `tg128@d4096`, implies the
    /// pass, the number of tokens and the context, and the name of a pattern implies its numbers. Tables do not repeat
    /// implied values.
    pub fn is_implied(&self, axis: &str) -> bool {
        match axis {
            "pass_type" | "seq_len" | "cache_tokens" => self.get("test").is_some(),
            "window" | "global" | "random" => self.text("pattern").is_ok_and(|name| name != "custom"),
            _ => false,
        }
    }

    /// The value on an axis.
    pub fn get(&self, axis: &str) -> Option<&AxisValue> {
        self.values.iter().find(|(known, _)| known == axis).map(|(_, value)| value)
    }

    /// The whole number on an axis.
    pub fn int(&self, axis: &str) -> Result<i64, NoSuchValue> {
        match self.get(axis) {
            Some(AxisValue::Int(value)) => Ok(*value),
            _ => Err(NoSuchValue { axis: axis.to_owned(), kind: "whole number" }),
        }
    }

    /// The whole number on an axis, as a size.
    pub fn size(&self, axis: &str) -> Result<usize, NoSuchValue> {
        let wrong = || NoSuchValue { axis: axis.to_owned(), kind: "size" };
        usize::try_from(self.int(axis)?).map_err(|_| wrong())
    }

    /// The name on an axis.
    pub fn text(&self, axis: &str) -> Result<&str, NoSuchValue> {
        match self.get(axis) {
            Some(AxisValue::Text(value)) => Ok(value),
            _ => Err(NoSuchValue { axis: axis.to_owned(), kind: "name" }),
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

/// As an object, in the order of the axes.
impl Serialize for Case {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.values.iter().map(|(axis, value)| (axis, value)))
    }
}

impl<'de> Deserialize<'de> for Case {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;

        impl<'de> Visitor<'de> for Values {
            type Value = Case;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a value for each axis")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Case, A::Error> {
                let mut values = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    values.push(entry);
                }
                Ok(Case { values })
            }
        }

        deserializer.deserialize_map(Values)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Case {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Case".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "A value on each axis, in the order of the workload's axes.",
            "additionalProperties": generator.subschema_for::<AxisValue>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_written_as_an_object_in_the_order_of_its_axes() {
        let case = Case::new(vec![("size".into(), 512.into()), ("dtype".into(), "f32".into())]);
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(text, r#"{"size":512,"dtype":"f32"}"#);
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
    }

    #[test]
    fn the_name_of_a_pattern_implies_its_numbers_unless_it_is_custom() {
        let case = |name: &str| Case::new(vec![("pattern".into(), name.into()), ("window".into(), 512.into())]);
        assert!(case("small").is_implied("window") && !case("small").is_implied("pattern"));
        assert!(!case("custom").is_implied("window"));
    }

    #[test]
    fn a_value_of_another_kind_is_refused_with_its_axis() {
        let case = Case::new(vec![("size".into(), (-1).into())]);
        assert_eq!(case.size("size").unwrap_err().to_string(), "the case has no size on axis `size`");
        assert_eq!(case.text("dtype").unwrap_err().to_string(), "the case has no name on axis `dtype`");
    }
}
