// Swaps the two Ethernet addresses.
uint2 reflect(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    if (len >= 12) {
        for (uint at = 0; at < 6; at++) {
            const uchar byte = bytes[at];
            bytes[at] = bytes[at + 6];
            bytes[at + 6] = byte;
        }
    }
    return (uint2)(argument.x, len);
}
