//! Packets that were fragmented on their path, and NFs that need them whole.

mod support;

use std::fs;
use std::path::Path;

use support::{report, succeeds, write};

const SA: &str = "suite = 'aes128-cbc-hmac-sha1-96'\n\
    encryption_key = '000102030405060708090a0b0c0d0e0f'\n\
    authentication_key = '000102030405060708090a0b0c0d0e0f10111213'\n\
    spi = 4660\nsource = '192.0.2.1'\ndestination = '203.0.113.1'\n";

/// The IPv4 packets of a capture, without their order.
fn packets(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (mut rest, mut packets) = (&bytes[24..], Vec::new());
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(*head[8..].first_chunk().unwrap()) as usize;
        let ip = &behind[14..];
        // Without the padding of short frames.
        packets.push(ip[..u16::from_be_bytes([ip[2], ip[3]]).into()].to_vec());
        rest = &behind[len..];
    }
    packets.sort_unstable();
    packets
}

/// Sends generated packets through an ESP tunnel and a router that fragments it, to `esp.pcap`;
/// returns the number of those packets.
fn cut_tunnel(folder: &Path) -> u64 {
    succeeds(
        folder,
        &["gen", "clear.pcap", "--packets", "2000", "--flows", "50", "--size", "64-4000"],
    );
    write(folder, "out.csv", "*, ingress, vpn\n*, vpn, edge\n*, edge, egress\n");
    write(folder, "table.txt", "0.0.0.0/0 198.51.100.254 out\n");
    let chain = format!(
        "routes = 'out.csv'\n[memory]\nframe_size = 8192\n[input.a]\ncapture = 'clear.pcap'\n\
         [output.out]\ncapture = 'esp.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\n[[nf.vpn.sa]]\nname = 'x'\ndirection = 'out'\n{SA}\
         df = 'clear'\nfragment = false\n\
         [[nf.vpn.policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'x'\n\
         [nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n\
         [nf.edge.ports.out]\nmac = '02:00:00:00:00:01'\nip = '198.51.100.1'\nmtu = 300\n\
         default_mac = '02:00:00:00:00:02'\n"
    );
    write(folder, "out.toml", &chain);
    let (told, code, error) = report(folder, &["run", "out.toml", "--json"]);
    assert_eq!((code, &told["packets_dropped"]), (0, &0.into()), "{error}");
    told["packets_out"].as_u64().unwrap()
}

/// The other end of the tunnel, with or without `defrag` before it; its report.
fn other_end(folder: &Path, workers: usize, whole: bool) -> serde_json::Value {
    let routes = if whole {
        "*, ingress, whole\n*, whole, vpn\n*, vpn, egress\n"
    } else {
        "*, ingress, vpn\n*, vpn, egress\n"
    };
    write(folder, "in.csv", routes);
    let defrag = if whole { "[nf.whole]\nkind = 'defrag'\n" } else { "" };
    let chain = format!(
        "routes = 'in.csv'\n[run]\nworkers = {workers}\n[input.a]\ncapture = 'esp.pcap'\n\
         [output.out]\ncapture = 'opened.pcap'\n{defrag}\
         [nf.vpn]\nkind = 'ipsec'\n[[nf.vpn.sa]]\nname = 'x'\ndirection = 'in'\n{SA}"
    );
    write(folder, "in.toml", &chain);
    let (told, code, error) = report(folder, &["run", "in.toml", "--json"]);
    assert_eq!((code, &told["conserved"]), (0, &true.into()), "{error}");
    told
}

#[test]
fn a_tunnel_that_was_cut_on_its_way_opens_behind_defrag() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let cut = cut_tunnel(path);
    assert!(cut > 2500, "{cut} fragments of 2000 packets");
    let clear = packets(&path.join("clear.pcap"));
    for workers in [1, 2] {
        let told = other_end(path, workers, true);
        assert!(packets(&path.join("opened.pcap")) == clear, "{workers} workers");
        assert_eq!(told["packets_in"], cut);
        // All fragments but one of each packet were held, and count as dropped.
        assert_eq!(told["packets_dropped"], cut - 2000);
        assert_eq!(told["nfs"][0]["drops"]["fragment-held"], cut - 2000);
    }
    let told = other_end(path, 1, false);
    let opened = told["packets_out"].as_u64().unwrap();
    assert!(opened < 1500 && told["nfs"][0]["drops"]["malformed"] == cut - opened, "{told}");
}

#[test]
fn a_first_fragment_goes_before_those_that_were_cut_from_its_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    succeeds(path, &["gen", "clear.pcap", "--packets", "2000", "--size", "64-4000"]);
    write(path, "cut.csv", "*, ingress, vpn\n*, vpn, edge\n*, edge, nat\n*, nat, out\n");
    write(path, "table.txt", "0.0.0.0/0 198.51.100.254 out\n");
    let chain = format!(
        "routes = 'cut.csv'\n[memory]\nframe_size = 8192\n[input.a]\ncapture = 'clear.pcap'\n\
         [output.out]\ncapture = 'cut.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\n[[nf.vpn.sa]]\nname = 'x'\ndirection = 'out'\n{SA}\
         df = 'clear'\nfragment = false\nudp_ports = [4500, 4500]\n\
         [[nf.vpn.policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'x'\n\
         [nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n\
         [nf.edge.ports.out]\nmac = '02:00:00:00:00:01'\nip = '198.51.100.1'\nmtu = 1000\n\
         default_mac = '02:00:00:00:00:02'\n\
         [nf.nat]\nkind = 'nat'\ninside = ['192.0.2.0/24']\nexternal = ['198.51.100.7']\n"
    );
    write(path, "cut.toml", &chain);
    // NAT translates later fragments by the first.
    let (told, code, error) = report(path, &["run", "cut.toml", "--json"]);
    assert_eq!((code, &told["packets_dropped"]), (0, &0.into()), "{error}{told}");
    assert!(told["packets_out"].as_u64().unwrap() > 4000, "{told}");
}
