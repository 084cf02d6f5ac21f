//! Notices when another profiler takes over CUPTI.
//!
//! CUPTI has one pair of buffer callbacks. torch.profiler (Kineto) registers its own when it starts and never again, so
//! an earlier registration is silently replaced. The calls of other libraries go through their tables of
//! imported functions: the entry of the one function there is pointed to ours, which steps aside and then calls CUPTI.
//! JAX looks CUPTI's functions up with `dlsym`; that entry too is pointed to ours, which gives out the same functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guarded;
use crate::state::{self, State};
use laptime_capture::functions::{BufferCompleted, BufferRequested, Callback, Functions};

/// Whoever registers buffers gets our records; whoever subscribes needs CUPTI's only subscription, which may be ours.
const REGISTER: &CStr = c"cuptiActivityRegisterCallbacks";
const SUBSCRIBE: &CStr = c"cuptiSubscribe";

/// How JAX and ctypes find functions.
const LOOK_UP: &CStr = c"dlsym";

/// Kinds of entries in tables of imports.
#[cfg(not(target_arch = "aarch64"))]
const IMPORTS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const IMPORTS: [u32; 2] = [1025, 1026];

/// How many libraries were loaded at the last check.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);
static LOOKING: Mutex<()> = Mutex::new(());

/// Points the imports of every loaded library to us. Does nothing if no library was loaded since the last time.
pub fn install() {
    let Ok(_looking) = LOOKING.try_lock() else { return };
    let Some(state) = state::current().filter(|state| state.session.get().is_some()) else { return };
    let mut adds = 0_u64;
    // SAFETY: the functions and the number live during the calls.
    unsafe {
        libc::dl_iterate_phdr(Some(count_loads), (&raw mut adds).cast());
        if SEEN.swap(adds, Ordering::AcqRel) != adds {
            libc::dl_iterate_phdr(Some(hook), std::ptr::from_ref(state).cast_mut().cast());
        }
    }
}

unsafe extern "C" fn count_loads(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and the number that was handed to it.
    unsafe { *into.cast::<u64>() = (*info).dlpi_adds };
    1
}

/// The result of a call that CUPTI did not get.
const UNKNOWN: u32 = 999;

extern "C" fn register_of_others(requested: BufferRequested, completed: BufferCompleted) -> u32 {
    let mut done = UNKNOWN;
    guarded(|| {
        let current = state::current().and_then(|state| Some((state, state.session.get()?)));
        if let Some((state, session)) = current {
            session.release_cupti(state);
        }
    });
    guarded(|| {
        if let Some(functions) = functions() {
            // SAFETY: the caller's functions go to CUPTI as they came.
            done = unsafe { functions.register_function()(requested, completed) };
        }
    });
    done
}

extern "C" fn subscribe_of_others(subscriber: *mut *mut c_void, callback: Callback, own: *mut c_void) -> u32 {
    let mut done = UNKNOWN;
    guarded(|| {
        if let Some(session) = state::current().and_then(|state| state.session.get()) {
            session.end_callbacks();
        }
        if let Some(subscribe) = functions().and_then(|functions| functions.subscribe_function()) {
            // SAFETY: what the caller passes goes to CUPTI as it came.
            done = unsafe { subscribe(subscriber, callback, own) };
        }
    });
    done
}

/// CUPTI's functions. A forked child has no session, so they are looked up again there.
fn functions() -> Option<Functions> {
    let session = state::current().and_then(|state| state.session.get());
    session.map(|session| session.functions).or_else(crate::library::functions)
}

/// The address of our function instead of one of CUPTI's.
fn instead_of(name: &CStr) -> Option<usize> {
    if name == REGISTER {
        Some(register_of_others as *const () as usize)
    } else if name == SUBSCRIBE {
        Some(subscribe_of_others as *const () as usize)
    } else {
        None
    }
}

/// The address of our function instead of `dlsym`.
fn look_up_of_others() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    return Some(look_up as *const () as usize);
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// `dlsym`, except that two functions of CUPTI are ours. It jumps to the real one and does not call it, because what
/// `RTLD_NEXT` means depends on the caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdi, rsi",
        "call {ours}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}@GOTPCREL]",
        "2:",
        "ret",
        ours = sym looked_up,
        real = sym libc::dlsym,
    )
}

