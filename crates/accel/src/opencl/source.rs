//! The text of a kernel: what its functions need, they themselves, and the work-group around them.

use std::fmt::Write;

use thalweg_nf::device::{DeviceFunction, MOST_NEAR};

use crate::region::{LINE, Shape};

/// A kernel that serves queues of `shape` with these functions, by their numbers. `pause` is what a
/// work-group does before it looks again, as a statement of C.
pub(crate) fn of(shape: Shape, functions: &[DeviceFunction], pause: &str) -> String {
    let mut text = String::new();
    let mut define = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "#define {name} {value}").expect("a string takes all");
    };
    define("LANES", &shape.lanes);
    define("ROWS", &format!("{}u", shape.rows));
    define("LINE", &LINE);
    define("SLOTS_AT", &shape.slots_at());
    define("PAUSE", &pause);
    add(&mut text, functions);
    text += concat!(include_str!("slot.cl"), include_str!("resident.cl"));
    text
}

/// A kernel that works on rows of `lanes` slots with these functions, by their numbers, and ends.
pub(super) fn of_launches(lanes: usize, functions: &[DeviceFunction]) -> String {
    let mut text = format!("#define LANES {lanes}\n");
    add(&mut text, functions);
    text += concat!(include_str!("slot.cl"), include_str!("launch.cl"));
    text
}

/// Adds functions; `work`, which calls one by its number; `near_words`, which returns how many words at the
/// start of its table are in local memory; and `NEAR`, the most of them.
fn add(text: &mut String, functions: &[DeviceFunction]) {
    let mut written: Vec<&str> = Vec::new();
    for function in functions {
        if !written.contains(&function.name) {
            *text += function.source;
            written.push(function.name);
        }
    }
    let words = |function: &DeviceFunction| function.near.min(MOST_NEAR) / 4;
    let (mut calls, mut near, mut most) = (String::new(), String::new(), 1);
    for (number, function) in functions.iter().enumerate() {
        let (name, words) = (function.name, words(function));
        let local = if words == 0 { "" } else { ", near" };
        let call =
            format!("    case {number}: return {name}(bytes, len, argument, table{local});\n");
        calls += &call;
        writeln!(near, "    case {number}: return {words};").expect("a string takes all");
        most = most.max(words);
    }
    write!(
        text,
        "\n#define NEAR {most}\n\
         uint2 work(uint function, global uchar *bytes, uint len, uint2 argument, \
         global const uchar *table, local const uchar *near)\n{{\n    switch (function) {{\n\
         {calls}    default: return (uint2)(0, 0);\n    }}\n}}\n\
         uint near_words(uint function)\n{{\n    switch (function) {{\n\
         {near}    default: return 0;\n    }}\n}}\n"
    )
    .expect("a string takes all");
}
