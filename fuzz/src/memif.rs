//! What a peer of memif says and writes into shared memory.

/// Acts out a peer; nothing that it does harms us, and no frame is lost.
pub fn memif(data: &[u8]) {
    thalweg_io::replay_memif(data);
}