/// Our function with this name, or null.
#[cfg(target_arch = "x86_64")]
extern "C" fn looked_up(name: *const c_char) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    guarded(|| {
        let is_recording = state::current().is_some_and(|state| state.session.get().is_some());
        if is_recording && !name.is_null() {
            // SAFETY: the caller of `dlsym` passes a text that ends in a zero.
            found = instead_of(unsafe { CStr::from_ptr(name) }).map_or(found, |ours| ours as *mut c_void);
        }
    });
    found
}

/// The tables of a library that name its imports.
#[derive(Default)]
struct Tables {
    symbols: usize,
    texts: usize,
    relocations: [(usize, usize); 2],
}

unsafe extern "C" fn hook(info: *mut libc::dl_phdr_info, _: usize, state: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the loader passes a valid description of a library that stays during the call, and the state that
        // was handed to it.
        unsafe {
            let state = &*state.cast::<State>();
            let name = if (*info).dlpi_name.is_null() { c"" } else { CStr::from_ptr((*info).dlpi_name) };
            let is_own = name.to_bytes().windows(11).any(|part| part == b"libcupti.so" || part == b"liblaptime_");
            if !is_own && state.session.get().is_some() {
                let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
                hook_library((*info).dlpi_addr as usize, headers);
            }
        }
    });
    0
}

/// # Safety
///
/// `headers` are those of a library that is loaded at `base`.
unsafe fn hook_library(base: usize, headers: &[libc::Elf64_Phdr]) {
    // SAFETY: the caller's; the tables lie where the dynamic section says.
    unsafe {
        let Some(tables) = tables(base, headers) else { return };
        for (table, bytes) in tables.relocations {
            for at in (0..bytes).step_by(size_of::<libc::Elf64_Rela>()) {
                let entry = &*((table + at) as *const libc::Elf64_Rela);
                let (kind, symbol) = (entry.r_info as u32, (entry.r_info >> 32) as usize);
                if symbol == 0 || !IMPORTS.contains(&kind) {
                    continue;
                }
                let symbol = &*(tables.symbols as *const libc::Elf64_Sym).add(symbol);
                let name = (tables.texts + symbol.st_name as usize) as *const std::ffi::c_char;
                let place = (base + entry.r_offset as usize) as *mut usize;
                let name = CStr::from_ptr(name);
                if let Some(ours) = instead_of(name).or_else(|| (name == LOOK_UP).then(look_up_of_others).flatten()) {
                    point(place, ours);
                }
            }
        }
    }
}

/// # Safety
///
/// As above.
unsafe fn tables(base: usize, headers: &[libc::Elf64_Phdr]) -> Option<Tables> {
    const RELA: i64 = 7;
    const RELA_BYTES: i64 = 8;
    const STRTAB: i64 = 5;
    const SYMTAB: i64 = 6;
    const PLT_BYTES: i64 = 2;
    const PLT: i64 = 23;
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let mut found = Tables::default();
    // SAFETY: the caller's; the section ends in an entry of zeros.
    unsafe {
        let mut entry = (base + dynamic.p_vaddr as usize) as *const [u64; 2];
        while (*entry)[0] != 0 {
            let [tag, value] = *entry;
            let value = value as usize;
            match tag as i64 {
                RELA => found.relocations[0].0 = value,
                RELA_BYTES => found.relocations[0].1 = value,
                PLT => found.relocations[1].0 = value,
                PLT_BYTES => found.relocations[1].1 = value,
                STRTAB => found.texts = value,
                SYMTAB => found.symbols = value,
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    // The loader has made addresses of these; where it has not (the kernel's own object), they are offsets.
    let is_address = |value: usize| value == 0 || value >= base;
    let all = [found.symbols, found.texts, found.relocations[0].0, found.relocations[1].0];
    (found.symbols != 0 && found.texts != 0 && all.into_iter().all(is_address)).then_some(found)
}

/// # Safety
///
/// `place` is an entry of a loaded library's table of imports.
unsafe fn point(place: *mut usize, ours: usize) {
    // SAFETY: the caller's. Such tables are often read-only; the page is made writable and stays so.
    unsafe {
        if *place == ours {
            return;
        }
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = place as usize & !(page - 1);
        if libc::mprotect(start as *mut c_void, page, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            (*place.cast::<std::sync::atomic::AtomicUsize>()).store(ours, Ordering::Release);
        }
    }
}
