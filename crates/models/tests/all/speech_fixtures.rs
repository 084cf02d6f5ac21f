//! VibeVoice on the CPU against `transformers`, with a tiny model.

use crate::common::{
    distance,
    speech::{config, expected, model},
};
use laptime_models::Dtype;

/// Tolerance of f32 results.
const WITHIN: f32 = 1e-4;

#[test]
fn tokens_and_their_audio_equal_the_expected_ones() {
    let expected = expected();
    let mut model = model(Dtype::F32, None);
    let ids = config().ids;
    for case in expected.cases {
        let steps = case.steps;
        model.begin(&case.prompt(), &case.guidance(expected.scale), case.tokens.len()).unwrap();
        let mut audio = 0;
        for (at, id) in case.tokens.iter().enumerate() {
            let token = model.token().unwrap();
            let near = |what: &str, ours: &[f32], expected: &[f32]| {
                let off = distance(ours, expected);
                assert!(off < WITHIN, "{what} of token {at} in {steps} steps: {off}");
            };
            let [positive, negative] = model.hidden().unwrap();
            near("hidden", &positive, &case.hidden[at]);
            near("logits", &model.logits().unwrap(), &case.logits[at]);
            assert_eq!((token.index, token.id), (at, *id));
            assert_eq!((token.audio, token.is_end), ((*id == ids.audio).then_some(audio), at + 1 == case.tokens.len()));
            if token.audio.is_none() {
                continue;
            }
            near("negative", &negative, &case.negative[audio]);
            near("latent", &model.latents(audio..audio + 1).unwrap(), &case.latents[audio]);
            let samples: Vec<f32> = case.audio[audio].iter().map(|sample| sample.clamp(-1.0, 1.0)).collect();
            near("audio", &model.audio(audio..audio + 1).unwrap(), &samples);
            near("semantic", &model.semantic().unwrap(), &case.semantic[audio]);
            audio += 1;
        }
        assert_eq!(model.audio_tokens(), case.latents.len());
    }
}

#[test]
fn tokenizers_equal_the_expected_ones_on_whole_audio() {
    let expected = expected().tokenizers;
    let mut model = model(Dtype::F32, None);
    let [acoustic, semantic] = model.encode(&expected.audio).unwrap();
    assert!(distance(&acoustic, &expected.acoustic) < WITHIN);
    assert!(distance(&semantic, &expected.semantic) < WITHIN);
    assert!(distance(&model.decode(&expected.latents).unwrap(), &expected.decoded) < WITHIN);
}

#[test]
fn half_precision_is_close_to_the_expected_values() {
    let expected = expected();
    for (dtype, within) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.08)] {
        let mut model = model(dtype, None);
        let case = &expected.cases[0];
        model.begin(&case.prompt(), &case.guidance(expected.scale), 1).unwrap();
        let [hidden, _] = model.hidden().unwrap();
        let largest = |row: &[f32]| row.iter().fold(0.0, |most: f32, number| most.max(number.abs()));
        let off = distance(&hidden, &case.hidden[0]) / largest(&case.hidden[0]);
        assert!(off < within, "{dtype}: {off}");
        let decoded = model.decode(&expected.tokenizers.latents).unwrap();
        let off = distance(&decoded, &expected.tokenizers.decoded) / largest(&expected.tokenizers.decoded);
        assert!(off < within, "{dtype}: {off}");
    }
}
