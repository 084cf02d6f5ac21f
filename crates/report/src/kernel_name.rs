//! Shortens the names of kernels and functions.
//!
//! The name of a C++ kernel is a whole declaration with up to thousands of letters. Its distinctive part is in the middle:
//! after the namespaces, before the nested template arguments.

use std::borrow::Cow;

use laptime_analyze::mangled_path;

use crate::visible::{shorten, width};

/// The most columns of a name.
pub(crate) const LONGEST: usize = 60;

/// Shortens a name to `space` columns; a name that fits is unchanged.
///
/// The least useful parts are removed first: the return type and the parameters, nested template arguments, namespaces
/// (for Python functions, folders), then the end.
pub fn short(name: &str, space: usize) -> Cow<'_, str> {
    if name.len() <= space || width(name) <= space {
        return Cow::Borrowed(name);
    }
    if let Some(task) = task(name) {
        return Cow::Owned(shorten(&task, space).into_owned());
    }
    let steps = [without_parameters, without_inner_arguments, without_qualifiers];
    let mut name = demangled(name).map_or_else(|| Cow::Borrowed(without_folders(name)), Cow::Owned);
    if is_code(&name) {
        for step in steps {
            if width(&name) > space {
                name = Cow::Owned(step(&name));
            }
        }
    }
    if width(&name) <= space { name } else { Cow::Owned(shorten(&name, space).into_owned()) }
}

/// The functor of a PyTorch kernel that applies it to the elements of a tensor: `MulFunctor in elementwise_kernel`.
///
/// It is deep in the template arguments, inside wrappers.
fn task(name: &str) -> Option<String> {
    let (kernel, arguments) = name.split_once('<')?;
    let kernel = kernel.rsplit([' ', ':']).next()?;
    let is_general = kernel.contains("elementwise_kernel") || GENERAL.contains(&kernel);
    let words = arguments.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let mut tasks = words.filter(|word| is_task(word) && !WRAPPERS.contains(word) && *word != kernel);
    let task = tasks.next().filter(|_| is_general)?;
    Some(format!("{task} in {kernel}"))
}

/// Kernels whose work is in their arguments.
const GENERAL: [&str; 2] = ["reduce_kernel", "multi_tensor_apply_kernel"];

/// Wrappers around a functor.
const WRAPPERS: [&str; 6] = [
    "gpu_kernel_impl",
    "gpu_kernel_impl_nocast",
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "opmath_gpu_kernel",
];

fn is_task(word: &str) -> bool {
    let is_named = ["unctor", "_kernel", "KernelImpl"].iter().any(|part| word.contains(part));
    is_named || word.starts_with("launch_") || (word.ends_with("Ops") && word.len() > 3)
}

fn is_code(name: &str) -> bool {
    name.starts_with("void ") || name.contains("::") || name.contains('<')
}

/// `a/b/module.py(12): forward` without its folders.
fn without_folders(name: &str) -> &str {
    let Some(file) = name.find(".py(") else { return name };
    name[..file].rfind('/').map_or(name, |folder| &name[folder + 1..])
}

/// The names in a mangled name, without arguments: `_ZN5aiter3addIfEEvv` is `aiter::add<…>`.
fn demangled(name: &str) -> Option<String> {
    let (path, rest) = mangled_path(name)?;
    Some(if rest.starts_with('I') { path + "<…>" } else { path })
}

fn without_parameters(name: &str) -> String {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let name = name.split_once(" [clone").map_or(name, |(before, _)| before);
    opening(name).map_or(name, |at| &name[..at]).to_owned()
}

/// The position of the last opening parenthesis of a name, if it encloses parameters up to the end.
fn opening(name: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let parentheses = name.char_indices().rev().filter(|(_, letter)| matches!(letter, '(' | ')'));
    for (at, letter) in parentheses {
        if depth == 0 && at + 1 != name.len() {
            return None;
        }
        depth = if letter == ')' { depth + 1 } else { depth.saturating_sub(1) };
        if depth == 0 {
            let before = &name[..at];
            let holds_parameters = !before.is_empty() && !before.ends_with([' ', ':', '(']);
            return (letter == '(' && holds_parameters && !before.ends_with("operator")).then_some(at);
        }
    }
    None
}

