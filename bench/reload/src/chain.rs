//! The chain in its variants.

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
        let mut table = "0.0.0.0/0 203.0.113.1 out\n".to_owned();
        for n in 0..50 + self.choice(3, 50) {
            table += &format!("198.18.{n}.0/24 203.0.113.{} out\n", n % 7 + 10);
        }
        table
    }

    /// The chain file.
    pub(crate) fn chain(self) -> String {
        let mut path = vec!["ingress", "before", "wall"];
        let mut chain = INPUT.to_owned();
        let forbidden = self.forbidden();
        chain +=
            &format!("[nf.wall]\nkind = \"filter\"\nrules = [\"drop udp,tp_dst={forbidden}\"]\n");
        if self.choice(2, 2) == 1 {
            path.push("list");
            let rules: String = (0..20)
                .map(|n| format!("\"deny udp,tp_dst={}\", ", 8000 + n + self.0 % 9))
                .collect();
            chain +=
                &format!("[nf.list]\nkind = \"acl\"\ndefault = \"permit\"\nrules = [{rules}]\n");
        }
        path.extend(["nat", "behind"]);
        chain +=
            "[nf.nat]\nkind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"203.0.113.7\"]\n";
        chain += &format!("timeouts_s = {{ udp = {} }}\n", 300 + self.choice(20, 5));
        if self.choice(5, 2) == 1 {
            path.push("flows");
            chain += "[nf.flows]\nkind = \"monitor\"\n";
        }
        path.extend(["edge", "vpn", "last", "egress"]);
        chain += TUNNEL;
        if self.choice(11, 2) == 1 {
            chain +=
                "[[nf.vpn.policy]]\nmatch = \"ip,nw_dst=198.51.99.0/24\"\naction = \"discard\"\n";
        }
        if self.choice(4, 2) == 1 {
            chain += "[[class]]\ntype = \"odd\"\nrules = [\"udp,tp_dst=7003\"]\n";
        }
        chain + &format!("[[route]]\npath = {path:?}\n")
    }
}
