// Looks for the literals of rules about payloads: a walk through an automaton, one payload a work-item.
//
// The table is that of automaton.rs, in words of the device: a mark, the number of classes of bytes, two
// unused words, the class of each byte, 256 sets, and an entry for each state and class. An entry has the
// place of the next state's entries, and in its low byte the number of the set of what ends here.

#define LITERALS_STEP(byte) do { \
        const uint entry = entries[at + class_of[byte]]; \
        if (entry & 255) found |= sets[entry & 255]; \
        at = entry >> 8; \
    } while (0)

// The argument's first word is the kind of the packet: 0 for TCP, 1 for UDP, 2 for others. Returns the union
// of the sets, and the mark of the table. The first three states are those in which a payload begins.
uint2 literals(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    global const uint *words = (global const uint *)table;
    global const uchar *class_of = table + 16;
    global const uint *sets = words + 68, *entries = words + 324;
    if (argument.x > 2) return (uint2)(0xffffffffu, words[0]);
    uint at = argument.x * words[1], found = 0, done = 0;
    for (; done + 4 <= len; done += 4) {
        const uchar4 four = vload4(0, bytes + done);
        LITERALS_STEP(four.x);
        LITERALS_STEP(four.y);
        LITERALS_STEP(four.z);
        LITERALS_STEP(four.w);
    }
    for (; done < len; done++) LITERALS_STEP(bytes[done]);
    return (uint2)(found, words[0]);
}
