//! What a warp does in every lane: arithmetic, conversions and comparisons, by their names in PTX.
#![allow(unsafe_code, reason = "rows are addressed by numbers that were checked when the kernel was translated")]
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons, reason = "NaN makes the difference")]

use crate::numbers::{self, Number, flushed};
use crate::rows::{LANES, Rows};

macro_rules! elementwise {
    ($($($name:literal)|+ => $op:ident |$($argument:ident: $type:ty),+| -> $out:ty { $value:expr })*) => {
        /// An operation on each lane.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Elementwise { $($op,)* }

        impl Elementwise {
            pub fn named(name: &str) -> Option<Self> {
                Some(match name {
                    $($($name)|+ => Self::$op,)*
                    _ => return None,
                })
            }

            /// Whether the result and each operand have 64 bits.
            pub fn widths(self) -> &'static [bool] {
                match self { $(Self::$op => &[<$out as Number>::IS_WIDE, $(<$type as Number>::IS_WIDE),+],)* }
            }

            /// # Safety
            ///
            /// The operands are rows of these widths.
            #[inline(always)]
            pub unsafe fn run(self, rows: &Rows, operands: &[u32], mask: u32) {
                match self {
                    $(Self::$op => {
                        let mut next = 1;
                        // SAFETY: the caller answers for the operands.
                        unsafe {
                            $(
                                let $argument = rows.row::<$type>(operands[next]);
                                next += 1;
                            )+
                            let mut out = [<$out as Number>::Bits::default(); LANES];
                            for (lane, out) in out.iter_mut().enumerate() {
                                $(let $argument = <$type as Number>::of((*$argument)[lane]);)+
                                let value: $out = $value;
                                *out = value.bits();
                            }
                            let _ = next;
                            rows.write::<$out>(operands[0], mask, &out);
                        }
                    })*
                }
            }
        }
    };
}

