//! Classic BPF programs as the kernel's newer machine runs them.
//!
//! Where a socket takes a classic program, the kernel translates it itself
//! (`Documentation/bpf/classic_vs_extended.rst`); a TAP device takes only one that is translated.

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET,
    BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM, BPF_MISC, BPF_MUL, BPF_OR, BPF_RET, BPF_RSH, BPF_ST,
    BPF_SUB, BPF_TAX, BPF_X, BPF_XOR, sock_filter,
};

use super::assembler::{Assembler, If, Instruction, Label, Operand, Reg};

/// The packet, for instructions that load from it.
const CONTEXT: Reg = Reg(6);
/// The registers A and X.
const A: Reg = Reg(0);
const X: Reg = Reg(7);
const FIRST: Reg = Reg(1);

/// Operations that do the same in both machines. Division by zero does not.
const SAME: [u32; 8] = [BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH];

/// Translates a program of loads from packets and memory, arithmetic and jumps.
///
/// # Panics
/// At any other instruction, such as a load of what the kernel knows of a packet, and where a jump leaves the
/// program.
pub(crate) fn translate(program: &[sock_filter]) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    let labels: Vec<_> = program.iter().map(|_| asm.label()).collect();
    asm.copy(CONTEXT, FIRST);
    for (at, instruction) in program.iter().enumerate() {
        asm.place(labels[at]);
        translate_one(&mut asm, *instruction, &labels[at + 1..]);
    }
    asm.finish()
}

/// Translates an instruction, after which `next` are the labels of those that follow.
fn translate_one(asm: &mut Assembler, instruction: sock_filter, next: &[Label]) {
    const MODE: u32 = 0xe0;
    const SIZE: u32 = 0x18;
    const OPERATION: u32 = 0xf0;
    let sock_filter { code, jt, jf, k } = instruction;
    let code = u32::from(code);
    let (mode, size, operation) = (code & MODE, code & SIZE, code & OPERATION);
    match code & 7 {
        BPF_LD if mode == BPF_IMM => asm.set(A, k),
        BPF_LD if mode == BPF_MEM => asm.load_word(A, k),
        BPF_LD if mode == BPF_ABS && i32::try_from(k).is_ok() => {
            asm.load_packet(size as u8, None, k);
        }
        BPF_LD if mode == BPF_IND => asm.load_packet(size as u8, Some(X), k),
        BPF_LDX if mode == BPF_IMM => asm.set(X, k),
        BPF_LDX if mode == BPF_MEM => asm.load_word(X, k),
        BPF_ST => asm.store_word(A, k),
        BPF_ALU if SAME.contains(&operation) => {
            let by = if code & BPF_X == 0 { Operand::Number(k) } else { Operand::Register(X) };
            asm.calculate(operation as u8, A, by);
        }
        BPF_JMP if code & BPF_X == 0 && matches!(operation, BPF_JEQ | BPF_JSET) => {
            let holds = if operation == BPF_JEQ { If::Equals(A, k) } else { If::HasAny(A, k) };
            asm.jump_if(holds, next[usize::from(jt)]);
            if jf > 0 {
                asm.jump(next[usize::from(jf)]);
            }
        }
        BPF_RET if size == BPF_A => asm.exit(),
        BPF_RET => {
            asm.set(A, k);
            asm.exit();
        }
        BPF_MISC if code & 0xf8 == BPF_TAX => asm.copy(X, A),
        _ => panic!("instruction {code:#x} with {k:#x} has no translation here"),
    }
}
