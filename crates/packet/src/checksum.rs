//! Internet checksums (RFC 1071) and their incremental update (RFC 1624).
