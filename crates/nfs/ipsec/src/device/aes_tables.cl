// AES-128-CBC (FIPS 197, RFC 3602) by tables in local memory. Which words of them a work-item reads depends on
// the key: the time that it takes may reveal it.

// A column of a round: the bytes that ShiftRows brings together.
uint esp_column(local const uint *table, uint a, uint b, uint c, uint d, uint key)
{
    return table[a >> 24] ^ rotate(table[b >> 16 & 255], 24u) ^ rotate(table[c >> 8 & 255], 16u)
        ^ rotate(table[d & 255], 8u) ^ key;
}

uint esp_last(local const uchar *table, uint a, uint b, uint c, uint d, uint key)
{
    return ((uint)table[a >> 24] << 24 | (uint)table[b >> 16 & 255] << 16
            | (uint)table[c >> 8 & 255] << 8 | table[d & 255]) ^ key;
}

uint4 esp_encrypt(uint4 s, local const esp_tables *tables, global const uint *key)
{
    local const uint *mixed = tables->mixed;
    s ^= vload4(0, key);
    for (uint round = 1; round < 10; round++) {
        const uint4 k = vload4(round, key);
        s = (uint4)(esp_column(mixed, s.x, s.y, s.z, s.w, k.x), esp_column(mixed, s.y, s.z, s.w, s.x, k.y),
                    esp_column(mixed, s.z, s.w, s.x, s.y, k.z), esp_column(mixed, s.w, s.x, s.y, s.z, k.w));
    }
    local const uchar *sub = tables->sub;
    const uint4 k = vload4(10, key);
    return (uint4)(esp_last(sub, s.x, s.y, s.z, s.w, k.x), esp_last(sub, s.y, s.z, s.w, s.x, k.y),
                   esp_last(sub, s.z, s.w, s.x, s.y, k.z), esp_last(sub, s.w, s.x, s.y, s.z, k.w));
}

uint4 esp_decrypt(uint4 s, local const esp_tables *tables, global const uint *key)
{
    local const uint *unmixed = tables->unmixed;
    s ^= vload4(0, key);
    for (uint round = 1; round < 10; round++) {
        const uint4 k = vload4(round, key);
        s = (uint4)(esp_column(unmixed, s.x, s.w, s.z, s.y, k.x), esp_column(unmixed, s.y, s.x, s.w, s.z, k.y),
                    esp_column(unmixed, s.z, s.y, s.x, s.w, k.z), esp_column(unmixed, s.w, s.z, s.y, s.x, k.w));
    }
    local const uchar *unsub = tables->unsub;
    const uint4 k = vload4(10, key);
    return (uint4)(esp_last(unsub, s.x, s.w, s.z, s.y, k.x), esp_last(unsub, s.y, s.x, s.w, s.z, k.y),
                   esp_last(unsub, s.z, s.y, s.x, s.w, k.z), esp_last(unsub, s.w, s.z, s.y, s.x, k.w));
}

// Seals or opens an ESP packet: esp.cl has the meaning of argument and result.
uint2 esp(global uchar *bytes, uint len, uint2 argument, global const uchar *table, local const uchar *near)
{
    const uint checked = esp_check(bytes, len, argument, table);
    if (checked != ESP_DONE) return (uint2)(checked, checked == ESP_REFUSED ? argument.y : 0);
    global const esp_association *sa = esp_association_of(argument, table);
    local const esp_tables *tables = (local const esp_tables *)near;
    uint4 last = esp_block(bytes + ESP_BODY - 16);
    for (uint at = ESP_BODY; at < len - ESP_ICV; at += 16) {
        const uint4 in = esp_block(bytes + at);
        if (esp_opens(argument)) {
            esp_store_block(bytes + at, esp_decrypt(in, tables, sa->inverse) ^ last);
            last = in;
        } else {
            last = esp_encrypt(in ^ last, tables, sa->round);
            esp_store_block(bytes + at, last);
        }
    }
    esp_sign(bytes, len, argument, table);
    return (uint2)(ESP_DONE, argument.y);
}
