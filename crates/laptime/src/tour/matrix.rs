//! The arithmetic of the tour's pipeline: plain loops, enough for a small model.

/// A matrix of weights, row by row.
#[derive(Debug)]
pub struct Matrix {
    columns: usize,
    weights: Vec<f32>,
}

impl Matrix {
    /// Creates a matrix of seeded weights, small enough to keep values in range.
    pub fn seeded(rows: usize, columns: usize, seed: &mut u64) -> Self {
        let scale = 1.0 / (columns as f32).sqrt();
        let weights = (0..rows * columns).map(|_| scale * uniform(seed)).collect();
        Self { columns, weights }
    }

    /// Multiplies a vector.
    pub fn times(&self, vector: &[f32]) -> Vec<f32> {
        self.weights.chunks_exact(self.columns).map(|row| dot(row, vector)).collect()
    }

    /// One row.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.weights[at * self.columns..(at + 1) * self.columns]
    }
}

/// A number between -1 and 1 (xorshift: the same on every machine).
fn uniform(seed: &mut u64) -> f32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

/// The sum of products, in eight parts so that the compiler may use vector instructions.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = std::iter::zip(a.remainder(), b.remainder()).map(|(x, y)| x * y).sum();
    let mut sums = [0.0; 8];
    for (a, b) in std::iter::zip(a, b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    rest + sums.iter().sum::<f32>()
}

/// Scales a vector to length one on average.
pub fn normalised(vector: &[f32]) -> Vec<f32> {
    let mean = dot(vector, vector) / vector.len() as f32;
    let scale = 1.0 / (mean + 1e-6).sqrt();
    vector.iter().map(|value| value * scale).collect()
}

/// Turns scores into shares.
pub fn softmax(scores: &mut [f32]) {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_product_counts_every_element() {
        let a: Vec<f32> = (0..19).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &[2.0; 19]), 342.0);
    }

    #[test]
    fn softmax_gives_shares() {
        let mut scores = [1.0, 3.0, 1.0];
        softmax(&mut scores);
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-6 && scores[1] > scores[0]);
    }
}
