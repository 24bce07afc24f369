//! Which rule decides, and what is counted.

use std::collections::BTreeMap;

use serde_json::Value;
use thalweg_packet::write::{PacketBuilder, TcpSegment};

use super::*;
use thalweg_nf::Verdict;
use thalweg_testkit::data_folder;
use thalweg_testkit::{self as testkit, Drive};

struct Bench {
    blueprint: Box<dyn Blueprint>,
    drive: Drive,
    folder: tempfile::TempDir,
    text: String,
    files: Vec<OutputFile>,
}

impl Bench {
    /// A list whose files are in a folder, which stands as FOLDER in the options.
    fn new(files: &[(&str, &str)], options: &str) -> Result<Self, BuildError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let text = format!("hits = 'FOLDER/h.json'\n{options}");
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let (blueprint, files) = testkit::build(&KIND, &text, &Environment::default())?;
        Ok(Self { drive: Drive::new(blueprint.instance()), blueprint, folder, text, files })
    }

    fn reload(&mut self) -> Result<(), BuildError> {
        let environment = Environment { open_files: &self.files, ..Environment::default() };
        let nf = &mut *self.drive.nf;
        testkit::renew(&KIND, &self.text, &environment, &mut self.blueprint, nf)
    }

    fn send(&mut self, packets: &[Vec<u8>]) -> Vec<bool> {
        let verdicts = self.drive.send(packets);
        verdicts.into_iter().map(|verdict| verdict == Verdict::Forward).collect()
    }

    /// Packets by the text of the rule that decided.
    fn hits(&mut self) -> BTreeMap<String, u64> {
        self.drive.nf.flush().unwrap();
        let text = std::fs::read_to_string(self.folder.path().join("h.json")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| {
                (line["text"].as_str().unwrap().to_owned(), line["packets"].as_u64().unwrap())
            })
            .collect()
    }
}

fn udp(dst: [u8; 4], port: u16) -> Vec<u8> {
    PacketBuilder::new([2; 6], [4; 6]).ip([10, 0, 0, 1].into(), dst.into()).udp(5, port).build(b"")
}

#[test]
fn the_highest_priority_decides_and_of_equals_the_first() {
    let rules = "rules = ['deny udp', 'permit priority=40000,udp,nw_dst=10.9.0.0/16', \
                 'permit udp,tp_dst=53']\nfiles = ['FOLDER/more']\ndefault = 'permit'";
    let more = "# from elsewhere\ndeny priority=50000,udp,nw_dst=10.9.9.0/24 # one net\n";
    let mut bench = Bench::new(&[("more", more)], rules).unwrap();
    let packets = [
        udp([10, 9, 0, 1], 7),
        udp([10, 9, 9, 1], 7),
        udp([10, 8, 0, 1], 53),
        PacketBuilder::new([2; 6], [4; 6]).ip([1; 4].into(), [2; 4].into()).protocol(1).build(b""),
    ];
    assert_eq!(bench.send(&packets), [true, false, false, true]);
    let hits = bench.hits();
    assert_eq!(hits["deny udp"], 1);
    assert_eq!(hits["permit priority=40000,udp,nw_dst=10.9.0.0/16"], 1);
    assert_eq!(hits["permit udp,tp_dst=53"], 0);
    assert_eq!(hits["deny priority=50000,udp,nw_dst=10.9.9.0/24"], 1);
}

#[test]
fn a_reload_counts_anew_and_a_mistake_changes_nothing() {
    let mut bench = Bench::new(&[("f", "permit udp\n")], "files = ['FOLDER/f']").unwrap();
    let file = bench.folder.path().join("f");
    assert_eq!(bench.send(&[udp([1; 4], 1)]), [true]);
    std::fs::write(&file, "permit udp,\nfoo\n").unwrap();
    let wrong = bench.reload().unwrap_err().to_string();
    assert!(wrong.contains("f:2:1: unknown action: 'foo'; expected permit or deny"), "{wrong}");
    assert_eq!(bench.send(&[udp([1; 4], 1)]), [true]);
    std::fs::write(&file, "deny udp\n").unwrap();
    bench.reload().unwrap();
    assert_eq!(bench.send(&[udp([1; 4], 1)]), [false]);
    assert_eq!(bench.hits(), [("deny udp".to_owned(), 1)].into());
}

