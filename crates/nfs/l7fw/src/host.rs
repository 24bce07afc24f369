//! Names of hosts, and the patterns of rules for them.

use std::net::Ipv6Addr;

/// The longest name that is kept: that of DNS.
pub(super) const MOST_BYTES: usize = 255;

/// The host that the authority in `text` names (`user@www.example.com.:80`): without blanks, user,
/// port and final dots, in lower case. `None` if nothing is left.
pub(super) fn host_name(text: &[u8]) -> Option<Box<str>> {
    let blank = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    let trim = |text: &[u8]| -> Vec<u8> {
        let from = text.iter().position(|byte| !blank(byte)).unwrap_or(text.len());
        let to = text.iter().rposition(|byte| !blank(byte)).map_or(from, |last| last + 1);
        text[from..to].to_vec()
    };
    let text = text.split(|byte| b"/\\?#".contains(byte)).next().unwrap_or(&[]);
    let text = text.rsplit(|byte| *byte == b'@').next().unwrap_or(&[]);
    let text = trim(text);
    let mut name = match text.strip_prefix(b"[") {
        Some(rest) => rest.split(|byte| *byte == b']').next().unwrap_or(&[]).to_vec(),
        None => trim(without_port(&text)),
    };
    name.truncate(name.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1));
    // Rules compare the end of a name.
    name.drain(..name.len().saturating_sub(MOST_BYTES));
    let ascii =
        |name: &[u8]| name.iter().map(|b| if b.is_ascii() { *b as char } else { '?' }).collect();
    let mut name = String::from_utf8(name).unwrap_or_else(|error| ascii(error.as_bytes()));
    name.make_ascii_lowercase();
    (!name.is_empty()).then(|| name.into())
}

/// `text` without a port, of which servers overlook what is not a digit. An IPv6 address without
/// brackets has none.
fn without_port(text: &[u8]) -> &[u8] {
    let is_address = str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    let end = text.iter().position(|byte| *byte == b':').filter(|_| !is_address);
    &text[..end.unwrap_or(text.len())]
}

/// A host in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    name: Box<str>,
    /// Whether its subdomains match too.
    within: bool,
}

impl HostPattern {
    /// `www.example.com`, or `*.example.com` for the domain and its subdomains; `None` for what no
    /// host is named.
    pub(super) fn new(text: &str) -> Option<Self> {
        let (name, within) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let refused = ['*', '/', '\\', '?', '#', '@', ' ', '\t'];
        let name = host_name(name.as_bytes()).filter(|_| !name.contains(refused))?;
        Some(Self { name, within })
    }

    /// Whether it matches a [host name](host_name).
    pub(super) fn fits(&self, host: &str) -> bool {
        let before = host.strip_suffix(&*self.name);
        before.is_some_and(|before| before.is_empty() || self.within && before.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_their_surroundings() {
        let name = |text: &str| host_name(text.as_bytes()).map(String::from);
        for text in [
            "a.example",
            "A.Example",
            "\ta.example \r",
            "a.example.",
            "a.example..",
            "a.example:80",
            "a.example.:80",
            "a.example:",
            "a.example :80",
            "a.example:80x",
            "u:p@a.example:80",
            "a.example/x?y",
            "\0a.example",
        ] {
            assert_eq!(name(text).as_deref(), Some("a.example"), "{text:?}");
        }
        assert_eq!(name("[2001:db8::1]:80").as_deref(), Some("2001:db8::1"));
        assert_eq!(name("2001:db8::1").as_deref(), Some("2001:db8::1"));
        assert!([" ", "...", ":80", "@", "[]"].iter().all(|text| name(text).is_none()));
        let long = [&"x".repeat(400), ".example"].concat();
        assert!(name(&long).is_some_and(|n| n.len() == MOST_BYTES && n.ends_with("x.example")));
        assert!(host_name(&[0xff; 300]).is_some_and(|n| n.len() == MOST_BYTES));
    }

    #[test]
    fn hosts_fit_whole_names_and_domains() {
        let fits = |pattern: &str, host: &str| {
            HostPattern::new(pattern).unwrap().fits(&host_name(host.as_bytes()).unwrap())
        };
        assert!(fits("a.example", "A.Example.") && !fits("a.example", "b.a.example"));
        assert!(fits("A.example.", "a.example:443") && fits("2001:db8::1", "[2001:DB8::1]:80"));
        assert!(fits("*.example", "b.a.example") && fits("*.example", "example"));
        assert!(!fits("*.example", "badexample") && !fits("*.example", "ample"));
        assert!(
            ["", "*.", "a b", "*", "a/b", ".", "u@a"].iter().all(|p| HostPattern::new(p).is_none())
        );
    }
}
