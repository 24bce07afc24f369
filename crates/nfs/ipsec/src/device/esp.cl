// ESP with AES-128-CBC and HMAC-SHA1-96 (RFC 3602, RFC 2404), one packet a work-item.
//
// The table begins with four tables of AES (FIPS 197) and the number of associations; these follow. Words
// are the device's own, bytes of a packet are big-endian.

typedef struct {
    uchar keys[48];
    // Round keys, and those of the equivalent inverse cipher.
    uint round[44], inverse[44];
    // SHA-1 after the first block of HMAC, inside and outside.
    uint inner[5], outer[5];
    uint unused[2];
} esp_association;

typedef struct {
    // SubBytes with MixColumns, and their inverses; the others are these, rotated.
    uint mixed[256], unmixed[256];
    uchar sub[256], unsub[256];
    uint associations, unused[15];
} esp_tables;

uint esp_load(global const uchar *at)
{
    const uchar4 bytes = vload4(0, at);
    return (uint)bytes.x << 24 | (uint)bytes.y << 16 | (uint)bytes.z << 8 | bytes.w;
}

void esp_store(global uchar *at, uint word)
{
    vstore4((uchar4)(word >> 24, word >> 16 & 255, word >> 8 & 255, word & 255), 0, at);
}

// A column of a round: the bytes that ShiftRows brings together.
uint esp_column(global const uint *table, uint a, uint b, uint c, uint d, uint key)
{
    return table[a >> 24] ^ rotate(table[b >> 16 & 255], 24u) ^ rotate(table[c >> 8 & 255], 16u)
        ^ rotate(table[d & 255], 8u) ^ key;
}

uint esp_last(global const uchar *table, uint a, uint b, uint c, uint d, uint key)
{
    return ((uint)table[a >> 24] << 24 | (uint)table[b >> 16 & 255] << 16
            | (uint)table[c >> 8 & 255] << 8 | table[d & 255]) ^ key;
}

uint4 esp_encrypt(uint4 s, global const esp_tables *tables, global const uint *key)
{
    global const uint *mixed = tables->mixed;
    s ^= vload4(0, key);
    for (uint round = 1; round < 10; round++) {
        const uint4 k = vload4(round, key);
        s = (uint4)(esp_column(mixed, s.x, s.y, s.z, s.w, k.x), esp_column(mixed, s.y, s.z, s.w, s.x, k.y),
                    esp_column(mixed, s.z, s.w, s.x, s.y, k.z), esp_column(mixed, s.w, s.x, s.y, s.z, k.w));
    }
    global const uchar *sub = tables->sub;
    const uint4 k = vload4(10, key);
    return (uint4)(esp_last(sub, s.x, s.y, s.z, s.w, k.x), esp_last(sub, s.y, s.z, s.w, s.x, k.y),
                   esp_last(sub, s.z, s.w, s.x, s.y, k.z), esp_last(sub, s.w, s.x, s.y, s.z, k.w));
}

uint4 esp_decrypt(uint4 s, global const esp_tables *tables, global const uint *key)
{
    global const uint *unmixed = tables->unmixed;
    s ^= vload4(0, key);
    for (uint round = 1; round < 10; round++) {
        const uint4 k = vload4(round, key);
        s = (uint4)(esp_column(unmixed, s.x, s.w, s.z, s.y, k.x), esp_column(unmixed, s.y, s.x, s.w, s.z, k.y),
                    esp_column(unmixed, s.z, s.y, s.x, s.w, k.z), esp_column(unmixed, s.w, s.z, s.y, s.x, k.w));
    }
    global const uchar *unsub = tables->unsub;
    const uint4 k = vload4(10, key);
    return (uint4)(esp_last(unsub, s.x, s.w, s.z, s.y, k.x), esp_last(unsub, s.y, s.x, s.w, s.z, k.y),
                   esp_last(unsub, s.z, s.y, s.x, s.w, k.z), esp_last(unsub, s.w, s.z, s.y, s.x, k.w));
}

// Adds a block of 16 words to a state of SHA-1 (FIPS 180-4). The steps are written out, so that the words
// stay in registers.
#define ESP_WORD(t) (block[(t) & 15] = rotate( \
    block[((t) + 13) & 15] ^ block[((t) + 8) & 15] ^ block[((t) + 2) & 15] ^ block[(t) & 15], 1u))
#define ESP_STEP(f, k, word, a, b, c, d, e) \
    e += rotate(a, 5u) + f(b, c, d) + k + (word), b = rotate(b, 30u)
#define ESP_CHOOSE(b, c, d) bitselect(d, c, b)
#define ESP_PARITY(b, c, d) (b ^ c ^ d)
#define ESP_MAJORITY(b, c, d) bitselect(b, c, b ^ d)
#define ESP_FIVE(f, k, word, t) \
    ESP_STEP(f, k, word(t), a, b, c, d, e); ESP_STEP(f, k, word(t + 1), e, a, b, c, d); \
    ESP_STEP(f, k, word(t + 2), d, e, a, b, c); ESP_STEP(f, k, word(t + 3), c, d, e, a, b); \
    ESP_STEP(f, k, word(t + 4), b, c, d, e, a)
