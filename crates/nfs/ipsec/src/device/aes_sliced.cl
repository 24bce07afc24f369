// AES-128-CBC (FIPS 197, RFC 3602) in planes of bits: no address and no branch depends on the key, nor on what
// is encrypted.
//
// Two blocks are eight planes: plane i has bit i of each byte, in row r and column c of block b at bit
// 8 * (3 - r) + 2 * c + b. Sealing has one block at a time, as each needs the one before it; opening has two.
//
// ShiftRows moves nothing: after k rounds, row r of column c lies at column c + k * r instead, which MixColumns
// takes into account (Adomnicai and Peyrin, "Fixslicing AES-like Ciphers", 2020). Round keys are laid out so by
// tables.rs, with the constant of SubBytes in them.

// SubBytes without its constant, and the inverse, by Boyar, Peralta and Calik (cs.yale.edu/homes/peralta:
// CircuitStuff), in the order of the crate `aes`.
void esp_sub(uint *q)
{
    const uint u7 = q[0], u6 = q[1], u5 = q[2], u4 = q[3], u3 = q[4], u2 = q[5], u1 = q[6], u0 = q[7];
    const uint y14 = u3 ^ u5, y13 = u0 ^ u6, y12 = y13 ^ y14, t1 = u4 ^ y12, y15 = t1 ^ u5,
        t2 = y12 & y15, y6 = y15 ^ u7, y20 = t1 ^ u1, y9 = u0 ^ u3, y11 = y20 ^ y9, t12 = y9 & y11,
        y7 = u7 ^ y11, y8 = u0 ^ u5, t0 = u1 ^ u2, y10 = y15 ^ t0, y17 = y10 ^ y11, t13 = y14 & y17,
        t14 = t13 ^ t12, y19 = y10 ^ y8, t15 = y8 & y10, t16 = t15 ^ t12, y16 = t0 ^ y11, y21 = y13 ^ y16,
        t7 = y13 & y16, y18 = u0 ^ y16, y1 = t0 ^ u7, y4 = y1 ^ u3, t5 = y4 & u7, t6 = t5 ^ t2,
        t18 = t6 ^ t16, t22 = t18 ^ y19, y2 = y1 ^ u0, t10 = y2 & y7, t11 = t10 ^ t7, t20 = t11 ^ t16,
        t24 = t20 ^ y18, y5 = y1 ^ u6, t8 = y5 & y1, t9 = t8 ^ t7, t19 = t9 ^ t14, t23 = t19 ^ y21,
        y3 = y5 ^ y8, t3 = y3 & y6, t4 = t3 ^ t2, t17 = t4 ^ y20, t21 = t17 ^ t14, t26 = t21 & t23,
        t27 = t24 ^ t26, t31 = t22 ^ t26, t25 = t21 ^ t22, t28 = t25 & t27, t29 = t28 ^ t22,
        z14 = t29 & y2, z5 = t29 & y7, t30 = t23 ^ t24, t32 = t31 & t30, t33 = t32 ^ t24, t35 = t27 ^ t33,
        t36 = t24 & t35, t38 = t27 ^ t36, t39 = t29 & t38, t40 = t25 ^ t39, t43 = t29 ^ t40,
        z3 = t43 & y16, tc12 = z3 ^ z5, z12 = t43 & y13, z13 = t40 & y5, z4 = t40 & y1, tc6 = z3 ^ z4,
        t34 = t23 ^ t33, t37 = t36 ^ t34, t41 = t40 ^ t37, z8 = t41 & y10, z17 = t41 & y8,
        t44 = t33 ^ t37, z0 = t44 & y15, z9 = t44 & y12, z10 = t37 & y3, z1 = t37 & y6, tc5 = z1 ^ z0,
        tc11 = tc6 ^ tc5, z11 = t33 & y4, t42 = t29 ^ t33, t45 = t42 ^ t41, z7 = t45 & y17,
        tc8 = z7 ^ tc6, z16 = t45 & y14, z6 = t42 & y11, tc16 = z6 ^ tc8, z15 = t42 & y9,
        tc20 = z15 ^ tc16, tc1 = z15 ^ z16, tc2 = z10 ^ tc1, tc21 = tc2 ^ z11, tc3 = z9 ^ tc2,
        s0 = tc3 ^ tc16, s3 = tc3 ^ tc11, s1 = s3 ^ tc16, tc13 = z13 ^ tc1, z2 = t33 & u7, tc4 = z0 ^ z2,
        tc7 = z12 ^ tc4, tc9 = z8 ^ tc7, tc10 = tc8 ^ tc9, tc17 = z14 ^ tc10, s5 = tc21 ^ tc17,
        tc26 = tc17 ^ tc20, s2 = tc26 ^ z17, tc14 = tc4 ^ tc12, tc18 = tc13 ^ tc14, s6 = tc10 ^ tc18,
        s7 = z12 ^ tc18, s4 = tc14 ^ s3;
    q[0] = s7, q[1] = s6, q[2] = s5, q[3] = s4, q[4] = s3, q[5] = s2, q[6] = s1, q[7] = s0;
}

