//! A function with and without marks; with recording compiled out, both compile to the same instructions.
//!
//! `crates/probe/tests/off.rs` compiles this crate with and without the feature `marked` and compares.

#[cfg(feature = "marked")]
use laptime_probe::{Lane, lap, mark, stage, sync_point, value};

/// Does some arithmetic in stages, as a pipeline would.
#[cfg(feature = "marked")]
#[allow(unsafe_code)] // The name is exported, so that it is found in the assembly.
#[unsafe(no_mangle)]
pub fn laptime_off_proof(tokens: &[u32], prompt: &str, scale: Option<f32>) -> u64 {
    let lane = Lane::host("stream");
    let _stage = stage!("generate", tokens = tokens.len(), text = prompt, scale = scale, warm = true);
    let mut sum = prompt.len() as u64;
    for (i, token) in tokens.iter().enumerate() {
        let _lap = lap!("decode", token = i, wide = i as u64, signed = -1_i64);
        let inner = stage!("attention", on = lane, layer = 3_u8, ratio = 0.5_f64, name = prompt.to_owned());
        sum = sum.wrapping_mul(31).wrapping_add(u64::from(token.rotate_left(7)));
        inner.end();
        sum ^= sync_point!("read_token", bytes = 4 => u64::from(*token) << 3);
        value!("sum", sum, unit = "tokens");
    }
    mark!("end_of_text", sum = sum, scale = scale);
    sync_point!("last", sum.wrapping_add(scale.map_or(0, |scale| scale as u64)))
}

/// Does the same arithmetic without a mark.
#[cfg(not(feature = "marked"))]
#[allow(unsafe_code)] // The name is exported, so that it is found in the assembly.
#[unsafe(no_mangle)]
pub fn laptime_off_proof(tokens: &[u32], prompt: &str, scale: Option<f32>) -> u64 {
    let mut sum = prompt.len() as u64;
    for token in tokens {
        sum = sum.wrapping_mul(31).wrapping_add(u64::from(token.rotate_left(7)));
        sum ^= u64::from(*token) << 3;
    }
    sum.wrapping_add(scale.map_or(0, |scale| scale as u64))
}

#[cfg(test)]
mod tests {
    use laptime_probe::{Field, Lane, lap, mark, stage, sync_point, value};

    /// Fails the test if it is evaluated.
    fn never<T: Field>() -> T {
        panic!("a field was evaluated although nothing records")
    }

    #[test]
    fn fields_are_not_evaluated_when_nothing_records() {
        let lane = Lane::host("stream");
        let _stage = stage!("generate", tokens = never::<u64>(), warm = never::<bool>(), text = never::<String>());
        let _lap = lap!("decode", token = never::<i32>());
        let _on = stage!("attention", on = lane, scale = never::<f32>());
        mark!("end", reason = never::<Option<&str>>());
        value!("sum", never::<u8>(), unit = "tokens");
        assert_eq!(sync_point!("read", bytes = never::<usize>() => 7), 7);
    }

    #[test]
    fn the_marked_and_the_plain_function_compute_the_same() {
        assert_eq!(super::laptime_off_proof(&[1, 2, 3], "once", Some(2.0)), 243_326);
    }
}
