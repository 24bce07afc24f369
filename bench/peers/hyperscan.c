/* Hyperscan in block mode: PATTERNS PAYLOADS SIZE.
 *
 * Prints a line of JSON: nanoseconds a payload for hs_scan with all patterns, and how many
 * patterns were found in how many payloads (each once). PATTERNS has a pattern a line, in
 * hexadecimal; PAYLOADS is payloads of SIZE bytes, one behind the other.
 */
#include <hs/hs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { ROUNDS = 31, MOST = 1 << 16, BATCH = 32 };

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context) {
    (void)id, (void)from, (void)to, (void)flags;
    ++*(unsigned long *)context;
    return 0;
}

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) { perror(path); exit(1); }
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*length + 1);
    if (fread(text, 1, *length, file) != *length) { perror(path); exit(1); }
    text[*length] = 0;
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "PATTERNS PAYLOADS SIZE\n"); return 2; }
    size_t length, size = strtoul(argv[3], NULL, 10);
    char *text = read_file(argv[1], &length);
    static const char *expressions[MOST];
    static unsigned flags[MOST], ids[MOST];
    unsigned count = 0;
    for (char *line = strtok(text, "\n"); line && count < MOST; line = strtok(NULL, "\n")) {
        char *expression = malloc(2 * strlen(line) + 1), *out = expression;
        for (char *at = line; at[0] && at[1]; at += 2) out += sprintf(out, "\\x%.2s", at);
        expressions[count] = expression;
        flags[count] = HS_FLAG_SINGLEMATCH;
        ids[count] = count;
        count++;
    }
    hs_database_t *database;
    hs_compile_error_t *error;
    if (hs_compile_multi(expressions, flags, ids, count, HS_MODE_BLOCK, NULL, &database, &error) != HS_SUCCESS) {
        fprintf(stderr, "%s\n", error->message);
        return 1;
    }
    hs_scratch_t *scratch = NULL;
    if (hs_alloc_scratch(database, &scratch) != HS_SUCCESS) return 1;
    char *payloads = read_file(argv[2], &length);
    size_t packets = length / size;
    double times[ROUNDS];
    unsigned long matches = 0;
    for (int round = 0; round < ROUNDS; round++) {
        matches = 0;
        double start = now();
        for (size_t n = 0; n < packets; n++)
            hs_scan(database, payloads + n * size, (unsigned)size, 0, scratch, on_match, &matches);
        times[round] = (now() - start) / (double)packets;
    }
    qsort(times, ROUNDS, sizeof times[0], by_value);
    printf("{\"who\": \"hyperscan\", \"size\": %zu, \"ns\": %.2f, \"matches\": %lu}\n", size, times[ROUNDS / 2], matches);
    return 0;
}
