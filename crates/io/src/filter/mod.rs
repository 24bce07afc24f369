//! Filters of packets in libpcap's language (pcap-filter(7)): `tcp port 80 and not host 10.1.0.7`.

#[cfg(feature = "libpcap")]
mod libpcap;
#[cfg(feature = "libpcap")]
use libpcap::Program;
#[cfg(not(feature = "libpcap"))]
mod none;
#[cfg(not(feature = "libpcap"))]
use none::Program;

use std::fmt;
use std::sync::Arc;

use thalweg_source::SourceError;
use toml::Spanned;

use crate::kind::Section;

/// Whether this build has filters: the feature `libpcap`.
pub const HAS_FILTERS: bool = cfg!(feature = "libpcap");

/// What [`Filter::compile`] accepts, for messages.
pub const FILTER: &str = if HAS_FILTERS {
    "a filter such as 'tcp port 80', see pcap-filter(7)"
} else {
    "a build with the feature libpcap"
};

/// A packet filter, compiled by libpcap for Ethernet packets.
#[derive(Clone)]
pub struct Filter {
    text: Arc<str>,
    program: Arc<Program>,
}

impl Filter {
    /// Compiles a filter. Names of hosts in it are resolved, as far as this machine can.
    ///
    /// # Errors
    /// What is wrong with it, in libpcap's words; or that this build has no filters.
    pub fn compile(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.into(), program: Arc::new(Program::compile(text, None)?) })
    }

    /// Compiles the filter of an option of `section`; a mistake is added to `errors`.
    pub(crate) fn of_option(
        section: &Section<'_>,
        text: &Spanned<String>,
        errors: &mut Vec<SourceError>,
    ) -> Option<Self> {
        let mistake = |message| errors.push(section.error(text.span(), message, FILTER));
        Self::compile(text.get_ref()).map_err(mistake).ok()
    }

    /// The filter as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether an Ethernet packet matches that had `wire_len` bytes, of which the first are
    /// `bytes`.
    pub fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        self.program.matches(bytes, wire_len)
    }

    /// The filter for the kernel, which has the packets of an interface without their VLAN tags.
    ///
    /// # Errors
    /// libpcap's message, for example if the filter cannot be used there.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_interface(&self, name: &str) -> Result<Program, String> {
        Program::compile(&self.text, Some(name))
    }
}

/// Filters of the same text are the same.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "libpcap"))]
    #[test]
    fn a_build_without_filters_reports_so() {
        let error = Filter::compile("tcp").unwrap_err();
        assert!(error.contains("it lacks the feature libpcap"), "{error}");
    }

    /// An Ethernet packet: IPv4 and UDP from port 5 to 53.
    #[cfg(feature = "libpcap")]
    const DNS: [u8; 42] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1,
        0, 7, 192, 0, 2, 1, 0, 5, 0, 53, 0, 8, 0, 0,
    ];

    #[cfg(feature = "libpcap")]
    #[test]
    fn a_filter_selects_by_headers_and_lengths() {
        for (text, expected) in [
            ("udp port 53", true),
            ("udp port 54", false),
            ("host 10.1.0.7 and not tcp", true),
            ("ether src 02:00:00:00:00:02", true),
            ("ip6", false),
            ("", true),
            // The length on the wire, not that in the capture.
            ("greater 1000", true),
            ("less 1000", false),
            ("vlan 7", false),
        ] {
            let filter = Filter::compile(text).unwrap();
            assert_eq!(filter.matches(&DNS, 1500), expected, "{text}");
            assert_eq!(filter.text(), text);
        }
        // What a truncated packet does not hold does not match.
        let filter = Filter::compile("udp port 53").unwrap();
        for len in 0..DNS.len() {
            assert_eq!(filter.matches(&DNS[..len], 1500), len >= 38, "{len} bytes");
        }
    }

    #[cfg(feature = "libpcap")]
    #[test]
    fn mistakes_are_in_the_words_of_libpcap() {
        let error = |text: &str| Filter::compile(text).unwrap_err();
        assert!(error("tcp prt 80").contains("syntax error"), "{}", error("tcp prt 80"));
        assert!(error("port nosuchservice").contains("nosuchservice"));
        assert!(error("len > 99999999999").contains("99999999999"));
        assert_eq!(error("tcp\0"), "a filter cannot contain a zero byte");
        assert!(Filter::compile(&"(".repeat(100_000)).is_err());
    }
}
