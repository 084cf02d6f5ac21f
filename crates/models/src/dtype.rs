//! The dtypes of weights and activations.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{error::ModelError, words::words};

words! {
    /// The dtype of weights and activations.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Dtype {
        /// 32 bits.
        F32 = "f32",
        /// bfloat16.
        Bf16 = "bf16",
        /// IEEE half precision.
        F16 = "f16",
        /// bf16, with e4m3 for the matrices of layers (see [`fp8`](crate::fp8)).
        Fp8 = "fp8",
    }
}

impl Dtype {
    /// Bytes per element. Quantised weights take less (see [`Config::weight_bytes`](crate::Config::weight_bytes)).
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 | Self::Fp8 => 2,
        }
    }

    /// The dtype of activations and cache.
    #[must_use]
    pub fn activations(self) -> Self {
        if self == Self::Fp8 { Self::Bf16 } else { self }
    }

    /// Refuses quantised weights where they are not supported.
    pub(crate) fn refuse_quantised(self, what: &str) -> Result<(), ModelError> {
        match self {
            Self::Fp8 => Err(ModelError::Refused(format!("{what} with fp8 weights is not supported: use bf16"))),
            Self::F32 | Self::Bf16 | Self::F16 => Ok(()),
        }
    }
}

/// Runs code generic over the element type of a dtype, which `|T|` names.
macro_rules! typed {
    ($dtype:expr, |$number:ident| $run:expr) => {
        match $dtype {
            $crate::Dtype::F32 => {
                type $number = f32;
                $run
            }
            $crate::Dtype::Bf16 | $crate::Dtype::Fp8 => {
                type $number = half::bf16;
                $run
            }
            $crate::Dtype::F16 => {
                type $number = half::f16;
                $run
            }
        }
    };
}

pub(crate) use typed;

impl FromStr for Dtype {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text.to_ascii_lowercase().as_str() {
            "f32" | "fp32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            "f16" | "fp16" | "float16" => Ok(Self::F16),
            "fp8" | "float8_e4m3fn" => Ok(Self::Fp8),
            _ => {
                let reason = format!("there is no dtype `{text}`");
                Err(ModelError::hinted(reason, "expected `f32`, `bf16`, `f16` or `fp8`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_names_of_dtypes_are_read() {
        assert_eq!("bfloat16".parse::<Dtype>().unwrap(), Dtype::Bf16);
        assert_eq!("Float32".parse::<Dtype>().unwrap(), Dtype::F32);
        assert_eq!("float8_e4m3fn".parse::<Dtype>().unwrap(), Dtype::Fp8);
        assert_eq!("f8".parse::<Dtype>().unwrap_err().to_string(), "there is no dtype `f8`");
    }
}