void esp_unsub(uint *q)
{
    const uint u7 = q[0], u6 = q[1], u5 = q[2], u4 = q[3], u3 = q[4], u2 = q[5], u1 = q[6], u0 = q[7];
    const uint t23 = u0 ^ u3, t8 = u1 ^ t23, m2 = t23 & t8, t4 = u4 ^ t8, t22 = u1 ^ u3, t2 = u0 ^ u1,
        t1 = u3 ^ u4, t9 = u7 ^ t1, m7 = t22 & t9, t24 = u4 ^ u7, t10 = t2 ^ t24, m14 = t2 & t10,
        r5 = u6 ^ u7, t3 = t1 ^ r5, t13 = t2 ^ r5, t19 = t22 ^ r5, t17 = u2 ^ t19, t25 = u2 ^ t1,
        r13 = u1 ^ u6, t20 = t24 ^ r13, m9 = t20 & t17, r17 = u2 ^ u5, t6 = t22 ^ r17, m1 = t13 & t6,
        y5 = u0 ^ r17, m4 = t19 & y5, m5 = m4 ^ m1, m17 = m5 ^ t24, r18 = u5 ^ u6, t27 = t1 ^ r18,
        t15 = t10 ^ t27, m11 = t1 & t15, m15 = m14 ^ m11, m21 = m17 ^ m15, m12 = t4 & t27,
        m13 = m12 ^ m11, t14 = t10 ^ r18, m3 = t14 ^ m1, m16 = m3 ^ m2, m20 = m16 ^ m13, r19 = u2 ^ u4,
        t16 = r13 ^ r19, t26 = t3 ^ t16, m6 = t3 & t16, m8 = t26 ^ m6, m18 = m8 ^ m7, m22 = m18 ^ m13,
        m25 = m22 & m20, m26 = m21 ^ m25, m10 = m9 ^ m6, m19 = m10 ^ m15, m23 = m19 ^ t25,
        m28 = m23 ^ m25, m24 = m22 ^ m23, m30 = m26 & m24, m39 = m23 ^ m30, m48 = m39 & y5,
        m57 = m39 & t19, m36 = m24 ^ m25, m31 = m20 & m23, m27 = m20 ^ m21, m32 = m27 & m31,
        m29 = m28 & m27, m37 = m21 ^ m29, m42 = m37 ^ m39, m52 = m42 & t15, m61 = m42 & t1,
        p0 = m52 ^ m61, p16 = m57 ^ m61, m60 = m37 & t20, m51 = m37 & t17, m33 = m27 ^ m25,
        m38 = m32 ^ m33, m43 = m37 ^ m38, m49 = m43 & t16, p6 = m49 ^ m60, p13 = m49 ^ m51,
        m58 = m43 & t3, m50 = m38 & t9, m59 = m38 & t22, p1 = m58 ^ m59, p7 = p0 ^ p1, m34 = m21 & m22,
        m35 = m24 & m34, m40 = m35 ^ m36, m41 = m38 ^ m40, m45 = m42 ^ m41, m53 = m45 & t27,
        p8 = m50 ^ m53, p23 = p7 ^ p8, m62 = m45 & t4, p14 = m49 ^ m62, s6 = p14 ^ p23, m54 = m41 & t10,
        p2 = m54 ^ m62, p22 = p2 ^ p7, s0 = p13 ^ p22, p17 = m58 ^ p2, p15 = m54 ^ m59, m63 = m41 & t2,
        m44 = m39 ^ m40, m46 = m44 & t6, p5 = m46 ^ m51, p18 = m63 ^ p5, p24 = p5 ^ p7, p12 = m46 ^ m48,
        s3 = p12 ^ p22, m55 = m44 & t13, p9 = m55 ^ m63, s7 = p9 ^ p16, m47 = m40 & t8, p3 = m47 ^ m50,
        p19 = p2 ^ p3, s5 = p19 ^ p24, p11 = p0 ^ p3, p26 = p9 ^ p11, m56 = m40 & t23, p4 = m48 ^ m56,
        p20 = p4 ^ p6, p29 = p15 ^ p20, s1 = p26 ^ p29, p10 = m57 ^ p4, p27 = p10 ^ p18, s4 = p23 ^ p27,
        p25 = p6 ^ p10, p28 = p11 ^ p25, s2 = p17 ^ p28;
    q[0] = s7, q[1] = s6, q[2] = s5, q[3] = s4, q[4] = s3, q[5] = s2, q[6] = s1, q[7] = s0;
}

