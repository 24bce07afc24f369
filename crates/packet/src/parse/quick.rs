//! Parsing 16 packets at once: TCP, UDP and ESP over IPv4 without VLAN tags, IP
//! options or fragments, which is most of the traffic there is.
//!
//! The first 64 bytes of 16 packets are a matrix of 16 by 16 words of 32 bits.
//! Transposed, each row is one piece of the header over 16 lanes, which is what
//! the transposed batch needs; what remains is to check and to shift. Packets
//! that are anything else are left to the scalar parser, which defines what is
//! right.
//!
//! `unsafe` here: vectors are loaded from and stored to arrays.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, __mmask16, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512,
    _mm512_cmpeq_epi32_mask, _mm512_cmpge_epu32_mask, _mm512_cmple_epu32_mask,
    _mm512_cvtepu16_epi32, _mm512_loadu_si512, _mm512_mask_blend_epi32, _mm512_mask_mov_epi32,
    _mm512_mask_storeu_epi32, _mm512_or_si512, _mm512_set1_epi32, _mm512_set4_epi32,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_slli_epi32,
    _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::Decapsulate;
use super::tunnel::{GENEVE_PORT, VXLAN_PORT};
use crate::headers::{Headers, Layer, ParseStatus};
use crate::key::field;
use crate::metadata::PortIndex;
use crate::transposed::TransposedKeys;
use crate::wire::{ethertype, header_len, ip_proto};
use thalweg_cpu::{Avx512, avx512};

/// Packets parsed at once.
pub(crate) const GROUP: usize = 16;

/// The bytes of a packet that are looked at, and of the frame before it, so that
/// the IP header begins on a multiple of 4.
pub(crate) const HEAD: usize = 64;
/// How far before the packet its head begins.
pub(crate) const BEFORE: usize = 2;

const ETHERNET: i32 = header_len::ETHERNET as i32;
const IPV4: i32 = header_len::IPV4 as i32;
const TCP: i32 = ip_proto::TCP as i32;
const UDP: i32 = ip_proto::UDP as i32;
const ESP: i32 = ip_proto::ESP as i32;
const TYPE_IPV4: i32 = ethertype::IPV4 as i32;

/// The words of the key that such packets have.
const WORDS: u32 = word_of(field::IN_PORT)
    | word_of(field::DL_DST)
    | word_of(field::DL_SRC)
    | word_of(field::NW_PROTO)
    | word_of(field::NW_SRC)
    | word_of(field::TP_SRC);

const fn word_of(field: crate::key::Field) -> u32 {
    1 << field.word
}

/// 16 neighbouring lanes of a batch.
pub(crate) struct Group<'a> {
    /// The first of the lanes: 0 or 16.
    pub(crate) first: usize,
    /// The heads of the packets; zeros for those that are not to be parsed.
    pub(crate) heads: [&'a [u8; HEAD]; GROUP],
    /// The packets' lengths in bytes.
    pub(crate) lens: &'a [u16; GROUP],
    /// The ports they came in by.
    pub(crate) in_ports: &'a [PortIndex; GROUP],
}

/// Parses those packets of `group` that it can. Sets their keys and headers,
/// and returns them: bit `i` for lane `first + i`.
#[inline]
pub(crate) fn parse(
    _: Avx512,
    group: &Group<'_>,
    decapsulate: Decapsulate,
    keys: &mut TransposedKeys,
    headers: &mut [Headers; GROUP],
) -> u16 {
    // SAFETY: an `Avx512` proves that the processor has AVX-512.
    unsafe { parse_avx512(group, decapsulate, keys, headers) }
}

#[avx512]
fn parse_avx512(
    group: &Group<'_>,
    decapsulate: Decapsulate,
    keys: &mut TransposedKeys,
    headers: &mut [Headers; GROUP],
) -> u16 {
    let rows = transpose(&group.heads);
    let checked = check(&rows, lengths(group.lens), decapsulate);
    if checked.good != 0 {
        write_keys(&rows, &checked, group, keys);
        write_headers(&checked, headers);
    }
    checked.good
}

