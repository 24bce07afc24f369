//! `thalweg flows`: lists the flows of traffic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;
use thalweg_source::visible;

use super::relay::Show;
use super::text::{Argument, ChainText};
use super::traffic::is_standard;
use super::{Records, Shorthand};
use crate::args::{Flows, Traffic};
use crate::errors::Failure;
use crate::report::plain_table;
use crate::units::{date_time, time};

/// The most records of one table: more follow in another, so that memory is bounded.
const PAGE: usize = 1000;

impl Shorthand for Flows {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn write(&self) -> Option<&Path> {
        self.write.as_deref()
    }

    fn records(&self) -> Option<(&'static str, Option<&Path>)> {
        Some(("-l", self.records.as_deref()))
    }

    fn nfs(&self) -> &'static [&'static str] {
        &["flows"]
    }

    fn add_nfs(&self, chain: &mut ChainText, records: Records) -> Result<(), Failure> {
        chain.section("[nf.flows]", "");
        chain.set("kind", "monitor", "");
        records.add(chain, "json");
        if let Some(file) = &self.ipfix {
            chain.take("ipfix", &Argument::of_path("--ipfix", file, "-")?);
        }
        for (key, option, seconds) in [
            ("idle_timeout_s", "--idle-timeout", self.idle_timeout),
            ("active_timeout_s", "--active-timeout", self.active_timeout),
        ] {
            let Some(seconds) = seconds else { continue };
            // What TOML cannot hold is out of range.
            let value = i64::try_from(seconds).unwrap_or(i64::MAX);
            chain.take(key, &Argument::with_value(option, seconds, value));
        }
        Ok(())
    }

    fn shows_json(&self) -> bool {
        self.json
    }

    fn show(&self) -> Box<dyn Show> {
        let inputs = &self.traffic.inputs;
        let form = Form { names_inputs: inputs.read.len() + inputs.interface.len() > 1 };
        if let Some(most) = self.top {
            return Box::new(Top { form, most: most as usize, largest: BinaryHeap::new() });
        }
        let is_live = !inputs.interface.is_empty() || inputs.read.iter().any(|f| is_standard(f));
        Box::new(Pages::new(form, is_live))
    }
}

/// The form of a table of records.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Whether there are several inputs, so that their names are of interest.
    names_inputs: bool,
}

impl Form {
    fn write(self, records: &[Record], out: &mut dyn Write) -> io::Result<()> {
        let mut headings = vec![
            "start",
            "duration",
            "protocol",
            "source",
            "destination",
            "packets",
            "bytes",
            "flags",
        ];
        if self.names_inputs {
            headings.push("input");
        }
        let mut table = plain_table(&headings).with_numbers(5..7);
        for record in records {
            table.add_row(record.row().into_iter().take(headings.len()));
        }
        out.write_all(format!("{table}\n").as_bytes())
    }
}

/// A record of a flow, as far as a table shows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Record {
    // First, so that records are ordered by it.
    bytes: u64,
    packets: u64,
    start_ns: u64,
    end_ns: u64,
    src: Option<String>,
    dst: Option<String>,
    protocol: Option<String>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    ether_type: Option<u16>,
    in_port: Option<String>,
    tcp_flags: u16,
}

impl Record {
    fn read(line: &str) -> io::Result<Self> {
        serde_json::from_str(line).map_err(|e| io::Error::other(format!("a record of a flow: {e}")))
    }

    fn row(&self) -> [String; 9] {
        let protocol = match (&self.protocol, self.ether_type) {
            (Some(name), _) => name.clone(),
            (None, Some(0x0806)) => "arp".into(),
            (None, Some(number)) => format!("0x{number:04x}"),
            (None, None) => String::new(),
        };
        let has_ports = matches!(&*protocol, "tcp" | "udp" | "sctp");
        let end = |address: &Option<String>, port: Option<u16>| {
            let address = address.as_deref().unwrap_or("");
            match port.filter(|_| has_ports) {
                Some(port) if address.contains(':') => format!("[{address}]:{port}"),
                Some(port) => format!("{address}:{port}"),
                None => address.to_owned(),
            }
        };
        let input = self.in_port.as_deref().unwrap_or("");
        [
            date_time(self.start_ns),
            time(self.end_ns.saturating_sub(self.start_ns)),
            visible(&protocol).into_owned(),
            end(&self.src, self.src_port),
            end(&self.dst, self.dst_port),
            self.packets.to_string(),
            self.bytes.to_string(),
            flags(self.tcp_flags),
            visible(input).into_owned(),
        ]
    }
}

