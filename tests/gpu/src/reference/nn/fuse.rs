//! What the operations of a fuser must give.

use laptime_cuda::nn::{CacheSection, FuseSizes};

/// What was heard of each token, and behind it what is there: [paths, rows, both widths]. There is a cache for each path.
pub fn join(heard: (&[Vec<f32>], &CacheSection), own: (&[Vec<f32>], &CacheSection), sizes: &FuseSizes) -> Vec<f32> {
    let mut out = Vec::new();
    for path in 0..sizes.paths as usize {
        for row in 0..sizes.rows() as usize {
            for (caches, section) in [heard, own] {
                out.extend(places(section, sizes, row).map(|at| caches[path][at]));
            }
        }
    }
    out
}

/// Numbers, each its gelu.
pub fn gelu(x: &[f32]) -> Vec<f32> {
    let of = |value: f32| {
        let value = f64::from(value);
        (0.5 * value * (1.0 + error_function(value * std::f64::consts::FRAC_1_SQRT_2))) as f32
    };
    x.iter().map(|value| of(*value)).collect()
}

/// The error function by its series, which is enough up to 5 or so; beyond, it is one.
fn error_function(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return 1_f64.copysign(x);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// What is added, with a list for each of the slices that the device is given.
#[derive(Debug, Clone, Copy)]
pub struct Added<'a> {
    /// [paths, rows, width].
    pub values: &'a [f32],
    /// [paths, width].
    pub value_bias: &'a [f32],
    /// [paths, rows, heads].
    pub weights: &'a [f32],
    /// [paths, heads].
    pub weight_bias: &'a [f32],
}

/// Caches, one a path, to which each head's value times the sigmoid of its weight is added.
pub fn add(caches: &[Vec<f32>], section: &CacheSection, added: &Added<'_>, sizes: &FuseSizes) -> Vec<Vec<f32>> {
    let (rows, width, heads) = (sizes.rows() as usize, section.width() as usize, section.heads as usize);
    let mut caches = caches.to_vec();
    for (path, cache) in caches.iter_mut().enumerate() {
        for row in 0..rows {
            for (number, at) in places(section, sizes, row).enumerate() {
                let head = number / section.head_dim as usize;
                let weight = added.weights[(path * rows + row) * heads + head] + added.weight_bias[path * heads + head];
                let share = 1.0 / (1.0 + (-f64::from(weight)).exp());
                let value =
                    added.values[(path * rows + row) * width + number] + added.value_bias[path * width + number];
                cache[at] = (f64::from(cache[at]) + share * f64::from(value)) as f32;
            }
        }
    }
    caches
}

/// Where the numbers of a token lie in a cache, all heads side by side.
fn places(section: &CacheSection, sizes: &FuseSizes, row: usize) -> impl Iterator<Item = usize> + use<> {
    let CacheSection { heads, head_dim, capacity, start } = *section;
    let [heads, head_dim, capacity, start] = [heads, head_dim, capacity, start].map(|size| size as usize);
    let (sequence, position) = (row / sizes.length as usize, start + row % sizes.length as usize);
    let of_head = move |head: usize| ((sequence * heads + head) * capacity + position) * head_dim;
    (0..heads).flat_map(move |head| of_head(head)..of_head(head) + head_dim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: FuseSizes = FuseSizes { paths: 1, batch: 1, length: 2 };
    const OWN: CacheSection = CacheSection { heads: 2, head_dim: 1, capacity: 3, start: 1 };

    #[test]
    fn heads_of_a_token_lie_side_by_side_with_what_was_heard_first() {
        let heard = CacheSection { heads: 1, head_dim: 2, capacity: 2, start: 0 };
        let joined = join((&[vec![1.0, 2.0, 3.0, 4.0]], &heard), (&[vec![0.0, 5.0, 6.0, 0.0, 7.0, 8.0]], &OWN), &SIZES);
        assert_eq!(joined, [1.0, 2.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn a_weight_of_nothing_adds_half() {
        let added = Added {
            values: &[2.0, 4.0, 6.0, 8.0],
            value_bias: &[0.0, 2.0],
            weights: &[0.0, -1.0, 0.0, -1.0],
            weight_bias: &[0.0, 1.0],
        };
        let caches = add(&[vec![9.0, 0.0, 0.0, 9.0, 0.0, 0.0]], &OWN, &added, &SIZES);
        assert_eq!(caches, [[9.0, 1.0, 3.0, 9.0, 3.0, 5.0]]);
    }

    #[test]
    fn gelu_is_that_of_known_numbers() {
        let found = gelu(&[1.0, -1.0, 3.0, 0.0, -40.0, 40.0]);
        for (found, expected) in found.iter().zip([0.841_344_7, -0.158_655_3, 2.995_950_3, 0.0, 0.0, 40.0]) {
            assert!((found - expected).abs() < 5e-7, "{found} and not {expected}");
        }
    }
}
