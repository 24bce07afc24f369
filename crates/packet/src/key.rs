//! The flow key: a packet's header fields as 64-bit words.

/// How many 64-bit words a flow key has.
pub const KEY_WORDS: usize = 23;

/// The header fields of a packet as 64-bit words, in host byte order. Absent
/// fields are zero. The same type holds masks: a set bit is a bit that matters.
///
/// The words follow the order in which parsing meets them, so that the present
/// words of ordinary packets lie together ([`MiniFlow`](crate::MiniFlow)).
/// [`field`] names each field's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub struct FlowKey {
    /// The words; [`field`] defines their layout.
    pub words: [u64; KEY_WORDS],
}

/// The place of one field: `bits` bits of word `word`, from bit `shift` up.
///
/// A 128-bit field has two of these, high half first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Index into [`FlowKey::words`].
    pub word: u8,
    /// Position of the field's lowest bit.
    pub shift: u8,
    /// Width in bits, 1 to 64.
    pub bits: u8,
}

impl Field {
    const fn new(word: u8, shift: u8, bits: u8) -> Self {
        assert!(bits >= 1 && shift as u32 + bits as u32 <= 64 && (word as usize) < KEY_WORDS);
        Self { word, shift, bits }
    }

    /// All ones in the field's width, right-aligned.
    pub const fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

impl FlowKey {
    /// The key with every bit set: the exact-match mask.
    pub const EXACT: Self = Self { words: [u64::MAX; KEY_WORDS] };

    /// The value of `field`, right-aligned.
    #[inline]
    pub const fn get(&self, field: Field) -> u64 {
        self.words[field.word as usize] >> field.shift & field.max()
    }

    /// Sets `field` to the low bits of `value`.
    #[inline]
    pub const fn set(&mut self, field: Field, value: u64) {
        let mask = field.max() << field.shift;
        let word = &mut self.words[field.word as usize];
        *word = *word & !mask | value << field.shift & mask;
    }

    /// A 128-bit field.
    #[inline]
    pub const fn get128(&self, field: [Field; 2]) -> u128 {
        (self.get(field[0]) as u128) << 64 | self.get(field[1]) as u128
    }

    /// Sets a 128-bit field.
    #[inline]
    pub const fn set128(&mut self, field: [Field; 2], value: u128) {
        self.set(field[0], (value >> 64) as u64);
        self.set(field[1], value as u64);
    }

    /// The key with only the bits of `mask` left.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] & mask.words[i]) }
    }

    /// The bits set in either: the union of two masks.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// Whether `self` and `other` agree on every bit of `mask`.
    #[inline]
    pub fn matches(&self, other: &Self, mask: &Self) -> bool {
        let difference =
            (0..KEY_WORDS).fold(0, |d, i| d | (self.words[i] ^ other.words[i]) & mask.words[i]);
        difference == 0
    }
}

/// Where each field lies in a [`FlowKey`].
///
/// Fields keep their width on the wire. VLAN tags are kept whole: `VLAN_TCI`
/// has the bit [`VLAN_PRESENT`](field::VLAN_PRESENT) set when there is a tag,
/// so that "no tag" differs from "tag with VID 0".
pub mod field {
    use super::Field;

    /// The bit of a TCI that marks the tag as present (the place of CFI/DEI).
    pub const VLAN_PRESENT: u64 = 0x1000;
    /// Bit of [`NW_FRAG`]: the packet is a fragment.
    pub const FRAG_ANY: u64 = 1;
    /// Bit of [`NW_FRAG`]: a fragment other than the first.
    pub const FRAG_LATER: u64 = 2;

