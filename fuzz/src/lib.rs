//! What the fuzz targets try: a function for each, in a module of the target's name.
//!
//! It is a library, so that the compiler builds the chain once and not once a target; the programs
//! in `fuzz_targets` only hand libFuzzer's inputs on.

mod captures;
mod configuration;
mod dear;
mod fingerprints;
mod folders;
mod fragments;
mod frames;
mod memif;
mod netlink;
mod routes;
mod rules;
mod simulation;
mod states;
mod streams;
mod xdp;

pub use captures::captures;
pub use configuration::configuration;
pub use dear::dear;
pub use fingerprints::fingerprints;
pub use fragments::fragments;
pub use frames::frames;
pub use memif::memif;
pub use netlink::netlink;
pub use routes::routes;
pub use rules::rules;
pub use simulation::simulation;
pub use states::states;
pub use streams::streams;
pub use xdp::xdp;
