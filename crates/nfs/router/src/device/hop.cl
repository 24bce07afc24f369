// Looks up the next hop of a destination address, one packet a work-item.
//
// The table is that of trie.rs, in words of the device: a mark, and the places of the entries for the first
// 16 bits of addresses of IPv4 and of IPv6. The highest bit of an entry distinguishes the place of 16 entries
// for the next four bits from the number of a next hop.

// Returns the number of the next hop, or one beyond all numbers if the processor has to look it up, and the
// mark of the table.
uint2 hop(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    global const uint *words = (global const uint *)table;
    if (len != 4 && len != 16) return (uint2)(0x7fffffffu, words[0]);
    const uint first = (uint)bytes[0] << 8 | bytes[1];
    uint entry = words[(len == 4 ? words[1] : words[2]) + first];
    for (uint at = 4; entry >> 31 && at < 2 * len; at++) {
        const uint byte = bytes[at / 2];
        entry = words[(entry & 0x7fffffffu) + (at % 2 == 0 ? byte >> 4 : byte & 15)];
    }
    return (uint2)(entry, words[0]);
}
