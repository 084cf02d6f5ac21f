//! AdamW as `torch.optim.AdamW` defines it, one number at a time.

/// How AdamW steps. The default is that of `torch.optim.AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// How far a step goes.
    pub learning_rate: f64,
    /// What is kept of the mean gradient at each step.
    pub first_beta: f64,
    /// What is kept of the mean squared gradient at each step.
    pub second_beta: f64,
    /// What is added to the root of the mean square.
    pub eps: f64,
    /// The part of each number that a step takes off, times the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { learning_rate: 1e-3, first_beta: 0.9, second_beta: 0.999, eps: 1e-8, weight_decay: 0.01 }
    }
}

/// What AdamW remembers of the gradients of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Steps that were taken.
    pub steps: u32,
    /// The mean gradient of each number.
    pub first: Vec<f32>,
    /// The mean squared gradient of each number.
    pub second: Vec<f32>,
}

impl Moments {
    /// Those of so many numbers before the first step.
    pub fn new(count: usize) -> Self {
        Self { steps: 0, first: vec![0.0; count], second: vec![0.0; count] }
    }
}

/// Takes one step: decays the numbers of a tensor, then moves them against their mean gradients, with both means
/// corrected for having begun at zero. Numbers without a gradient or without moments stay as they are.
pub fn adamw_step(settings: &AdamW, numbers: &mut [f32], gradient: &[f32], moments: &mut Moments) {
    moments.steps = moments.steps.saturating_add(1);
    let corrected = |beta: f64| 1.0 - beta.powf(f64::from(moments.steps));
    let far = (settings.learning_rate / corrected(settings.first_beta)) as f32;
    let root = corrected(settings.second_beta).sqrt() as f32;
    let kept = (1.0 - settings.learning_rate * settings.weight_decay) as f32;
    let (first_beta, second_beta) = (settings.first_beta as f32, settings.second_beta as f32);
    let (first_new, second_new) = ((1.0 - settings.first_beta) as f32, (1.0 - settings.second_beta) as f32);
    let means = moments.first.iter_mut().zip(&mut moments.second);
    for ((number, slope), (first, second)) in numbers.iter_mut().zip(gradient).zip(means) {
        *first = first_beta * *first + first_new * slope;
        *second = second_beta * *second + second_new * slope * slope;
        *number = *number * kept - far * *first / (second.sqrt() / root + settings.eps as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [f32; 5] = [0.5, -1.25, 2.0, 0.0, 1e-3];
    const GRADIENTS: [[f32; 5]; 3] =
        [[0.1, -0.2, 0.3, 1e-4, 5.0], [-0.05, 0.4, 0.3, -1e-4, -2.5], [0.7, 0.0, -1.5, 3e-4, 0.25]];

    fn assert_near(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let within = 1e-6_f32.mul_add(expected.abs(), 1e-9);
            assert!((found - expected).abs() <= within, "{found} and not {expected}");
        }
    }

    /// Takes three steps and holds the numbers after each, and the moments at the end, against those of torch 2.11.
    fn assert_steps(settings: AdamW, after: [[f32; 5]; 3], moments: [[f32; 5]; 2]) {
        let (mut numbers, mut found) = (NUMBERS, Moments::new(5));
        for (gradient, after) in GRADIENTS.iter().zip(after) {
            adamw_step(&settings, &mut numbers, gradient, &mut found);
            assert_near(&numbers, &after);
        }
        assert_eq!(found.steps, 3);
        assert_near(&found.first, &moments[0]);
        assert_near(&found.second, &moments[1]);
    }

    #[test]
    fn three_steps_by_default_are_those_of_torch() {
        let after = [
            [0.498_995, -1.248_987_4, 1.998_979_9, -0.000_999_899_9, -9.895_302e-9],
            [0.498_723_66, -1.249_341, 1.997_959_9, -0.000_947_263_6, -0.000_266_346_93],
            [0.498_055_37, -1.249_611_5, 1.998_344_3, -0.001_507_795_2, -0.000_500_583_4],
        ];
        let moments = [
            [0.073_6, 0.019_800_002, -0.098_7, 2.910_000_3e-5, 0.204_999_98],
            [0.000_502_477_5, 0.000_199_760_05, 0.002_429_73, 1.099_700_26e-10, 0.031_256_277],
        ];
        assert_steps(AdamW::default(), after, moments);
    }

    #[test]
    fn three_steps_with_other_settings_are_those_of_torch() {
        let settings = AdamW { learning_rate: 0.02, first_beta: 0.8, second_beta: 0.95, eps: 1e-6, weight_decay: 0.1 };
        let after = [
            [0.479_000_2, -1.227_500_2, 1.976_000_1, -0.019_801_98, -0.019_001_996],
            [0.473_793_1, -1.233_413_8, 1.952_048_2, -0.017_562_157, -0.023_213_174],
            [0.458_690_9, -1.237_075_6, 1.957_654_7, -0.029_400_721, -0.026_922_723],
        ];
        let moments = [
            [0.144_8, 0.038_399_998, -0.213_600_01, 5.680_000_3e-5, 0.29],
            [0.025_07, 0.009_405_001, 0.120_836_26, 5.426_250_6e-9, 1.428_124_9],
        ];
        assert_steps(settings, after, moments);
    }

    #[test]
    fn without_a_gradient_a_step_is_decay_alone() {
        let mut numbers = [2.0, -3.0];
        adamw_step(&AdamW::default(), &mut numbers, &[0.0, 0.0], &mut Moments::new(2));
        assert_near(&numbers, &[2.0 * (1.0 - 1e-5), -3.0 * (1.0 - 1e-5)]);
    }
}
