//! Separates the asyncio tasks of a thread.
//!
//! Stages of one task nest; those of different tasks overlap. The first task with an open stage uses the track of its
//! thread, to which launched work is attributed. Each other task with an open stage gets a lane, which is reused once the
//! task has no open stage.

use std::{cell::RefCell, collections::HashMap};

use laptime_probe::Lane;
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyDict};

/// The address of a task; zero outside of tasks.
pub type Task = usize;

struct Asyncio {
    running_loop: Py<PyAny>,
    current_task: Py<PyAny>,
}

static ASYNCIO: PyOnceLock<Asyncio> = PyOnceLock::new();
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The running task of this thread.
pub fn current(py: Python<'_>) -> Task {
    find(py).unwrap_or(0)
}

fn find(py: Python<'_>) -> PyResult<Task> {
    let Some(asyncio) = asyncio(py)? else { return Ok(0) };
    let running = asyncio.running_loop.bind(py).call0()?;
    if running.is_none() {
        return Ok(0);
    }
    let task = asyncio.current_task.bind(py).call1((running,))?;
    Ok(if task.is_none() { 0 } else { task.as_ptr() as usize })
}

/// asyncio, if the program has imported it.
fn asyncio(py: Python<'_>) -> PyResult<Option<&Asyncio>> {
    if let Some(known) = ASYNCIO.get(py) {
        return Ok(Some(known));
    }
    let modules = MODULES.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind())
    })?;
    let Some(module) = modules.bind(py).get_item(intern!(py, "asyncio"))? else { return Ok(None) };
    let found = Asyncio {
        running_loop: module.getattr("_get_running_loop")?.unbind(),
        current_task: module.getattr("current_task")?.unbind(),
    };
    Ok(Some(ASYNCIO.get_or_init(py, || found)))
}

#[derive(Default)]
struct Places {
    /// The task on the track of the thread, and the number of its open stages.
    on_thread: Option<(Task, usize)>,
    on_lanes: HashMap<Task, (Lane, usize)>,
    free: Vec<Lane>,
    lanes_made: usize,
}

thread_local! {
    static PLACES: RefCell<Places> = RefCell::default();
}

/// Opens a stage of a task. Returns its lane; none for the track of the thread.
pub fn open(task: Task) -> Option<Lane> {
    PLACES.with_borrow_mut(|places| {
        if let Some((lane, count)) = places.on_lanes.get_mut(&task) {
            *count += 1;
            return Some(lane.clone());
        }
        match &mut places.on_thread {
            Some((owner, count)) if *owner == task => *count += 1,
            None => places.on_thread = Some((task, 1)),
            Some(_) => {
                let lane = places.free.pop().unwrap_or_else(|| {
                    places.lanes_made += 1;
                    Lane::host(&format!("asyncio task {}", places.lanes_made))
                });
                places.on_lanes.insert(task, (lane.clone(), 1));
                return Some(lane);
            }
        }
        None
    })
}

/// Closes a stage of a task.
pub fn close(task: Task) {
    PLACES.with_borrow_mut(|places| {
        if let Some((_, count)) = places.on_lanes.get_mut(&task) {
            *count -= 1;
            if *count == 0
                && let Some((lane, _)) = places.on_lanes.remove(&task)
            {
                places.free.push(lane);
            }
        } else if let Some((owner, count)) = &mut places.on_thread
            && *owner == task
        {
            *count -= 1;
            if *count == 0 {
                places.on_thread = None;
            }
        }
    });
}