// The plane whose rows are the next ones, after k rounds: a row further, and k columns.
uint esp_next(uint plane, uint k)
{
    const uint mask = (255 >> 2 * k) * 0x01010101u;
    return k == 0 ? rotate(plane, 8u) : bitselect(rotate(plane, 16 - 2 * k), rotate(plane, 8 - 2 * k), mask);
}

// The plane whose rows are the ones after these, after k rounds.
uint esp_next_but_one(uint plane, uint k)
{
    return k % 2 == 0 ? rotate(plane, 16u) : bitselect(rotate(plane, 20u), rotate(plane, 12u), 0x0f0f0f0fu);
}

// MixColumns after k rounds, modulo 4.
void esp_mix(uint *q, uint k)
{
    uint next[8], sum[8];
    for (uint i = 0; i < 8; i++) next[i] = esp_next(q[i], k), sum[i] = q[i] ^ next[i];
    for (uint i = 0; i < 8; i++) q[i] = next[i] ^ esp_next_but_one(sum[i], k);
    // Twice the sum, modulo the polynomial of the field.
    for (uint i = 1; i < 8; i++) q[i] ^= sum[i - 1];
    q[0] ^= sum[7], q[1] ^= sum[7], q[3] ^= sum[7], q[4] ^= sum[7];
}

// Its inverse: 5 times a row and 4 times the next but one, ahead of MixColumns.
void esp_unmix(uint *q, uint k)
{
    uint sum[8];
    for (uint i = 0; i < 8; i++) sum[i] = q[i] ^ esp_next_but_one(q[i], k);
    for (uint i = 2; i < 8; i++) q[i] ^= sum[i - 2];
    const uint both = sum[6] ^ sum[7];
    q[0] ^= sum[6], q[1] ^= both, q[2] ^= sum[7], q[3] ^= sum[6], q[4] ^= both, q[5] ^= sum[7];
    esp_mix(q, k);
}

void esp_add(uint *q, global const uint *key)
{
    for (uint i = 0; i < 8; i++) q[i] ^= key[i];
}

// Swaps the bits of a that `mask` has, further up by `by`, with those of b.
#define ESP_SWAP(a, b, by, mask) do { \
        const uint change = ((a) >> by ^ (b)) & mask; \
        (b) ^= change; \
        (a) ^= change << by; \
    } while (0)

