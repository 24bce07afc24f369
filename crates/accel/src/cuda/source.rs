//! The text of a kernel as CUDA C++: that for OpenCL, translated.
//!
//! Most of it is what `prefix.cu` defines. Not words of which CUDA's own are made (`__global__` expands to
//! `global` in parentheses), not literals of vectors, `(uint2)(a, b)`, which are calls in C++, and not
//! `local`, which declares memory, or what a pointer points to: then `const` follows.

use thalweg_nf::device::DeviceFunction;

use crate::opencl::source;
use crate::region::Shape;

/// A kernel that serves queues of `shape` with these functions.
pub(super) fn of(shape: Shape, functions: &[DeviceFunction]) -> String {
    let text = source::of(shape, functions, "__nanosleep(100)");
    format!("{}{}", include_str!("prefix.cu"), translated(&text))
}

/// The words that are others in CUDA C++.
fn word(of: &str) -> &str {
    match of {
        "kernel" => "extern \"C\" __global__",
        "global" => "",
        "local" => "__shared__",
        same => same,
    }
}

/// Whether a word is a type of vectors: `uint4`, `uchar2`.
fn is_vector(word: &str) -> bool {
    let element = word.trim_end_matches(['2', '3', '4']);
    element.len() + 1 == word.len() && ["uchar", "ushort", "uint", "ulong"].contains(&element)
}

/// Translates OpenCL C.
fn translated(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        all += &rest[..start];
        rest = &rest[start..];
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let end = rest.find(is_other).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        // `(uint2)(` is `make_uint2(`.
        if is_vector(name) && all.ends_with('(') && after.starts_with(")(") {
            all.pop();
            all += "make_";
            all += name;
            rest = &after[1..];
        } else {
            let is_pointer = name == "local" && after.starts_with(" const ");
            all += if is_pointer { "" } else { word(name) };
        }
    }
    all + rest
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn what_cuda_spells_otherwise_is_translated() {
        for (opencl, cuda) in [
            ("kernel void k(global uint *a)", "extern \"C\" __global__ void k( uint *a)"),
            ("local uint ends, sealed;", "__shared__ uint ends, sealed;"),
            ("f(local const uint *a)", "f( const uint *a)"),
            ("return (uint2)(a.x, (uint)b);", "return make_uint2(a.x, (uint)b);"),
            ("(uint4)((uint4)(1, 2).x)", "make_uint4(make_uint4(1, 2).x)"),
            ("(uchar4)(w >> 24)", "make_uchar4(w >> 24)"),
            // No literals, and other words.
            ("uint2 f(uint2 a) { g((uint2)a); }", "uint2 f(uint2 a) { g((uint2)a); }"),
            ("globals_local kernel_1 (int)(x)", "globals_local kernel_1 (int)(x)"),
            ("", ""),
            ("(uint2)", "(uint2)"),
        ] {
            assert_eq!(translated(opencl), cuda, "{opencl}");
        }
    }
}
