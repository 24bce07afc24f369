//! The processor features of each level of vector instructions, listed once: for the functions
//! compiled for a level, and for the detection of levels.
//!
//! A function with [`macro@avx2`] or [`macro@avx512`] may therefore be called wherever
//! `thalweg_cpu::Isa` found the level: the same features were checked. A function that needs more
//! features names them in a `#[target_feature]` next to the attribute, and its caller checks them.
//!
//! These are procedural macros, as `#[target_feature]` takes only a literal, and rustfmt does not
//! format code within the braces of a `macro_rules!` macro. `thalweg_cpu` exports the attributes.

use proc_macro::TokenStream;

/// The features of x86-64-v3 that the level `Isa::Avx2` requires.
const AVX2: [&str; 6] = ["avx2", "bmi1", "bmi2", "popcnt", "lzcnt", "sse4.2"];
/// The features that the level `Isa::Avx512` requires in addition: those of x86-64-v4.
const AVX512: [&str; 5] = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"];

/// Compiles a function for the level `Isa::Avx2`.
#[proc_macro_attribute]
pub fn avx2(arguments: TokenStream, function: TokenStream) -> TokenStream {
    compile_for(&AVX2, arguments, function)
}

/// Compiles a function for the level `Isa::Avx512`.
#[proc_macro_attribute]
pub fn avx512(arguments: TokenStream, function: TokenStream) -> TokenStream {
    compile_for(&[&AVX512[..], &AVX2].concat(), arguments, function)
}

/// Whether the processor has the features of the level `Isa::Avx2`.
#[proc_macro]
pub fn has_avx2(_: TokenStream) -> TokenStream {
    detect(&AVX2)
}

/// Whether the processor has the features that the level `Isa::Avx512` has in addition.
#[proc_macro]
pub fn has_more_for_avx512(_: TokenStream) -> TokenStream {
    detect(&AVX512)
}

fn compile_for(features: &[&str], arguments: TokenStream, function: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return code("compile_error!(\"expected no arguments; add a #[target_feature]\");");
    }
    let mut compiled = code(&format!("#[target_feature(enable = {:?})]", features.join(",")));
    compiled.extend(function);
    compiled
}

fn detect(features: &[&str]) -> TokenStream {
    let detect = |feature| format!("::std::arch::is_x86_feature_detected!({feature:?})");
    code(&features.iter().map(detect).collect::<Vec<_>>().join(" && "))
}

fn code(text: &str) -> TokenStream {
    text.parse().expect("generated code consists of tokens")
}
