//! Instructions of the kernel's virtual machine (RFC 9669), as far as our programs need them.

/// An instruction, as the kernel reads it.
pub(crate) type Instruction = u64;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(pub(crate) u8);

/// The size of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Byte,
    Half,
    Word,
}

/// What a register is calculated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Number(u32),
    Register(Reg),
}

/// A condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    /// The register's low 32 bits equal a number.
    Equals(Reg, u32),
    /// They do not.
    Differs(Reg, u32),
    /// They have a bit in common with a number.
    HasAny(Reg, u32),
    /// The first register is greater than the second, as 64 bits.
    Greater(Reg, Reg),
}

/// A place that instructions before it jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Writes a program in which all jumps go forward.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// The jumps to each label that are not resolved.
    jumps: Vec<Vec<usize>>,
}

/// An instruction: operation, destination, source, offset and number.
fn encoded(operation: u8, to: Reg, from: Reg, offset: i16, number: u32) -> Instruction {
    let [offset_0, offset_1] = offset.to_ne_bytes();
    let [a, b, c, d] = number.to_ne_bytes();
    // The registers are bit fields, which begin at the low end on little-endian machines.
    let registers =
        if cfg!(target_endian = "little") { from.0 << 4 | to.0 } else { to.0 << 4 | from.0 };
    u64::from_ne_bytes([operation, registers, offset_0, offset_1, a, b, c, d])
}

const NONE: Reg = Reg(0);
/// The end of the stack, which grows down.
const STACK: Reg = Reg(10);

/// Where a word of 32 bits is on the stack.
fn place_of(word: u32) -> i16 {
    -4 * (word as i16 + 1)
}

impl Assembler {
    /// A label, which has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.jumps.push(Vec::new());
        Label(self.jumps.len() - 1)
    }

    /// Whether an instruction jumps to a label that has no place yet.
    pub(crate) fn is_used(&self, label: Label) -> bool {
        !self.jumps[label.0].is_empty()
    }

    /// Gives a label the place of the next instruction.
    ///
    /// # Panics
    /// When a jump to it is too far, which a program of a few thousand instructions has not.
    pub(crate) fn place(&mut self, label: Label) {
        for at in std::mem::take(&mut self.jumps[label.0]) {
            let distance = self.instructions.len() - at - 1;
            let distance = i16::try_from(distance).expect("the program is short");
            let mut bytes = self.instructions[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&distance.to_ne_bytes());
            self.instructions[at] = u64::from_ne_bytes(bytes);
        }
    }

    fn add(&mut self, operation: u8, to: Reg, from: Reg, offset: i16, number: u32) {
        self.instructions.push(encoded(operation, to, from, offset, number));
    }

    /// `to = *(from + offset)`
    pub(crate) fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        let operation = match size {
            Size::Word => 0x61,
            Size::Half => 0x69,
            Size::Byte => 0x71,
        };
        self.add(operation, to, from, offset, 0);
    }

    /// `register 0 = packet[offset..]` in the byte order of the network, or after an `index`. A packet that
    /// is too short for it ends the program, which then returns 0. Register 6 has to be the context;
    /// registers 1 to 5 are lost. The size is as in classic BPF (`BPF_W`, `BPF_H`, `BPF_B`).
    pub(super) fn load_packet(&mut self, size: u8, index: Option<Reg>, offset: u32) {
        let operation = if index.is_some() { 0x40 } else { 0x20 };
        self.add(operation | size, NONE, index.unwrap_or(NONE), 0, offset);
    }

    /// `to = stack[word]`, which has been stored.
    pub(super) fn load_word(&mut self, to: Reg, word: u32) {
        self.load(Size::Word, to, STACK, place_of(word));
    }

    /// `stack[word] = from`
    pub(super) fn store_word(&mut self, from: Reg, word: u32) {
        self.add(0x63, STACK, from, place_of(word), 0);
    }

    /// `to = to OPERATION by` in 32 bits. Operations are as in classic BPF (`BPF_ADD`, `BPF_MUL`).
    pub(super) fn calculate(&mut self, operation: u8, to: Reg, by: Operand) {
        match by {
            Operand::Number(number) => self.add(0x04 | operation, to, NONE, 0, number),
            Operand::Register(register) => self.add(0x0c | operation, to, register, 0, 0),
        }
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Reg, from: Reg) {
        self.add(0xbf, to, from, 0, 0);
    }

    /// `to = number`
    pub(crate) fn set(&mut self, to: Reg, number: u32) {
        self.add(0xb7, to, NONE, 0, number);
    }

    /// `to += number`
    pub(crate) fn add_number(&mut self, to: Reg, number: u32) {
        self.add(0x07, to, NONE, 0, number);
    }

    /// `to += from`
    pub(crate) fn add_register(&mut self, to: Reg, from: Reg) {
        self.add(0x0f, to, from, 0, 0);
    }

    /// `to &= number`
    pub(crate) fn and(&mut self, to: Reg, number: u32) {
        self.add(0x57, to, NONE, 0, number);
    }

    /// `to <<= bits`
    pub(crate) fn shift_left(&mut self, to: Reg, bits: u32) {
        self.add(0x67, to, NONE, 0, bits);
    }

    /// `to = map`, by its descriptor.
    pub(crate) fn set_map(&mut self, to: Reg, map: u32) {
        const OF_DESCRIPTOR: Reg = Reg(1);
        self.add(0x18, to, OF_DESCRIPTOR, 0, map);
        self.add(0, NONE, NONE, 0, 0);
    }

    /// Jumps if a condition holds.
    pub(crate) fn jump_if(&mut self, condition: If, label: Label) {
        self.jumps[label.0].push(self.instructions.len());
        match condition {
            If::Equals(register, number) => self.add(0x16, register, NONE, 0, number),
            If::Differs(register, number) => self.add(0x56, register, NONE, 0, number),
            If::HasAny(register, number) => self.add(0x46, register, NONE, 0, number),
            If::Greater(a, b) => self.add(0x2d, a, b, 0, 0),
        }
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps[label.0].push(self.instructions.len());
        self.add(0x05, NONE, NONE, 0, 0);
    }

    /// Calls a function of the kernel.
    pub(crate) fn call(&mut self, function: u32) {
        self.add(0x85, NONE, NONE, 0, function);
    }

    pub(crate) fn exit(&mut self) {
        self.add(0x95, NONE, NONE, 0, 0);
    }

    /// The program.
    ///
    /// # Panics
    /// When a jump goes to a label without a place.
    pub(crate) fn finish(self) -> Vec<Instruction> {
        assert!(self.jumps.iter().all(Vec::is_empty), "each label has a place");
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_the_specification() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.load(Size::Half, Reg(3), Reg(7), 12);
        asm.jump_if(If::Equals(Reg(3), 0x0608), end);
        asm.set_map(Reg(1), 5);
        asm.place(end);
        asm.set(Reg(0), 2);
        asm.exit();
        assert!(!asm.is_used(end));
        // llvm-objdump -d: r3 = *(u16 *)(r7 + 0xc), if w3 == 0x608 goto +0x2, r1 = 5 ll, r0 = 2, exit
        assert_eq!(
            asm.finish().iter().map(|i| format!("{:016x}", i.swap_bytes())).collect::<Vec<_>>(),
            [
                "69730c0000000000",
                "1603020008060000",
                "1811000005000000",
                "0000000000000000",
                "b700000002000000",
                "9500000000000000",
            ]
        );
    }
}
