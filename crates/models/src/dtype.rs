//! The number types of weights and activations.

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
        /// 16 bits with the exponent of f32.
        Bf16 = "bf16",
        /// 16 bits of IEEE.
        F16 = "f16",
        /// bf16, but for the matrices of a decoder's layers, whose weights are e4m3 (see [`fp8`](crate::fp8)).
        Fp8 = "fp8",
    }
}

impl Dtype {
    /// Bytes of one number; quantised weights take less (see [`Config::weight_bytes`](crate::Config::weight_bytes)).
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 | Self::Fp8 => 2,
        }
    }

    /// The number type of activations and cache, in which products are computed.
    #[must_use]
    pub fn activations(self) -> Self {
        if self == Self::Fp8 { Self::Bf16 } else { self }
    }

    /// Refuses quantised weights for what does not compute with them.
    pub(crate) fn refuse_quantised(self, what: &str) -> Result<(), ModelError> {
        match self {
            Self::Fp8 => Err(ModelError::Refused(format!("{what} with fp8 weights is not supported: use bf16"))),
            Self::F32 | Self::Bf16 | Self::F16 => Ok(()),
        }
    }
}

/// Runs something for the type of the numbers of a dtype: `|T|` names it.
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
                let reason = format!("there is no number type `{text}`");
                Err(ModelError::hinted(reason, "there are `f32`, `bf16` and `f16`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_names_of_types_are_read_too() {
        assert_eq!("bfloat16".parse::<Dtype>().unwrap(), Dtype::Bf16);
        assert_eq!("Float32".parse::<Dtype>().unwrap(), Dtype::F32);
        assert_eq!("float8_e4m3fn".parse::<Dtype>().unwrap(), Dtype::Fp8);
        assert_eq!("f8".parse::<Dtype>().unwrap_err().to_string(), "there is no number type `f8`");
    }
}
