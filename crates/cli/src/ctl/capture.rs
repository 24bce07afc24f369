//! `thalweg ctl capture`: records dropped packets of a run in a capture.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use thalweg_api::{Answer, Client, ClientError};
use thalweg_io::STANDARD_OUTPUT;
use thalweg_source::{OutputFile, counted};

use super::Sent;
use crate::args;
use crate::errors::Failure;

/// The most bytes of a block: a packet of 256 KiB with its comment.
const MAX_BLOCK: usize = 1 << 20;

const ENHANCED_PACKET: u32 = 6;
const INTERFACE_STATISTICS: u32 = 5;
/// The option of interface statistics with the packets that are not in the file.
const DROPPED_BY_SYSTEM: u16 = 7;

/// Records what arrives until the request or the run ends, or a signal does; returns the answer
/// without its body, or with it if it is a refusal.
pub fn record(
    client: &Client,
    sent: &Sent,
    options: &args::CtlCapture,
) -> Result<Result<Answer, ClientError>, Failure> {
    let is_output = options.write == Path::new("-");
    if is_output && io::stdout().is_terminal() {
        let message = "standard output is a terminal; expected -w FILE, or a pipe to a program";
        return Err(Failure::Usage(message.into()));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stopped.clone())?;
    }
    let file = OutputFile::new(if is_output { STANDARD_OUTPUT.as_ref() } else { &*options.write });
    let (mut blocks, mut failure) = (Blocks::default(), None);
    let answer = client.stream(&sent.target, sent.accept, |bytes| {
        let written = blocks.add(bytes).and_then(|whole| {
            // Opened only for a request that was not refused.
            if whole.is_empty() { Ok(()) } else { write(&file, &whole) }
        });
        failure = written.err();
        if failure.is_some() || stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if let Some(failure) = failure {
        return Err(Failure::Run(format!("{}: {failure}", file.path().display())));
    }
    if answer.as_ref().is_ok_and(|answer| answer.status.is_success()) {
        let packets = counted(blocks.packets, "dropped packet");
        if is_output {
            log::info!("{packets} recorded");
        } else {
            println!("{packets} in {}", options.write.display());
        }
        if blocks.missing > 0 {
            let missing = counted(blocks.missing, "dropped packet");
            log::warn!("{missing} not recorded, because this reader was too slow");
        }
    }
    Ok(answer)
}

fn write(file: &OutputFile, blocks: &[u8]) -> io::Result<()> {
    // On a full disk, the blocks before these stay.
    file.append(blocks, |_| 0).map_err(|incomplete| incomplete.error)
}

/// The blocks of a pcapng file as they arrive, so that only whole ones are written.
#[derive(Debug, Default)]
struct Blocks {
    /// What has arrived of a block.
    part: Vec<u8>,
    packets: u64,
    /// Packets that are not in the file.
    missing: u64,
}

impl Blocks {
    /// Adds bytes; returns the blocks that they complete.
    fn add(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.part.extend_from_slice(bytes);
        let mut whole = 0;
        while let Some(head) = self.part[whole..].first_chunk::<8>() {
            let len = word(head, 4) as usize;
            if !(12..=MAX_BLOCK).contains(&len) || !len.is_multiple_of(4) {
                return Err(io::Error::other("the run answers with another format than pcapng"));
            }
            let Some(block) = self.part.get(whole..whole + len) else { break };
            match word(block, 0) {
                ENHANCED_PACKET => self.packets += 1,
                INTERFACE_STATISTICS => self.missing += missing(block),
                _ => {}
            }
            whole += len;
        }
        Ok(self.part.drain(..whole).collect())
    }
}

/// The packets that are not in the file, by interface statistics.
fn missing(block: &[u8]) -> u64 {
    let mut rest = block.get(20..block.len() - 4).unwrap_or_default();
    while let Some(head) = rest.first_chunk::<4>() {
        let code = u16::from_le_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if let (DROPPED_BY_SYSTEM, Some(value)) = (code, rest[4..].first_chunk()) {
            return u64::from_le_bytes(*value);
        }
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    0
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use thalweg_io::{CommentedCapture, CommentedPacket};
    use thalweg_packet::Nanoseconds;

    use super::*;

    #[test]
    fn only_whole_blocks_are_written_and_counted() {
        let mut capture = CommentedCapture::default();
        for len in [60, 61, 1500] {
            capture.write(&CommentedPacket {
                interface: "in",
                time: Nanoseconds(7),
                bytes: &vec![1; len],
                wire_len: 0,
                comment: "dropped by gate: filter-drop",
                missing: 2,
            });
        }
        capture.end(6, "3 of 9");
        let all = capture.take();
        for size in [1, 7, 100, 10_000] {
            let (mut blocks, mut written) = (Blocks::default(), Vec::new());
            for piece in all.chunks(size) {
                let whole = blocks.add(piece).unwrap();
                assert!(whole.len().is_multiple_of(4));
                written.extend(whole);
            }
            assert!(written == all && blocks.part.is_empty());
            assert_eq!((blocks.packets, blocks.missing), (3, 6));
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for len in [0, 11, 13, 1 << 24, u32::MAX] {
            let head = [&6_u32.to_le_bytes(), &len.to_le_bytes()].map(|word| *word).concat();
            assert!(Blocks::default().add(&head).is_err(), "{len}");
        }
        // Statistics whose options are damaged.
        let mut block = [&5_u32.to_le_bytes(), &28_u32.to_le_bytes()].map(|word| *word).concat();
        block.extend([0; 12]);
        block.extend([7, 0, 200, 0, 0, 0, 0, 0]);
        let mut blocks = Blocks::default();
        assert_eq!((blocks.add(&block).unwrap().len(), blocks.missing), (28, 0));
    }
}
