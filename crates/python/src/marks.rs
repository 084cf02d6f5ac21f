//! Stages, laps, syncs, marks and values.
//!
//! `stage("prefill")` returns one object per name. It is stateless: the open stages of a thread are on a thread-local stack.
//! Therefore the object can be re-entered, and shared by threads and tasks.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{cell::RefCell, collections::HashMap};

use laptime_probe::{FieldValue, Site, SiteKind, dynamic, recording};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use pyo3::{prelude::*, sync::PyOnceLock};

use crate::fields::{Call, Fields};
use crate::tasks::{self, Task};
use crate::{frames, function_with_fields};

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Stage>()?;
    for function in [
        function_with_fields!(
            module,
            stage,
            "stage(name, /, **fields)",
            "A named part of the program: `with laptime.stage(\"prefill\", tokens=n):`, or a decorator, with or without a name."
        ),
        function_with_fields!(module, lap, "lap(name, /, **fields)", "One turn of a loop, as a context manager."),
        function_with_fields!(
            module,
            sync_point,
            "sync_point(name=None, /, **fields)",
            "A place where the host waits for a device, as a context manager."
        ),
        function_with_fields!(module, mark, "mark(name, /, **fields)", "Marks a moment."),
    ] {
        let function = function?;
        module.add(function.getattr("__name__")?.cast::<PyString>()?, &function)?;
    }
    module.add_function(wrap_pyfunction!(value, module)?)?;
    module.add_function(wrap_pyfunction!(is_recording, module)?)
}

/// Shared by all stages of a name.
struct Named {
    kind: SiteKind,
    name: String,
    unit: String,
    plain: OnceLock<&'static Site>,
    with_fields: Mutex<Vec<KnownSite>>,
}

/// A site of a name with these fields, and with this line if it is a sync.
struct KnownSite {
    fields: Py<PyTuple>,
    line: u32,
    site: &'static Site,
}

impl KnownSite {
    /// The field names of a call in the source are the same object every time.
    fn is_of(&self, fields: &Bound<'_, PyTuple>, line: u32) -> bool {
        let is_same = || self.fields.is(fields) || self.fields.bind(fields.py()).eq(fields).unwrap_or(false);
        self.line == line && is_same()
    }
}

impl Named {
    fn new(kind: SiteKind, name: &str, unit: &str) -> Arc<Self> {
        let (plain, with_fields) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { kind, name: name.to_owned(), unit: unit.to_owned(), plain, with_fields })
    }

    fn site(&self, py: Python<'_>, fields: Option<&Bound<'_, PyTuple>>) -> PyResult<&'static Site> {
        // Syncs are reported with their line, so each line has its own site.
        let place = (self.kind == SiteKind::Sync).then(|| frames::caller(py));
        if let (None, None) = (fields, &place) {
            if let Some(site) = self.plain.get() {
                return Ok(site);
            }
            let site = self.make(frames::caller(py), &[]);
            return Ok(self.plain.get_or_init(|| site));
        }
        let fields = fields.cloned().unwrap_or_else(|| PyTuple::empty(py));
        let line = place.as_ref().map_or(0, |place| place.1);
        let find = |known: &[KnownSite]| known.iter().find(|known| known.is_of(&fields, line)).map(|known| known.site);
        if let Some(site) = find(&self.known_sites()) {
            return Ok(site);
        }
        let names: Vec<String> = fields.extract()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let site = self.make(place.unwrap_or_else(|| frames::caller(py)), &names);
        self.known_sites().push(KnownSite { fields: fields.unbind(), line, site });
        Ok(site)
    }

    fn known_sites(&self) -> MutexGuard<'_, Vec<KnownSite>> {
        self.with_fields.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, (file, line): (String, u32), fields: &[&str]) -> &'static Site {
        dynamic::site(self.kind, &self.name, &self.unit, &file, line, fields)
    }

    /// The site and the values of an event.
    fn event(&self, py: Python<'_>, fields: Option<&Fields>) -> PyResult<(&'static Site, Vec<FieldValue>)> {
        let Some(fields) = fields else { return Ok((self.site(py, None)?, Vec::new())) };
        let values = fields.values.iter().map(|value| field(value.bind(py))).collect::<PyResult<_>>()?;
        Ok((self.site(py, Some(fields.names.bind(py)))?, values))
    }
}

