//! Line numbers of instructions, from CPython's line tables.

/// The line of an instruction (index in two-byte code units), for Python 3.11 and later.
pub fn line(table: &[u8], first_line: u32, instruction: i64) -> Option<u32> {
    let mut bytes = table.iter().copied().peekable();
    let mut line = i64::from(first_line);
    let mut reached = 0;
    while let Some(first) = bytes.next() {
        let length = i64::from(first & 7) + 1;
        let code = (first >> 3) & 15;
        let has_line = match code {
            0..=9 => {
                bytes.next()?;
                true
            }
            10..=12 => {
                line += i64::from(code) - 10;
                bytes.next()?;
                bytes.next()?;
                true
            }
            13 => {
                line += signed(&mut bytes)?;
                true
            }
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
                true
            }
            _ => false,
        };
        reached += length;
        if instruction < reached {
            return if has_line { u32::try_from(line).ok() } else { None };
        }
    }
    None
}

/// A varint of six bits per byte, least significant first; bit 6 means that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let size = (number >> 1) as i64;
    Some(if number & 1 == 1 { -size } else { size })
}

/// The line of an instruction (offset in bytes), for Python 3.10.
pub fn line_of_3_10(table: &[u8], first_line: u32, place: i64) -> Option<u32> {
    const NO_LINE: i8 = -128;
    let mut line = i64::from(first_line);
    let mut reached = 0;
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        if step != NO_LINE {
            line += i64::from(step);
        }
        reached += i64::from(pair[0]);
        if place < reached {
            return if step == NO_LINE { None } else { u32::try_from(line).ok() };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_entry_is_decoded() {
        // Short form (same line), one line (+1), no columns (+5), long (-2), none.
        let table = [0x80 | 1, 0, 0x80 | (11 << 3), 1, 2, 0x80 | (13 << 3) | 1, 10, 0x80 | (14 << 3), 5, 0, 1, 2, 0xF8];
        let at = |instruction| line(&table, 10, instruction);
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(4), at(5), at(6)],
            [Some(10), Some(10), Some(11), Some(16), Some(16), Some(14), None]
        );
        assert_eq!(at(7), None);
    }

    #[test]
    fn the_table_of_3_10_counts_bytes_and_has_entries_without_a_line() {
        let table = [4, 1, 2, 0x80, 6, 0xFF];
        let at = |place| line_of_3_10(&table, 10, place);
        assert_eq!([at(0), at(3), at(4), at(6), at(12)], [Some(11), Some(11), None, Some(10), None]);
    }
}
