//! Options that are rejected.

use super::*;

#[test]
fn nonsense_is_refused_with_its_place() {
    let inside = "inside = ['10.0.0.0/8']\n";
    let both = format!("{inside}external = ['192.0.2.1']\n");
    let external = |addresses: &str| format!("{inside}external = [{addresses}]");
    for (text, line, told) in [
        ("inside = []\nexternal = ['192.0.2.1']".into(), 1, "nothing to translate"),
        ("inside = ['10.0.0.0/33']\nexternal = ['192.0.2.1']".into(), 1, "bad IPv4 prefix length"),
        ("inside = ['10.0.0.1/8']\nexternal = ['192.0.2.1']".into(), 1, "bits set past"),
        (external("'10.0.0.1'"), 2, "10.0.0.1 is within"),
        (external("'192.0.2.9-192.0.2.1'"), 2, "bad address"),
        (external("'0.0.0.0'"), 2, "0.0.0.0 does not name a single host"),
        (external("'127.1.0.1'"), 2, "127.1.0.1 does not name a single host"),
        (external("'223.255.255.255-224.0.0.9'"), 2, "224.0.0.0 does not name a single host"),
        (external("'255.255.255.255'"), 2, "255.255.255.255 does not name a single host"),
        (external("'192.0.2.2', '192.0.2.1-192.0.2.3'"), 2, "192.0.2.2 is already listed"),
        (external("'20.0.0.0-20.0.4.0'"), 2, "more than 1024"),
        (format!("{both}ports = '9-1'"), 3, "bad port range"),
        (format!("{both}filtering = 'none'"), 3, "unknown variant"),
        (format!("{both}max_mappings = 0"), 3, "out of range"),
        (format!("{both}max_sessions = 268435457"), 3, "out of range"),
        (format!("{both}timeouts_s = {{ udp = 0 }}"), 3, "out of range"),
        (format!("{both}timeouts_s = {{ tcp = 0 }}"), 3, "out of range"),
        (format!("{both}timeouts_s = {{ tcp_transitory = 0 }}"), 3, "out of range"),
        (format!("{both}timeouts_s = {{ icmp = 4294967297 }}"), 3, "out of range"),
    ] {
        let error = built(&text).err().unwrap_or_else(|| panic!("accepted: {text}")).to_string();
        assert!(error.starts_with(&format!("chain.toml:{line}:")), "{text}: {error}");
        assert!(error.contains(told), "{text}: {error}");
    }
    assert!(built(&external("'20.0.0.0-20.0.3.255'")).is_ok());
}
