//! Loads, stores and atomic operations. Every address is checked.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::exchange::Reduced;
use super::{Machine, Step};
use crate::machine::{Fault, Region, Warp};
use crate::program::{Access, Kind, LOCAL_WINDOW, NONE, RANK_SHIFT, Reduce, SHARED_BEGINS, SHARED_WINDOW, Space};
use crate::rows::LANES;

/// The addresses of an access.
pub(super) type Places = [*mut u8; LANES];

impl Step<'_> {
    /// The checked addresses of an access of this number of bytes.
    #[inline(always)]
    pub(super) fn places(
        &self,
        (space, operand): (Space, usize),
        bytes: u64,
        warp: &mut Warp,
        machine: &Machine<'_>,
    ) -> Result<Places, Fault> {
        // SAFETY: an address is a row of 64 bits.
        let base = unsafe { &*self.rows.row::<u64>(self.operands[operand]) };
        let mut addresses = [0; LANES];
        let mut misaligned = 0;
        for lane in 0..LANES {
            addresses[lane] = base[lane].wrapping_add(self.instruction.offset as u64);
            misaligned |= u32::from(addresses[lane] & (bytes - 1) != 0) << lane;
        }
        if misaligned & self.mask != 0 {
            return Err(self.misplaced("misaligned", &addresses, bytes, misaligned & self.mask));
        }
        match space {
            Space::Global => self.global(&addresses, bytes, warp, machine),
            Space::Shared => self.shared(&addresses, bytes, warp, machine),
            Space::Local | Space::Generic => self.generic(space, &addresses, bytes, warp, machine),
        }
    }

    #[inline(always)]
    fn global(
        &self,
        addresses: &[u64; LANES],
        bytes: u64,
        warp: &mut Warp,
        machine: &Machine<'_>,
    ) -> Result<Places, Fault> {
        let outside = |region: Region| {
            // No address is within an empty region.
            let most = (region.end - region.from).checked_sub(bytes);
            let mut outside = 0;
            for (lane, address) in addresses.iter().enumerate() {
                outside |= u32::from(address.wrapping_sub(region.from) > most.unwrap_or(0)) << lane;
            }
            if most.is_none() { self.mask } else { outside & self.mask }
        };
        let mut rest = outside(warp.last);
        while rest != 0 {
            let first = addresses[rest.trailing_zeros() as usize];
            let Some(region) = machine.launch.region(first).filter(|region| region.end - first >= bytes) else {
                return Err(self.misplaced("outside the memory that is allocated", addresses, bytes, rest));
            };
            warp.last = region;
            rest &= outside(region);
        }
        Ok(addresses.map(|address| address as *mut u8))
    }

    #[inline(always)]
    fn shared(
        &self,
        addresses: &[u64; LANES],
        bytes: u64,
        warp: &Warp,
        machine: &Machine<'_>,
    ) -> Result<Places, Fault> {
        let size = machine.launch.shared_end - SHARED_BEGINS;
        let most = size.saturating_sub(bytes);
        let own = machine.blocks[warp.block].shared.as_ptr().cast::<u8>().cast_mut();
        let mut outside = if size < bytes { self.mask } else { 0 };
        let mut places = [own; LANES];
        for lane in 0..LANES {
            outside |= u32::from(addresses[lane].wrapping_sub(SHARED_BEGINS) > most) << lane;
            places[lane] = own.wrapping_add(addresses[lane] as usize);
        }
        for lane in (0..LANES).filter(|lane| outside & self.mask & 1 << lane != 0) {
            // The address may be in another block of the cluster.
            let (rank, address) = (addresses[lane] >> RANK_SHIFT, addresses[lane] & ((1 << RANK_SHIFT) - 1));
            let block = rank.checked_sub(1).and_then(|rank| machine.blocks.get(rank as usize));
            let block = block.filter(|_| address.wrapping_sub(SHARED_BEGINS) <= most && size >= bytes);
            let block = block.ok_or_else(|| self.misplaced("outside of shared memory", addresses, bytes, 1 << lane))?;
            places[lane] = block.shared.as_ptr().cast::<u8>().cast_mut().wrapping_add(address as usize);
        }
        Ok(places)
    }

    #[inline(never)]
    fn generic(
        &self,
        space: Space,
        addresses: &[u64; LANES],
        bytes: u64,
        warp: &mut Warp,
        machine: &Machine<'_>,
    ) -> Result<Places, Fault> {
        let mut places = [std::ptr::null_mut(); LANES];
        for lane in self.lanes() {
            let address = addresses[lane];
            if space == Space::Local || address >= LOCAL_WINDOW {
                let (size, at) = (machine.launch.program.local_bytes, address & !LOCAL_WINDOW);
                if at + bytes > size as u64 {
                    return Err(self.misplaced("outside of local memory", addresses, bytes, 1 << lane));
                }
                places[lane] = warp.local[lane * size + at as usize..].as_mut_ptr();
                continue;
            }
            let one = Step { mask: 1 << lane, ..*self };
            places[lane] = if address >= SHARED_WINDOW {
                one.shared(&addresses.map(|address| address & !SHARED_WINDOW), bytes, warp, machine)?[lane]
            } else {
                one.global(addresses, bytes, warp, machine)?[lane]
            };
        }
        Ok(places)
    }

    #[cold]
    fn misplaced(&self, what: &str, addresses: &[u64; LANES], bytes: u64, lanes: u32) -> Fault {
        let address = addresses[lanes.trailing_zeros() as usize];
        self.fault(format!("{bytes} bytes at {address:#x} are {what}"), lanes)
    }

    #[inline(always)]
    pub(super) fn load(&self, access: Access, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let count = usize::from(access.count);
        let bytes = u64::from(access.bytes) * count as u64;
        let places = self.places((access.space, count), bytes, warp, machine)?;
        for number in 0..count {
            macro_rules! load {
                ($type:ty, $bits:ty) => {{
                    let mut values = [0; LANES];
                    // SAFETY: the place was checked. A device has such races too.
                    let read =
                        |lane: usize| unsafe { places[lane].cast::<$type>().add(number).read_volatile() } as $bits;
                    // A fast path for reads by all lanes.
                    if self.mask == !0 {
                        (0..LANES).for_each(|lane| values[lane] = read(lane));
                    } else {
                        self.lanes().for_each(|lane| values[lane] = read(lane));
                    }
                    // SAFETY: the result is a row of this width.
                    unsafe { self.rows.write::<$bits>(self.operands[number], self.mask, &values) }
                }};
            }
            match (access.bytes, access.is_signed) {
                (1, false) => load!(u8, u32),
                (1, true) => load!(i8, u32),
                (2, false) => load!(u16, u32),
                (2, true) => load!(i16, u32),
                (4, _) => load!(u32, u32),
                _ => load!(u64, u64),
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn store(&self, access: Access, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let count = usize::from(access.count);
        let bytes = u64::from(access.bytes) * count as u64;
        let places = self.places((access.space, 0), bytes, warp, machine)?;
        for number in 0..count {
            macro_rules! store {
                ($type:ty, $bits:ty) => {{
                    // SAFETY: the operand is a row of this width.
                    let values = unsafe { &*self.rows.row::<$bits>(self.operands[1 + number]) };
                    // SAFETY: the place was checked. A device has such races too.
                    let write = |lane: usize| unsafe {
                        places[lane].cast::<$type>().add(number).write_volatile(values[lane] as $type);
                    };
                    if self.mask == !0 {
                        (0..LANES).for_each(write);
                    } else {
                        self.lanes().for_each(write);
                    }
                }};
            }
            match access.bytes {
                1 => store!(u8, u32),
                2 => store!(u16, u32),
                4 => store!(u32, u32),
                _ => store!(u64, u64),
            }
        }
        Ok(())
    }

    pub(super) fn atomic(
        &self,
        (space, reduce, kind, is_wide): (Space, Reduce, Kind, bool),
        warp: &mut Warp,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        let places = self.places((space, 1), if is_wide { 8 } else { 4 }, warp, machine)?;
        macro_rules! atomic {
            ($type:ty, $atomic:ty, $value:ident) => {
                for lane in self.lanes() {
                    let value = self.$value(2, lane);
                    let wanted = (reduce == Reduce::CompareAndSwap).then(|| (value, self.$value(3, lane)));
                    // SAFETY: the place was checked, and is aligned.
                    let place = unsafe { <$atomic>::from_ptr(places[lane].cast()) };
                    let change = |old: $type| match wanted {
                        Some((expected, new)) => (old == expected).then_some(new),
                        None => Some(<$type>::reduced(reduce, kind, old, value)),
                    };
                    let (Ok(old) | Err(old)) = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
                    if self.operands[0] != NONE {
                        // SAFETY: the result is a row of this width.
                        unsafe { self.rows.set::<$type>(self.operands[0], lane, old) }
                    }
                }
            };
        }
        if is_wide {
            atomic!(u64, AtomicU64, long);
        } else {
            atomic!(u32, AtomicU32, word);
        }
        Ok(())
    }

    /// Copies synchronously what a device copies asynchronously; zeros if there is nothing to copy.
    #[inline(always)]
    pub(super) fn copy_async(&self, bytes: u8, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let to = self.places((Space::Shared, 0), u64::from(bytes), warp, machine)?;
        let mut there = [u32::from(bytes); LANES];
        if self.operands[2] != NONE {
            there = *self.row_of(2);
        }
        let read = self.lanes().filter(|lane| there[*lane] > 0).fold(0, |mask, lane| mask | 1 << lane);
        let from = Step { mask: read, ..*self }.places((Space::Global, 1), u64::from(bytes), warp, machine)?;
        for lane in self.lanes() {
            let count = there[lane].min(u32::from(bytes)) as usize;
            // SAFETY: both places were checked, and are aligned.
            unsafe {
                match (bytes, count) {
                    (16, 16) => *to[lane].cast::<u128>() = *from[lane].cast::<u128>(),
                    (16, 0) => *to[lane].cast::<u128>() = 0,
                    _ => {
                        if count > 0 {
                            to[lane].copy_from(from[lane], count);
                        }
                        to[lane].add(count).write_bytes(0, usize::from(bytes) - count);
                    }
                }
            }
        }
        Ok(())
    }
}
