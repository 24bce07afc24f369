//! The packets that NFs are measured with: those of the chain's own captures and generators, and
//! generated ones of several sizes between the same hosts.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use thalweg_chain::{InputPlan, Plan};
use thalweg_io::generate::{GeneratorInput, Protocols, Spec};
use thalweg_io::kind::{InputOpening, Overrides};
use thalweg_io::{CaptureOutput, Output};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropCounts, FiveTuple, PortIndex, parse};
use thalweg_source::Stop;

use crate::errors::Failure;

/// The most hosts on each side of generated flows.
const MOST_HOSTS: usize = 256;
/// IP protocol numbers, in the order of [`Protocols`].
const PROTOCOLS: [u8; 5] = [6, 17, 1, 132, 58];

/// A kind of traffic: by input, the capture with its packets; `None` for an input without any.
pub(super) struct Traffic {
    /// `own`, or the sizes.
    pub(super) name: String,
    pub(super) captures: Vec<Option<PathBuf>>,
}

/// The flows of the chain's own packets.
#[derive(Default)]
struct Seen {
    flows: HashSet<FiveTuple>,
    clients: Vec<IpAddr>,
    servers: Vec<IpAddr>,
    ports: Vec<u16>,
    /// Flows by protocol, in the order of [`PROTOCOLS`].
    protocols: [f64; PROTOCOLS.len()],
    of_ipv6: f64,
}

/// Writes all kinds of traffic to captures in `folder`.
pub(super) fn prepare(
    plan: &Plan,
    sizes: &[String],
    packets: u64,
    folder: &Path,
) -> Result<Vec<Traffic>, Failure> {
    let mut all = Vec::new();
    let mut seen = Seen::default();
    let mut own = Vec::new();
    for (number, input) in plan.inputs.iter().enumerate() {
        let path = folder.join(format!("own-{number}.pcap"));
        let has_some = is_at_hand(input) && copy(plan, input, packets, &path, &mut seen)?;
        own.push(has_some.then_some(path));
    }
    if own.iter().any(Option::is_some) {
        all.push(Traffic { name: "own".into(), captures: own });
    }
    for (number, size) in sizes.iter().enumerate() {
        let wrong = |e: String| Failure::Usage(format!("--sizes: {e}"));
        let spec = Spec { size: size.parse().map_err(wrong)?, packets, ..seen.spec() };
        let path = folder.join(format!("generated-{number}.pcap"));
        generate(spec, &path)?;
        // The first input has them all.
        let mut captures = vec![None; plan.inputs.len()];
        if let Some(first) = captures.first_mut() {
            *first = Some(path);
        }
        all.push(Traffic { name: size.clone(), captures });
    }
    Ok(all)
}

/// Whether the packets of an input are there without waiting, and stay there when they are read.
fn is_at_hand(input: &InputPlan) -> bool {
    let blueprint = &input.blueprint;
    !blueprint.is_live() && (blueprint.can_repeat(2) || input.kind.key == "generate")
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure::Run(format!("{}: {error}", path.display()))
}

/// Copies the first packets of an input to a capture; returns whether there are any.
fn copy(
    plan: &Plan,
    input: &InputPlan,
    packets: u64,
    path: &Path,
    seen: &mut Seen,
) -> Result<bool, Failure> {
    let wrong = |e: &dyn Display| Failure::Run(format!("input '{}': {e}", input.name));
    let (overrides, stop) = (Overrides::default(), Stop::default());
    let opening = InputOpening { pool: &plan.pool, queues: 1, overrides: &overrides, stop: &stop };
    let mut queues = input.blueprint.open(&opening).map_err(|e| wrong(&e))?.queues;
    let mut output = CaptureOutput::create(path).map_err(|e| failed(path, e))?;
    let mut batch = Batch::new(plan.pool.clone());
    let mut left = packets;
    for queue in &mut queues {
        let mut drops = DropCounts::default();
        while left > 0 {
            let most = left.min(BATCH as u64) as usize;
            let received = queue.receive(&mut batch, most, &mut drops).map_err(|e| wrong(&e))?;
            for lane in batch.lanes() {
                let (bytes, meta) = (batch.bytes(lane), &batch.meta);
                seen.add(bytes);
                output
                    .write(bytes, meta.wire_len[lane], meta.timestamp[lane])
                    .map_err(|e| failed(path, e))?;
                left -= 1;
            }
            let lanes = batch.lanes();
            batch.release(lanes);
            if received.ended {
                break;
            }
        }
    }
    output.flush().map_err(|e| failed(path, e.error))?;
    Ok(left < packets)
}

