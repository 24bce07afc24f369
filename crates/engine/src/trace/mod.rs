//! The path of one packet through a chain, step by step, like `ofproto/trace`: its record, and the
//! [`Tracer`] that makes it.

mod path;
mod render;
mod tracer;
mod words;

pub use path::{Step, Trace};
pub(crate) use tracer::Tracer;
pub use words::Change;
