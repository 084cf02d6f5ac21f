//! The threads of a decoder, including the caller.

use std::sync::{Mutex, PoisonError};

use super::product::settle;
use crate::ModelError;
use crate::threads::{self, Threads};

/// The elements that are touched in the time it takes to wake a thread.
const TOO_LITTLE: usize = 1 << 15;

/// The threads of a decoder. The caller is one of them, so stages are on its track.
pub struct Crew {
    others: Option<Threads>,
}

impl Crew {
    pub fn new(threads: usize) -> Result<Self, ModelError> {
        if threads <= 1 {
            return Ok(Self { others: None });
        }
        let refuse = |error| ModelError::Refused(format!("cannot start {threads} threads: {error}"));
        let others = threads::start(threads - 1, 1, "decoder").map_err(refuse)?;
        others.broadcast(|_| settle());
        Ok(Self { others: Some(others) })
    }

    pub fn threads(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.current_num_threads()) + 1
    }

    /// Runs work for each part; idle threads take the next one. `touched` is the number of elements that all parts touch: the
    /// caller does little work alone.
    pub fn each<P: Send>(
        &self,
        touched: usize,
        parts: impl ExactSizeIterator<Item = P> + Send,
        work: impl Fn(P) + Sync,
    ) {
        self.each_with(touched, parts, || (), |(), part| work(part));
    }

    /// As [`Crew::each`], with state that each thread creates.
    pub fn each_with<P: Send, S>(
        &self,
        touched: usize,
        parts: impl ExactSizeIterator<Item = P> + Send,
        make: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, P) + Sync,
    ) {
        let wanted = self.threads().min(parts.len());
        let Some(others) = self.others.as_ref().filter(|_| wanted > 1 && touched > TOO_LITTLE) else {
            let mut own = make();
            return parts.for_each(|part| work(&mut own, part));
        };
        let parts = Mutex::new(parts);
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let turn = || {
            let mut own = make();
            while let Some(part) = next() {
                work(&mut own, part);
            }
        };
        others.in_place_scope(|scope| {
            (1..wanted).for_each(|_| scope.spawn(|_| turn()));
            turn();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, thread};

    #[test]
    fn a_crew_of_one_has_only_the_caller() {
        let crew = Crew::new(1).unwrap();
        assert_eq!(crew.threads(), 1);
        let caller = thread::current().id();
        crew.each(usize::MAX, 0..9, |_| assert_eq!(thread::current().id(), caller));
    }

    #[test]
    fn every_part_runs_once_on_at_most_the_given_threads() {
        let crew = Crew::new(3).unwrap();
        assert_eq!(crew.threads(), 3);
        let (done, threads) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
        crew.each(usize::MAX, 0..100, |part| {
            done.lock().unwrap().push(part);
            threads.lock().unwrap().insert(thread::current().id());
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
        assert!(threads.into_inner().unwrap().len() <= 3);
    }

    #[test]
    fn little_work_wakes_no_thread() {
        let caller = thread::current().id();
        Crew::new(2).unwrap().each(TOO_LITTLE, 0..9, |_| assert_eq!(thread::current().id(), caller));
    }
}