    /// Tunnel key: VXLAN or Geneve VNI, GRE key.
    pub const TUN_ID: Field = Field::new(0, 0, 64);
    /// Outer IPv4 source of a decapsulated packet.
    pub const TUN_SRC: Field = Field::new(1, 32, 32);
    /// Outer IPv4 destination of a decapsulated packet.
    pub const TUN_DST: Field = Field::new(1, 0, 32);
    /// Outer IPv6 source of a decapsulated packet.
    pub const TUN_IPV6_SRC: [Field; 2] = [Field::new(2, 0, 64), Field::new(3, 0, 64)];
    /// Outer IPv6 destination of a decapsulated packet.
    pub const TUN_IPV6_DST: [Field; 2] = [Field::new(4, 0, 64), Field::new(5, 0, 64)];
    /// Input port of the packet, plus one (0 = unknown).
    pub const IN_PORT: Field = Field::new(6, 48, 16);
    /// Kind of tunnel that was decapsulated: 0 none, 1 VXLAN, 2 GRE, 3 Geneve, 4 IP in IP.
    pub const TUN_KIND: Field = Field::new(6, 40, 8);
    /// Free for the user of the key (a switch's metadata, recirculation).
    pub const METADATA: Field = Field::new(6, 0, 32);
    /// Ethernet destination.
    pub const DL_DST: Field = Field::new(7, 16, 48);
    /// EtherType after all VLAN tags; 0x05ff for 802.3 frames without SNAP, as
    /// in Open vSwitch.
    pub const DL_TYPE: Field = Field::new(7, 0, 16);
    /// Ethernet source.
    pub const DL_SRC: Field = Field::new(8, 16, 48);
    /// Outer VLAN tag's TCI, with [`VLAN_PRESENT`].
    pub const VLAN_TCI: Field = Field::new(9, 48, 16);
    /// Outer VLAN tag's TPID.
    pub const VLAN_TPID: Field = Field::new(9, 32, 16);
    /// Inner VLAN tag's TCI, with [`VLAN_PRESENT`].
    pub const VLAN2_TCI: Field = Field::new(9, 16, 16);
    /// Inner VLAN tag's TPID.
    pub const VLAN2_TPID: Field = Field::new(9, 0, 16);
    /// Outermost MPLS label stack entry.
    pub const MPLS_LSE: Field = Field::new(10, 32, 32);
    /// Second MPLS label stack entry.
    pub const MPLS_LSE2: Field = Field::new(10, 0, 32);
    /// Third MPLS label stack entry.
    pub const MPLS_LSE3: Field = Field::new(11, 32, 32);
    /// IP protocol (after IPv6 extension headers); low byte of the ARP opcode.
    pub const NW_PROTO: Field = Field::new(11, 24, 8);
    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    pub const NW_TOS: Field = Field::new(11, 16, 8);
    /// TTL or hop limit.
    pub const NW_TTL: Field = Field::new(11, 8, 8);
    /// [`FRAG_ANY`] and [`FRAG_LATER`].
    pub const NW_FRAG: Field = Field::new(11, 0, 8);
    /// IPv4 source; ARP sender protocol address.
    pub const NW_SRC: Field = Field::new(12, 32, 32);
    /// IPv4 destination; ARP target protocol address.
    pub const NW_DST: Field = Field::new(12, 0, 32);
    /// IPv6 source.
    pub const IPV6_SRC: [Field; 2] = [Field::new(13, 0, 64), Field::new(14, 0, 64)];
    /// IPv6 destination.
    pub const IPV6_DST: [Field; 2] = [Field::new(15, 0, 64), Field::new(16, 0, 64)];
    /// IPv6 flow label, 20 bits.
    pub const IPV6_LABEL: Field = Field::new(17, 32, 32);
    /// TCP, UDP or SCTP source port; ICMP or ICMPv6 type.
    pub const TP_SRC: Field = Field::new(18, 48, 16);
    /// TCP, UDP or SCTP destination port; ICMP or ICMPv6 code.
    pub const TP_DST: Field = Field::new(18, 32, 16);
    /// TCP flags, 12 bits with the reserved ones.
    pub const TCP_FLAGS: Field = Field::new(18, 16, 16);
    /// ICMP or ICMPv6 echo identifier.
    pub const ICMP_ID: Field = Field::new(18, 0, 16);
    /// ARP sender hardware address; ND source link-layer address option.
    pub const ARP_SHA: Field = Field::new(19, 16, 48);
    /// ARP target hardware address; ND target link-layer address option.
    pub const ARP_THA: Field = Field::new(20, 16, 48);
    /// ND target address.
    pub const ND_TARGET: [Field; 2] = [Field::new(21, 0, 64), Field::new(22, 0, 64)];

    /// All fields of up to 64 bits.
    pub const NARROW: [Field; 29] = [
        TUN_ID, TUN_SRC, TUN_DST, IN_PORT, TUN_KIND, METADATA, DL_DST, DL_TYPE, DL_SRC, VLAN_TCI,
        VLAN_TPID, VLAN2_TCI, VLAN2_TPID, MPLS_LSE, MPLS_LSE2, MPLS_LSE3, NW_PROTO, NW_TOS, NW_TTL,
        NW_FRAG, NW_SRC, NW_DST, IPV6_LABEL, TP_SRC, TP_DST, TCP_FLAGS, ICMP_ID, ARP_SHA, ARP_THA,
    ];
    /// All fields of 128 bits.
    pub const WIDE: [[Field; 2]; 5] = [TUN_IPV6_SRC, TUN_IPV6_DST, IPV6_SRC, IPV6_DST, ND_TARGET];
}