#define ESP_TWENTY(f, k, t) \
    ESP_FIVE(f, k, ESP_WORD, t); ESP_FIVE(f, k, ESP_WORD, t + 5); \
    ESP_FIVE(f, k, ESP_WORD, t + 10); ESP_FIVE(f, k, ESP_WORD, t + 15)
#define ESP_GIVEN(t) block[t]

void esp_hash(uint *state, uint *block)
{
    uint a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    ESP_FIVE(ESP_CHOOSE, 0x5a827999u, ESP_GIVEN, 0);
    ESP_FIVE(ESP_CHOOSE, 0x5a827999u, ESP_GIVEN, 5);
    ESP_FIVE(ESP_CHOOSE, 0x5a827999u, ESP_GIVEN, 10);
    ESP_STEP(ESP_CHOOSE, 0x5a827999u, block[15], a, b, c, d, e);
    ESP_STEP(ESP_CHOOSE, 0x5a827999u, ESP_WORD(16), e, a, b, c, d);
    ESP_STEP(ESP_CHOOSE, 0x5a827999u, ESP_WORD(17), d, e, a, b, c);
    ESP_STEP(ESP_CHOOSE, 0x5a827999u, ESP_WORD(18), c, d, e, a, b);
    ESP_STEP(ESP_CHOOSE, 0x5a827999u, ESP_WORD(19), b, c, d, e, a);
    ESP_TWENTY(ESP_PARITY, 0x6ed9eba1u, 20);
    ESP_TWENTY(ESP_MAJORITY, 0x8f1bbcdcu, 40);
    ESP_TWENTY(ESP_PARITY, 0xca62c1d6u, 60);
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

// The first three words of the HMAC over `len` bytes, a multiple of 4, and, if `extended`, the upper half
// of the sequence number.
void esp_authenticate(global const uchar *bytes, uint len, bool extended, uint high,
                      global const esp_association *sa, uint *icv)
{
    uint state[5], block[16];
    for (uint at = 0; at < 5; at++) state[at] = sa->inner[at];
    uint done = 0;
    for (; done + 64 <= len; done += 64) {
        for (uint word = 0; word < 16; word++) block[word] = esp_load(bytes + done + 4 * word);
        esp_hash(state, block);
    }
    uint word = 0;
    for (; done < len; done += 4) block[word++] = esp_load(bytes + done);
    // Up to 15 words: room for one more.
    if (extended) block[word++] = high;
    const uint bits = (64 + len + (extended ? 4 : 0)) * 8;
    if (word == 16) {
        esp_hash(state, block);
        word = 0;
    }
    block[word++] = 0x80000000u;
    if (word > 14) {
        while (word < 16) block[word++] = 0;
        esp_hash(state, block);
        word = 0;
    }
    while (word < 15) block[word++] = 0;
    block[15] = bits;
    esp_hash(state, block);
    for (uint at = 0; at < 5; at++) block[at] = state[at], state[at] = sa->outer[at];
    block[5] = 0x80000000u;
    for (uint at = 6; at < 15; at++) block[at] = 0;
    block[15] = (64 + 20) * 8;
    esp_hash(state, block);
    for (uint at = 0; at < 3; at++) icv[at] = state[at];
}

// The argument's first word: bit 0 for opening, bit 1 for an extended sequence number, and the association
// above; its second word: the upper half of that number. Returns 1 if it is done, 2 if the ICV is wrong, with
// the argument's second word, and 0 if there is no such packet.
uint2 esp(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    global const esp_tables *tables = (global const esp_tables *)table;
    const bool opens = argument.x & 1, extended = argument.x & 2;
    const uint number = argument.x >> 2, body = 8 + 16;
    if (number >= tables->associations || len < body + 16 + 12 || (len - body - 12) % 16 != 0)
        return (uint2)(0, 0);
    global const esp_association *sa = (global const esp_association *)(tables + 1) + number;
    const uint end = len - 12;
    uint icv[3];
    uint4 last = (uint4)(esp_load(bytes + 8), esp_load(bytes + 12), esp_load(bytes + 16), esp_load(bytes + 20));
    if (opens) {
        esp_authenticate(bytes, end, extended, argument.y, sa, icv);
        uint difference = 0;
        for (uint at = 0; at < 3; at++) difference |= icv[at] ^ esp_load(bytes + end + 4 * at);
        if (difference != 0) return (uint2)(2, argument.y);
    }
    for (uint at = body; at < end; at += 16) {
        const uint4 in = (uint4)(esp_load(bytes + at), esp_load(bytes + at + 4), esp_load(bytes + at + 8),
                                 esp_load(bytes + at + 12));
        uint4 out;
        if (opens) {
            out = esp_decrypt(in, tables, sa->inverse) ^ last;
            last = in;
        } else {
            out = last = esp_encrypt(in ^ last, tables, sa->round);
        }
        esp_store(bytes + at, out.x);
        esp_store(bytes + at + 4, out.y);
        esp_store(bytes + at + 8, out.z);
        esp_store(bytes + at + 12, out.w);
    }
    if (!opens) {
        esp_authenticate(bytes, end, extended, argument.y, sa, icv);
        for (uint at = 0; at < 3; at++) esp_store(bytes + end + 4 * at, icv[at]);
    }
    return (uint2)(1, argument.y);
}