elementwise! {
    "mov.b32" | "mov.u32" | "mov.s32" | "mov.f32" | "mov.b16" | "mov.u16" => Move32 |a: u32| -> u32 { a }
    "mov.b64" | "mov.u64" | "mov.s64" | "mov.f64" | "cvta.to.global.u64" | "cvta.global.u64" | "cvta.param.u64" | "cvta.to.param.u64" => Move64 |a: u64| -> u64 { a }
    "add.s16" | "add.u16" => Add16 |a: u16, b: u16| -> u16 { a.wrapping_add(b) }
    "sub.s16" | "sub.u16" => Sub16 |a: u16, b: u16| -> u16 { a.wrapping_sub(b) }
    "mul.lo.s16" | "mul.lo.u16" => Mul16 |a: u16, b: u16| -> u16 { a.wrapping_mul(b) }
    "mul.wide.u16" => MulWideU16 |a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) }
    "mul.wide.s16" => MulWideS16 |a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) }
    "shl.b16" => Shl16 |a: u16, b: u32| -> u16 { if b < 16 { a << b } else { 0 } }
    "shr.u16" | "shr.b16" => Shr16 |a: u16, b: u32| -> u16 { if b < 16 { a >> b } else { 0 } }
    "not.b16" => Not16 |a: u16| -> u16 { !a }
    "add.s32" | "add.u32" => Add32 |a: u32, b: u32| -> u32 { a.wrapping_add(b) }
    "sub.s32" | "sub.u32" => Sub32 |a: u32, b: u32| -> u32 { a.wrapping_sub(b) }
    "mul.lo.s32" | "mul.lo.u32" => Mul32 |a: u32, b: u32| -> u32 { a.wrapping_mul(b) }
    "mul.hi.u32" => MulHiU32 |a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }
    "mul.hi.s32" => MulHiS32 |a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }
    "mad.lo.s32" | "mad.lo.u32" => Mad32 |a: u32, b: u32, c: u32| -> u32 { a.wrapping_mul(b).wrapping_add(c) }
    "mul.wide.u32" => MulWideU32 |a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) }
    "mul.wide.s32" => MulWideS32 |a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) }
    "mad.wide.u32" => MadWideU32 |a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) }
    "mad.wide.s32" => MadWideS32 |a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) }
    "div.u32" => DivU32 |a: u32, b: u32| -> u32 { a.checked_div(b).unwrap_or(!0) }
    "div.s32" => DivS32 |a: i32, b: i32| -> i32 { if b == 0 { !0 } else { a.wrapping_div(b) } }
    "rem.u32" => RemU32 |a: u32, b: u32| -> u32 { a.checked_rem(b).unwrap_or(a) }
    "rem.s32" => RemS32 |a: i32, b: i32| -> i32 { if b == 0 { a } else { a.wrapping_rem(b) } }
    "neg.s32" => Neg32 |a: i32| -> i32 { a.wrapping_neg() }
    "abs.s32" => Abs32 |a: i32| -> i32 { a.wrapping_abs() }
    "min.u32" => MinU32 |a: u32, b: u32| -> u32 { a.min(b) }
    "max.u32" => MaxU32 |a: u32, b: u32| -> u32 { a.max(b) }
    "min.s32" => MinS32 |a: i32, b: i32| -> i32 { a.min(b) }
    "max.s32" => MaxS32 |a: i32, b: i32| -> i32 { a.max(b) }
    "and.b32" | "and.b16" => And32 |a: u32, b: u32| -> u32 { a & b }
    "or.b32" | "or.b16" => Or32 |a: u32, b: u32| -> u32 { a | b }
    "xor.b32" | "xor.b16" => Xor32 |a: u32, b: u32| -> u32 { a ^ b }
    "not.b32" => Not32 |a: u32| -> u32 { !a }
    "shl.b32" => Shl32 |a: u32, b: u32| -> u32 { if b < 32 { a << b } else { 0 } }
    "shr.u32" | "shr.b32" => ShrU32 |a: u32, b: u32| -> u32 { if b < 32 { a >> b } else { 0 } }
    "shr.s32" => ShrS32 |a: i32, b: u32| -> i32 { a >> b.min(31) }
    "shf.l.wrap.b32" => FunnelLeft |a: u32, b: u32, c: u32| -> u32 { ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32 }
    "shf.r.wrap.b32" => FunnelRight |a: u32, b: u32, c: u32| -> u32 { ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32 }
    "brev.b32" => Reverse |a: u32| -> u32 { a.reverse_bits() }
    "popc.b32" => Popcount |a: u32| -> u32 { a.count_ones() }
    "clz.b32" => LeadingZeros |a: u32| -> u32 { a.leading_zeros() }
    "bfind.shiftamt.u32" => ShiftToFirst |a: u32| -> u32 { if a == 0 { !0 } else { a.leading_zeros() } }
    "bfind.u32" => FindFirst |a: u32| -> u32 { if a == 0 { !0 } else { 31 - a.leading_zeros() } }
    "bfe.u32" => Extract |a: u32, from: u32, count: u32| -> u32 { (u64::from(a) >> (from & 0xff).min(63) & ((1_u64 << (count & 0xff).min(32)) - 1)) as u32 }
    "bfi.b32" => Insert32 |a: u32, b: u32, from: u32, count: u32| -> u32 { insert(a.into(), b.into(), from, count.min(32)) as u32 }
    "bfi.b64" => Insert64 |a: u64, b: u64, from: u32, count: u32| -> u64 { insert(a, b, from, count) }
    "prmt.b32" => Permute |a: u32, b: u32, select: u32| -> u32 { permute(a, b, select) }
    "lop3.b32" => Lop3 |a: u32, b: u32, c: u32, table: u32| -> u32 { lop3(a, b, c, table) }
    "add.s64" | "add.u64" => Add64 |a: u64, b: u64| -> u64 { a.wrapping_add(b) }
    "sub.s64" | "sub.u64" => Sub64 |a: u64, b: u64| -> u64 { a.wrapping_sub(b) }
    "mul.lo.s64" | "mul.lo.u64" => Mul64 |a: u64, b: u64| -> u64 { a.wrapping_mul(b) }
    "mul.hi.u64" => MulHiU64 |a: u64, b: u64| -> u64 { ((u128::from(a) * u128::from(b)) >> 64) as u64 }
    "mad.lo.s64" | "mad.lo.u64" => Mad64 |a: u64, b: u64, c: u64| -> u64 { a.wrapping_mul(b).wrapping_add(c) }
    "div.u64" => DivU64 |a: u64, b: u64| -> u64 { a.checked_div(b).unwrap_or(!0) }
    "div.s64" => DivS64 |a: i64, b: i64| -> i64 { if b == 0 { !0 } else { a.wrapping_div(b) } }
    "rem.u64" => RemU64 |a: u64, b: u64| -> u64 { a.checked_rem(b).unwrap_or(a) }
    "neg.s64" => Neg64 |a: i64| -> i64 { a.wrapping_neg() }
    "min.u64" => MinU64 |a: u64, b: u64| -> u64 { a.min(b) }
    "max.u64" => MaxU64 |a: u64, b: u64| -> u64 { a.max(b) }
    "min.s64" => MinS64 |a: i64, b: i64| -> i64 { a.min(b) }
    "max.s64" => MaxS64 |a: i64, b: i64| -> i64 { a.max(b) }
    "and.b64" => And64 |a: u64, b: u64| -> u64 { a & b }
    "or.b64" => Or64 |a: u64, b: u64| -> u64 { a | b }
    "xor.b64" => Xor64 |a: u64, b: u64| -> u64 { a ^ b }
    "not.b64" => Not64 |a: u64| -> u64 { !a }
    "shl.b64" => Shl64 |a: u64, b: u32| -> u64 { if b < 64 { a << b } else { 0 } }
    "shr.u64" | "shr.b64" => ShrU64 |a: u64, b: u32| -> u64 { if b < 64 { a >> b } else { 0 } }
    "shr.s64" => ShrS64 |a: i64, b: u32| -> i64 { a >> b.min(63) }
    "add.f32" | "add.rn.f32" => AddF |a: f32, b: f32| -> f32 { a + b }
    "sub.f32" | "sub.rn.f32" => SubF |a: f32, b: f32| -> f32 { a - b }
    "mul.f32" | "mul.rn.f32" => MulF |a: f32, b: f32| -> f32 { a * b }
    "fma.rn.f32" => FmaF |a: f32, b: f32, c: f32| -> f32 { a.mul_add(b, c) }
    "fma.rm.f32" => FmaDownF |a: f32, b: f32, c: f32| -> f32 { numbers::fma_down(a, b, c) }
    "div.rn.f32" | "div.approx.f32" | "div.full.f32" => DivF |a: f32, b: f32| -> f32 { a / b }
    "rcp.rn.f32" | "rcp.approx.f32" => RcpF |a: f32| -> f32 { 1.0 / a }
    "sqrt.rn.f32" | "sqrt.approx.f32" => SqrtF |a: f32| -> f32 { a.sqrt() }
    "rsqrt.approx.f32" => RsqrtF |a: f32| -> f32 { (1.0 / f64::from(a).sqrt()) as f32 }
    "neg.f32" => NegF |a: u32| -> u32 { a ^ 0x8000_0000 }
    "abs.f32" => AbsF |a: u32| -> u32 { a & 0x7fff_ffff }
    "copysign.f32" => CopySign |sign: u32, size: u32| -> u32 { sign & 0x8000_0000 | size & 0x7fff_ffff }
    "max.f32" => MaxF |a: f32, b: f32| -> f32 { if a.is_nan() || b > a { b } else { a } }
    "min.f32" => MinF |a: f32, b: f32| -> f32 { if a.is_nan() || b < a { b } else { a } }
    "ex2.approx.f32" => Ex2 |a: f32| -> f32 { a.exp2() }
    "ex2.approx.ftz.f32" => Ex2Flushed |a: f32| -> f32 { flushed(flushed(a).exp2()) }
    "lg2.approx.f32" => Lg2 |a: f32| -> f32 { a.log2() }
    "sin.approx.f32" => Sin |a: f32| -> f32 { a.sin() }
    "cos.approx.f32" => Cos |a: f32| -> f32 { a.cos() }
    "tanh.approx.f32" => Tanh |a: f32| -> f32 { a.tanh() }
    "add.f64" | "add.rn.f64" => AddD |a: f64, b: f64| -> f64 { a + b }
    "mul.f64" | "mul.rn.f64" => MulD |a: f64, b: f64| -> f64 { a * b }
    "fma.rn.f64" => FmaD |a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }
    "cvt.f32.f16" => WidenF16 |a: u32| -> f32 { numbers::from_f16(a) }
    "cvt.f32.bf16" => WidenBf16 |a: u32| -> f32 { numbers::from_bf16(a) }
    "cvt.rn.f16.f32" => NarrowF16 |a: f32| -> u32 { numbers::to_f16(a) }
    "cvt.rn.bf16.f32" => NarrowBf16 |a: f32| -> u32 { numbers::to_bf16(a) }
    "cvt.rn.f16x2.f32" => NarrowTwoF16 |high: f32, low: f32| -> u32 { numbers::to_f16(high) << 16 | numbers::to_f16(low) }
    "cvt.rn.bf16x2.f32" => NarrowTwoBf16 |high: f32, low: f32| -> u32 { numbers::to_bf16(high) << 16 | numbers::to_bf16(low) }
    "cvt.rn.f16x2.e4m3x2" => WidenTwoE4m3 |a: u32| -> u32 { numbers::f16_pair_from_e4m3(a) }
    "cvt.u64.u32" => U64FromU32 |a: u32| -> u64 { a.into() }
    "cvt.s64.s32" => S64FromS32 |a: i32| -> i64 { a.into() }
    "cvt.u64.u16" | "cvt.s64.u16" => U64FromU16 |a: u16| -> u64 { a.into() }
    "cvt.u32.u64" | "cvt.s32.s64" => U32FromU64 |a: u64| -> u32 { a as u32 }
    "cvt.u32.u16" | "cvt.s32.u16" | "cvt.u16.u32" | "cvt.u16.s32" => Low16 |a: u16| -> u16 { a }
    "the upper half of 32 bits" => High16 |a: u32| -> u32 { a >> 16 }
    "the lower half of 64 bits" => Low32 |a: u64| -> u32 { a as u32 }
    "the upper half of 64 bits" => High32 |a: u64| -> u32 { (a >> 32) as u32 }
    "two halves of 32 bits" => Join32 |low: u16, high: u16| -> u32 { u32::from(low) | u32::from(high) << 16 }
    "two halves of 64 bits" => Join64 |low: u32, high: u32| -> u64 { u64::from(low) | u64::from(high) << 32 }
    "cvt.s32.s16" => S32FromS16 |a: i16| -> i32 { a.into() }
    "cvt.u16.u64" => U16FromU64 |a: u64| -> u16 { a as u16 }
    "cvt.u32.u8" | "cvt.u16.u8" | "cvt.s32.u8" => Low8 |a: u32| -> u32 { a & 0xff }
    "cvt.s32.s8" => S32FromS8 |a: u32| -> i32 { a as i8 as i32 }
    "cvt.rn.f32.u32" => F32FromU32 |a: u32| -> f32 { a as f32 }
    "cvt.rn.f32.s32" => F32FromS32 |a: i32| -> f32 { a as f32 }
    "cvt.rn.f32.u16" => F32FromU16 |a: u16| -> f32 { a.into() }
    "cvt.rn.f32.u64" => F32FromU64 |a: u64| -> f32 { a as f32 }
    "cvt.rn.f32.s64" => F32FromS64 |a: i64| -> f32 { a as f32 }
    "cvt.rn.f64.u64" => F64FromU64 |a: u64| -> f64 { a as f64 }
    "cvt.rn.f64.s64" => F64FromS64 |a: i64| -> f64 { a as f64 }
    "cvt.f64.f32" => F64FromF32 |a: f32| -> f64 { a.into() }
    "cvt.rn.f32.f64" => F32FromF64 |a: f64| -> f32 { a as f32 }
    "cvt.sat.f32.f32" => Saturate |a: f32| -> f32 { if a > 0.0 { a.min(1.0) } else { 0.0 } }
    "cvt.rni.f32.f32" => NearestF |a: f32| -> f32 { a.round_ties_even() }
    "cvt.rmi.f32.f32" => FloorF |a: f32| -> f32 { a.floor() }
    "cvt.rzi.f32.f32" => TruncateF |a: f32| -> f32 { a.trunc() }
    "cvt.rpi.f32.f32" => CeilingF |a: f32| -> f32 { a.ceil() }
    "cvt.rpi.f64.f64" => CeilingD |a: f64| -> f64 { a.ceil() }
    "cvt.rni.u32.f32" => NearestU32 |a: f32| -> u32 { a.round_ties_even() as u32 }
    "cvt.rni.s32.f32" => NearestS32 |a: f32| -> i32 { a.round_ties_even() as i32 }
    "cvt.rzi.u32.f32" => TruncateU32 |a: f32| -> u32 { a as u32 }
    "cvt.rzi.s32.f32" => TruncateS32 |a: f32| -> i32 { a as i32 }
    "cvt.rzi.u64.f32" => TruncateU64 |a: f32| -> u64 { a as u64 }
    "cvt.rzi.u64.f64" => TruncateU64D |a: f64| -> u64 { a as u64 }
}

