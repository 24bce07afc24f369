//! Programs for the kernel's virtual machine (bpf(2), RFC 9669): assembled, loaded and attached.

mod assembler;
mod classic;
mod system;

pub(crate) use assembler::{Assembler, If, Instruction, Label, Reg, Size};
pub(crate) use classic::translate;
pub(crate) use system::{Attachment, Program, ProgramLink, SocketMap};
