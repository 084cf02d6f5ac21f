//! NVTX: our functions in the tables that NVTX hands out.
//!
//! The numbers and structures are those of NVTX 3 (`nvtxTypes.h`, `nvToolsExt.h`).

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use laptime_capture::control::RecordingMode;
use laptime_capture::part::{Payload, RangeAction};

use crate::ranges::{Marked, Message, Ranges, cut};
use crate::state::{self, State};
use crate::{guarded, locked};

/// The id of the table of NVTX's callbacks.
const CALLBACKS: u32 = 1;
const CORE: c_int = 1;
const CORE2: c_int = 5;

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: Option<extern "C" fn(c_int, *mut *const *mut *const c_void, *mut c_uint) -> c_int>,
}

/// Puts our functions into the tables.
///
/// # Safety
///
/// `tables` is the function that NVTX passes.
pub unsafe fn attach(tables: extern "C" fn(u32) -> *const c_void) -> bool {
    let callbacks = tables(CALLBACKS).cast::<Callbacks>();
    // SAFETY: NVTX returns a valid table or null.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }) else { return false };
    let Some(module_table) = callbacks.module_table.filter(|_| callbacks.size >= size_of::<Callbacks>()) else {
        return false;
    };
    let core: [(usize, *const c_void); 11] = [
        (1, mark_ex as *const c_void),
        (2, mark_a as *const c_void),
        (4, range_start_ex as *const c_void),
        (5, range_start_a as *const c_void),
        (7, range_end as *const c_void),
        (8, range_push_ex as *const c_void),
        (9, range_push_a as *const c_void),
        (11, range_pop as *const c_void),
        (12, name_category_a as *const c_void),
        (14, name_os_thread_a as *const c_void),
        (10, range_push_w as *const c_void),
    ];
    let core2: [(usize, *const c_void); 9] = [
        (1, domain_mark_ex as *const c_void),
        (2, domain_range_start_ex as *const c_void),
        (3, domain_range_end as *const c_void),
        (4, domain_range_push_ex as *const c_void),
        (5, domain_range_pop as *const c_void),
        (8, domain_name_category_a as *const c_void),
        (10, domain_register_string_a as *const c_void),
        (12, domain_create_a as *const c_void),
        (14, domain_destroy as *const c_void),
    ];
    // SAFETY: the tables are NVTX's own.
    unsafe { fill(module_table, CORE, &core) | fill(module_table, CORE2, &core2) }
}

unsafe fn fill(
    module_table: extern "C" fn(c_int, *mut *const *mut *const c_void, *mut c_uint) -> c_int,
    module: c_int,
    functions: &[(usize, *const c_void)],
) -> bool {
    let (mut table, mut size) = (std::ptr::null(), 0);
    if module_table(module, &mut table, &mut size) == 0 || table.is_null() {
        return false;
    }
    for &(number, function) in functions.iter().filter(|(number, _)| *number < size as usize) {
        // SAFETY: the table has `size` entries, each null or the address of a place for a function.
        unsafe {
            let place = *table.add(number);
            if !place.is_null() {
                *place = function;
            }
        }
    }
    true
}

/// The attributes of a range (`nvtxEventAttributes_t`).
#[repr(C)]
pub struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: usize,
}

/// Ranges of a thread that are open at once, at most.
const DEEPEST: usize = 1 << 16;

