//! The kinds of traffic that are profiled.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_io::generate::{GeneratorInput, Protocols, Spec};
use thalweg_io::{CaptureOutput, Output};

use crate::errors::Failure;

/// Packets per flow in a pass of the traffic, and the fewest packets of a pass.
const PACKETS_A_FLOW: u64 = 2;
const LEAST_PACKETS: u64 = 200_000;

/// A kind of traffic.
pub(super) struct Mix {
    pub(super) name: &'static str,
    pub(super) flows: u32,
    /// Rules, each with a mask of its own.
    pub(super) rules: u32,
    /// Zipf skew of the flows' popularity.
    zipf: Option<f64>,
}

const fn mix(name: &'static str, flows: u32, rules: u32, zipf: Option<f64>) -> Mix {
    Mix { name, flows, rules, zipf }
}

/// HALO's mixes: a host's overlay, containers, and gateways.
pub(super) const MIXES: [Mix; 6] = [
    mix("10K flows, 1 rule", 10_000, 1, None),
    mix("100K flows, 1 rule", 100_000, 1, None),
    mix("100K flows, 10 rules", 100_000, 10, None),
    mix("1M flows, 1 rule", 1_000_000, 1, None),
    mix("1M flows, 10 rules", 1_000_000, 10, None),
    mix("1M flows, 20 hot rules", 1_000_000, 20, Some(1.0)),
];

impl Mix {
    /// Writes the traffic and a chain for it to the new `folder`; returns the chain's path.
    ///
    /// The traffic is as long as `most` packets at most: no more are sent.
    pub(super) fn prepare(
        &self,
        folder: &Path,
        emc_entries: u32,
        most: u64,
    ) -> Result<PathBuf, Failure> {
        let failed = |path: &Path, e: io::Error| Failure::Run(format!("{}: {e}", path.display()));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|e| failed(&path, e))?;
            Ok::<PathBuf, Failure>(path)
        };
        fs::create_dir(folder).map_err(|e| failed(folder, e))?;
        self.write_traffic(&folder.join("traffic.pcap"), most)?;
        write("routes.csv", "*, ingress, egress\n")?;
        write("chain.toml", &self.chain(emc_entries))
    }

    fn chain(&self, emc_entries: u32) -> String {
        let mut text = format!(
            "routes = 'routes.csv'\n\
             [classify]\nemc_entries = {emc_entries}\n\
             [input.traffic]\ncapture = 'traffic.pcap'\nmemory = true\nloop = 0\n\
             [output.out]\ndiscard = true\n\
             [[class]]\ntype = 'matched'\nrules = [\n"
        );
        for rule in 0..self.rules {
            let _ = writeln!(text, "    '{}',", Self::rule(rule));
        }
        text.push_str("]\n");
        text
    }

    /// Returns rule number `rule`: it has its own server network, and prefixes of the clients'
    /// network that no other rule has.
    fn rule(rule: u32) -> String {
        let untagged = if rule < 16 { "" } else { "dl_vlan=0xffff," };
        let length = rule % 16 + 1;
        format!("ip,{untagged}nw_src=10.0.0.0/{length},nw_dst=198.18.{rule}.0/24")
    }

    fn write_traffic(&self, path: &Path, most: u64) -> Result<(), Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::Run(e.to_string());
        let spec = Spec {
            flows: self.flows,
            packets: (u64::from(self.flows) * PACKETS_A_FLOW).max(LEAST_PACKETS).min(most),
            zipf: self.zipf,
            size: "64".parse().map_err(|e| failed(&e))?,
            protocols: Protocols { tcp: 1.0, udp: 1.0, icmp: 0.0, sctp: 0.0 },
            clients: vec!["10.0.0.0/16".into()],
            servers: (0..self.rules).map(|rule| format!("198.18.{rule}.0/24")).collect(),
            ..Spec::default()
        };
        let mut generator = GeneratorInput::new(spec).map_err(|e| failed(&e))?;
        let mut output = CaptureOutput::create(path).map_err(|e| failed(&e))?;
        while let Some((packet, time)) = generator.next_packet() {
            output.write(packet, packet.len() as u32, time).map_err(|e| failed(&e))?;
        }
        output.flush().map_err(|e| failed(&e))
    }
}
