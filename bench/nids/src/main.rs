//! The intrusion detection: a packet's whole way through the NF.
//!
//! `PATTERNS PAYLOADS SIZE udp|tcp|established CONNECTIONS` prints a line of JSON: nanoseconds a packet
//! for finding its connection, reassembling its stream (TCP) and searching for all patterns, and
//! the number of alerts. PATTERNS has a pattern a line, in hexadecimal; PAYLOADS is payloads
//! of SIZE bytes, one after the other. Packets are parsed before, as in a chain, where that is
//! done once for all NFs. Connections of `tcp` have a SYN; those of `established` have a whole handshake,
//! timestamps, and acknowledgements, which are not timed. `bench/nids.py` runs it beside Hyperscan.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use serde_json::json;
use thalweg_cpu::cycles::{self, Clock};
use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::wire::tcp_flags::{ACK, PSH, SYN};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, Batch, Decapsulate, Lanes, Nanoseconds, Pool};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds; the median counts.
const ROUNDS: usize = 31;

/// An NF with a rule for each pattern.
fn nids(patterns: &[Vec<u8>], protocol: &str) -> Outcome<Box<dyn NetworkFunction>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bench.rules");
    let mut rules = String::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let hex = hex::encode(pattern);
        let sid = number + 1;
        writeln!(
            rules,
            "alert {protocol} any any -> any any (msg:\"p\"; content:\"|{hex}|\"; sid:{sid};)"
        )?;
    }
    fs::write(&path, rules)?;
    let text = format!("rules = ['{}']\nunsupported = 'refuse'\nchecksums = false", path.display());
    let built = thalweg_nids::KIND.build_alone(&text);
    Ok(built.map_err(|e| e.to_string())?.instance())
}

/// What the packets of connections are.
#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    Udp,
    Tcp,
    Established,
}

impl Traffic {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "udp" => Some(Self::Udp),
            "tcp" => Some(Self::Tcp),
            "established" => Some(Self::Established),
            _ => None,
        }
    }

    /// The protocol of the rules.
    fn protocol(self) -> &'static str {
        if self == Self::Udp { "udp" } else { "tcp" }
    }
}

/// Packets of a connection: its beginning, then one after the other.
struct Connection {
    traffic: Traffic,
    number: usize,
    /// The next sequence number of its client, whose server has sent nothing but its SYN.
    next: u32,
}

impl Connection {
    const CLIENT: u16 = 1000;
    const SERVER: u16 = 2000;
    /// What each offers to receive.
    const WINDOW: u16 = u16::MAX;

    /// The next packet of its client.
    fn packet(&mut self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let sequence = self.next;
        self.next = sequence.wrapping_add(payload.len() as u32 + u32::from(flags & SYN != 0));
        match self.traffic {
            Traffic::Udp => self.builder(true).udp(Self::CLIENT, Self::SERVER).build(payload),
            Traffic::Tcp => {
                let segment = TcpSegment {
                    src_port: Self::CLIENT,
                    dst_port: Self::SERVER,
                    seq: sequence,
                    ack: 1,
                    flags,
                    window: 99,
                };
                self.builder(true).tcp(segment).build(payload)
            }
            Traffic::Established => self.with_timestamps(true, sequence, 1, flags, payload),
        }
    }

    /// What its server answers.
    fn answer(&self, flags: u8) -> Vec<u8> {
        let sequence = u32::from(flags & SYN == 0);
        self.with_timestamps(false, sequence, self.next, flags, b"")
    }

    fn builder(&self, from_client: bool) -> PacketBuilder {
        let [_, a, b, c] = (self.number as u32).to_be_bytes();
        let (client, server) = ([10, a, b, c].into(), [10, 2, 0, 1].into());
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        PacketBuilder::new([2; 6], [4; 6]).ip(from, to)
    }

