//! The program at an interface, which all of its queues share.

use std::io;
use std::os::fd::BorrowedFd;

use super::program::{self, KEEP, MOST_ADDRESSES};
use super::settings::{MOST_QUEUES, XdpMode, XdpSettings};
use super::{failed, refused};
use crate::bpf::{Attachment, Program, ProgramLink, SocketMap};
use crate::host::{self, Own};
use crate::kind::Refusal;
use crate::port::IoError;

/// A program at an interface, and the sockets to which it sends packets.
pub(super) struct Redirection {
    /// The settings of its first queue: others must agree where they concern the program.
    settings: XdpSettings,
    attachment: Attachment,
    sockets: SocketMap,
    /// Detaches the program.
    _link: ProgramLink,
}

impl Redirection {
    /// Attaches a program to an interface. Until a socket is added, the kernel keeps all packets.
    pub(super) fn attach(settings: &XdpSettings, index: u32) -> Result<Self, IoError> {
        let name = &settings.interface;
        let sockets = SocketMap::new(MOST_QUEUES)
            .map_err(|e| failed(name, "cannot make a map of sockets", &e))?;
        let own = own_of(name)?;
        let instructions = program::program(sockets.raw(), &settings.pass, &own, KEEP);
        let program = Program::load_xdp(&instructions)
            .map_err(|e| failed(name, "cannot load the XDP program", &e))?;
        let (attachment, link) = attach(&program, index, settings.mode)
            .map_err(|(attachment, e)| cannot_attach(settings, attachment, &e))?;
        Ok(Self { settings: settings.clone(), attachment, sockets, _link: link })
    }

    pub(super) fn attachment(&self) -> Attachment {
        self.attachment
    }

    /// Checks that a queue with these settings can share the program.
    pub(super) fn check(&self, settings: &XdpSettings) -> Result<(), Refusal> {
        settings.check_program(&self.settings, "another port of the interface")?;
        let needs_native = matches!(settings.mode, XdpMode::ZeroCopy | XdpMode::Copy);
        if needs_native && self.attachment == Attachment::Generic {
            let message = "another port of the interface has obtained mode = \"generic\"";
            return Err(Refusal::new(&["mode"], message, "the same 'mode' in both"));
        }
        Ok(())
    }

    /// Has the packets of a queue go to a socket.
    pub(super) fn add(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.insert(queue, socket)
    }

    /// Leaves the packets of a queue to the kernel again.
    pub(super) fn remove(&self, queue: u32) {
        // It fails if the queue's socket was closed by the removal of its interface.
        let _ = self.sockets.remove(queue);
    }
}

/// What the kernel has at an interface, and at those that are made of it.
fn own_of(name: &str) -> Result<Own, IoError> {
    let own = host::own(name).map_err(|e| failed(name, "cannot read its addresses", &e))?;
    let count = own.addresses.len();
    if count > MOST_ADDRESSES {
        log::warn!(
            "interface {name}: of its {count} addresses, 'pass' holds for the first {MOST_ADDRESSES}"
        );
    }
    Ok(own)
}

/// Attaches a program as `mode` requires, or returns where it could not be attached and why.
fn attach(
    program: &Program,
    index: u32,
    mode: XdpMode,
) -> Result<(Attachment, ProgramLink), (Attachment, io::Error)> {
    let attempt = |attachment| match program.attach(index, attachment) {
        Ok(link) => Ok((attachment, link)),
        Err(error) => Err((attachment, error)),
    };
    if mode == XdpMode::Generic {
        return attempt(Attachment::Generic);
    }
    attempt(Attachment::Native).or_else(|(attachment, error)| {
        // A program that is there is in the way of both.
        let is_taken = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        if mode == XdpMode::Auto && !is_taken {
            attempt(Attachment::Generic)
        } else {
            Err((attachment, error))
        }
    })
}

fn cannot_attach(settings: &XdpSettings, attachment: Attachment, error: &io::Error) -> IoError {
    let (name, mode) = (&settings.interface, settings.mode.name());
    let refusal = match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => Refusal::new(
            &[],
            "another XDP program is attached to it",
            format!(
                "an interface without one: end the program that uses it, or detach it: ip link set \
                 dev {name} xdp off"
            ),
        ),
        Some(libc::EOPNOTSUPP) if attachment == Attachment::Native => Refusal::new(
            &["mode"],
            format!("its driver has no XDP, which mode = \"{mode}\" needs"),
            "mode = \"generic\" or \"auto\", which do without",
        ),
        _ => return failed(name, "cannot attach the XDP program", error),
    };
    refused(name, refusal)
}
