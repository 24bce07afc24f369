//! `thalweg assets`: lists hosts, their systems and services.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use thalweg_source::visible;

use super::relay::Show;
use super::text::{Argument, ChainText};
use super::{Records, Shorthand};
use crate::args::{Assets, Traffic};
use crate::errors::Failure;
use crate::report::plain_table;

impl Shorthand for Assets {
    fn name(&self) -> &'static str {
        "assets"
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn write(&self) -> Option<&Path> {
        self.write.as_deref()
    }

    fn records(&self) -> Option<(&'static str, Option<&Path>)> {
        Some(("-l", self.inventory.as_deref()))
    }

    fn nfs(&self) -> &'static [&'static str] {
        &["hosts"]
    }

    fn add_nfs(&self, chain: &mut ChainText, records: Records) -> Result<(), Failure> {
        chain.section("[nf.hosts]", "");
        chain.set("kind", "assets", "");
        records.add(chain, "inventory");
        let networks = self.networks.iter().map(|prefix| Argument::new("--networks", prefix));
        chain.take_all("networks", &networks.collect::<Vec<_>>());
        for (key, option, files) in [
            ("fingerprints", "--fingerprints", &self.fingerprints),
            ("recog", "--recog", &self.recog),
        ] {
            let files = files.iter().map(|file| Argument::of_path(option, file, "-"));
            chain.take_all(key, &files.collect::<Result<Vec<_>, _>>()?);
        }
        if let Some(file) = &self.p0f {
            chain.take("p0f", &Argument::of_path("--p0f", file, "-")?);
        }
        Ok(())
    }

    fn shows_json(&self) -> bool {
        self.json
    }

    fn show(&self) -> Box<dyn Show> {
        Box::new(Hosts::default())
    }
}

/// A host, as far as a table shows it.
#[derive(Debug, Deserialize)]
struct Host {
    address: IpAddr,
    vlan: Option<u16>,
    hardware: Option<String>,
    vendor: Option<String>,
    name: Option<String>,
    systems: Vec<System>,
    services: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct System {
    says: HashMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Service {
    protocol: String,
    port: u16,
    role: String,
    says: HashMap<String, String>,
}

/// A product with its version, such as `Linux 3.11 and newer`.
fn product(says: &HashMap<String, String>, of: &str) -> Option<String> {
    let part = |name: &str| says.get(&format!("{of}.{name}"));
    let product = part("product")?;
    Some(part("version").map_or_else(|| product.clone(), |version| format!("{product} {version}")))
}

impl Service {
    /// The port, the service and its software: `22/tcp ssh OpenSSH 9.2p1`.
    fn text(&self) -> String {
        let mut text = format!("{}/{}", self.port, self.protocol);
        let name = self.says.get("service.name").cloned();
        for part in name.into_iter().chain(product(&self.says, "service")) {
            text.push(' ');
            text.push_str(&part);
        }
        text
    }
}

impl Host {
    fn row(&self) -> [String; 6] {
        let vlan = self.vlan.map_or_else(String::new, |vlan| vlan.to_string());
        let system = self.systems.iter().find_map(|system| product(&system.says, "os"));
        let card = [&self.hardware, &self.vendor].into_iter().flatten().cloned();
        let card = card.collect::<Vec<_>>().join(" ");
        let servers = self.services.iter().filter(|service| service.role == "server");
        let services = servers.map(Service::text).collect::<Vec<_>>().join(", ");
        let name = self.name.clone().unwrap_or_default();
        let texts = [name, system.unwrap_or_default(), card, services];
        let [name, system, card, services] = texts.map(|text| visible(&text).into_owned());
        [self.address.to_string(), name, system, card, services, vlan]
    }
}

/// All hosts of the last inventory, in one table at the end.
#[derive(Default)]
struct Hosts(BTreeMap<(Option<u16>, IpAddr), Host>);

impl Show for Hosts {
    fn lines(&mut self, lines: &str, _: &mut dyn Write) -> io::Result<()> {
        for line in lines.lines() {
            let host: Host = serde_json::from_str(line)
                .map_err(|e| io::Error::other(format!("a line of the inventory: {e}")))?;
            self.0.insert((host.vlan, host.address), host);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut headings = vec!["host", "name", "system", "network card", "services"];
        if self.0.keys().any(|(vlan, _)| vlan.is_some()) {
            headings.push("vlan");
        }
        let mut table = plain_table(&headings);
        for host in self.0.values() {
            table.add_row(host.row().into_iter().take(headings.len()));
        }
        out.write_all(format!("{table}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_row_with_what_is_known_last() {
        let line = |address: &str, rest: &str| {
            format!(
                "{{\"schema\":\"thalweg.assets/1\",\"address\":\"{address}\",{rest},\"systems\":[\
                 {{\"says\":{{}}}},{{\"says\":{{\"os.product\":\"Linux\",\"os.version\":\"6\"}}}}],\
                 \"services\":[{{\"protocol\":\"tcp\",\"port\":22,\"role\":\"server\",\"says\":\
                 {{\"service.name\":\"ssh\",\"service.product\":\"OpenSSH\"}}}},{{\"protocol\":\
                 \"udp\",\"port\":53,\"role\":\"server\",\"says\":{{}}}},{{\"protocol\":\"tcp\",\
                 \"port\":80,\"role\":\"client\",\"says\":{{}}}}]}}\n"
            )
        };
        let (mut hosts, mut out) = (Hosts::default(), Vec::new());
        let old = line("10.0.0.2", "\"name\":\"old\"");
        let new = line("10.0.0.2", "\"name\":\"new\\u001b\"");
        let other = line("10.0.0.1", "\"vlan\":7,\"hardware\":\"02:00\",\"vendor\":\"Acme\"");
        hosts.lines(&[old, other, new].concat(), &mut out).unwrap();
        hosts.end(&mut out).unwrap();
        let table = "\
host      name     system   network card  services                    vlan
10.0.0.2  new\\x1b  Linux 6                22/tcp ssh OpenSSH, 53/udp
10.0.0.1           Linux 6  02:00 Acme    22/tcp ssh OpenSSH, 53/udp  7
";
        assert_eq!(String::from_utf8(out).unwrap(), table);
    }
}