/// What is known of the packets that pass the checks.
struct Checked {
    good: __mmask16,
    tcp: __mmask16,
    /// Packets that are not parsed beyond IP.
    esp: __mmask16,
    /// End of the network packet, and of the transport header.
    end: __m512i,
    payload: __m512i,
}

/// Row `i` of the result holds bytes `4 i..4 i + 4` of each head, as a number
/// with the first byte highest. Rows that are not requested are left out.
#[avx512]
#[inline]
fn transpose(heads: &[&[u8; HEAD]; GROUP]) -> [__m512i; 13] {
    let big_endian = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let mut a = [_mm512_setzero_si512(); GROUP];
    for (row, head) in a.iter_mut().zip(heads) {
        *row = _mm512_shuffle_epi8(load(head), big_endian);
    }
    // Pairs of rows, then fours: each 128-bit lane of `fours[4 i + j]` holds
    // word j of its quarter for rows 4 i to 4 i + 3.
    let mut fours = [_mm512_setzero_si512(); GROUP];
    for i in 0..4 {
        let (r0, r1, r2, r3) = (a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]);
        let (low01, low23) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpacklo_epi32(r2, r3));
        let (high01, high23) = (_mm512_unpackhi_epi32(r0, r1), _mm512_unpackhi_epi32(r2, r3));
        fours[4 * i] = _mm512_unpacklo_epi64(low01, low23);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(low01, low23);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(high01, high23);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
    // A transposition of 4 by 4 blocks of 128 bits assembles the rows.
    let mut rows = [_mm512_setzero_si512(); 13];
    for j in 0..4 {
        let (f0, f1, f2, f3) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        let (even01, even23) =
            (_mm512_shuffle_i32x4::<0x88>(f0, f1), _mm512_shuffle_i32x4::<0x88>(f2, f3));
        let (odd01, odd23) =
            (_mm512_shuffle_i32x4::<0xdd>(f0, f1), _mm512_shuffle_i32x4::<0xdd>(f2, f3));
        rows[j] = _mm512_shuffle_i32x4::<0x88>(even01, even23);
        rows[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd01, odd23);
        rows[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even01, even23);
        if j == 0 {
            rows[12] = _mm512_shuffle_i32x4::<0xdd>(odd01, odd23);
        }
    }
    rows
}

/// Finds the packets that are what we parse here and in which everything fits
/// together; the scalar parser would find them complete.
#[avx512]
#[inline]
fn check(rows: &[__m512i; 13], len: __m512i, decapsulate: Decapsulate) -> Checked {
    let is = |v: __m512i, mask: i32, value: i32| {
        _mm512_cmpeq_epi32_mask(_mm512_and_si512(v, number(mask)), number(value))
    };
    let low16 = number(0xffff);
    let protocol = |p: i32| is(rows[6], 0x00ff_0000, p << 16);
    let (tcp, udp, esp) = (protocol(TCP), protocol(UDP), protocol(ESP));

    // IPv4 without options; neither more fragments nor an offset.
    let ip = is(rows[3], 0xffff, TYPE_IPV4) & is(rows[4], 0xff00_0000u32 as i32, 0x4500_0000);
    let whole = is(rows[5], 0x3fff, 0);
    // The network packet ends within the available bytes.
    let total = _mm512_and_si512(rows[4], low16);
    let end = _mm512_add_epi32(total, number(ETHERNET));
    let within = _mm512_cmple_epu32_mask(end, len);

    // TCP's header has the length it declares, UDP's has 8 bytes, and ESP's is payload.
    let tcp_len = _mm512_and_si512(_mm512_srli_epi32::<26>(rows[12]), number(0x3c));
    let transport = _mm512_mask_blend_epi32(tcp, number(8), tcp_len);
    let long_enough = _mm512_cmpge_epu32_mask(transport, number(20)) | !tcp;
    let transport = _mm512_mask_mov_epi32(transport, esp, number(0));
    let payload = _mm512_add_epi32(transport, number(ETHERNET + IPV4));
    let fits = _mm512_cmple_epu32_mask(payload, end);
    // UDP's own length.
    let datagram = _mm512_srli_epi32::<16>(rows[10]);
    let room = _mm512_sub_epi32(total, number(IPV4));
    let consistent = _mm512_cmpge_epu32_mask(datagram, number(8))
        & _mm512_cmple_epu32_mask(datagram, room)
        | tcp
        | esp;
    // Possible tunnels are left to the scalar parser, which looks into them.
    let mut outer = 0;
    if decapsulate != Decapsulate::No {
        outer = udp
            & (is(rows[9], 0xffff, VXLAN_PORT as i32) | is(rows[9], 0xffff, GENEVE_PORT as i32));
    }
    let good = ip & whole & within & (tcp | udp | esp) & long_enough & fits & consistent & !outer;
    Checked { good, tcp, esp, end, payload }
}

