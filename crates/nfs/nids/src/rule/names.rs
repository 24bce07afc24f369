//! Names that a rule may use as values, known but not supported: any other is a typo.

use thalweg_source::nearest;

/// Actions of Suricata and Snort that are not supported.
pub(super) const ACTIONS: &[&str] = &[
    "accept",
    "activate",
    "block",
    "config",
    "dynamic",
    "log",
    "react",
    "reject",
    "rejectboth",
    "rejectdst",
    "rejectsrc",
    "rewrite",
    "sdrop",
];

/// Protocols of Suricata and Snort that are not supported.
#[rustfmt::skip]
pub(super) const PROTOCOLS: &[&str] = &[
    "ah", "arp", "bittorrent-dht", "dcerpc", "dhcp", "dnp3", "doh2", "enip", "esp", "ether",
    "file", "ftp", "ftp-data", "gre", "http2", "igmp", "ike", "ikev2", "imap", "irc", "jabber",
    "krb5", "ldap", "llmnr", "mdns", "modbus", "mqtt", "msn", "mysql", "nfs", "ntp", "pgsql",
    "pop3", "quic", "rdp", "rfb", "sip", "smb", "smtp", "snmp", "telnet", "template", "tftp",
    "user", "websocket",
];

/// Protocols that are supported in a rule's header.
#[rustfmt::skip]
pub(super) const SUPPORTED_PROTOCOLS: &[&str] = &[
    "dns", "http", "http1", "icmp", "icmpv4", "icmpv6", "ip", "ip4", "ip6", "ipv4", "ipv6",
    "pkthdr", "sctp", "ssh", "ssl", "tcp", "tcp-pkt", "tcp-stream", "tls", "udp",
];

