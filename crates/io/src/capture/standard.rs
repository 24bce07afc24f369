//! Standard input and output as captures.

/// The name of both in chain files and arguments.
pub(super) const STANDARD: &str = "-";

/// The path of standard input. What stands there can be read only once.
pub const STANDARD_INPUT: &str = "/dev/stdin";

/// The path of standard output: a capture there is pcap, whatever its name is.
pub const STANDARD_OUTPUT: &str = "/dev/stdout";