/// The names of TCP flags: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
fn flags(flags: u16) -> String {
    let named = "FSRPAUEC".chars().enumerate();
    named.filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| name).collect()
}

/// Records in tables of one page.
struct Pages {
    form: Form,
    /// Whether packets arrive as time passes, so that a page is not held back for long.
    is_live: bool,
    page: Vec<Record>,
    is_first: bool,
}

impl Pages {
    fn new(form: Form, is_live: bool) -> Self {
        Self { form, is_live, page: Vec::new(), is_first: true }
    }

    fn show(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            out.write_all(b"\n")?;
        }
        self.form.write(&std::mem::take(&mut self.page), out)
    }
}

impl Show for Pages {
    fn lines(&mut self, lines: &str, out: &mut dyn Write) -> io::Result<()> {
        for line in lines.lines() {
            self.page.push(Record::read(line)?);
            if self.page.len() == PAGE {
                self.show(out)?;
            }
        }
        Ok(())
    }

    fn pause(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_live && !self.page.is_empty() { self.show(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        // Without any record there are headings alone.
        if self.is_first || !self.page.is_empty() { self.show(out) } else { Ok(()) }
    }
}

/// The records with the most bytes, in one table.
struct Top {
    form: Form,
    most: usize,
    largest: BinaryHeap<Reverse<Record>>,
}

impl Show for Top {
    fn lines(&mut self, lines: &str, _: &mut dyn Write) -> io::Result<()> {
        for line in lines.lines() {
            self.largest.push(Reverse(Record::read(line)?));
            if self.largest.len() > self.most {
                self.largest.pop();
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        // The heap's order is reversed: the largest first.
        let largest = std::mem::take(&mut self.largest).into_sorted_vec();
        let largest: Vec<_> = largest.into_iter().map(|Reverse(record)| record).collect();
        self.form.write(&largest, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: u64) -> String {
        format!(
            "{{\"schema\":\"thalweg.monitor/2\",\"src\":\"10.0.0.1\",\"dst\":\"2001:db8::1\",\
             \"protocol\":\"tcp\",\"src_port\":7,\"dst_port\":80,\"in_port\":\"in\",\
             \"packet_type\":\"other\",\"packets\":3,\"bytes\":{bytes},\"start_ns\":1500000000,\
             \"end_ns\":1750000000,\"tcp_flags\":18,\"end_reason\":\"forced-end\"}}\n"
        )
    }

    /// One input.
    const ONE: Form = Form { names_inputs: false };

    fn shown(show: &mut dyn Show, lines: &str) -> String {
        let mut out = Vec::new();
        show.lines(lines, &mut out).unwrap();
        show.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_record_is_a_row() {
        let form = Form { names_inputs: true };
        let mut pages = Pages::new(form, false);
        let table = "\
start                       duration  protocol  source      destination       packets  bytes  flags  input
1970-01-01 00:00:01.500000  250.0 ms  tcp       10.0.0.1:7  [2001:db8::1]:80        3    100  SA     in
";
        assert_eq!(shown(&mut pages, &line(100)), table);
        let arp =
            r#"{"packets":1,"bytes":60,"start_ns":0,"end_ns":0,"ether_type":2054,"tcp_flags":0}"#;
        assert!(shown(&mut pages, arp).contains("  0 ns      arp       "));
    }

    #[test]
    fn many_records_are_shown_in_pages() {
        let mut pages = Pages::new(ONE, true);
        let text = shown(&mut pages, &line(100).repeat(2 * PAGE + 1));
        let tables: Vec<_> = text.split("\n\n").map(|table| table.lines().count()).collect();
        assert_eq!(tables, [PAGE + 1, PAGE + 1, 2]);
        let mut out = Vec::new();
        pages.lines(&line(100), &mut out).unwrap();
        assert!(out.is_empty());
        pages.pause(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 3);
    }

    #[test]
    fn the_largest_records_come_first() {
        let mut top = Top { form: ONE, most: 2, largest: BinaryHeap::new() };
        let lines: String = [5, 900, 17, 42].map(line).concat();
        let text = shown(&mut top, &lines);
        let bytes: Vec<_> =
            text.lines().skip(1).filter_map(|row| row.split_whitespace().nth(8)).collect();
        assert_eq!(bytes, ["900", "42"], "{text}");
    }
}
