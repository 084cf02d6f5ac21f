//! The marking macros.
//!
//! Without the feature `on` they compile to nothing: fields are type-checked and never evaluated. `__enter` and `__point`
//! are therefore defined twice. The `cfg` is on the definition; inside the body it would be evaluated in the caller's
//! crate, which has no feature `on`.

/// Opens a stage that ends when the returned guard is dropped.
///
/// Fields are integers, floats, booleans or strings; there are at most fifteen, and they are evaluated only while
/// something records. `on = lane` also puts the stage on a [`Lane`](crate::Lane), the track of a device stream. The
/// lane may be an `Option`; without a lane the stage is only on the thread.
///
/// ```
/// # use laptime_probe::stage;
/// let prompt = "Once upon a time";
/// let _stage = stage!("prefill", tokens = 4, warm = true, text = prompt);
/// ```
#[macro_export]
macro_rules! stage {
    ($name:literal, on = $lane:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__enter!(Stage, $name, on = $lane $(, $key = $value)*)
    };
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__enter!(Stage, $name $(, $key = $value)*)
    };
}

/// Opens one lap of a loop: a repeating stage whose first field counts the laps.
///
/// ```
/// # use laptime_probe::lap;
/// for frame in 0..3 {
///     let _lap = lap!("frame", frame = frame);
/// }
/// ```
#[macro_export]
macro_rules! lap {
    ($name:literal, on = $lane:expr $(, $key:ident = $value:expr)+ $(,)?) => {
        $crate::__enter!(Lap, $name, on = $lane $(, $key = $value)+)
    };
    ($name:literal $(, $key:ident = $value:expr)+ $(,)?) => {
        $crate::__enter!(Lap, $name $(, $key = $value)+)
    };
}

/// Evaluates an expression in which the host waits for a device, and records the site and the duration.
///
/// The macro returns the value of the expression; `?` inside it works. Fields come before a `=>`.
///
/// ```
/// # use laptime_probe::sync_point;
/// # fn read_back() -> Result<u32, std::io::Error> { Ok(7) }
/// # fn run() -> Result<(), std::io::Error> {
/// let token = sync_point!("read_token", read_back()?);
/// let again = sync_point!("read_token", bytes = 4 => read_back()?);
/// # assert_eq!((token, again), (7, 7)); Ok(()) }
/// # run().unwrap();
/// ```
#[macro_export]
macro_rules! sync_point {
    ($name:literal, $($key:ident = $value:expr),+ => $body:expr $(,)?) => {{
        let __laptime_wait = $crate::__enter!(Sync, $name $(, $key = $value)+);
        let __laptime_value = $body;
        __laptime_wait.end();
        __laptime_value
    }};
    ($name:literal, $body:expr $(,)?) => {{
        let __laptime_wait = $crate::__enter!(Sync, $name);
        let __laptime_value = $body;
        __laptime_wait.end();
        __laptime_value
    }};
}

/// Marks a moment, with fields.
///
/// ```
/// # use laptime_probe::mark;
/// mark!("end_of_text", token = 17, reason = "stop token");
/// ```
#[macro_export]
macro_rules! mark {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__point!(Mark, $name, "" $(, $key = $value)*)
    };
}

/// Records the current value of a quantity: a point of a curve.
///
/// ```
/// # use laptime_probe::value;
/// value!("queue_depth", 3);
/// value!("kv_cache", 4096_u64, unit = "bytes");
/// ```
#[macro_export]
macro_rules! value {
    ($name:literal, $value:expr $(,)?) => {
        $crate::value!($name, $value, unit = "")
    };
    ($name:literal, $value:expr, unit = $unit:literal $(,)?) => {
        $crate::__point!(Value, $name, $unit, value = $value)
    };
}

#[cfg(feature = "on")]
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($kind:ident, $name:literal, $unit:literal, $fields:expr) => {
        $crate::Site::new(
            $crate::SiteKind::$kind,
            $name,
            $unit,
            ::core::module_path!(),
            ::core::file!(),
            ::core::line!(),
            &$fields,
        )
    };
}

#[cfg(feature = "on")]
#[doc(hidden)]
#[macro_export]
macro_rules! __enter {
    ($kind:ident, $name:literal, on = $lane:expr $(, $key:ident = $value:expr)*) => {
        if $crate::recording() {
            static SITE: $crate::Site =
                $crate::__site!($kind, $name, "", [$(::core::stringify!($key)),*]);
            $crate::__private::enter_on(&SITE, &$lane, &($(&$value,)*))
        } else {
            $crate::LaneSpan::none()
        }
    };
    ($kind:ident, $name:literal $(, $key:ident = $value:expr)*) => {
        if $crate::recording() {
            static SITE: $crate::Site =
                $crate::__site!($kind, $name, "", [$(::core::stringify!($key)),*]);
            $crate::__private::enter(&SITE, &($(&$value,)*))
        } else {
            $crate::Span::none()
        }
    };
}

#[cfg(feature = "on")]
#[doc(hidden)]
#[macro_export]
macro_rules! __point {
    ($kind:ident, $name:literal, $unit:literal $(, $key:ident = $value:expr)*) => {
        if $crate::recording() {
            static SITE: $crate::Site =
                $crate::__site!($kind, $name, $unit, [$(::core::stringify!($key)),*]);
            $crate::__private::point(&SITE, &($(&$value,)*));
        }
    };
}

#[cfg(not(feature = "on"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __enter {
    ($kind:ident, $name:literal, on = $lane:expr $(, $key:ident = $value:expr)*) => {{
        if false {
            $crate::__private::check_lane(&$lane);
        }
        $crate::__enter!($kind, $name $(, $key = $value)*)
    }};
    ($kind:ident, $name:literal $(, $key:ident = $value:expr)*) => {{
        if false {
            $($crate::__private::check_field(&$value);)*
        }
        $crate::Span::none()
    }};
}

#[cfg(not(feature = "on"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __point {
    ($kind:ident, $name:literal, $unit:literal $(, $key:ident = $value:expr)*) => {
        if false {
            $($crate::__private::check_field(&$value);)*
        }
    };
}