    /// A segment with the options that RFC 7323 recommends.
    fn with_timestamps(
        &self,
        from_client: bool,
        sequence: u32,
        acknowledged: u32,
        flags: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let ports =
            if from_client { [Self::CLIENT, Self::SERVER] } else { [Self::SERVER, Self::CLIENT] };
        let mut segment = ports.map(u16::to_be_bytes).concat();
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledged.to_be_bytes());
        segment.extend([8 << 4, flags]);
        segment.extend(Self::WINDOW.to_be_bytes());
        // No checksum, for none is checked; nothing urgent.
        segment.extend([0; 4]);
        segment.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 7]);
        segment.extend(payload);
        self.builder(from_client).protocol(TCP).build(&segment)
    }
}

/// A pass over all packets, batch by batch; cycles spent in the NF.
fn pass(
    nf: &mut dyn NetworkFunction,
    batch: &mut Batch,
    emitted: &mut Emitted,
    packets: &[Vec<u8>],
) -> u64 {
    let mut spent = 0;
    for packets in packets.chunks(BATCH) {
        let copies = packets.iter().map(|p| (&p[..], p.len() as u32, Nanoseconds(0)));
        assert_eq!(batch.push_copies(copies), packets.len());
        let lanes: Lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let start = cycles::now();
        let mut context = Context::new(Nanoseconds(0), emitted, None);
        nf.process(batch, lanes, &mut context);
        spent += cycles::now() - start;
        batch.release(lanes);
    }
    spent
}

fn alerts(nf: &dyn NetworkFunction) -> u64 {
    nf.figures().into_iter().find(|(name, _)| *name == "alerts").map_or(0, |(_, n)| n)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [patterns, payloads, size, traffic, connections] = &arguments[..] else {
        return Err("PATTERNS PAYLOADS SIZE udp|tcp|established CONNECTIONS".into());
    };
    let name = traffic;
    let traffic = Traffic::parse(name).ok_or("not udp, tcp or established")?;
    let patterns = fs::read_to_string(patterns)?;
    let patterns = patterns.lines().map(hex::decode).collect::<Result<Vec<_>, _>>()?;
    let size: usize = size.parse()?;
    let payloads = fs::read(payloads)?;
    let connections: usize = connections.parse()?;
    // Between two acknowledgements.
    let most = (payloads.len() / size).div_ceil(connections) * size;
    if traffic == Traffic::Established && most > Connection::WINDOW.into() {
        return Err(format!("{most} bytes of a connection, more than its window").into());
    }
    let mut nf = nids(&patterns, traffic.protocol())?;
    let pool = Arc::new(Pool::anonymous(2 * BATCH, 2048)?);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let mut connections: Vec<_> =
        (0..connections).map(|number| Connection { traffic, number, next: 1000 }).collect();
    let mut openings = Vec::new();
    if traffic != Traffic::Udp {
        openings.extend(connections.iter_mut().map(|c| c.packet(SYN, b"")));
    }
    if traffic == Traffic::Established {
        openings.extend(connections.iter().map(|c| c.answer(SYN | ACK)));
        openings.extend(connections.iter_mut().map(|c| c.packet(ACK, b"")));
    }
    pass(&mut *nf, &mut batch, &mut emitted, &openings);
    let (clock, mut times, mut found) = (Clock::start(), Vec::new(), 0);
    let mut next = (0..connections.len()).cycle();
    for _ in 0..ROUNDS {
        // Each round continues the connections, so that streams grow.
        let packets: Vec<_> = payloads
            .chunks_exact(size)
            .zip(&mut next)
            .map(|(payload, n)| connections[n].packet(PSH | ACK, payload))
            .collect();
        let before = alerts(&*nf);
        let spent = pass(&mut *nf, &mut batch, &mut emitted, &packets);
        times.push(spent as f64 / packets.len() as f64);
        found = alerts(&*nf) - before;
        if traffic == Traffic::Established {
            let answers: Vec<_> = connections.iter().map(|c| c.answer(ACK)).collect();
            pass(&mut *nf, &mut batch, &mut emitted, &answers);
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    let ns = times[ROUNDS / 2] * clock.nanoseconds_per_cycle();
    println!(
        "{}",
        json!({"who": "ours", "protocol": name, "size": size, "ns": ns, "matches": found})
    );
    Ok(())
}