fn insert(a: u64, b: u64, from: u32, count: u32) -> u64 {
    let (from, count) = (from & 0xff, count & 0xff);
    let ones = if count >= 64 { !0 } else { (1_u64 << count) - 1 };
    let (ones, a) = if from >= 64 { (0, 0) } else { (ones << from, a << from) };
    a & ones | b & !ones
}

fn permute(a: u32, b: u32, select: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |all, at| {
        let chosen = select >> (4 * at);
        let byte = (bytes >> (8 * (chosen & 7))) as u8;
        // The fourth bit asks for the sign of the byte instead.
        let byte = if chosen & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        all | u32::from(byte) << (8 * at)
    })
}

fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 != 0).fold(0, |all, row| {
        let side = |value: u32, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
        all | side(a, 2) & side(b, 1) & side(c, 0)
    })
}

macro_rules! compare {
    ($($($name:literal)|+ => $op:ident |$a:ident, $b:ident: $type:ty| { $value:expr })*) => {
        /// A comparison of each lane, which sets a predicate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Compare { $($op,)* }

        impl Compare {
            pub fn named(name: &str) -> Option<Self> {
                Some(match name {
                    $($($name)|+ => Self::$op,)*
                    _ => return None,
                })
            }

            pub fn is_wide(self) -> bool {
                match self { $(Self::$op => <$type as Number>::IS_WIDE,)* }
            }

            /// The lanes in which it holds.
            ///
            /// # Safety
            ///
            /// The operands are rows of this width.
            #[inline(always)]
            pub unsafe fn run(self, rows: &Rows, a: u32, b: u32) -> u32 {
                match self {
                    $(Self::$op => {
                        // SAFETY: the caller answers for the operands.
                        let (left, right) = unsafe { (&*rows.row::<$type>(a), &*rows.row::<$type>(b)) };
                        let mut mask = 0;
                        for lane in 0..LANES {
                            let ($a, $b) = (<$type as Number>::of(left[lane]), <$type as Number>::of(right[lane]));
                            let holds: bool = $value;
                            mask |= u32::from(holds) << lane;
                        }
                        mask
                    })*
                }
            }
        }
    };
}

