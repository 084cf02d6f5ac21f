//! Reads protobuf fields in place, because nearly every packet is an event of a few bytes.

pub(crate) use crate::fields::take_varint as varint;

/// The value of a field, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
    /// Four bytes; no field that we read has this type.
    Short,
}

/// The bytes are not a valid message.
#[derive(Debug, PartialEq, Eq)]
pub struct Damaged;

impl<'a> Field<'a> {
    pub fn varint(self) -> Result<u64, Damaged> {
        if let Self::Varint(value) = self { Ok(value) } else { Err(Damaged) }
    }

    pub fn fixed(self) -> Result<u64, Damaged> {
        if let Self::Fixed(value) = self { Ok(value) } else { Err(Damaged) }
    }

    pub fn bytes(self) -> Result<&'a [u8], Damaged> {
        if let Self::Bytes(value) = self { Ok(value) } else { Err(Damaged) }
    }
}

/// The fields of a message with their numbers, in file order.
#[derive(Debug, Clone)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Damaged>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Damaged))
    }
}

impl<'a> Fields<'a> {
    #[inline(always)]
    fn field(&mut self) -> Option<(u32, Field<'a>)> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Field::Varint(varint(&mut self.0)?),
            1 => Field::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = varint(&mut self.0)?;
                Field::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => self.take(4).map(|_| Field::Short)?,
            _ => return None,
        };
        Some((u32::try_from(key >> 3).ok()?, value))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_read_and_truncated_messages_are_damaged() {
        let message = [0x08, 0x96, 0x01, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 2, b'h', b'i', 0x25, 9, 9, 9, 9];
        let fields: Vec<_> = Fields(&message).map(Result::unwrap).collect();
        let expected = [(1, Field::Varint(150)), (2, Field::Fixed(1)), (3, Field::Bytes(b"hi")), (4, Field::Short)];
        assert_eq!(fields, expected);
        for length in 1..message.len() {
            let read: Result<Vec<_>, Damaged> = Fields(&message[..length]).collect();
            let ends: Vec<usize> = vec![3, 12, 16];
            assert_eq!(read.is_ok(), ends.contains(&length), "{length}");
        }
        assert_eq!(Fields(&[0x0b]).next(), Some(Err(Damaged)), "groups are not used");
        assert_eq!(varint(&mut &[0xff; 11][..]), None);
    }
}
