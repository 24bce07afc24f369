//! The text of a kernel: what its functions need, they themselves, and the work-group around them.

use std::fmt::Write;

use thalweg_nf::device::DeviceFunction;

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

/// A kernel that works on a batch with the first of these functions.
pub(super) fn of_batches(functions: &[DeviceFunction]) -> String {
    let mut text = String::new();
    add(&mut text, functions);
    text += concat!(include_str!("slot.cl"), include_str!("batch.cl"));
    text
}

/// Adds functions, and `work`, which calls one by its number.
fn add(text: &mut String, functions: &[DeviceFunction]) {
    let mut written: Vec<&str> = Vec::new();
    for function in functions {
        if !written.contains(&function.name) {
            *text += function.source;
            written.push(function.name);
        }
    }
    *text += "uint2 work(uint function, global uchar *bytes, uint len, uint2 argument, \
             global const uchar *table)\n{\n    switch (function) {\n";
    for (number, DeviceFunction { name, .. }) in functions.iter().enumerate() {
        writeln!(text, "    case {number}: return {name}(bytes, len, argument, table);")
            .expect("a string takes all");
    }
    *text += "    default: return (uint2)(0, 0);\n    }\n}\n";
}
