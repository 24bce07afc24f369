// ESP with HMAC-SHA1-96 (RFC 2404), one packet a work-item: what the forms of AES share.
//
// The table begins with four tables of AES and the number of associations; these follow. Words are the
// device's own, bytes of a packet are big-endian.
#ifndef ESP_SHARED
#define ESP_SHARED

typedef struct {
    uchar keys[48];
    // Round keys, and those of the equivalent inverse cipher.
    uint round[44], inverse[44];
    // SHA-1 after the first block of HMAC, inside and outside.
    uint inner[5], outer[5];
    uint unused[2];
    // Round keys in planes: aes_sliced.cl.
    uint sliced[88];
} esp_association;

typedef struct {
    // SubBytes with MixColumns, and their inverses; the others are these, rotated.
    uint mixed[256], unmixed[256];
    uchar sub[256], unsub[256];
} esp_tables;

typedef struct {
    esp_tables tables;
    uint associations, unused[15];
} esp_head;

uint esp_load(global const uchar *at)
{
    const uchar4 bytes = vload4(0, at);
    return (uint)bytes.x << 24 | (uint)bytes.y << 16 | (uint)bytes.z << 8 | bytes.w;
}

void esp_store(global uchar *at, uint word)
{
    vstore4((uchar4)(word >> 24, word >> 16 & 255, word >> 8 & 255, word & 255), 0, at);
}

uint4 esp_block(global const uchar *at)
{
    return (uint4)(esp_load(at), esp_load(at + 4), esp_load(at + 8), esp_load(at + 12));
}

void esp_store_block(global uchar *at, uint4 block)
{
    esp_store(at, block.x);
    esp_store(at + 4, block.y);
    esp_store(at + 8, block.z);
    esp_store(at + 12, block.w);
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

// What functions return, in the first word.
#define ESP_NO_PACKET 0
#define ESP_DONE 1
#define ESP_REFUSED 2
// The bytes ahead of the first block: SPI, sequence number, IV. The ICV has 12.
#define ESP_BODY 24
#define ESP_ICV 12

// The argument's first word: bit 0 for opening, bit 1 for an extended sequence number, and the association
// above; its second word: the upper half of that number, which is the result's second word.
bool esp_opens(uint2 argument)
{
    return argument.x & 1;
}

global const esp_association *esp_association_of(uint2 argument, global const uchar *table)
{
    return (global const esp_association *)((global const esp_head *)table + 1) + (argument.x >> 2);
}

// What comes before the cipher: ESP_DONE if the packet is to be sealed, or is authentic and to be opened.
uint esp_check(global const uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    if (argument.x >> 2 >= ((global const esp_head *)table)->associations || len < ESP_BODY + 16 + ESP_ICV
        || (len - ESP_BODY - ESP_ICV) % 16 != 0)
        return ESP_NO_PACKET;
    if (!esp_opens(argument)) return ESP_DONE;
    const uint end = len - ESP_ICV;
    uint icv[3], difference = 0;
    esp_authenticate(bytes, end, argument.x & 2, argument.y, esp_association_of(argument, table), icv);
    for (uint at = 0; at < 3; at++) difference |= icv[at] ^ esp_load(bytes + end + 4 * at);
    return difference == 0 ? ESP_DONE : ESP_REFUSED;
}

// What comes after the cipher: a packet that is sealed gets its ICV.
void esp_sign(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    if (esp_opens(argument)) return;
    const uint end = len - ESP_ICV;
    uint icv[3];
    esp_authenticate(bytes, end, argument.x & 2, argument.y, esp_association_of(argument, table), icv);
    for (uint at = 0; at < 3; at++) esp_store(bytes + end + 4 * at, icv[at]);
}

#endif