/// A stage, lap or sync: a context manager and a decorator.
#[pyclass(frozen, freelist = 16, module = "laptime", name = "Stage")]
pub struct Stage {
    named: Arc<Named>,
    /// Read when the stage is entered and recorded.
    fields: Option<Fields>,
}

/// An open stage of this thread.
struct OpenStage {
    stage: usize,
    task: Task,
    open: dynamic::Open,
}

thread_local! {
    static OPEN: RefCell<Vec<OpenStage>> = const { RefCell::new(Vec::new()) };
}

#[pymethods]
impl Stage {
    fn __enter__<'py>(slf: PyRef<'py, Self>) -> PyResult<PyRef<'py, Self>> {
        if recording() {
            slf.enter(slf.py(), slf.as_ptr() as usize)?;
        }
        Ok(slf)
    }

    fn __exit__(slf: PyRef<'_, Self>, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        Self::exit(slf.py(), slf.as_ptr() as usize);
    }

    /// Decorates a function: every call of it is a stage.
    fn __call__(slf: Bound<'_, Self>, function: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        decorated(slf.py(), slf.as_any(), &function)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.named.name
    }

    fn __repr__(&self) -> String {
        format!("laptime.{}({:?})", word(self.named.kind), self.named.name)
    }
}

fn word(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Lap => "lap",
        SiteKind::Sync => "sync_point",
        _ => "stage",
    }
}

impl Stage {
    fn enter(&self, py: Python<'_>, stage: usize) -> PyResult<()> {
        let (site, values) = self.named.event(py, self.fields.as_ref())?;
        let task = tasks::current(py);
        let open = match tasks::open(task) {
            Some(lane) => dynamic::enter_on(site, &lane, &values),
            None => dynamic::enter(site, &values),
        };
        match open {
            Some(open) => OPEN.with_borrow_mut(|all| all.push(OpenStage { stage, task, open })),
            None => tasks::close(task),
        }
        Ok(())
    }

    /// Ends the innermost open stage of this object and task, if its entry was recorded.
    fn exit(py: Python<'_>, stage: usize) {
        let is_empty = OPEN.with_borrow(Vec::is_empty);
        if is_empty {
            return;
        }
        let task = tasks::current(py);
        let ended = OPEN.with_borrow_mut(|all| {
            let at = all.iter().rposition(|open| open.stage == stage && open.task == task)?;
            Some(all.remove(at))
        });
        if let Some(ended) = ended {
            dynamic::exit(&ended.open);
            tasks::close(task);
        }
    }
}

static STAGES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
static LAPS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
static SYNCS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
static MARKS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The object for a name, created on first use.
fn known<'py>(
    py: Python<'py>,
    table: &PyOnceLock<Py<PyDict>>,
    kind: SiteKind,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, Stage>> {
    let table = table.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(known) = table.get_item(name)? {
        return Ok(known.cast_into::<Stage>()?);
    }
    let stage = Bound::new(py, Stage { named: Named::new(kind, name.to_str()?, ""), fields: None })?;
    table.set_item(name, &stage)?;
    Ok(stage)
}

/// The object for a name with the fields of one call.
fn with_fields<'py>(
    table: &PyOnceLock<Py<PyDict>>,
    kind: SiteKind,
    name: &Bound<'py, PyString>,
    fields: Option<Fields>,
) -> PyResult<Bound<'py, PyAny>> {
    let plain = known(name.py(), table, kind, name)?;
    match fields {
        Some(fields) => {
            let stage = Stage { named: Arc::clone(&plain.get().named), fields: Some(fields) };
            Ok(Bound::new(name.py(), stage)?.into_any())
        }
        None => Ok(plain.into_any()),
    }
}

