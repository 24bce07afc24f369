//! `thalweg gen`: writes synthetic traffic to a capture.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_io::generate::{GeneratorInput, Payload, Spec};
use thalweg_io::{CaptureOutput, IoError, Output, STANDARD_OUTPUT};

use crate::args::{Filling, Gen};
use crate::errors::Failure;
use crate::report::write_json;
use thalweg_source::{counted, visible};

/// A capture of generated traffic.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Generated {
    #[schemars(extend("const" = "thalweg.gen/1"))]
    schema: &'static str,
    file: String,
    packets: u64,
    bytes: u64,
    /// The whole specification, as `generate` in a chain file takes it.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    spec: Spec,
}

/// Generates the traffic and writes it.
pub fn generate(options: &Gen) -> Result<(), Failure> {
    let spec = spec(options)?;
    let mut generator = GeneratorInput::new(spec.clone()).map_err(|e| {
        Failure::Usage(format!("{}: {}; expected {}", option(e.field), e.what, e.expected))
    })?;
    let mut output = CaptureOutput::create(&options.output).map_err(|e| match e {
        IoError::Format { .. } => Failure::Usage(e.to_string()),
        other => Failure::Run(other.to_string()),
    })?;
    let failed = |e: IoError| Failure::Run(e.to_string());
    let (mut packets, mut bytes) = (0u64, 0u64);
    while let Some((packet, time)) = generator.next_packet() {
        packets += 1;
        bytes += packet.len() as u64;
        output.write(packet, packet.len() as u32, time).map_err(failed)?;
    }
    output.flush().map_err(|failure| failed(failure.error))?;
    let mut text = Vec::new();
    let file = options.output.display().to_string();
    if options.json {
        let schema = "thalweg.gen/1";
        write_json(&mut text, &Generated { schema, file, packets, bytes, spec })?;
    } else {
        let (packets, bytes) = (counted(packets, "packet"), counted(bytes, "byte"));
        let flows = counted(spec.flows, "flow");
        writeln!(text, "{}: {packets}, {bytes}, {flows}", visible(&file))?;
    }
    if options.output == Path::new(STANDARD_OUTPUT) {
        return Ok(io::stderr().write_all(&text)?);
    }
    Ok(io::stdout().write_all(&text)?)
}

/// The option, as typed, that sets a field of the specification.
fn option(field: &str) -> String {
    match field {
        "protocols" => "--tcp, --udp, --icmp, --sctp".to_owned(),
        "vlans" => "--vlan".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}

/// The specification that the arguments describe.
fn spec(options: &Gen) -> Result<Spec, Failure> {
    let mut spec = Spec::default();
    macro_rules! take {
        ($($from:ident => $($to:ident).+),+ $(,)?) => {
            $(if let Some(value) = options.$from { spec.$($to).+ = value; })+
        };
    }
    take! {
        seed => seed, packets => packets, flows => flows, ipv6 => ipv6, malformed => malformed,
        hostile => hostile, rate => rate, vlan_share => vlan_share, qinq_share => qinq_share, tcp => protocols.tcp,
        udp => protocols.udp, icmp => protocols.icmp, sctp => protocols.sctp,
    }
    spec.zipf = options.zipf;
    if let Some(size) = &options.size {
        spec.size = size.parse().map_err(|e| Failure::Usage(format!("--size: {e}")))?;
    }
    if !options.vlan.is_empty() {
        spec.vlans.clone_from(&options.vlan);
        spec.vlan_share = options.vlan_share.unwrap_or(1.0);
    }
    for (from, to) in [(&options.clients, &mut spec.clients), (&options.servers, &mut spec.servers)]
    {
        if !from.is_empty() {
            to.clone_from(from);
        }
    }
    if !options.server_ports.is_empty() {
        spec.server_ports.clone_from(&options.server_ports);
    }
    spec.payload = match options.payload {
        Some(Filling::Zeros) => Payload::Zeros,
        Some(Filling::Http) => Payload::Http,
        Some(Filling::Random) | None => Payload::Random,
    };
    Ok(spec)
}
