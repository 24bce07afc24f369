//! Writing headers.
