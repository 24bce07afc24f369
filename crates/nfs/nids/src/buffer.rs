//! The buffers that rules inspect: the payload, and fields of application protocols.

use serde::{Deserialize, Serialize};

/// An application protocol whose messages are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Protocol {
    Http,
    Dns,
    Tls,
    Ssh,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "http" | "http1" => Self::Http,
            "dns" => Self::Dns,
            "tls" | "ssl" => Self::Tls,
            "ssh" => Self::Ssh,
            _ => return None,
        })
    }
}

macro_rules! buffers {
    ($($variant:ident $protocol:ident $to_server:ident $($name:literal $($old:literal)*)?,)*) => {
        /// The data in which a rule's content is searched.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub(super) enum Buffer {
            /// The payload of the packet, or the stream.
            #[default]
            Payload,
            $($variant,)*
        }

        impl Buffer {
            /// The number of buffers.
            pub(super) const COUNT: usize = 1 $(+ { let _ = Self::$variant; 1 })*;

            /// The names of options that select a buffer.
            #[cfg(test)]
            pub(super) const NAMES: &[&str] = &[$($($name, $($old,)*)?)* "pkt_data", "file_data"];

            /// The buffer that the option `name` selects for the tests after it ("sticky").
            pub(super) fn sticky(name: &str) -> Option<Self> {
                match name {
                    $($($name => Some(Self::$variant),)?)*
                    "pkt_data" => Some(Self::Payload),
                    "file_data" | "http.response_body" => Some(Self::FileData),
                    "dns_query" => Some(Self::DnsQuery),
                    "tls_sni" => Some(Self::TlsSni),
                    "tls_cert_subject" | "tls.subject" => Some(Self::TlsCertSubject),
                    "tls_cert_issuer" | "tls.issuerdn" => Some(Self::TlsCertIssuer),
                    _ => None,
                }
            }

            /// The buffer to which the option `name` moves the content before it.
            pub(super) fn modifier(name: &str) -> Option<Self> {
                match name {
                    $($($($old => Some(Self::$variant),)*)?)*
                    _ => None,
                }
            }

            /// Whether it grows as a message arrives.
            pub(super) fn is_body(self) -> bool {
                matches!(self, Self::FileData | Self::HttpRequestBody)
            }

            /// The protocol of the buffer; `None` for the payload.
            pub(super) fn protocol(self) -> Option<Protocol> {
                match self {
                    Self::Payload => None,
                    $(Self::$variant => Some(Protocol::$protocol),)*
                }
            }

            /// The direction that the buffer belongs to; `None` for both.
            pub(super) fn to_server(self) -> Option<bool> {
                match self {
                    Self::Payload => None,
                    $(Self::$variant => buffers!($to_server),)*
                }
            }
        }
    };
    (request) => { Some(true) };
    (response) => { Some(false) };
    (both) => { None };
}

buffers! {
    FileData Http both "file.data" "http_server_body",
    HttpMethod Http request "http.method" "http_method",
    HttpUri Http request "http.uri" "http_uri",
    HttpRawUri Http request "http.uri.raw" "http_raw_uri",
    HttpRequestLine Http request "http.request_line" "http_request_line",
    HttpProtocol Http both "http.protocol" "http_protocol",
    HttpHost Http request "http.host" "http_host",
    HttpRawHost Http request "http.host.raw" "http_raw_host",
    HttpUserAgent Http request "http.user_agent" "http_user_agent",
    HttpReferer Http request "http.referer" "http_referer",
    HttpAccept Http request "http.accept" "http_accept",
    HttpAcceptLanguage Http request "http.accept_lang" "http_accept_lang",
    HttpAcceptEncoding Http request "http.accept_enc" "http_accept_enc",
    HttpRequestHeader Http request "http.request_header",
    HttpRequestBody Http request "http.request_body" "http_client_body",
    HttpCookie Http both "http.cookie" "http_cookie",
    HttpHeader Http both "http.header" "http_header",
    HttpRawHeader Http both "http.header.raw" "http_raw_header",
    HttpHeaderNames Http both "http.header_names" "http_header_names",
    HttpConnection Http both "http.connection" "http_connection",
    HttpContentType Http both "http.content_type" "http_content_type",
    HttpContentLength Http both "http.content_len" "http_content_len",
    HttpStart Http both "http.start" "http_start",
    HttpResponseLine Http response "http.response_line" "http_response_line",
    HttpStatusCode Http response "http.stat_code" "http_stat_code",
    HttpStatusMessage Http response "http.stat_msg" "http_stat_msg",
    HttpServer Http response "http.server",
    HttpLocation Http response "http.location",
    HttpResponseHeader Http response "http.response_header",
    DnsQuery Dns request "dns.query",
    DnsQueryName Dns both "dns.queries.rrname",
    TlsSni Tls request "tls.sni",
    TlsCertSubject Tls response "tls.cert_subject",
    TlsCertIssuer Tls response "tls.cert_issuer",
    TlsCertSerial Tls response "tls.cert_serial",
    SshProto Ssh both "ssh.proto",
    SshSoftware Ssh both "ssh.software",
    // The name of an oddity, for which `app-layer-event` asks.
    HttpEvent Http both,
}

impl Buffer {
    /// Whether a message may have several of these buffers, each inspected by itself.
    pub(super) fn is_multiple(self) -> bool {
        matches!(
            self,
            Self::HttpRequestHeader
                | Self::HttpResponseHeader
                | Self::HttpEvent
                | Self::DnsQuery
                | Self::DnsQueryName
        )
    }

    /// The buffer that a flag of `pcre` names.
    pub(super) fn of_flag(flag: char) -> Option<Self> {
        Some(match flag {
            'U' => Self::HttpUri,
            'I' => Self::HttpRawUri,
            'P' => Self::HttpRequestBody,
            'Q' => Self::FileData,
            'H' => Self::HttpHeader,
            'D' => Self::HttpRawHeader,
            'M' => Self::HttpMethod,
            'C' => Self::HttpCookie,
            'S' => Self::HttpStatusCode,
            'Y' => Self::HttpStatusMessage,
            'V' => Self::HttpUserAgent,
            'W' => Self::HttpHost,
            _ => return None,
        })
    }
}
