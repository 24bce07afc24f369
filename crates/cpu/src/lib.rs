//! What the processor offers, for every other crate of Thalweg: the level of vector
//! instructions ([`Isa`], and the attributes [`macro@avx2`] and [`macro@avx512`] of functions
//! compiled for one), the cycle counter ([`cycles`]), prefetch ([`prefetch`]), large zeroed
//! tables on huge pages ([`memory`]), a thread for work that would hold up packets ([`helper`]), the
//! cores that threads run on ([`cores`]), whether others took them ([`thread`]), and the memory of the
//! system ([`SystemMemory`]).

pub mod cores;
pub mod cycles;
pub mod helper;
mod isa;
pub mod memory;
pub mod prefetch;
mod system;
pub mod thread;

pub use isa::{Avx512, ISA_VARIABLE, Isa, IsaError};
pub use system::SystemMemory;
pub use thalweg_level::{avx2, avx512};