thread_local! {
    /// The open nested ranges of this thread: their domains, and whether their starts were recorded.
    static OPEN: RefCell<Vec<(usize, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a range or a mark while something is recorded. Ranges are kept in light windows: they count the work there. Laps
/// are always kept, and so are the ends of what was kept.
fn keep(state: &'static State, marked: Marked) {
    let is_on = state.control.mode() != RecordingMode::Nothing;
    let is_kept = match marked.action {
        RangeAction::Push => {
            let is_kept = is_lap(state, &marked.message) || is_on;
            let _ = OPEN.try_with(|open| {
                let mut open = open.borrow_mut();
                // A program may begin ranges and never end them.
                if open.len() < DEEPEST {
                    open.push((marked.domain, is_kept));
                }
            });
            is_kept
        }
        RangeAction::Pop => was_kept(marked.domain),
        RangeAction::Start(number) => {
            let is_kept = is_lap(state, &marked.message) || is_on;
            is_kept && state.ranges.remember(number)
        }
        RangeAction::End(number) => state.ranges.forget(number),
        RangeAction::Mark => is_on,
    };
    if is_kept {
        Ranges::add(state, marked);
    }
}

/// Whether the beginning of the range that ends now was kept.
fn was_kept(domain: usize) -> bool {
    let found = OPEN.try_with(|open| {
        let mut open = open.borrow_mut();
        let at = open.iter().rposition(|(known, _)| *known == domain)?;
        Some(open.remove(at).1)
    });
    found.ok().flatten().unwrap_or(false)
}

/// Whether the range is a lap; counts it if it is.
fn is_lap(state: &State, message: &Message) -> bool {
    let Some(laps) = &state.laps else { return false };
    let is_lap = match message {
        Message::None => false,
        Message::Text(text) => laps.matches(text),
        Message::Handle(handle) => {
            let texts = locked(&state.ranges.texts);
            laps.matches(texts.at(*handle))
        }
    };
    if is_lap
        && laps.begin(&state.control)
        && let Some(session) = state.session.get()
    {
        // This thread is in no CUDA call now. CUPTI 13.0 loses the kernels of a thread for which it is switched inside one.
        session.apply(state, state.control.mode());
    }
    is_lap
}

fn add(action: RangeAction, message: Message, domain: usize) {
    guarded(|| {
        if let Some(state) = state::in_process() {
            keep(state, Marked::now(action, message, domain));
        }
    });
}

/// # Safety
///
/// `attributes` is null or valid.
unsafe fn add_with(action: RangeAction, attributes: *const Attributes, domain: usize) {
    guarded(|| {
        let Some(state) = state::in_process() else { return };
        let mut marked = Marked::now(action, Message::None, domain);
        // SAFETY: the caller's.
        if let Some(attributes) = unsafe { attributes.as_ref() } {
            if usize::from(attributes.size) >= size_of::<Attributes>() {
                // SAFETY: the message is of the type that the attributes say.
                marked.message = unsafe { message(attributes) };
                marked.payload = payload(attributes);
            }
            marked.category = attributes.category;
        }
        keep(state, marked);
    });
}

unsafe fn message(attributes: &Attributes) -> Message {
    const TEXT: i32 = 1;
    const WIDE: i32 = 2;
    const REGISTERED: i32 = 3;
    match attributes.message_type {
        // SAFETY: the caller's.
        TEXT => unsafe { text(attributes.message as *const c_char) },
        // SAFETY: the caller's.
        WIDE => unsafe { wide(attributes.message as *const u32) },
        REGISTERED => Message::Handle(attributes.message),
        _ => Message::None,
    }
}

fn payload(attributes: &Attributes) -> Option<Payload> {
    let bits = attributes.payload;
    match attributes.payload_type {
        1 => Some(Payload::Unsigned(bits)),
        2 => Some(Payload::Signed(bits as i64)),
        3 => Some(Payload::Float(f64::from_bits(bits))),
        4 => Some(Payload::Unsigned(bits & 0xFFFF_FFFF)),
        5 => Some(Payload::Signed(i64::from(bits as i32))),
        6 => Some(Payload::Float(f32::from_bits(bits as u32).into())),
        _ => None,
    }
}

/// # Safety
///
/// `text` is null or ends in a zero.
unsafe fn text(text: *const c_char) -> Message {
    if text.is_null() {
        return Message::None;
    }
    // SAFETY: the caller's.
    Message::Text(cut(unsafe { CStr::from_ptr(text) }.to_bytes()).into())
}

/// A text of wide characters, which have four bytes on Linux.
///
/// # Safety
///
/// `text` is null or ends in a zero.
unsafe fn wide(text: *const u32) -> Message {
    const LONGEST: usize = 1024;
    if text.is_null() {
        return Message::None;
    }
    // SAFETY: the caller's: nothing is read beyond the zero.
    let letters = (0..LONGEST).map_while(|at| match unsafe { *text.add(at) } {
        0 => None,
        letter => Some(char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER)),
    });
    Message::Text(cut(letters.collect::<String>().as_bytes()).into())
}

/// The bytes of a text, for names.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's: null or a text that ends in a zero.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

fn with_texts<T: Default>(work: impl FnOnce(&mut crate::ranges::Texts) -> T) -> T {
    let mut done = T::default();
    guarded(|| {
        if let Some(state) = state::in_process() {
            done = work(&mut locked(&state.ranges.texts));
        }
    });
    done
}

/// Starts a range and returns its number.
fn start(begin: impl FnOnce(RangeAction)) -> u64 {
    let number = state::in_process().map_or(0, |state| state.ranges.next_number());
    begin(RangeAction::Start(number));
    number
}

/// Declares functions that NVTX calls. Every pointer is the program's own and valid as NVTX demands; the functions that
/// the bodies call are guarded. The depth of nesting, which a push and a pop return, is not counted.
macro_rules! called_by_nvtx {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $output:ty)? { $($body:tt)* })*) => {
        $(#[allow(unused_unsafe, reason = "some bodies pass no pointer on")]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $output)? {
            // SAFETY: as above.
            unsafe { $($body)* }
        })*
    };
}

