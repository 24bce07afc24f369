//! The chain in its variants.

use std::iter;

/// One variant of the chain, by its number.
#[derive(Clone, Copy)]
pub(crate) struct Variant(u64);

/// The ports that servers listen on; the filter drops packets to one of the first two.
const PORTS: [u16; 3] = [7001, 7002, 7003];

const INPUT: &str = r#"
[input.in]
generate = { seed = 7, packets = 1000000000000, flows = 2000, size = "64", protocols = { tcp = 0.0, udp = 1.0, icmp = 0.0 }, ipv6 = 0.0, clients = ["10.0.0.0/16"], servers = ["198.51.100.0/24", "192.0.2.0/24"], server_ports = [7001, 7002, 7003] }

[output.out]
discard = true

[nf.before]
kind = "witness"
[nf.behind]
kind = "witness"
[nf.last]
kind = "witness"

[nf.edge]
kind = "router"
routes = "table.txt"
[nf.edge.ports.out]
mac = "02:00:00:00:0b:01"
ip = "203.0.113.2"
default_mac = "02:00:00:00:0b:fe"
"#;

const TUNNEL: &str = r#"
[nf.vpn]
kind = "ipsec"
default_policy = "bypass"
[[nf.vpn.sa]]
name = "out"
direction = "out"
spi = 0x2001
suite = "aes128-gcm16"
encryption_key = "1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11"
source = "203.0.113.2"
destination = "203.0.113.99"
[[nf.vpn.policy]]
match = "ip,nw_dst=198.51.100.0/25"
action = "protect"
sa = "out"
"#;

const NAT: &str = r#"
[nf.nat]
kind = "nat"
inside = ["10.0.0.0/8"]
external = ["203.0.113.7"]
"#;

const DISCARD: &str = r#"
[[nf.vpn.policy]]
match = "ip,nw_dst=198.51.99.0/24"
action = "discard"
"#;

const CLASS: &str = r#"
[[class]]
type = "odd"
rules = ["udp,tp_dst=7003"]
"#;

impl Variant {
    pub(crate) fn number(number: u64) -> Self {
        Self(number)
    }

    /// A choice among `of`, which changes every `each` variants.
    fn choice(self, each: u64, of: u64) -> u64 {
        let round = self.0 / each;
        ((round ^ round >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % of
    }

    /// The port to which no packet may pass.
    pub(crate) fn forbidden(self) -> u16 {
        PORTS[(self.0 % 2) as usize]
    }

    /// The route table.
    pub(crate) fn table(self) -> String {
        let more = (0..50 + self.choice(3, 50))
            .map(|n| format!("198.18.{n}.0/24 203.0.113.{} out\n", n % 7 + 10));
        iter::once("0.0.0.0/0 203.0.113.1 out\n".to_owned()).chain(more).collect()
    }

    /// The chain file.
    pub(crate) fn chain(self) -> String {
        let mut path = vec!["ingress", "before", "wall"];
        let rule = format!("drop udp,tp_dst={}", self.forbidden());
        let mut parts = vec![INPUT.to_owned()];
        parts.push(format!("[nf.wall]\nkind = \"filter\"\nrules = [\"{rule}\"]\n"));
        if self.choice(2, 2) == 1 {
            path.push("list");
            let rule = |n: u64| format!("deny udp,tp_dst={}", 8000 + n + self.0 % 9);
            let rules: Vec<_> = (0..20).map(rule).collect();
            let options = format!("default = \"permit\"\nrules = {rules:?}\n");
            parts.push(format!("[nf.list]\nkind = \"acl\"\n{options}"));
        }
        path.extend(["nat", "behind"]);
        let timeouts = format!("timeouts_s = {{ udp = {} }}\n", 300 + self.choice(20, 5));
        parts.extend([NAT.to_owned(), timeouts]);
        if self.choice(5, 2) == 1 {
            path.push("flows");
            parts.push("[nf.flows]\nkind = \"monitor\"\n".to_owned());
        }
        path.extend(["edge", "vpn", "last", "egress"]);
        parts.push(TUNNEL.to_owned());
        if self.choice(11, 2) == 1 {
            parts.push(DISCARD.to_owned());
        }
        if self.choice(4, 2) == 1 {
            parts.push(CLASS.to_owned());
        }
        parts.push(format!("[[route]]\npath = {path:?}\n"));
        parts.concat()
    }
}
