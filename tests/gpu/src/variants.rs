//! Every kernel source with options that it is compiled with, so that all of them can be compiled without a GPU.

use laptime_cuda::{BASICS, decode, nn, nvrtc::Source};

const NUMBERS: [&str; 3] = ["-DDTYPE_F32", "-DDTYPE_BF16", "-DDTYPE_F16"];

/// The head sizes for which attention is compiled; others are possible.
const HEAD_DIMS: [u32; 8] = [6, 16, 32, 64, 80, 96, 128, 256];

/// Sources for heads of one size: whether they serve f32 too, and which of the sizes.
const OF_HEADS: [(&str, bool, &[u32]); 7] = [
    ("attention.cu", true, &HEAD_DIMS),
    ("attention_backward.cu", true, &HEAD_DIMS),
    ("attention_tensor.cu", false, &[16, 32, 64, 80, 96, 128]),
    ("attention_backward_tensor.cu", false, &[16, 32, 64, 80, 96, 128]),
    ("block_attention.cu", true, &HEAD_DIMS),
    ("block_attention_tensor.cu", false, &[16, 32, 64, 80, 96, 128]),
    (OF_WARPGROUPS, false, &[64, 128]),
];

const OF_WARPGROUPS: &str = "block_attention_hopper.cu";

/// Variants of decode kernels of any type.
const DECODE: [(&str, &[&str]); 4] = [
    (
        "decode_linear.cu",
        &[
            "-DBATCH=1 -DWARPS=16 -DDEPTH=5",
            "-DBATCH=8 -DWARPS=16 -DDEPTH=5",
            "-DBATCH=1 -DWARPS=16 -DDEPTH=5 -DWEIGHTS_FP8",
            "-DBATCH=8 -DWARPS=16 -DDEPTH=5 -DWEIGHTS_FP8",
            "-DBATCH=1 -DWARPS=16 -DDEPTH=5 -DWEIGHTS_FP8 -DSCALED_BLOCKS",
            "-DBATCH=8 -DWARPS=16 -DDEPTH=5 -DWEIGHTS_FP8 -DSCALED_BLOCKS",
            "-DBATCH=2 -DWARPS=24 -DDEPTH=3 -DADALN",
        ],
    ),
    ("decode_linear_tensor.cu", &[]),
    (
        "decode_attention.cu",
        &[
            "-DHEAD_DIM=80 -DHEADS=1 -DSPLITS=8 -DWARPS=8 -DMAX_REGISTERS=96",
            "-DHEAD_DIM=128 -DHEADS=4 -DSPLITS=8 -DWARPS=8 -DMAX_REGISTERS=128",
            "-DHEAD_DIM=256 -DWINDOW=512 -DHEADS=8 -DSPLITS=1 -DWARPS=8 -DMAX_REGISTERS=255",
        ],
    ),
    ("", &[""]),
];

/// Variants of decode kernels that use tensor cores, in bf16 and f16.
const DECODE_TENSOR: [(&str, &[&str]); 2] = [
    (
        "decode_linear_tensor.cu",
        &[
            "-DBATCH=8 -DWARPS=8 -DDEPTH=4 -DVECTORS=8 -DSPLIT=8",
            "-DBATCH=8 -DWARPS=8 -DDEPTH=4 -DVECTORS=16 -DSPLIT=4",
            "-DBATCH=8 -DWARPS=8 -DDEPTH=4 -DVECTORS=32 -DSPLIT=1",
        ],
    ),
    (
        "decode_attention.cu",
        &[
            "-DHEAD_DIM=64 -DHEADS=8 -DSPLITS=1 -DWARPS=8 -DMAX_REGISTERS=128 -DON_TENSOR_CORES",
            "-DHEAD_DIM=128 -DWINDOW=512 -DHEADS=2 -DSPLITS=16 -DWARPS=8 -DMAX_REGISTERS=128 -DON_TENSOR_CORES",
            "-DHEAD_DIM=128 -DHEADS=4 -DSPLITS=4 -DWARPS=8 -DMAX_REGISTERS=128 -DON_TENSOR_CORES",
        ],
    ),
];

