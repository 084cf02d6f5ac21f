//! Matrices in e4m3, by the definition of the format.

/// The number of a code: a sign, four bits of exponent, three of mantissa.
pub fn number(code: u8) -> f32 {
    let (sign, exponent, mantissa) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2.0_f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2.0_f64.powi(exponent - 7),
    };
    (if sign == 1 { -size } else { size }) as f32
}

/// The code whose number is nearest; of two the even one.
pub fn nearest(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let apart = |code: u8| (f64::from(number(code)) - f64::from(value.abs())).abs();
    let closer = |best: u8, code: u8| {
        let is_closer = apart(code) < apart(best) || apart(code) == apart(best) && code.is_multiple_of(2);
        if is_closer { code } else { best }
    };
    (1..0x7f).fold(0, closer) | sign
}

/// Where the scales of a matrix begin.
fn scales_at([rows, width]: [usize; 2]) -> usize {
    (rows * width).next_multiple_of(16)
}

/// Codes and scales of a matrix whose rows have a scale for every `group` neighbours.
pub fn quantise(values: &[f32], [_, width]: [usize; 2], group: usize) -> (Vec<u8>, Vec<f32>) {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for values in values.chunks(width).flat_map(|row| row.chunks(group)) {
        let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let scale = if largest > 0.0 { f64::from(largest / 448.0).log2().ceil().exp2() as f32 } else { 1.0 };
        codes.extend(values.iter().map(|value| nearest(value / scale)));
        scales.push(scale);
    }
    (codes, scales)
}

/// Codes and scales as they lie in memory.
pub fn parts(storage: &[u8], shape: [usize; 2], group: usize) -> (Vec<u8>, Vec<f32>) {
    let count = shape[0] * shape[1].div_ceil(group);
    let scales = storage[scales_at(shape)..].chunks_exact(4).take(count);
    let scales = scales.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    (storage[..shape[0] * shape[1]].to_vec(), scales.collect())
}

/// Codes and scales as they lie in memory, of which they are a multiple of 16 bytes.
pub fn storage((codes, scales): &(Vec<u8>, Vec<f32>), shape: [usize; 2]) -> Vec<u8> {
    let mut storage = codes.clone();
    storage.resize(scales_at(shape), 0);
    storage.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
    storage.resize(storage.len().next_multiple_of(16), 0);
    storage
}

pub fn dequantise((codes, scales): &(Vec<u8>, Vec<f32>), width: usize, group: usize) -> Vec<f32> {
    let groups = codes.chunks(width).flat_map(|row| row.chunks(group));
    groups.zip(scales).flat_map(|(codes, scale)| codes.iter().map(move |code| number(*code) * scale)).collect()
}