called_by_nvtx! {
    mark_ex(attributes: *const Attributes) { add_with(RangeAction::Mark, attributes, 0) }
    mark_a(message: *const c_char) { add(RangeAction::Mark, text(message), 0) }
    range_start_ex(attributes: *const Attributes) -> u64 { start(|start| add_with(start, attributes, 0)) }
    range_start_a(message: *const c_char) -> u64 { start(|start| add(start, text(message), 0)) }
    range_end(number: u64) { add(RangeAction::End(number), Message::None, 0) }
    range_push_ex(attributes: *const Attributes) -> c_int { add_with(RangeAction::Push, attributes, 0); 0 }
    range_push_a(message: *const c_char) -> c_int { add(RangeAction::Push, text(message), 0); 0 }
    range_push_w(message: *const u32) -> c_int { add(RangeAction::Push, wide(message), 0); 0 }
    range_pop() -> c_int { add(RangeAction::Pop, Message::None, 0); 0 }
    name_category_a(category: u32, name: *const c_char) {
        with_texts(|texts| texts.name_category(0, category, bytes(name)));
    }
    name_os_thread_a(thread: u32, name: *const c_char) { with_texts(|texts| texts.name_thread(thread, bytes(name))); }
    domain_mark_ex(domain: usize, attributes: *const Attributes) { add_with(RangeAction::Mark, attributes, domain) }
    domain_range_start_ex(domain: usize, attributes: *const Attributes) -> u64 {
        start(|start| add_with(start, attributes, domain))
    }
    domain_range_end(domain: usize, number: u64) { add(RangeAction::End(number), Message::None, domain) }
    domain_range_push_ex(domain: usize, attributes: *const Attributes) -> c_int {
        add_with(RangeAction::Push, attributes, domain); 0
    }
    domain_range_pop(domain: usize) -> c_int { add(RangeAction::Pop, Message::None, domain); 0 }
    domain_name_category_a(domain: usize, category: u32, name: *const c_char) {
        with_texts(|texts| texts.name_category(domain, category, bytes(name)));
    }
    domain_register_string_a(_domain: usize, name: *const c_char) -> usize { with_texts(|texts| texts.add(bytes(name))) }
    domain_create_a(name: *const c_char) -> usize { with_texts(|texts| texts.add(bytes(name))) }
    domain_destroy(_domain: usize) {}
}
