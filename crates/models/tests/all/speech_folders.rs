//! VibeVoice folders with the names of the first checkpoints.

use std::{fs, path::Path};

use laptime_models::{
    Dtype, HasTensors, cpu,
    vibevoice::{Guidance, Script, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
};
use safetensors::tensor::{Dtype as StoredType, TensorView};

/// `tiny` with the defaults of fields that older files do not have.
fn config() -> VibeVoiceConfig {
    let mut config = VibeVoiceConfig::from_preset("tiny").unwrap();
    config.head.frequencies = 256;
    config
}

/// Its `config.json` in the layout of the first checkpoints.
const OLD: &str = r#"{"model_type": "vibevoice", "torch_dtype": "float32", "acoustic_vae_dim": 16, "semantic_vae_dim": 24,
    "audio_bos_token_id": 256, "audio_eos_token_id": 257, "audio_token_id": 258, "eos_token_id": 259,
    "acoustic_tokenizer_config": {"causal": true, "channels": 1, "encoder_depths": "1-1-1-1-1-1-2",
    "encoder_n_filters": 4, "encoder_ratios": [8, 5, 5, 4, 2, 2], "fix_std": 0.5, "layernorm_eps": 1e-05,
    "mixer_layer": "depthwise_conv", "vae_dim": 16}, "semantic_tokenizer_config": {"channels": 1,
    "encoder_depths": "1-1-1-1-1-1-2", "encoder_n_filters": 4, "encoder_ratios": [8, 5, 5, 4, 2, 2],
    "fix_std": 0, "vae_dim": 24}, "decoder_config": {"model_type": "qwen2", "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "rope_scaling": null, "tie_word_embeddings": TIED, "torch_dtype": "float32",
    "use_sliding_window": false}, "diffusion_head_config": {"head_ffn_ratio": 3.0, "head_layers": 2,
    "hidden_size": 64, "latent_size": 16, "rms_norm_eps": 1e-05, "speech_vae_dim": 16}}"#;

/// Parts of names: new, old.
const RENAMED: [(&str, &str); 17] = [
    ("model.audio_tower.", "model.acoustic_tokenizer."),
    ("model.semantic_tokenizer_encoder.", "model.semantic_tokenizer.encoder."),
    ("model.multi_modal_projector.", "model.acoustic_connector."),
    ("_connector.linear_", "_connector.fc"),
    ("_connector.act.", "_connector.norm."),
    ("model.latent_", "model.speech_"),
    (".final_layer.linear_1.", ".final_layer.adaLN_modulation.1."),
    (".final_layer.linear_2.", ".final_layer.LAST."),
    (".timestep_proj.fc1.", ".t_embedder.mlp.0."),
    (".timestep_proj.fc2.", ".t_embedder.mlp.2."),
    ("model.diffusion_head.", "model.prediction_head."),
    (".mixer.conv.", ".mixer.conv.conv.conv."),
    (".head.conv.", ".head.conv.conv."),
    (".stem.stage.", ".stages.0."),
    (".encoder.stem.", ".encoder.downsample_layers.0.0."),
    (".decoder.stem.", ".decoder.upsample_layers.0.0."),
    (".LAST.", ".linear."),
];

fn older(name: &str) -> String {
    let is_layer = name.starts_with("model.diffusion_head.layers.");
    let name = if is_layer { name.replace(".linear.", ".adaLN_modulation.1.") } else { name.to_owned() };
    let mut name = RENAMED.iter().fold(name, |name, (new, old)| name.replace(new, old));
    for layer in 0..6 {
        let now = format!(".conv_layers.{layer}.");
        let (list, was) = (if name.contains(".decoder.") { "upsample" } else { "downsample" }, layer + 1);
        name = name.replace(&format!("{now}stage."), &format!(".stages.{was}."));
        name = name.replace(&now, &format!(".{list}_layers.{was}.0."));
    }
    name
}

/// Writes synthetic weights into a folder, under renamed names of `transformers`.
fn write(folder: &Path, config: &VibeVoiceConfig, renamed: impl Fn(&str) -> String) {
    let weights = VibeVoiceWeights::synthetic(4);
    let specs = config.all_tensors();
    let bytes: Vec<_> = specs.iter().map(|spec| weights.tensor(spec).unwrap().to_bytes(Dtype::F32)).collect();
    let views = specs.iter().zip(&bytes).map(|(spec, bytes)| {
        (renamed(&spec.name), TensorView::new(StoredType::F32, spec.shape.clone(), bytes).unwrap())
    });
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    let tied = config.decoder.tied.to_string();
    fs::write(folder.join("config.json"), OLD.replace("TIED", &tied)).unwrap();
}

/// Two tokens of audio.
fn spoken(config: VibeVoiceConfig, weights: &VibeVoiceWeights) -> Vec<f32> {
    let voices = [Voice::new(vec![0.1; 3200]).unwrap()];
    let script = Script::parse("Speaker 1: Hi.").unwrap();
    let prompt = VoicePrompt::new(&config, &config.tokenizer(None).unwrap(), &script, &voices).unwrap();
    let options = VibeVoiceOptions::new(Dtype::F32, prompt.ids.len(), 2);
    let mut model = cpu::vibevoice(config, weights, options, 1).unwrap();
    model.begin(&prompt, &Guidance { is_endless: true, ..Guidance::default() }, 2).unwrap();
    while !model.token().unwrap().is_end {}
    model.audio(0..2).unwrap()
}

#[test]
fn a_folder_with_the_older_names_generates_the_same_audio() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config(), older);
    let read = VibeVoiceConfig::from_folder(folder.path()).unwrap();
    assert_eq!(VibeVoiceConfig { name: "tiny".to_owned(), ..read.clone() }, {
        let config = config();
        let decoder = laptime_models::Config { name: read.decoder.name.clone(), ..config.decoder.clone() };
        VibeVoiceConfig { decoder, ..config }
    });
    let weights = VibeVoiceWeights::open(folder.path(), &read).unwrap();
    weights.check_finite(&read).unwrap();
    assert_eq!(spoken(read, &weights), spoken(config(), &VibeVoiceWeights::synthetic(4)));
}

#[test]
fn older_and_new_names_cannot_be_mixed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config(), |name| if name.contains("cond_proj") { older(name) } else { name.to_owned() });
    let error = VibeVoiceWeights::open(folder.path(), &config()).unwrap_err().to_string();
    assert!(error.contains("do not fit `tiny`") && error.contains("missing"), "{error}");
}
