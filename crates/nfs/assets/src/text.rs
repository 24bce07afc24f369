//! Texts in which hosts identify themselves, and where a payload holds them.

use memchr::{memchr, memmem};

/// The kinds of text that patterns match, by recog's names where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Text {
    Ssh,
    Ftp,
    Smtp,
    Pop3,
    Imap4,
    HttpServer,
    HttpUserAgent,
    RtspServer,
    SipServer,
    SipUserAgent,
    DhcpVendorClass,
    DnsVersion,
    MdnsDevice,
    SmbSystem,
    SystemName,
    /// A server's and a client's first bytes, and UDP payloads.
    TcpServer,
    TcpClient,
    Udp,
}

/// The name of each kind, and its service.
const NAMES: [(Text, &str, Option<&str>); Text::COUNT] = [
    (Text::Ssh, "ssh.banner", Some("ssh")),
    (Text::Ftp, "ftp.banner", Some("ftp")),
    (Text::Smtp, "smtp.banner", Some("smtp")),
    (Text::Pop3, "pop3.banner", Some("pop3")),
    (Text::Imap4, "imap4.banner", Some("imap")),
    (Text::HttpServer, "http_header.server", Some("http")),
    (Text::HttpUserAgent, "http_header.user_agent", Some("http")),
    (Text::RtspServer, "rtsp_header.server", Some("rtsp")),
    (Text::SipServer, "sip_header.server", Some("sip")),
    (Text::SipUserAgent, "sip_header.user_agent", Some("sip")),
    (Text::DhcpVendorClass, "dhcp_vendor_class", None),
    (Text::DnsVersion, "dns.versionbind", Some("domain")),
    (Text::MdnsDevice, "mdns.device-info.txt", None),
    (Text::SmbSystem, "smb.native_os", Some("microsoft-ds")),
    (Text::SystemName, "operating_system.name", None),
    (Text::TcpServer, "tcp.server", None),
    (Text::TcpClient, "tcp.client", None),
    (Text::Udp, "udp", None),
];

impl Text {
    /// The number of kinds.
    pub(super) const COUNT: usize = 18;

    /// The kind of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known, _)| *known == name).map(|(text, ..)| *text)
    }

    /// All names, for messages.
    pub(super) fn names() -> String {
        NAMES.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// The service of this kind of text.
    pub(super) fn service(self) -> Option<&'static str> {
        NAMES[self as usize].2
    }
}

/// The content of a payload: the service, if its protocol is known, and its own description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    pub(super) service: &'static str,
    pub(super) text: Option<(Text, &'a [u8])>,
}

impl<'a> Said<'a> {
    fn only(service: &'static str) -> Self {
        Self { service, text: None }
    }

    fn text(service: &'static str, kind: Text, text: Option<&'a [u8]>) -> Self {
        Self { service, text: text.map(|text| (kind, text)) }
    }

    /// Inspects a server's first bytes from `port`.
    pub(super) fn by_server(payload: &'a [u8], port: u16) -> Option<Self> {
        Some(if let Some(rest) = payload.strip_prefix(b"SSH-") {
            Self::text("ssh", Text::Ssh, ssh(rest))
        } else if payload.starts_with(b"HTTP/1.") {
            Self::text("http", Text::HttpServer, header(payload, b"server"))
        } else if payload.starts_with(b"RTSP/1.") {
            Self::text("rtsp", Text::RtspServer, header(payload, b"server"))
        } else if payload.starts_with(b"SIP/2.0 ") {
            sip(payload)
        } else if let Some(rest) = payload.strip_prefix(b"+OK") {
            Self::text("pop3", Text::Pop3, Some(line(rest.trim_ascii_start())))
        } else if let Some(rest) = payload.strip_prefix(b"* OK ") {
            Self::text("imap", Text::Imap4, Some(line(rest)))
        } else if let [b'2', b'2', b'0', b' ' | b'-', rest @ ..] = payload {
            greeting(rest, port)
        } else if is_tls(payload, 2) {
            Self::only("tls")
        } else {
            return None;
        })
    }

    /// Inspects a client's first bytes.
    pub(super) fn by_client(payload: &'a [u8]) -> Option<Self> {
        if let Some(rest) = payload.strip_prefix(b"SSH-") {
            return Some(Self::text("ssh", Text::Ssh, ssh(rest)));
        }
        let first = line(payload);
        Some(if first.ends_with(b" HTTP/1.1") || first.ends_with(b" HTTP/1.0") {
            Self::text("http", Text::HttpUserAgent, header(payload, b"user-agent"))
        } else if first.ends_with(b" RTSP/1.0") {
            Self::only("rtsp")
        } else if first.ends_with(b" SIP/2.0") {
            sip(payload)
        } else if is_tls(payload, 1) {
            Self::only("tls")
        } else {
            return None;
        })
    }

