//! Which layer of the sharer a layer of the receiver hears.

use crate::words::words;

words! {
    /// How layers of two models find each other.
    #[derive(Default)]
    pub enum Alignment ("alignment") {
        /// The last ones together, the ones before them together, and so on; where the sharer has no more, its first.
        #[default]
        LastAligned = "last_aligned",
        /// Each with the nearest, where the layers of both are spread evenly from 0 to 1.
        KNearest = "k_nearest",
    }
}

impl Alignment {
    /// The sharer's layer for every layer of the receiver; none if the sharer has no layers.
    pub fn layers(self, receiver: usize, sharer: usize) -> Vec<usize> {
        let Some(last) = sharer.checked_sub(1) else { return Vec::new() };
        let one = |layer: usize| match self {
            Self::LastAligned => layer.saturating_add(sharer).saturating_sub(receiver).min(last),
            Self::KNearest => nearest(share(layer, receiver), sharer),
        };
        (0..receiver).map(one).collect()
    }
}

fn share(layer: usize, layers: usize) -> f64 {
    if layers > 1 { layer as f64 / (layers - 1) as f64 } else { 0.0 }
}

/// The sharer's layer that is nearest to a place; the lower of two that are as near. In the numbers of the original, so
/// that what is a tie but for rounding falls as it does there.
fn nearest(place: f64, sharer: usize) -> usize {
    let distance = |layer: usize| (share(layer, sharer) - place).abs();
    (0..sharer).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_layers_are_aligned_and_the_first_clamped() {
        let larger = Alignment::LastAligned.layers(28, 36);
        assert!(larger.iter().enumerate().all(|(layer, sharer)| *sharer == layer + 8));
        let smaller = Alignment::LastAligned.layers(28, 24);
        assert_eq!(smaller[..6], [0, 0, 0, 0, 0, 1]);
        assert_eq!(smaller[27], 23);
    }

    #[test]
    fn the_nearest_layers_are_those_of_the_same_share() {
        assert_eq!(Alignment::KNearest.layers(3, 5), [0, 2, 4]);
        assert_eq!(Alignment::KNearest.layers(3, 3), [0, 1, 2]);
        assert_eq!(Alignment::KNearest.layers(4, 2), [0, 0, 1, 1]);
        // The middle one is as near to both, and rounding decides.
        assert_eq!(Alignment::KNearest.layers(3, 4), [0, 2, 3]);
        // The middle one is as near to both: the lower is taken.
        assert_eq!(Alignment::KNearest.layers(3, 2), [0, 0, 1]);
        assert_eq!(Alignment::KNearest.layers(1, 9), [0]);
        let known = Alignment::KNearest.layers(28, 36);
        assert_eq!((known[1], known[13], known[14], known[27]), (1, 17, 18, 35));
    }

    #[test]
    fn words_are_read_in_either_spelling() {
        assert_eq!("k-nearest".parse::<Alignment>().unwrap(), Alignment::KNearest);
        assert_eq!("last_aligned".parse::<Alignment>().unwrap(), Alignment::LastAligned);
        assert!("first".parse::<Alignment>().is_err());
    }

    proptest! {
        #[test]
        fn layers_rise_end_with_the_last_and_stay_inside(receiver in 2_usize..100, sharer in 1_usize..100) {
            for alignment in [Alignment::LastAligned, Alignment::KNearest] {
                let layers = alignment.layers(receiver, sharer);
                prop_assert_eq!(layers.len(), receiver);
                prop_assert!(layers.is_sorted());
                prop_assert_eq!(layers.last(), Some(&(sharer - 1)));
            }
        }

        #[test]
        fn the_nearest_is_as_near_as_any(receiver in 2_usize..60, sharer in 2_usize..60) {
            let distance = |layer: usize, other: usize| (layer * (sharer - 1)).abs_diff(other * (receiver - 1));
            for (layer, chosen) in Alignment::KNearest.layers(receiver, sharer).into_iter().enumerate() {
                let least = (0..sharer).map(|other| distance(layer, other)).min().unwrap();
                prop_assert_eq!(distance(layer, chosen), least);
            }
        }
    }
}