/// Replaces nested template arguments by dots: `f<4, g<…>>`.
fn without_inner_arguments(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut last = ' ';
    for letter in name.chars() {
        let closes = letter == '>' && last != '-' && depth > 0;
        if closes {
            depth -= 1;
        }
        if depth < 2 {
            text.push(letter);
        }
        if letter == '<' && !text.ends_with("operator<") {
            depth += 1;
            if depth == 2 {
                text.push('…');
            }
        }
        last = letter;
    }
    text
}

/// Removes namespaces: `a::b<c::d>` becomes `b<d>`.
fn without_qualifiers(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "");
    let mut text = String::with_capacity(name.len());
    // The start of the current word, and of the words around open brackets.
    let (mut begin, mut around) = (0, Vec::new());
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ':' && letters.next_if_eq(&':').is_some() {
            text.truncate(begin);
            continue;
        }
        if matches!(letter, '<' | '(' | '{') {
            around.push(begin);
        }
        text.push(letter);
        begin = match letter {
            '<' | '(' | '{' | ',' | ' ' | '*' | '&' => text.len(),
            '>' | ')' | '}' => around.pop().unwrap_or(text.len()),
            _ => begin,
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, \
                       std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)";

    #[test]
    fn a_name_that_fits_stays_as_it_is() {
        for name in ["gemm", "void f<4>(int)", "decode (lap)", ""] {
            assert_eq!(short(name, 20), name);
        }
    }

    #[test]
    fn the_least_useful_parts_are_dropped_first() {
        let name = "void flash::flash_fwd_kernel<flash::Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>, false, \
                    true>(flash::Flash_fwd_params)";
        let at = |room| short(name, room).into_owned();
        assert_eq!(
            at(110),
            "flash::flash_fwd_kernel<flash::Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>, false, true>"
        );
        assert_eq!(at(75), "flash::flash_fwd_kernel<flash::Flash_fwd_kernel_traits<…>, false, true>");
        assert_eq!(at(60), "flash_fwd_kernel<Flash_fwd_kernel_traits<…>, false, true>");
        assert_eq!(at(24), "flash_fwd_kernel<Flash_…");
    }

    #[test]
    fn a_generic_kernel_is_named_after_its_functor() {
        assert_eq!(short(ADD, 60), "CUDAFunctor_add in vectorized_elementwise_kernel");
        let copy = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::\
                    direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(at::TensorIteratorBase&)>(int)";
        assert_eq!(short(copy, 60), "direct_copy_kernel_cuda in elementwise_kernel");
        let mean =
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>, 4> >";
        assert_eq!(short(mean, 60), "MeanOps in reduce_kernel");
        assert_eq!(short(mean, 11), "MeanOps in…");
    }

    #[test]
    fn namespaces_are_dropped_with_their_arguments() {
        let name = "void (anonymous namespace)::softmax_warp_forward<float, 9, false>(float*, int)";
        assert_eq!(short(name, 50), "softmax_warp_forward<float, 9, false>");
        assert_eq!(without_qualifiers("a::b<c::d, e<f>::g>::h<i>"), "h<i>");
    }

    #[test]
    fn call_operators_and_lambdas_do_not_end_a_name() {
        assert_eq!(without_parameters("f(int)::{lambda(int)#1}::operator()(int) const"), {
            "f(int)::{lambda(int)#1}::operator()(int) const"
        });
        assert_eq!(without_parameters("a::operator()"), "a::operator()");
        assert_eq!(without_parameters("f(int (*)(void))"), "f");
        assert_eq!(without_parameters("f(int) [clone .kd]"), "f");
    }

    #[test]
    fn a_mangled_name_is_shown_as_its_parts() {
        let name = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT_";
        assert_eq!(short(name, 40), "aiter::add_rmsnorm_quant_kernel<…>");
        assert_eq!(short("_Z9longest_kPfS_iiiiiiiiiiiiii", 12), "longest_k");
        assert_eq!(short("_ZN99short", 8), "_ZN99sh…");
    }

    #[test]
    fn a_function_of_python_loses_its_folders() {
        let name = "/usr/lib/python3/site-packages/torch/nn/modules/module.py(1501): _call_impl";
        assert_eq!(short(name, 30), "module.py(1501): _call_impl");
    }

    proptest! {
        #[test]
        fn any_name_fits_any_width(name in "(void )?([a-z:<>(){} ,*層_-]|operator|_ZN3abc|::){0,40}", space in 0_usize..50) {
            prop_assert!(width(&short(&name, space)) <= space);
        }
    }
}