fn generate(spec: Spec, path: &Path) -> Result<(), Failure> {
    let mut generator = GeneratorInput::new(spec).map_err(|e| failed(path, e))?;
    let mut output = CaptureOutput::create(path).map_err(|e| failed(path, e))?;
    while let Some((packet, time)) = generator.next_packet() {
        output.write(packet, packet.len() as u32, time).map_err(|e| failed(path, e))?;
    }
    output.flush().map_err(|e| failed(path, e.error))
}

impl Seen {
    /// Adds the flow of a packet. The side with the lower port is the server; without ports, the one
    /// that receives the flow's first packet.
    fn add(&mut self, bytes: &[u8]) {
        let (key, _) = parse(bytes, PortIndex(0), Decapsulate::No);
        let Some(flow) = FiveTuple::from_key(&key) else { return };
        let Some(protocol) = PROTOCOLS.iter().position(|number| *number == flow.protocol) else {
            return;
        };
        let has_ports = !matches!(flow.protocol, 1 | 58);
        let is_reply = if has_ports {
            flow.src_port < flow.dst_port
        } else {
            self.flows.contains(&flow.reversed())
        };
        let flow = if is_reply { flow.reversed() } else { flow };
        if self.flows.len() >= MOST_HOSTS * MOST_HOSTS || !self.flows.insert(flow) {
            return;
        }
        self.protocols[protocol] += 1.0;
        self.of_ipv6 += f64::from(u8::from(flow.src.is_ipv6()));
        for (hosts, host) in [(&mut self.clients, flow.src), (&mut self.servers, flow.dst)] {
            if hosts.len() < MOST_HOSTS && !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        if has_ports
            && flow.dst_port != 0
            && self.ports.len() < MOST_HOSTS
            && !self.ports.contains(&flow.dst_port)
        {
            self.ports.push(flow.dst_port);
        }
    }

    /// Traffic between the same hosts; the generator's own if there are none.
    fn spec(&self) -> Spec {
        let flows: f64 = self.protocols.iter().sum();
        // The lists of hosts are limited: both sides must have some of a version.
        let has = |is_there: fn(&IpAddr) -> bool| {
            self.clients.iter().any(is_there) && self.servers.iter().any(is_there)
        };
        let ipv6 = match (has(IpAddr::is_ipv4), has(IpAddr::is_ipv6)) {
            (true, true) => self.of_ipv6 / flows,
            (true, false) => 0.0,
            (false, true) => 1.0,
            (false, false) => return Spec::default(),
        };
        let hosts = |hosts: &[IpAddr]| hosts.iter().map(ToString::to_string).collect();
        let [tcp, udp, icmp, sctp, icmpv6] = self.protocols;
        let spec = Spec {
            protocols: Protocols { tcp, udp, icmp: icmp + icmpv6, sctp },
            ipv6,
            clients: hosts(&self.clients),
            servers: hosts(&self.servers),
            ..Spec::default()
        };
        if self.ports.is_empty() { spec } else { Spec { server_ports: self.ports.clone(), ..spec } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_packets_pass_between_the_hosts_of_the_chains_own() {
        let own = Spec {
            packets: 2000,
            flows: 30,
            ipv6: 0.4,
            clients: vec!["10.7.0.0/29".into(), "2001:db8:7::/126".into()],
            servers: vec!["203.0.113.0/30".into(), "2001:db8:8::/126".into()],
            server_ports: vec![443],
            ..Spec::default()
        };
        let mut seen = Seen::default();
        let mut generator = GeneratorInput::new(own.clone()).unwrap();
        while let Some((packet, _)) = generator.next_packet() {
            seen.add(packet);
        }
        let mut again = Seen::default();
        let spec = Spec { packets: 2000, size: "512".parse().unwrap(), ..seen.spec() };
        assert_eq!(spec.server_ports, [443]);
        let mut generator = GeneratorInput::new(spec).unwrap();
        while let Some((packet, _)) = generator.next_packet() {
            again.add(packet);
        }
        assert!(again.flows.len() > 20, "{}", again.flows.len());
        let hosts = |seen: &Seen| seen.clients.iter().chain(&seen.servers).copied().collect();
        let (before, after): (HashSet<IpAddr>, HashSet<IpAddr>) = (hosts(&seen), hosts(&again));
        assert!(after.is_subset(&before), "{after:?}, {before:?}");
        assert!(again.of_ipv6 > 0.0 && again.protocols[0] > 0.0 && again.protocols[1] > 0.0);
        assert_eq!(Seen::default().spec(), Spec::default(), "without packets, its own hosts");
    }
}
