//! Parses memory budgets.

use super::axes::FREE;

/// The units, with their bytes.
const UNITS: [(&str, f64); 9] = [
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("m", 1e6),
    ("g", 1e9),
    ("b", 1.0),
];

/// Bytes of a budget such as `8GB`, `500MiB` or `1.5 gb`; none for the free memory. A number alone means bytes.
pub fn bytes(text: &str) -> Result<Option<u64>, String> {
    let plain = text.trim().to_ascii_lowercase();
    if plain == FREE {
        return Ok(None);
    }
    let (number, unit) =
        UNITS.iter().find_map(|(unit, size)| Some((plain.strip_suffix(unit)?, *size))).unwrap_or((&plain, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some((number * unit) as u64)),
        _ => Err(format!("`{text}` is not a memory size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let shown = ["8GB", "500MiB", "1.5 gb", "2g", "7", "free"].map(|text| bytes(text).unwrap());
        let sizes = [8_000_000_000, 500 << 20, 1_500_000_000, 2_000_000_000, 7].map(Some);
        assert_eq!(shown[..5], sizes);
        assert_eq!(shown[5], None);
    }

    #[test]
    fn what_is_no_size_is_told() {
        for text in ["much", "", "-1GB", "0", "nanGB", "infGB"] {
            assert_eq!(bytes(text), Err(format!("`{text}` is not a memory size")));
        }
    }
}
