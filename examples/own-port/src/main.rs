//! `thalweg` with one more kind of port: `udp`, an Ethernet packet in each UDP datagram, as virtual
//! machines (QEMU's `-netdev dgram`) and network emulators exchange them.
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::{process::ExitCode, time::SystemTime};
use thalweg_io::kind::{
    InputBlueprint, InputOpening, Kind, Opened, OutputBlueprint, OutputOpening, PortBlueprint,
    Section, Side,
};
use thalweg_io::{Input, IoError, Output, OutputFailure, Received};
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes, Nanoseconds};
use thalweg_source::SourceError;
use toml::Spanned;

static KIND: Kind = Kind {
    name: "udp",
    key: "udp",
    example: "udp = \"ADDRESS:PORT\"",
    noun: "a UDP socket",
    summary: "receives and sends Ethernet packets, each in a UDP datagram",
    input: Some(Side {
        keys: &["udp"],
        instead: &[("loop", "--duration or --count to end the run")],
        options: || schemars::schema_for!(Options),
        build: |section| Ok(Box::new(Udp::of(section)?)),
    }),
    output: Some(Side {
        keys: &["udp"],
        instead: &[],
        options: || schemars::schema_for!(Options),
        build: |section| Ok(Box::new(Udp::of(section)?)),
    }),
};
/// The longest datagram, in bytes.
const LONGEST: usize = 65_535;
/// The length of an Ethernet header, in bytes.
const SHORTEST: usize = 14;

fn main() -> ExitCode {
    thalweg_cli::main(&thalweg_cli::built_in_kinds().with_port(&KIND))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Where an input receives datagrams, or an output sends them.
    #[schemars(with = "String")]
    udp: Spanned<String>,
}

/// A port, by the address where it receives or to which it sends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Udp(SocketAddr);

impl Udp {
    fn of(section: &Section<'_>) -> Result<Self, Vec<SourceError>> {
        let Options { udp } = section.parse()?;
        let expected = "an IP address and a port: 127.0.0.1:5000, [::1]:5000";
        let mistake = |_| vec![section.error(udp.span(), "bad address", expected)];
        udp.get_ref().parse().map(Self).map_err(mistake)
    }
    fn open(self, bound: SocketAddr) -> Result<UdpSocket, IoError> {
        let socket = UdpSocket::bind(bound).map_err(|e| self.error(&e))?;
        socket.set_nonblocking(true).map_err(|e| self.error(&e))?;
        Ok(socket)
    }
    fn error(self, error: &Error) -> IoError {
        IoError::Port { port: self.describe(), what: error.to_string() }
    }
}
impl PortBlueprint for Udp {
    fn describe(&self) -> String {
        format!("UDP {}", self.0)
    }
    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }
}
impl InputBlueprint for Udp {
    fn open(&self, _opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let socket = Self::open(*self, self.0)?;
        let buffer = vec![0; LONGEST];
        Ok(Opened::single(Box::new(UdpInput { udp: *self, socket, buffer }), None))
    }
    fn is_live(&self) -> bool {
        true
    }
}
impl OutputBlueprint for Udp {
    fn open(&self, _opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let any = if self.0.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = Self::open(*self, any.parse().expect("it is an address"))?;
        socket.connect(self.0).map_err(|e| self.error(&e))?;
        let from = socket.local_addr().map_err(|e| self.error(&e))?;
        Ok(Opened::single(Box::new(UdpOutput(socket)), format!("from {from}")))
    }
}

struct UdpInput {
    udp: Udp,
    socket: UdpSocket,
    buffer: Vec<u8>,
}
impl Input for UdpInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        while received.packets < most && !batch.is_full() {
            let length = match self.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.udp.error(&e)),
            };
            received.packets += 1;
            received.bytes += length as u64;
            if length < SHORTEST {
                drops.add(DropReason::Malformed, 1);
            } else if length > batch.capacity() {
                drops.add(DropReason::FrameTooSmall, 1);
            } else if let Some(lane) = batch.push_bytes(&self.buffer[..length]) {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                batch.meta.timestamp[lane] = Nanoseconds(now.unwrap_or_default().as_nanos() as u64);
                batch.meta.wire_len[lane] = length as u32;
            } else {
                drops.add(DropReason::PoolExhausted, 1);
            }
        }
        Ok(received)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

struct UdpOutput(UdpSocket);
impl UdpOutput {
    fn send(&self, packet: &[u8]) -> Result<(), DropReason> {
        // A refusal is of an earlier datagram, to which no socket was bound.
        let refused = |e: &Error| e.kind() == ErrorKind::ConnectionRefused;
        let sent = match self.0.send(packet) {
            Err(e) if refused(&e) => self.0.send(packet),
            sent => sent,
        };
        sent.map(drop).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => DropReason::TransmitQueueFull,
            _ => DropReason::OutputFailed,
        })
    }
}
impl Output for UdpOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let mut sent = lanes;
        for lane in lanes {
            if let Err(reason) = Self::send(self, batch.bytes(lane)) {
                drops.add(reason, 1);
                sent.remove(lane);
            }
        }
        Ok(sent)
    }
    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }
}
