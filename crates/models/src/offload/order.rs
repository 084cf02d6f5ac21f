//! The order of copies of offloaded layers.

use crate::StreamMode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of earlier copies, in all passes.
    pub copy: u64,
    pub layer: usize,
    pub pass: u64,
}

impl Place {
    pub fn of(self, buffers: usize) -> usize {
        (self.copy % buffers.max(1) as u64) as usize
    }
}

/// The turns of layers and their copies, both counted across passes.
#[derive(Debug)]
pub struct Order {
    layers: u64,
    mode: StreamMode,
    /// The next turn, or the current one.
    turn: u64,
    /// The number of copies requested.
    requested: u64,
    passes: u64,
    is_under_way: bool,
}

impl Order {
    pub fn new(layers: usize, mode: StreamMode) -> Self {
        Self { layers: layers.max(1) as u64, mode, turn: 0, requested: 0, passes: 0, is_under_way: false }
    }

    pub fn pass(&self) -> u64 {
        self.passes.saturating_sub(1)
    }

    /// Begins a pass. False if the previous one was not finished, which makes its requested copies useless.
    pub fn begin(&mut self) -> bool {
        let first = self.passes * self.layers;
        self.passes += 1;
        let is_whole = self.turn == first && !self.is_under_way;
        if !is_whole {
            (self.turn, self.requested, self.is_under_way) = (first, first, false);
        }
        is_whole
    }

    /// Begins the turn of a layer. None if it is not the next layer of the pass.
    pub fn enter(&mut self, layer: usize) -> Option<Place> {
        let next = self.place(self.turn);
        let is_next = self.passes > 0 && next.pass == self.pass() && next.layer == layer && !self.is_under_way;
        is_next.then(|| {
            self.is_under_way = true;
            next
        })
    }

    pub fn leave(&mut self) {
        self.is_under_way = false;
        self.turn += 1;
    }

    /// The copy of the current turn, if it was not requested ahead. Marks it as requested.
    pub fn missed(&mut self) -> Option<Place> {
        self.request_until(self.turn + 1)
    }

    /// The next copy to request ahead, if a buffer is free: the other one, and that of the current turn once it is released.
    pub fn next(&mut self, is_released: bool) -> Option<Place> {
        if !self.mode.is_ahead() {
            return None;
        }
        let free = self.turn + if is_released { 3 } else { 2 };
        let end = if self.mode.wraps() { u64::MAX } else { (self.turn / self.layers + 1) * self.layers };
        self.request_until(free.min(end))
    }

    fn request_until(&mut self, end: u64) -> Option<Place> {
        if self.requested >= end {
            return None;
        }
        self.requested += 1;
        Some(self.place(self.requested - 1))
    }

    fn place(&self, copy: u64) -> Place {
        Place { copy, layer: (copy % self.layers) as usize, pass: copy / self.layers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copies of a turn: the missed one, those requested before the layer computes, and those after.
    fn turn(order: &mut Order, layer: usize) -> [Vec<u64>; 3] {
        order.enter(layer).unwrap();
        let missed = order.missed().into_iter().map(|place| place.copy).collect();
        let mut ahead =
            |is_released| std::iter::from_fn(|| order.next(is_released)).map(|place| place.copy).collect::<Vec<u64>>();
        let found = [missed, ahead(false), ahead(true)];
        order.leave();
        found
    }

    fn passes(mode: StreamMode, layers: usize, passes: usize) -> Vec<[Vec<u64>; 3]> {
        let mut order = Order::new(layers, mode);
        let mut found = Vec::new();
        for _ in 0..passes {
            assert!(order.begin());
            found.extend((0..layers).map(|layer| turn(&mut order, layer)));
        }
        found
    }

    fn none() -> Vec<u64> {
        Vec::new()
    }

    #[test]
    fn without_prefetching_every_copy_is_missed() {
        for mode in [StreamMode::Sync, StreamMode::Pinned] {
            let found = passes(mode, 3, 2);
            assert!((0..).zip(found).all(|(turn, found)| found == [vec![turn], none(), none()]));
        }
    }

    #[test]
    fn prefetching_misses_the_first_layer_of_each_pass() {
        let found = passes(StreamMode::Prefetch, 3, 2);
        assert_eq!(found[0], [vec![0], vec![1], vec![2]]);
        assert_eq!(found[1..3], [[none(), none(), none()], [none(), none(), none()]]);
        assert_eq!(found[3], [vec![3], vec![4], vec![5]]);
    }

    #[test]
    fn with_wrap_only_the_first_copy_of_all_is_missed_and_both_buffers_are_always_requested() {
        for layers in [1, 2, 3] {
            let found = passes(StreamMode::Wrap, layers, 4);
            assert_eq!(found[0], [vec![0], vec![1], vec![2]]);
            assert!((3..).zip(&found[1..]).all(|(next, found)| *found == [none(), none(), vec![next]]), "{layers}");
        }
    }

    #[test]
    fn a_pass_that_was_not_finished_is_forgotten() {
        let mut order = Order::new(3, StreamMode::Wrap);
        assert!(order.begin());
        turn(&mut order, 0);
        order.enter(1).unwrap();
        assert!(!order.begin());
        assert_eq!((order.pass(), turn(&mut order, 0)), (1, [vec![3], vec![4], vec![5]]));
    }

    #[test]
    fn layers_out_of_order_are_refused() {
        let mut order = Order::new(2, StreamMode::Wrap);
        assert!(order.enter(0).is_none());
        order.begin();
        assert!(order.enter(1).is_none());
        turn(&mut order, 0);
        turn(&mut order, 1);
        assert!(order.enter(0).is_none(), "the pass is over");
    }

    #[test]
    fn copies_alternate_buffers_for_any_number_of_layers() {
        let order = Order::new(3, StreamMode::Wrap);
        let taken: Vec<usize> = (0..6).map(|copy| order.place(copy).of(2)).collect();
        assert_eq!(taken, [0, 1, 0, 1, 0, 1]);
    }
}