#[test]
fn mistakes_are_told_with_their_place() {
    let told = |options: &str| Bench::new(&[], options).err().unwrap().to_string();
    assert!(told("rules = ['permit tcp,tp_dst=x']").contains("chain.toml:2:29"), "place");
    assert!(told("rules = ['accept tcp']").contains("expected permit or deny"));
    assert!(told("files = ['nowhere']").contains("nowhere"));
    assert!(told("rules = ['permit in_port=0']").contains("2:18: 'in_port' is not supported here"));
    assert!(told("classbench = [{ file = 'x', action = 'drop' }]").contains("unknown variant"));
}

/// Common in long lists, so it is not an error; in ClassBench files there is not even a warning.
#[test]
fn a_rule_that_can_never_match_is_warned_of() {
    let lines = "deny tcp\npermit tcp,tp_dst=80\npermit priority=40000,tcp,tp_dst=81\n";
    let line = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xFF 0x0000/0x0000\n";
    let options = "rules = ['permit udp,nw_src=10.1.0.0/16']\nfiles = ['FOLDER/lines']\n\
                   classbench = [{ file = 'FOLDER/set', action = 'deny', priority = 50000 }]";
    let files = [("lines", lines), ("set", &line.repeat(2))];
    let mut bench = Bench::new(&files, options).unwrap();
    let told: Vec<_> = bench.blueprint.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let at = "chain.toml:2:11: this rule can never match: @10.0.0.0/8";
    assert!(told[0].starts_with(at), "{told:?}");
    let at = "lines:2:1: this rule can never match: 'deny tcp' in line 1 covers it";
    assert!(told[1].contains(at), "{told:?}");
    assert!(bench.reload().is_ok());
}

/// The traces that go with the rule sets name the rule for each header.
#[test]
fn thousands_of_rules_decide_as_their_authors_say() {
    let Some(folder) = data_folder().map(|d| d.join("classification/wustl")) else { return };
    let text = |name: String| {
        let zipped = std::fs::read(folder.join(format!("{name}.gz"))).unwrap();
        std::io::read_to_string(flate2::read::GzDecoder::new(&zipped[..])).unwrap()
    };
    for set in ["acl1_10K", "fw1_10K"] {
        let (rules, trace) = (text(format!("{set}.rules")), text(format!("{set}.trace")));
        let options = "classbench = [{ file = 'FOLDER/set', action = 'permit' }]";
        let mut bench = Bench::new(&[("set", &rules)], options).unwrap();
        let lines: Vec<_> = rules.lines().filter(|l| !l.trim().is_empty()).collect();
        let (mut packets, mut expected) = (Vec::new(), BTreeMap::<String, u64>::new());
        for line in trace.lines() {
            let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
            let (ip, rule) = (&numbers[..5], *numbers.last().unwrap());
            // Only TCP and UDP have ports.
            let Some(packet) = header(ip) else { continue };
            packets.push(packet);
            *expected.entry(lines[rule as usize - 1].trim().to_owned()).or_default() += 1;
        }
        assert!(packets.len() > 1000, "{set}");
        assert!(bench.send(&packets).into_iter().all(|passed| passed), "{set}");
        let mut hits = bench.hits();
        hits.retain(|_, packets| *packets > 0);
        assert_eq!(hits, expected, "{set}");
    }
}

fn header(ip: &[u64]) -> Option<Vec<u8>> {
    let address = |n: u64| std::net::IpAddr::from((n as u32).to_be_bytes());
    let builder = PacketBuilder::new([2; 6], [4; 6]).ip(address(ip[0]), address(ip[1]));
    let (src_port, dst_port) = (ip[2] as u16, ip[3] as u16);
    match ip[4] {
        6 => {
            let segment = TcpSegment { src_port, dst_port, ..TcpSegment::default() };
            Some(builder.tcp(segment).build(b""))
        }
        17 => Some(builder.udp(src_port, dst_port).build(b"")),
        _ => None,
    }
}