/// Converts a value. Anything but numbers, booleans and strings, such as a shape, becomes its `str`.
fn field(value: &Bound<'_, PyAny>) -> PyResult<FieldValue> {
    if let Ok(yes) = value.cast::<PyBool>() {
        return Ok(FieldValue::Bool(yes.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value
            .extract()
            .map_or_else(|_| FieldValue::Float(value.extract().unwrap_or(f64::NAN)), FieldValue::Int));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(FieldValue::Float(number.value()));
    }
    Ok(FieldValue::Str(value.str()?.to_str()?.to_owned()))
}

fn decorated(py: Python<'_>, stage: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if !function.is_callable() {
        let message = format!("a stage decorates a function, not `{}`", function.get_type().name()?);
        return Err(PyTypeError::new_err(message));
    }
    Ok(py.import("laptime._marks")?.getattr("decorated")?.call1((stage, function))?.unbind())
}

fn stage<'py>(call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let (name, fields) = call.named()?;
    if let Ok(name) = name.cast::<PyString>() {
        return with_fields(&STAGES, SiteKind::Stage, name, fields);
    }
    // `@laptime.stage` without a name.
    let own = name.getattr("__qualname__").ok().and_then(|own| own.cast_into::<PyString>().ok());
    let Some(own) = own else {
        let message = format!("a stage has a name, such as `stage(\"prefill\")`, not `{}`", name.get_type().name()?);
        return Err(PyTypeError::new_err(message));
    };
    let stage = with_fields(&STAGES, SiteKind::Stage, &own, fields)?;
    Ok(decorated(name.py(), &stage, name)?.into_bound(name.py()))
}

fn lap<'py>(call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let (name, fields) = call.named()?;
    with_fields(&LAPS, SiteKind::Lap, name.cast()?, fields)
}

fn sync_point<'py>(call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py;
    let (name, fields) = call.perhaps_named()?;
    let default = || PyString::intern(py, "sync").into_any();
    let name = name.filter(|name| !name.is_none()).cloned().unwrap_or_else(default);
    with_fields(&SYNCS, SiteKind::Sync, name.cast()?, fields)
}

fn mark<'py>(call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py;
    let (name, fields) = call.named()?;
    let name = name.cast()?;
    if recording() {
        let (site, values) = known(py, &MARKS, SiteKind::Mark, name)?.get().named.event(py, fields.as_ref())?;
        dynamic::point(site, &values);
    }
    Ok(py.None().into_bound(py))
}

/// Counters by name and unit.
type Counters = HashMap<(String, String), Arc<Named>>;

static VALUES: Mutex<Option<Counters>> = Mutex::new(None);
static VALUE_FIELDS: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();

/// Records a value of a counter.
#[pyfunction]
#[pyo3(signature = (name, number, /, unit = ""))]
fn value(py: Python<'_>, name: &str, number: &Bound<'_, PyAny>, unit: &str) -> PyResult<()> {
    if !recording() {
        return Ok(());
    }
    let number = match field(number)? {
        FieldValue::Str(_) => {
            // A tensor or NumPy scalar.
            let number: f64 = number
                .call_method0("__float__")
                .and_then(|number| number.extract())
                .map_err(|_| PyValueError::new_err(format!("the value of `{name}` is not a number: {number}")))?;
            FieldValue::Float(number)
        }
        number => number,
    };
    let named = {
        let mut known = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), unit.to_owned());
        Arc::clone(known.get_or_insert_default().entry(key).or_insert_with(|| Named::new(SiteKind::Value, name, unit)))
    };
    let fields = VALUE_FIELDS.get_or_try_init(py, || PyTuple::new(py, ["value"]).map(Bound::unbind))?;
    dynamic::point(named.site(py, Some(fields.bind(py)))?, &[number]);
    Ok(())
}

/// Whether anything records.
#[pyfunction]
fn is_recording() -> bool {
    recording()
}