/// Events of `decode-event` in Suricata, supported or not.
#[rustfmt::skip]
pub(super) const EVENTS: &[&str] = &[
    "afpacket.trunc_pkt", "arp.invalid_hardware_size", "arp.invalid_protocol_size",
    "arp.pkt_too_small", "arp.unsupported_hardware", "arp.unsupported_opcode",
    "arp.unsupported_pkt", "arp.unsupported_protocol", "cdp.pkt_too_small", "chdlc.pkt_too_small",
    "dce.pkt_too_small", "erspan.header_too_small", "erspan.too_many_vlan_layers",
    "erspan.unsupported_version", "esp.pkt_too_small", "etag.header_too_small", "etag.unknown_type",
    "ethernet.pkt_too_small", "ethernet.unknown_ethertype", "geneve.unknown_payload_type",
    "gre.pkt_too_small", "gre.version0_flags", "gre.version0_hdr_too_big",
    "gre.version0_malformed_sre_hdr", "gre.version0_recur", "gre.version1_chksum",
    "gre.version1_flags", "gre.version1_hdr_too_big", "gre.version1_malformed_sre_hdr",
    "gre.version1_no_key", "gre.version1_recur", "gre.version1_route", "gre.version1_ssr",
    "gre.version1_wrong_protocol", "gre.wrong_version", "icmpv4.ipv4_trunc_pkt",
    "icmpv4.ipv4_unknown_ver", "icmpv4.pkt_too_small", "icmpv4.unknown_code", "icmpv4.unknown_type",
    "icmpv6.experimentation_type", "icmpv6.ipv6_trunc_pkt", "icmpv6.ipv6_unknown_version",
    "icmpv6.mld_message_with_invalid_hl", "icmpv6.pkt_too_small", "icmpv6.unassigned_type",
    "icmpv6.unknown_code", "icmpv6.unknown_type", "ieee8021ah.header_too_small", "igmp.malformed",
    "igmp.pkt_too_small", "igmp.v3_pkt_too_small", "ipraw.invalid_ip_version", "ipv4.frag_ignored",
    "ipv4.frag_overlap", "ipv4.frag_pkt_too_large", "ipv4.hlen_too_small", "ipv4.icmpv6",
    "ipv4.iplen_smaller_than_hlen", "ipv4.opt_duplicate", "ipv4.opt_eol_required",
    "ipv4.opt_invalid", "ipv4.opt_invalid_len", "ipv4.opt_malformed", "ipv4.opt_pad_required",
    "ipv4.opt_unknown", "ipv4.pkt_too_small", "ipv4.trunc_pkt", "ipv4.unknown_protocol",
    "ipv4.wrong_ip_version", "ipv6.data_after_none_header", "ipv6.dstopts_only_padding",
    "ipv6.dstopts_unknown_opt", "ipv6.exthdr_ah_res_not_null", "ipv6.exthdr_dupl_ah",
    "ipv6.exthdr_dupl_dh", "ipv6.exthdr_dupl_eh", "ipv6.exthdr_dupl_fh", "ipv6.exthdr_dupl_hh",
    "ipv6.exthdr_dupl_rh", "ipv6.exthdr_invalid_optlen", "ipv6.exthdr_useless_fh",
    "ipv6.fh_non_zero_reserved_field", "ipv6.frag_ignored", "ipv6.frag_invalid_length",
    "ipv6.frag_overlap", "ipv6.frag_pkt_too_large", "ipv6.hopopts_only_padding",
    "ipv6.hopopts_unknown_opt", "ipv6.icmpv4", "ipv6.ipv4_in_ipv6_too_small",
    "ipv6.ipv4_in_ipv6_wrong_version", "ipv6.ipv6_in_ipv6_too_small",
    "ipv6.ipv6_in_ipv6_wrong_version", "ipv6.pkt_too_small", "ipv6.rh_type_0", "ipv6.trunc_exthdr",
    "ipv6.trunc_pkt", "ipv6.unknown_next_header", "ipv6.wrong_ip_version", "ipv6.zero_len_padn",
    "ltnull.pkt_too_small", "ltnull.unsupported_type", "mpls.bad_label_implicit_null",
    "mpls.bad_label_reserved", "mpls.bad_label_router_alert", "mpls.header_too_small",
    "mpls.pkt_too_small", "mpls.unknown_payload_type", "nsh.bad_header_length",
    "nsh.header_too_small", "nsh.reserved_type", "nsh.unknown_payload", "nsh.unsupported_type",
    "nsh.unsupported_version", "ppp.ip4_pkt_too_small", "ppp.ip6_pkt_too_small",
    "ppp.pkt_too_small", "ppp.unsup_proto", "ppp.vju_pkt_too_small", "ppp.wrong_type",
    "pppoe.malformed_tags", "pppoe.pkt_too_small", "pppoe.wrong_code", "sctp.pkt_too_small",
    "sll.pkt_too_small", "sll2.pkt_too_small", "tcp.hlen_too_small", "tcp.invalid_optlen",
    "tcp.opt_duplicate", "tcp.opt_invalid_len", "tcp.pkt_too_small", "too_many_layers",
    "udp.hlen_invalid", "udp.hlen_too_small", "udp.len_invalid", "udp.pkt_too_small",
    "vlan.header_too_small", "vlan.too_many_layers", "vlan.unknown_type", "vntag.header_too_small",
    "vntag.unknown_type", "vxlan.unknown_payload_type",
];

/// Events of `app-layer-event` of HTTP in Suricata that are not supported.
#[rustfmt::skip]
pub(super) const HTTP_EVENTS: &[&str] = &[
    "compression_bomb_limit_reached", "double_encoded_uri", "failed_protocol_change",
    "file_name_too_long", "invalid_authority_port", "invalid_server_port_in_request",
    "invalid_transfer_encoding_value_in_response", "lzma_memlimit_reached",
    "multipart_generic_error", "multipart_invalid_header", "multipart_no_filedata",
    "request_chunk_extension", "request_header_repetition", "request_line_incomplete",
    "request_line_invalid", "request_line_missing_protocol",
    "request_server_port_tcp_port_mismatch", "response_chunk_extension", "response_field_too_long",
    "response_header_repetition", "response_multipart_byteranges", "too_many_warnings",
    "unknown_error",
];

/// Events of `app-layer-event` in Suricata that belong to no protocol.
pub(super) const APPLICATION_EVENTS: &[&str] = &[
    "applayer_detect_protocol_only_one_direction",
    "applayer_mismatch_protocol_both_directions",
    "applayer_no_tls_after_starttls",
    "applayer_proto_detection_skipped",
    "applayer_unexpected_protocol",
    "applayer_wrong_direction_first_data",
];

/// What was expected, with the name that `text` is probably a misspelling of.
pub(super) fn suggested<'a>(
    expected: &str,
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> String {
    match nearest(text, names) {
        Some(name) => format!("{expected}; did you mean '{name}'?"),
        None => expected.to_owned(),
    }
}