/// A source, the architecture that it is compiled for, and its further options.
pub type Variant = (Source<'static>, String, Vec<String>);

/// All of them for an architecture, such as `sm_90`.
pub fn all(architecture: &str) -> Vec<Variant> {
    let further = [(BASICS, vec![String::new()])].into_iter();
    let further = further.chain(nn::SOURCES.iter().map(|source| (*source, of_operation(source.file))));
    let further = further.chain(decode::SOURCES.into_iter().map(|source| (source, of_step(source.file))));
    let each = further.flat_map(|(source, all)| {
        let architecture = architecture_for(source.file, architecture);
        all.into_iter().filter_map(move |options| {
            Some((source, architecture.clone()?, options.split_whitespace().map(str::to_owned).collect()))
        })
    });
    each.collect()
}

/// The architecture for which a source is compiled if this one is asked for; none if it is not supported.
fn architecture_for(file: &str, asked: &str) -> Option<String> {
    match file == OF_WARPGROUPS {
        true => asked.starts_with("sm_90").then(|| "sm_90a".to_owned()),
        false => Some(asked.to_owned()),
    }
}

fn typed<'o>(numbers: &'o [&str], options: &'o [String]) -> impl Iterator<Item = String> + 'o {
    numbers.iter().flat_map(move |number| options.iter().map(move |options| format!("{number} {options}")))
}

fn of_operation(file: &str) -> Vec<String> {
    let Some((_, has_f32, head_dims)) = OF_HEADS.into_iter().find(|(of_heads, ..)| *of_heads == file) else {
        return typed(&NUMBERS, &[String::new()]).collect();
    };
    let of_head = head_dims.iter().map(|dim| format!("-DHEAD_DIM={dim}"));
    let window = (file == "attention.cu").then(|| "-DHEAD_DIM=256 -DWINDOW=512".to_owned());
    typed(&NUMBERS[usize::from(!has_f32)..], &of_head.chain(window).collect::<Vec<_>>()).collect()
}

fn of_step(file: &str) -> Vec<String> {
    let find = |table: &[(&str, &[&str])]| {
        let found = table.iter().find(|(of, _)| *of == file || of.is_empty());
        found.map_or_else(Vec::new, |(_, options)| options.iter().map(|all| (*all).to_owned()).collect::<Vec<_>>())
    };
    typed(&NUMBERS, &find(&DECODE)).chain(typed(&NUMBERS[1..], &find(&DECODE_TENSOR))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(architecture: &str, file: &str) -> usize {
        all(architecture).iter().filter(|(source, ..)| source.file == file).count()
    }

    #[test]
    fn every_source_is_compiled_for_the_types_that_it_serves() {
        let count = |file: &str| count("sm_90", file);
        assert_eq!((count("rows.cu"), count("attention.cu"), count("attention_tensor.cu")), (3, 27, 12));
        assert_eq!((count("attention_backward.cu"), count("attention_backward_tensor.cu")), (24, 12));
        assert_eq!((count("block_attention.cu"), count("block_attention_tensor.cu")), (24, 12));
        assert_eq!((count("block_attention_hopper.cu"), count("basics.cu")), (4, 1));
        let sources = nn::SOURCES.iter().chain(&decode::SOURCES);
        for (source, number) in sources.flat_map(|source| NUMBERS.map(|number| (source, number))) {
            let has = all("sm_90").iter().any(|(of, _, options)| of == source && options[0] == number);
            let is_for_it = number != NUMBERS[0]
                || source.file == "decode_attention.cu"
                || !(source.file.contains("_tensor") || source.file == OF_WARPGROUPS);
            assert_eq!(has, is_for_it, "{} {number}", source.file);
        }
    }

    #[test]
    fn what_only_hopper_has_is_compiled_for_hopper_alone() {
        let of = |asked: &str| all(asked).into_iter().find(|(source, ..)| source.file == OF_WARPGROUPS);
        assert_eq!(of("sm_90").map(|(_, architecture, _)| architecture).as_deref(), Some("sm_90a"));
        assert_eq!(of("sm_80"), None);
        assert_eq!(all("sm_80")[0].1, "sm_80");
    }
}
