//! What the kernel counts of packets that are lost at interfaces (`/proc/net/dev`).
//!
//! Unlike a request by netlink, reading it waits for no lock of the kernel that a change of its network
//! configuration holds, so that threads which process packets may do it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most bytes that are looked at: those of some 8,000 interfaces.
const MOST: usize = 1 << 20;

/// The packets that were lost at an interface since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// On receipt: the interface had no room (`rx_missed_errors`), or the kernel (`rx_dropped`).
    pub(crate) received: u64,
    /// On sending (`tx_dropped`).
    pub(crate) sent: u64,
}

/// The counts of all interfaces of a network namespace.
#[derive(Debug)]
pub(crate) struct DeviceCounts(File);

impl DeviceCounts {
    /// Those of the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/thread-self/net/dev").map(Self)
    }

    /// Those of the interface `name`; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Option<Losses> {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while text.len() < MOST {
            let len = self.0.read_at(&mut piece, text.len() as u64).ok().filter(|len| *len > 0);
            let Some(len) = len else { break };
            text.extend(&piece[..len]);
        }
        losses(&String::from_utf8_lossy(&text), name)
    }
}

/// The counts of an interface in the table.
fn losses(table: &str, name: &str) -> Option<Losses> {
    // Before and after the counts of received packets: bytes, packets, errors, drops.
    const RECEIVED: usize = 3;
    const SENT: usize = 8 + 3;
    let of =
        |line: &str| line.trim_start().strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    let line = table.lines().find_map(of)?;
    let fields: Vec<_> = line.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse().ok();
    Some(Losses { received: field(RECEIVED)?, sent: field(SENT)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_interface_of_the_name() {
        let table = "Inter-|   Receive                |  Transmit\n face |bytes packets errs drop\n\
            \x20 eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            \x20eth01: 0 0 0 7 0 0 0 0 0 0 0 9 0 0 0 0\n  cut: 1 2 3\n";
        assert_eq!(losses(table, "eth0"), Some(Losses { received: 4, sent: 12 }));
        assert_eq!(losses(table, "eth01"), Some(Losses { received: 7, sent: 9 }));
        assert_eq!([losses(table, "eth"), losses(table, "cut")], [None; 2]);
    }

    #[test]
    fn the_loopback_has_counts() {
        let counts = DeviceCounts::open().unwrap();
        assert!(counts.read("lo").is_some());
        assert_eq!(counts.read("nowhere0"), None);
    }
}
