//! What a kernel, or a driver, writes into the rings of AF_XDP.

/// Acts out a kernel; nothing that it does harms us, and no frame is lost.
pub fn xdp(data: &[u8]) {
    thalweg_io::replay_xdp(data);
}
