//! Shuffles, votes and reductions of a warp.

use super::{Step, set};
use crate::machine::Warp;
use crate::program::{Kind, NONE, Reduce, Shuffle, Vote};
use crate::rows::LANES;

impl Step<'_> {
    /// A lane reads the value of another one, within segments that `c` describes.
    #[inline(always)]
    pub(super) fn shuffle(&self, shuffle: Shuffle, warp: &mut Warp) {
        let mut holds = 0;
        let mut values = [0; LANES];
        let [of, b, c] = [2, 3, 4].map(|operand| *self.row_of(operand));
        // A fast path for butterfly shuffles of a whole warp.
        if shuffle == Shuffle::Butterfly && self.operands[1] == NONE && b == [b[0]; LANES] && c == [31; LANES] {
            let distance = b[0] as usize;
            return self.write(0, &std::array::from_fn(|lane| of[(lane ^ distance) % LANES]));
        }
        for (lane, value) in values.iter_mut().enumerate() {
            let (b, c) = (b[lane] & 31, c[lane]);
            let (segment, clamp, lane) = (c >> 8 & 31, c & 31, lane as u32);
            let least = lane & segment;
            let most = least | clamp & !segment;
            let (from, is_inside) = match shuffle {
                Shuffle::Up => (lane.wrapping_sub(b), lane.wrapping_sub(b) as i32 >= most as i32),
                Shuffle::Down => (lane + b, lane + b <= most),
                Shuffle::Butterfly => (lane ^ b, lane ^ b <= most),
                Shuffle::Index => (least | b & !segment, least | b & !segment <= most),
            };
            holds |= u32::from(is_inside) << lane;
            *value = of[if is_inside { from as usize % LANES } else { lane as usize }];
        }
        self.write(0, &values);
        if self.operands[1] != NONE {
            set(&mut warp.predicates[self.operands[1] as usize], self.mask, holds);
        }
    }

    pub(super) fn vote(&self, vote: Vote, warp: &mut Warp) {
        let voters = self.mask & self.first_word(2);
        let votes = warp.predicates[self.operands[1] as usize] & voters;
        let holds = match vote {
            Vote::Ballot => return self.write(0, &[votes; LANES]),
            Vote::Any => votes != 0,
            Vote::All => votes == voters,
        };
        set(&mut warp.predicates[self.operands[0] as usize], self.mask, if holds { !0 } else { 0 });
    }

    pub(super) fn redux(&self, reduce: Reduce, kind: Kind) {
        let values = self.lanes().map(|lane| self.word(1, lane));
        let result = values.reduce(|a, b| u32::reduced(reduce, kind, a, b));
        self.write(0, &[result.unwrap_or(0); LANES]);
    }
}

/// A type that can be reduced.
pub(super) trait Reduced: Copy {
    fn reduced(reduce: Reduce, kind: Kind, a: Self, b: Self) -> Self;
}

macro_rules! reduced {
    ($($unsigned:ty, $signed:ty, $float:ty;)*) => {
        $(impl Reduced for $unsigned {
            fn reduced(reduce: Reduce, kind: Kind, a: Self, b: Self) -> Self {
                match (reduce, kind) {
                    (Reduce::Add, Kind::Float) => (<$float>::from_bits(a) + <$float>::from_bits(b)).to_bits(),
                    (Reduce::Add, _) => a.wrapping_add(b),
                    (Reduce::Min, Kind::Signed) => (a as $signed).min(b as $signed) as Self,
                    (Reduce::Max, Kind::Signed) => (a as $signed).max(b as $signed) as Self,
                    (Reduce::Min, _) => a.min(b),
                    (Reduce::Max, _) => a.max(b),
                    (Reduce::And, _) => a & b,
                    (Reduce::Or, _) => a | b,
                    (Reduce::Xor, _) => a ^ b,
                    (Reduce::Exchange | Reduce::CompareAndSwap, _) => b,
                }
            }
        })*
    };
}

reduced! {
    u32, i32, f32;
    u64, i64, f64;
}
