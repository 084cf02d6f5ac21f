//! The names of stages inside a pass, the same on every device.

/// Every name that [`stage_mark!`](crate::marks) accepts; others do not compile. In backward, `_input` and `_weights` are the
/// gradients of the factors of a product, `_back` those of norms and RoPE, and `_again` marks recomputation.
const NAMES: &str = " \
    embed layer attention norm qkv rope scores softmax weighted fused blocks build_pattern output ffn gate_up swiglu \
    down head loss head_input head_weights down_input down_weights gate_up_input gate_up_weights output_input \
    output_weights qkv_input qkv_weights norm_back rope_back norm_again rope_again weights_again \
    enter code layer_copy layer_issue layer_release layer_wait resident \
    projector fuse_add fuse_common fuse_input fuse_keys fuse_value fuse_values fuse_weight \
    prefill decode sampling code_predictor talker_step top_k top_p \
    transformer transformer_negative transformer_positive diffusion audio_decode semantic_encode connect voice_encode ";

/// Whether a stage may have this name.
pub const fn is_known(name: &str) -> bool {
    let (names, name) = (NAMES.as_bytes(), name.as_bytes());
    let mut from = 1;
    while from + name.len() < names.len() {
        let mut same = 0;
        while same < name.len() && names[from + same] == name[same] {
            same += 1;
        }
        // A name has a space on both sides.
        if same == name.len() && names[from - 1] == b' ' && names[from + same] == b' ' {
            return true;
        }
        from += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    /// The names that source files below some paths mark.
    fn marked(paths: &[&str]) -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        paths.iter().flat_map(|path| files(&root.join(path))).flat_map(|file| names(&file)).collect()
    }

    fn files(path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        fs::read_dir(path).unwrap().flat_map(|entry| files(&entry.unwrap().path())).collect()
    }

    fn names(file: &Path) -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        let marks = text.match_indices("stage_mark!(").map(|(at, _)| &text[at..]);
        marks.filter_map(|mark| mark.split('"').nth(1)).map(str::to_owned).collect()
    }

    /// Checks that both sides mark the same names, apart from those that only one of them can have.
    fn both(cpu: &[&str], gpu: &[&str], only_one: &[&str]) {
        let [cpu, gpu] = [marked(cpu), marked(gpu)];
        let differ: Vec<&str> = cpu.symmetric_difference(&gpu).map(String::as_str).collect();
        assert!(cpu.len() > 3, "the marks were found: {cpu:?}");
        assert_eq!(differ, only_one);
    }

    #[test]
    fn training_marks_the_same_stages_on_cpu_and_gpu() {
        // The CPU shares the forward stages of naive attention with its other passes.
        both(&["cpu/train", "cpu/attention.rs"], &["gpu/train"], &["blocks"]);
    }

    #[test]
    fn passes_mark_the_same_stages_on_cpu_and_gpu() {
        // Layers are marked where they are defined, once for all devices.
        let cpu = ["decoder", "cpu/attention.rs", "cpu/stack.rs", "cpu/engine.rs"];
        let gpu = ["decoder", "gpu/pass.rs", "gpu/prompt.rs", "gpu/sparse.rs", "gpu/step.rs", "gpu/stepping.rs"];
        both(&cpu, &gpu, &[]);
    }

    #[test]
    fn fusers_mark_the_same_stages_on_cpu_and_gpu() {
        assert_eq!(marked(&["fuser"]).len(), 8);
        assert!(marked(&["cpu/fuser.rs", "gpu/fuser.rs"]).is_empty());
    }

    #[test]
    fn text_to_speech_marks_the_same_stages_on_cpu_and_gpu() {
        let names = |path: &str| marked(&[path]).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names("tts"), "code code_predictor decode embed enter prefill sampling talker_step top_k top_p");
        assert_eq!(names("cpu/tts"), "");
        // The norm after the codec's transformer, which the CPU marks where it runs its layers.
        assert_eq!(names("gpu/tts"), "head norm");
    }
}