    /// Inspects a datagram.
    pub(super) fn by_datagram(payload: &'a [u8]) -> Option<Self> {
        let is_sip = payload.starts_with(b"SIP/2.0 ") || line(payload).ends_with(b" SIP/2.0");
        is_sip.then(|| sip(payload))
    }
}

/// The software in an SSH identification (RFC 4253, section 4.2): after the version.
fn ssh(rest: &[u8]) -> Option<&[u8]> {
    let line = line(rest);
    memchr(b'-', line).map(|at| &line[at + 1..])
}

fn sip(payload: &[u8]) -> Said<'_> {
    let (server, agent) = (header(payload, b"server"), header(payload, b"user-agent"));
    match server {
        Some(_) => Said::text("sip", Text::SipServer, server),
        None => Said::text("sip", Text::SipUserAgent, agent),
    }
}

/// A greeting with the code 220: FTP's or SMTP's.
fn greeting(text: &[u8], port: u16) -> Said<'_> {
    let text = text.trim_ascii_end();
    let names = |word: &[u8]| text.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    let is_mail = match port {
        25 | 465 | 587 => true,
        21 => false,
        _ => names(b"SMTP") && !names(b"FTP"),
    };
    let (service, kind) = if is_mail { ("smtp", Text::Smtp) } else { ("ftp", Text::Ftp) };
    Said::text(service, kind, Some(text))
}

/// Whether it is a TLS record with this kind of handshake message.
fn is_tls(payload: &[u8], message: u8) -> bool {
    matches!(payload, [22, 3, 0..=4, _, _, kind, ..] if *kind == message)
}

/// The first line, without its end.
fn line(text: &[u8]) -> &[u8] {
    let end = memchr(b'\n', text).unwrap_or(text.len());
    text[..end].trim_ascii_end()
}

/// The value of a header field in an HTTP-like head; `name` in lower case.
fn header<'a>(message: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let head = memmem::find(message, b"\r\n\r\n").map_or(message, |end| &message[..end]);
    head.split(|b| *b == b'\n').skip(1).find_map(|line| {
        let (found, value) = line.split_at(memchr(b':', line)?);
        found.eq_ignore_ascii_case(name).then(|| value[1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_as_they_are_named() {
        for (place, (text, name, _)) in NAMES.iter().enumerate() {
            assert_eq!((*text as usize, Text::named(name)), (place, Some(*text)));
        }
    }

    #[track_caller]
    fn server(payload: &str, port: u16, service: &str, text: &str) {
        let said = Said::by_server(payload.as_bytes(), port).unwrap();
        assert_eq!((said.service, said.text.unwrap().1), (service, text.as_bytes()));
    }

    #[test]
    fn servers_greet() {
        server("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\nxx", 22, "ssh", "OpenSSH_9.2p1 Debian-2");
        server("HTTP/1.1 200 OK\r\nServer:  nginx/1.2 \r\n\r\nServer: no", 80, "http", "nginx/1.2");
        server("220 mx ESMTP Postfix\r\n", 2525, "smtp", "mx ESMTP Postfix");
        server("220 (vsFTPd 3.0.3)\r\n", 2121, "ftp", "(vsFTPd 3.0.3)");
        server("220 ready\r\n", 25, "smtp", "ready");
        server("+OK Dovecot ready.\r\n", 110, "pop3", "Dovecot ready.");
        assert_eq!(Said::by_server(b"\x16\x03\x03\0\x50\x02", 443).unwrap().service, "tls");
        assert_eq!(Said::by_server(b"", 1), None);
    }

    #[test]
    fn clients_introduce_themselves() {
        let said =
            Said::by_client(b"GET / HTTP/1.1\r\nhost: a\r\nUSER-AGENT: curl/8\r\n\r\n").unwrap();
        assert_eq!(said.text, Some((Text::HttpUserAgent, &b"curl/8"[..])));
        assert_eq!(Said::by_client(b"GET / HTTP/1.1\r\n\r\n").unwrap().text, None);
        assert_eq!(Said::by_client(b"\x16\x03\x01\0\x50\x01").unwrap().service, "tls");
    }
}
