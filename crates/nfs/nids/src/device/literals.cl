// Looks for the literals of rules about payloads: a walk through an automaton, one payload a work-item.
//
// The table is that of automaton.rs, in words of the device: a mark, the number of classes of bytes, the most
// bytes of a literal, an unused word, the class of each byte, 256 sets, and an entry for each state and
// class. An entry has the place of the next state's entries, and in its low byte the number of the set of
// what ends here.

#define LITERALS_STEP(at, byte) do { \
        const uint entry = entries[at + class_of[byte]]; \
        if (entry & 255) found |= sets[entry & 255]; \
        at = entry >> 8; \
    } while (0)

// From this many bytes on, four quarters are walked at once, as each step of a walk waits for memory. Each goes
// on into the next one until what began in it has ended; a quarter is longer than that.
#define LITERALS_LONG 64

// The argument's first word is the kind of the packet: 0 for TCP, 1 for UDP, 2 for others. Returns the union
// of the sets, and the mark of the table. The first three states are those in which a payload begins.
uint2 literals(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    global const uint *words = (global const uint *)table;
    global const uchar *class_of = table + 16;
    global const uint *sets = words + 68, *entries = words + 324;
    if (argument.x > 2) return (uint2)(0xffffffffu, words[0]);
    const uint first = argument.x * words[1];
    uint found = 0, n = 0, a = first;
    if (len < LITERALS_LONG) {
        for (; n < len; n++) LITERALS_STEP(a, bytes[n]);
        return (uint2)(found, words[0]);
    }
    const uint quarter = len / 4, until = quarter + words[2] - 1, last = len - 3 * quarter;
    uint b = first, c = first, d = first;
    global const uchar *second = bytes + quarter, *third = second + quarter, *fourth = third + quarter;
    for (; n < last; n++) {
        LITERALS_STEP(a, bytes[n]);
        LITERALS_STEP(b, second[n]);
        LITERALS_STEP(c, third[n]);
        LITERALS_STEP(d, fourth[n]);
    }
    for (; n < until; n++) {
        LITERALS_STEP(a, bytes[n]);
        LITERALS_STEP(b, second[n]);
        LITERALS_STEP(c, third[n]);
    }
    return (uint2)(found, words[0]);
}
