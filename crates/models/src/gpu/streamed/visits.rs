//! The times of each turn of an offloaded layer, once the device has finished it.

use std::collections::VecDeque;

use laptime_cuda::{CudaError, Device, Done, Moment};

use crate::LayerVisit;

/// Pending turns from which on finished ones are collected, so their moments can be reused.
const MOST_PENDING: usize = 256;

/// The most visits that are kept until they are read; older ones are dropped.
const MOST_DONE: usize = 1 << 16;

#[derive(Debug)]
pub struct Pending {
    pub layer: usize,
    pub pass: u64,
    pub is_ahead: bool,
    /// Around the copy, on its stream.
    pub copy: [Moment; 2],
    /// Around the wait for it, on the compute stream.
    pub wait: [Moment; 2],
    /// Around the copy back, if there is one.
    pub release: Option<[Moment; 2]>,
}

#[derive(Debug, Default)]
pub struct Visits {
    free: Vec<Moment>,
    pending: VecDeque<Pending>,
    done: VecDeque<LayerVisit>,
}

impl Visits {
    pub fn moments(&mut self, device: &Device) -> Result<[Moment; 2], CudaError> {
        let mut one = || self.free.pop().map_or_else(|| Moment::new(device), Ok);
        Ok([one()?, one()?])
    }

    pub fn give_back(&mut self, moments: [Moment; 2]) {
        self.free.extend(moments);
    }

    pub fn push(&mut self, pending: Pending) -> Done {
        self.pending.push_back(pending);
        if self.pending.len() > MOST_PENDING {
            self.settle()?;
        }
        Ok(())
    }

    pub fn take(&mut self) -> Result<Vec<LayerVisit>, CudaError> {
        self.settle()?;
        Ok(self.done.drain(..).collect())
    }

    fn settle(&mut self) -> Done {
        while let Some(first) = self.pending.front()
            && first.is_done()?
        {
            let Some(done) = self.pending.pop_front() else { break };
            self.done.push_back(done.measured()?);
            self.free.extend(done.copy.into_iter().chain(done.wait).chain(done.release.into_iter().flatten()));
        }
        let surplus = self.done.len().saturating_sub(MOST_DONE);
        self.done.drain(..surplus);
        Ok(())
    }
}

impl Pending {
    /// The copy ends before the wait for it does.
    fn is_done(&self) -> Result<bool, CudaError> {
        let [_, last] = self.release.as_ref().unwrap_or(&self.wait);
        last.is_reached()
    }

    fn measured(&self) -> Result<LayerVisit, CudaError> {
        let nanos = |[from, to]: &[Moment; 2]| to.nanos_since(from);
        Ok(LayerVisit {
            layer: self.layer,
            pass: self.pass,
            is_ahead: self.is_ahead,
            wait_ns: nanos(&self.wait)?,
            // Releasing a reused buffer takes no time.
            release_ns: self.release.as_ref().map_or(Ok(0.0), nanos)?,
            copy_ns: nanos(&self.copy)?,
        })
    }
}
