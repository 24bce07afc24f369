//! `thalweg ids`: detects intrusions, and shows alerts as short lines.

use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;
use thalweg_source::visible;

use super::relay::Show;
use super::text::{Argument, ChainText};
use super::{Records, Shorthand};
use crate::args::{Checksums, Ids, Traffic};
use crate::errors::Failure;

impl Shorthand for Ids {
    fn name(&self) -> &'static str {
        "ids"
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn write(&self) -> Option<&Path> {
        self.write.as_deref()
    }

    fn records(&self) -> Option<(&'static str, Option<&Path>)> {
        Some(("-l", self.alerts.as_deref()))
    }

    fn nfs(&self) -> &'static [&'static str] {
        &["defrag", "ids"]
    }

    fn add_nfs(&self, chain: &mut ChainText, records: Records) -> Result<(), Failure> {
        chain.section("[nf.defrag]", "rules see fragmented packets whole");
        chain.set("kind", "defrag", "");
        chain.section("[nf.ids]", "");
        chain.set("kind", "nids", "");
        let rules = self.rules.iter().map(|file| Argument::of_path("-S", file, "-"));
        chain.take_all("rules", &rules.collect::<Result<Vec<_>, _>>()?);
        if self.checksums == Checksums::None {
            chain.set("checksums", false, "");
        }
        records.add(chain, "alerts");
        let variables = self.variables()?;
        if !variables.is_empty() {
            chain.section("[nf.ids.variables]", "");
        }
        for (name, value) in &variables {
            chain.take(name, value);
        }
        Ok(())
    }

    fn shows_json(&self) -> bool {
        self.json
    }

    fn show(&self) -> Box<dyn Show> {
        Box::new(ShortLines)
    }
}

impl Ids {
    /// The variables of rules, by name.
    fn variables(&self) -> Result<Vec<(String, Argument)>, Failure> {
        let mut all: Vec<(String, Argument)> = Vec::new();
        if let Some(typed) = &self.home_net {
            // A list of rules has brackets; after `!` or within them, it has them already.
            let is_list = typed.contains(',') && !typed.starts_with(['[', '!']);
            let value = if is_list { format!("[{typed}]") } else { typed.clone() };
            all.push(("HOME_NET".into(), Argument::with_value("--home-net", typed, value)));
        }
        for typed in &self.set {
            let refuse = |why| Err(Failure::Usage(format!("--set {}: {why}", visible(typed))));
            let Some((name, value)) = typed.split_once('=') else {
                return refuse("no value; expected NAME=VALUE");
            };
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_part) {
                return refuse("bad variable name; expected letters, digits and _, without $");
            }
            if all.iter().any(|(other, _)| other == name) {
                return refuse("this variable is set already; expected each one once");
            }
            all.push((name.to_owned(), Argument::with_value("--set", typed, value)));
        }
        Ok(all)
    }
}

/// An alert, as far as a short line shows it.
#[derive(Debug, Deserialize)]
struct Alert {
    timestamp: String,
    alert: Matched,
    src_ip: Option<String>,
    dest_ip: Option<String>,
    proto: Option<String>,
    src_port: Option<u16>,
    dest_port: Option<u16>,
    icmp_type: Option<u16>,
    icmp_code: Option<u16>,
}

/// The rule that matched.
#[derive(Debug, Deserialize)]
struct Matched {
    action: String,
    gid: u64,
    signature_id: u64,
    rev: u64,
    signature: String,
    severity: u64,
}

impl Alert {
    /// The protocol and the ends of the packet, as far as they are known.
    fn packet(&self) -> String {
        let end = |address: &Option<String>, port: Option<u16>| {
            let address = address.as_deref().unwrap_or("?");
            match port {
                Some(port) if address.contains(':') => format!("[{address}]:{port}"),
                Some(port) => format!("{address}:{port}"),
                None => address.to_owned(),
            }
        };
        let Some(protocol) = &self.proto else { return "not IP".into() };
        let source = end(&self.src_ip, self.src_port);
        let destination = end(&self.dest_ip, self.dest_port);
        let message = match (self.icmp_type, self.icmp_code) {
            (Some(kind), Some(code)) => format!(" type {kind} code {code}"),
            _ => String::new(),
        };
        format!("{protocol} {source} -> {destination}{message}")
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Matched { action, gid, signature_id, rev, signature, severity } = &self.alert;
        // 2026-01-31T12:00:00.123456+0000, always of that length and zone.
        let time = self.timestamp.get(..26).unwrap_or(&self.timestamp).replace('T', " ");
        let dropped = if action == "blocked" { "  dropped" } else { "" };
        let line = format!(
            "{time}  severity {severity}  {}  {signature} [{gid}:{signature_id}:{rev}]{dropped}",
            self.packet()
        );
        writeln!(out, "{}", visible(&line))
    }
}

/// Alerts as short lines.
struct ShortLines;

impl Show for ShortLines {
    fn lines(&mut self, lines: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(lines.len());
        for line in lines.lines() {
            match serde_json::from_str::<Alert>(line) {
                Ok(alert) => alert.write(&mut text)?,
                Err(_) => writeln!(text, "{}", visible(line))?,
            }
        }
        out.write_all(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(line: &str) -> String {
        let mut out = Vec::new();
        ShortLines.lines(line, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_alert_is_a_short_line() {
        let alert = |action: &str, rest: &str| {
            format!(
                r#"{{"timestamp":"2026-01-31T12:00:00.123456+0000","flow_id":7,"event_type":"alert","alert":{{"action":"{action}","gid":1,"signature_id":9,"rev":2,"signature":"a \"b\"\u001b[m","category":"","severity":3}}{rest}}}"#
            )
        };
        let tcp = r#","src_ip":"10.0.0.1","dest_ip":"2001:db8::1","proto":"TCP","src_port":7,"dest_port":80"#;
        assert_eq!(
            short(&alert("allowed", tcp)),
            "2026-01-31 12:00:00.123456  severity 3  TCP 10.0.0.1:7 -> [2001:db8::1]:80  \
             a \"b\"\\x1b[m [1:9:2]\n"
        );
        let icmp = r#","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","proto":"ICMP","icmp_type":8,"icmp_code":0"#;
        assert!(short(&alert("blocked", icmp)).contains(
            "  ICMP 10.0.0.1 -> 10.0.0.2 type 8 code 0  a \"b\"\\x1b[m [1:9:2]  dropped\n"
        ));
        assert!(short(&alert("allowed", "")).contains("  severity 3  not IP  a"));
        assert_eq!(short("{\"odd\":1}\n"), "{\"odd\":1}\n");
    }
}