/// The halves of the key's words, extracted from the header's rows.
#[avx512]
#[inline]
fn write_keys(
    rows: &[__m512i; 13],
    checked: &Checked,
    group: &Group<'_>,
    keys: &mut TransposedKeys,
) {
    let or = |a, b| _mm512_or_si512(a, b);
    let and = |a, mask: u32| _mm512_and_si512(a, number(mask as i32));
    let zero = _mm512_setzero_si512();

    let dl_dst_high = or(_mm512_slli_epi32::<16>(rows[0]), _mm512_srli_epi32::<16>(rows[1]));
    let dl_dst_low = or(_mm512_slli_epi32::<16>(rows[1]), and(rows[3], 0xffff));
    let proto_tos_ttl = or(
        and(_mm512_slli_epi32::<8>(rows[6]), 0xff00_0000),
        or(and(rows[4], 0x00ff_0000), and(_mm512_srli_epi32::<16>(rows[6]), 0xff00)),
    );
    let tcp_flags = _mm512_mask_blend_epi32(checked.tcp, zero, and(rows[12], 0x0fff_0000));
    let halves = [
        (field::IN_PORT, [zero, in_ports(group.in_ports)]),
        (field::DL_DST, [dl_dst_low, dl_dst_high]),
        (field::DL_SRC, [and(rows[3], 0xffff_0000), rows[2]]),
        (field::NW_PROTO, [proto_tos_ttl, zero]),
        (field::NW_SRC, [rows[8], rows[7]]),
        (field::TP_SRC, [tcp_flags, _mm512_mask_mov_epi32(rows[9], checked.esp, zero)]),
    ];
    let others = keys.present() & !WORDS;
    keys.make_present(WORDS);
    let mut write = |word: usize, [low, high]: [__m512i; 2]| {
        blend_into(keys.half_mut(2 * word), group.first, checked.good, low);
        blend_into(keys.half_mut(2 * word + 1), group.first, checked.good, high);
    };
    for (field, values) in halves {
        write(field.word as usize, values);
    }
    for word in crate::transposed::bits(others) {
        write(word, [zero, zero]);
    }
}