compare! {
    "setp.eq.s32" | "setp.eq.u32" | "setp.eq.b32" => Eq32 |a, b: u32| { a == b }
    "setp.ne.s32" | "setp.ne.u32" | "setp.ne.b32" => Ne32 |a, b: u32| { a != b }
    "setp.lt.u32" => LtU32 |a, b: u32| { a < b }
    "setp.le.u32" => LeU32 |a, b: u32| { a <= b }
    "setp.gt.u32" => GtU32 |a, b: u32| { a > b }
    "setp.ge.u32" => GeU32 |a, b: u32| { a >= b }
    "setp.lt.s32" => LtS32 |a, b: i32| { a < b }
    "setp.le.s32" => LeS32 |a, b: i32| { a <= b }
    "setp.gt.s32" => GtS32 |a, b: i32| { a > b }
    "setp.ge.s32" => GeS32 |a, b: i32| { a >= b }
    "setp.eq.s16" | "setp.eq.u16" | "setp.eq.b16" => Eq16 |a, b: u16| { a == b }
    "setp.ne.s16" | "setp.ne.u16" | "setp.ne.b16" => Ne16 |a, b: u16| { a != b }
    "setp.lt.u16" => LtU16 |a, b: u16| { a < b }
    "setp.gt.u16" => GtU16 |a, b: u16| { a > b }
    "setp.lt.s16" => LtS16 |a, b: i16| { a < b }
    "setp.gt.s16" => GtS16 |a, b: i16| { a > b }
    "setp.eq.s64" | "setp.eq.u64" | "setp.eq.b64" => Eq64 |a, b: u64| { a == b }
    "setp.ne.s64" | "setp.ne.u64" | "setp.ne.b64" => Ne64 |a, b: u64| { a != b }
    "setp.lt.u64" => LtU64 |a, b: u64| { a < b }
    "setp.le.u64" => LeU64 |a, b: u64| { a <= b }
    "setp.gt.u64" => GtU64 |a, b: u64| { a > b }
    "setp.ge.u64" => GeU64 |a, b: u64| { a >= b }
    "setp.lt.s64" => LtS64 |a, b: i64| { a < b }
    "setp.gt.s64" => GtS64 |a, b: i64| { a > b }
    "setp.le.s64" => LeS64 |a, b: i64| { a <= b }
    "setp.ge.s64" => GeS64 |a, b: i64| { a >= b }
    "setp.eq.f32" => EqF |a, b: f32| { a == b }
    "setp.ne.f32" => NeF |a, b: f32| { a < b || a > b }
    "setp.lt.f32" => LtF |a, b: f32| { a < b }
    "setp.le.f32" => LeF |a, b: f32| { a <= b }
    "setp.gt.f32" => GtF |a, b: f32| { a > b }
    "setp.ge.f32" => GeF |a, b: f32| { a >= b }
    "setp.equ.f32" => EquF |a, b: f32| { !(a < b || a > b) }
    "setp.neu.f32" => NeuF |a, b: f32| { a != b }
    "setp.ltu.f32" => LtuF |a, b: f32| { !(a >= b) }
    "setp.leu.f32" => LeuF |a, b: f32| { !(a > b) }
    "setp.gtu.f32" => GtuF |a, b: f32| { !(a <= b) }
    "setp.geu.f32" => GeuF |a, b: f32| { !(a < b) }
    "setp.nan.f32" => NanF |a, b: f32| { a.is_nan() || b.is_nan() }
    "setp.num.f32" => NumF |a, b: f32| { !(a.is_nan() || b.is_nan()) }
    "setp.lt.f64" => LtD |a, b: f64| { a < b }
    "setp.gt.f64" => GtD |a, b: f64| { a > b }
    "setp.geu.f64" => GeuD |a, b: f64| { !(a < b) }
    "setp.leu.f64" => LeuD |a, b: f64| { !(a > b) }
}
