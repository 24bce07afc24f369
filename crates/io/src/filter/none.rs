//! Filters in a build without libpcap: there are none.

use std::convert::Infallible;

/// A compiled filter, which this build cannot have.
#[derive(Debug)]
pub(crate) struct Program(Infallible);

impl Program {
    pub(super) fn compile(_text: &str, _interface: Option<&str>) -> Result<Self, String> {
        Err("this build has no packet filters: it lacks the feature libpcap (Debian: libpcap-dev)"
            .into())
    }

    pub(super) fn matches(&self, _bytes: &[u8], _wire_len: u32) -> bool {
        match self.0 {}
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn instructions(&self) -> &[libc::sock_filter] {
        match self.0 {}
    }
}