/// Headers where such packets have them: assembled one word of each at a time, then
/// transposed, so that each 128 bits are a packet's.
#[avx512]
#[inline]
fn write_headers(checked: &Checked, headers: &mut [Headers; GROUP]) {
    const COMPLETE: i32 = (ParseStatus::Complete as i32) << 16;
    const TRANSPORT: i32 = (Layer::Transport as i32) << 8 | COMPLETE;
    const NETWORK: i32 = (Layer::Network as i32) << 8 | COMPLETE;
    let Checked { good, tcp, esp, end, payload } = *checked;
    let upper = |v| _mm512_slli_epi32::<16>(v);
    let l4 = _mm512_mask_mov_epi32(number(ETHERNET + IPV4), esp, number(0));
    let kind = _mm512_mask_mov_epi32(number(UDP | TRANSPORT), tcp, number(TCP | TRANSPORT));
    let kind = _mm512_mask_mov_epi32(kind, esp, number(ESP | NETWORK));
    let l2_l3 = number(ETHERNET << 16);
    let l4_payload = _mm512_or_si512(l4, upper(payload));
    let end_type = _mm512_or_si512(end, number(TYPE_IPV4 << 16));

    let (low01, high01) =
        (_mm512_unpacklo_epi32(l2_l3, l4_payload), _mm512_unpackhi_epi32(l2_l3, l4_payload));
    let (low23, high23) =
        (_mm512_unpacklo_epi32(end_type, kind), _mm512_unpackhi_epi32(end_type, kind));
    // Of every fourth packet, from the first, second, third and fourth on.
    let (f0, f1) = (_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23));
    let (f2, f3) = (_mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23));
    let (first01, first23) =
        (_mm512_shuffle_i32x4::<0x44>(f0, f1), _mm512_shuffle_i32x4::<0x44>(f2, f3));
    let (last01, last23) =
        (_mm512_shuffle_i32x4::<0xee>(f0, f1), _mm512_shuffle_i32x4::<0xee>(f2, f3));
    let in_order = [
        _mm512_shuffle_i32x4::<0x88>(first01, first23),
        _mm512_shuffle_i32x4::<0xdd>(first01, first23),
        _mm512_shuffle_i32x4::<0x88>(last01, last23),
        _mm512_shuffle_i32x4::<0xdd>(last01, last23),
    ];
    for (n, (four, headers)) in in_order.into_iter().zip(headers.as_chunks_mut().0).enumerate() {
        store_headers(headers, words_of(good >> (4 * n)), four);
    }
}

/// The words of the headers of the first four packets of `good`.
fn words_of(good: __mmask16) -> __mmask16 {
    let spread = good & 1 | (good & 2) << 3 | (good & 4) << 6 | (good & 8) << 9;
    spread * 0xf
}

/// Overwrites headers by those words of `v` that are in `words`: all four of a packet, or none.
#[avx512]
#[inline]
fn store_headers(headers: &mut [Headers; 4], words: __mmask16, v: __m512i) {
    const { assert!(size_of::<[Headers; 4]>() == size_of::<__m512i>()) };
    // SAFETY: four headers have 64 bytes, and what is stored are headers, field by field: numbers
    // of 8 and 16 bits, numbers of a layer and a status that there are, and `false`.
    unsafe { _mm512_mask_storeu_epi32(headers.as_mut_ptr().cast(), words, v) }
}

#[avx512]
#[inline]
fn number(n: i32) -> __m512i {
    _mm512_set1_epi32(n)
}

#[avx512]
#[inline]
fn lengths(lens: &[u16; GROUP]) -> __m512i {
    // SAFETY: the array has 32 bytes; the load needs no alignment.
    let lens = unsafe { _mm256_loadu_si256(lens.as_ptr().cast()) };
    _mm512_cvtepu16_epi32(lens)
}

/// The ports as the key has them: one more, in the upper half.
#[avx512]
#[inline]
fn in_ports(ports: &[PortIndex; GROUP]) -> __m512i {
    // SAFETY: a `PortIndex` is a `u16`, so the array has 32 bytes; the load needs no alignment.
    let ports = unsafe { _mm256_loadu_si256(ports.as_ptr().cast()) };
    _mm512_slli_epi32::<16>(_mm512_add_epi32(_mm512_cvtepu16_epi32(ports), number(1)))
}

#[avx512]
#[inline]
fn load(bytes: &[u8; HEAD]) -> __m512i {
    // SAFETY: the array has 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[avx512]
#[inline]
fn load_words(words: &[u32; GROUP]) -> __m512i {
    // SAFETY: the array has 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[avx512]
#[inline]
fn store(words: &mut [u32; GROUP], v: __m512i) {
    // SAFETY: the array has 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), v) }
}

/// Replaces the lanes of `mask` in the 16 lanes from `first` on.
#[avx512]
#[inline]
fn blend_into(half: &mut crate::transposed::Half, first: usize, mask: __mmask16, v: __m512i) {
    let Some(lanes) = half[first..].first_chunk_mut::<GROUP>() else { return };
    let v = if mask == u16::MAX { v } else { _mm512_mask_blend_epi32(mask, load_words(lanes), v) };
    store(lanes, v);
}