// Two blocks, their columns in turns, to planes, and back: each byte lane is transposed.
void esp_slice(uint *q)
{
    for (uint i = 0; i < 8; i += 2) ESP_SWAP(q[i], q[i + 1], 1, 0x55555555u);
    for (uint i = 0; i < 8; i += 4) {
        ESP_SWAP(q[i], q[i + 2], 2, 0x33333333u);
        ESP_SWAP(q[i + 1], q[i + 3], 2, 0x33333333u);
    }
    for (uint i = 0; i < 4; i++) ESP_SWAP(q[i], q[i + 4], 4, 0x0f0f0f0fu);
}

// The block whose columns these are after ten rounds: two of the rows lie two columns further.
uint4 esp_even(uint a, uint b, uint c, uint d)
{
    const uint mask = 0x00ff00ffu;
    return (uint4)(bitselect(a, c, mask), bitselect(b, d, mask), bitselect(c, a, mask), bitselect(d, b, mask));
}

// The round after which a plane has been shifted by k rounds. With k written out, rotations are by constants.
#define ESP_ROUND(k) do { \
        esp_sub(q); \
        esp_mix(q, k); \
        esp_add(q, key += 8); \
    } while (0)

uint4 esp_sliced_encrypt(uint4 block, global const uint *key)
{
    uint q[8] = {block.x, 0, block.y, 0, block.z, 0, block.w, 0};
    esp_slice(q);
    esp_add(q, key);
    ESP_ROUND(1);
    for (uint turn = 0; turn < 2; turn++) {
        ESP_ROUND(2);
        ESP_ROUND(3);
        ESP_ROUND(0);
        ESP_ROUND(1);
    }
    esp_sub(q);
    esp_add(q, key + 8);
    esp_slice(q);
    return esp_even(q[0], q[2], q[4], q[6]);
}

#define ESP_UNROUND(k) do { \
        esp_unsub(q); \
        esp_add(q, key -= 8); \
        esp_unmix(q, k); \
    } while (0)

void esp_sliced_decrypt(uint4 *first, uint4 *second, global const uint *key)
{
    const uint4 a = esp_even(first->x, first->y, first->z, first->w);
    const uint4 b = esp_even(second->x, second->y, second->z, second->w);
    uint q[8] = {a.x, b.x, a.y, b.y, a.z, b.z, a.w, b.w};
    esp_slice(q);
    esp_add(q, key += 80);
    ESP_UNROUND(1);
    for (uint turn = 0; turn < 2; turn++) {
        ESP_UNROUND(0);
        ESP_UNROUND(3);
        ESP_UNROUND(2);
        ESP_UNROUND(1);
    }
    esp_unsub(q);
    esp_add(q, key - 8);
    esp_slice(q);
    *first = (uint4)(q[0], q[2], q[4], q[6]);
    *second = (uint4)(q[1], q[3], q[5], q[7]);
}

// Seals or opens an ESP packet: esp.cl has the meaning of argument and result.
uint2 esp_sliced(global uchar *bytes, uint len, uint2 argument, global const uchar *table)
{
    const uint checked = esp_check(bytes, len, argument, table);
    if (checked != ESP_DONE) return (uint2)(checked, checked == ESP_REFUSED ? argument.y : 0);
    global const uint *key = esp_association_of(argument, table)->sliced;
    const uint end = len - ESP_ICV;
    uint4 last = esp_block(bytes + ESP_BODY - 16);
    if (!esp_opens(argument)) {
        for (uint at = ESP_BODY; at < end; at += 16) {
            last = esp_sliced_encrypt(esp_block(bytes + at) ^ last, key);
            esp_store_block(bytes + at, last);
        }
    } else {
        for (uint at = ESP_BODY; at < end; at += 32) {
            const bool is_single = at + 16 == end;
            const uint4 in = esp_block(bytes + at), next = is_single ? in : esp_block(bytes + at + 16);
            uint4 a = in, b = next;
            esp_sliced_decrypt(&a, &b, key);
            esp_store_block(bytes + at, a ^ last);
            if (!is_single) esp_store_block(bytes + at + 16, b ^ in);
            last = next;
        }
    }
    esp_sign(bytes, len, argument, table);
    return (uint2)(ESP_DONE, argument.y);
}
