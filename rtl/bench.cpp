// Runs the accelerator on the queries that `thalweg sim queries` wrote, with memory that
// takes as long as the simulator's, and compares the time and the value of each answer.
//
//   bench QUERIES
//
// Prints the differences in cycles; exits with 1 if one is larger than a cycle, if an answer
// or an address is wrong, or if answers arrive in another order.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "Vhalo_accelerator.h"
#include "verilated.h"

namespace {

struct Read { uint64_t address, latency; bool done; };

struct Query {
    uint64_t arrived, key, key_address, at;
    bool found;
    std::vector<Read> reads;
    uint64_t answered = 0;
};

struct Entry { uint16_t signature; uint32_t key; };

struct Trace {
    uint64_t buckets = 0, seed = 0, bucket_base = 0, slot_base = 0, slot_bytes = 0, metadata = 0;
    std::map<uint64_t, std::vector<Entry>> table;
    std::vector<Query> queries;
};

[[noreturn]] void fail(const std::string &why) {
    std::cerr << "bench: " << why << "\n";
    std::exit(1);
}

Trace read_trace(const char *path) {
    std::ifstream file(path);
    if (!file) fail(std::string("cannot read ") + path);
    Trace trace;
    std::string line, word;
    for (int number = 1; std::getline(file, line); number++) {
        std::istringstream in(line);
        in >> word;
        if (word == "table") {
            in >> trace.buckets >> std::hex >> trace.seed >> trace.bucket_base >> trace.slot_base
                >> std::dec >> trace.slot_bytes >> std::hex >> trace.metadata;
        } else if (word == "bucket") {
            uint64_t bucket, signature, key;
            in >> bucket;
            auto &entries = trace.table[bucket];
            while (in >> std::hex >> signature >> std::dec >> key)
                entries.push_back({uint16_t(signature), uint32_t(key)});
            in.clear();
        } else if (word == "query") {
            Query query{};
            in >> query.arrived >> query.key >> std::hex >> query.key_address >> std::dec
                >> query.found >> query.at;
            if (!in) fail("line " + std::to_string(number) + " is not a query");
            Read read{};
            while (in >> std::hex >> read.address >> std::dec >> read.latency)
                query.reads.push_back(read);
            in.clear();
            trace.queries.push_back(query);
        } else {
            fail("line " + std::to_string(number) + ": unknown word '" + word + "'");
        }
        if (!in) fail("line " + std::to_string(number) + " is truncated");
    }
    if (trace.table.empty() || trace.queries.empty()) fail("no table or no queries");
    return trace;
}

// 512 bits as the words of a Verilator port.
struct Line {
    uint32_t words[16] = {};
    void put64(int at, uint64_t value) {
        words[at / 32] = uint32_t(value);
        words[at / 32 + 1] = uint32_t(value >> 32);
    }
};

uint64_t value_of(uint64_t key) { return key + 1; }

// The memory contents at `address`, which `query` requests.
Line line_at(const Trace &trace, const Query &query, uint64_t address) {
    Line line;
    if (address == trace.metadata) {
        line.put64(0, trace.bucket_base);
        line.put64(64, trace.slot_base);
        line.put64(128, trace.buckets - 1);
        line.put64(192, trace.seed);
    } else if (address == query.key_address) {
        line.put64(int(address % 64 * 8), query.key);
    } else if (address >= trace.slot_base) {
        uint64_t first = (address & ~63ull) - trace.slot_base;
        for (int half = 0; half < 2; half++) {
            uint64_t key = first / trace.slot_bytes + half;
            line.put64(256 * half, value_of(key));
            line.put64(256 * half + 64, key);
        }
    } else {
        const auto &entries = trace.table.at((address - trace.bucket_base) / 64);
        for (int i = 0; i < 8; i++) {
            line.words[i / 2] |= uint32_t(entries[i].signature) << (i % 2 * 16);
            line.words[4 + i] = entries[i].key;
        }
    }
    return line;
}

// The number of a query by its tag (the number's lowest bits) after `asked` queries were
// issued.
size_t number_of(uint16_t tag, size_t asked) {
    size_t number = (asked - 1) & ~size_t(0xffff) | tag;
    return number < asked ? number : number - 0x10000;
}

struct Response { uint64_t due; size_t query; int entry, what; Line line; };

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) fail("usage: bench QUERIES");
    Trace trace = read_trace(argv[1]);
    VerilatedContext context;
    Vhalo_accelerator top{&context};
    std::vector<Response> waiting;
    size_t next = 0, answered = 0;
    std::map<int64_t, int> differences;
    uint64_t last_at = 0;
    int out_of_order = 0;
    uint64_t cycle = trace.queries[0].arrived - 4, reset_until = cycle + 2;
    uint64_t most = trace.queries.back().at + 100000;
    while (answered < trace.queries.size()) {
        if (cycle > most) fail("no answer to query " + std::to_string(answered));
        top.rst = cycle < reset_until;
        top.drop = 0;
        top.clk = 0;
        top.eval();
        top.query = !top.rst && next < trace.queries.size()
            && trace.queries[next].arrived <= cycle && top.query_ready;
        if (top.query) {
            top.query_tag = uint16_t(next);
            top.query_table = trace.metadata;
            top.query_key = trace.queries[next].key_address;
            next++;
        }
        // Among the lines that have arrived, the one of the oldest query.
        auto due = std::min_element(waiting.begin(), waiting.end(),
            [&](const Response &a, const Response &b) {
                bool a_late = a.due > cycle, b_late = b.due > cycle;
                return a_late != b_late ? b_late : a.query < b.query;
            });
        top.response = due != waiting.end() && due->due <= cycle;
        if (top.response) {
            top.response_entry = due->entry;
            top.response_what = due->what;
            std::copy(due->line.words, due->line.words + 16, &top.response_line[0]);
            waiting.erase(due);
        }
        top.eval();
        top.clk = 1;
        top.eval();
        if (top.request && !top.rst) {
            size_t number = number_of(top.request_tag, next);
            Query &query = trace.queries[number];
            auto read = std::find_if(query.reads.begin(), query.reads.end(), [&](const Read &r) {
                return !r.done && r.address == top.request_address;
            });
            if (read == query.reads.end())
                fail("query " + std::to_string(number) + " reads what the simulator does not");
            read->done = true;
            waiting.push_back({cycle + read->latency, number, top.request_entry, top.request_what,
                line_at(trace, query, top.request_address)});
        }
        if (top.answer && !top.rst) {
            size_t number = number_of(top.answer_tag, next);
            Query &query = trace.queries[number];
            if (query.answered) fail("query " + std::to_string(number) + " was answered twice");
            query.answered = cycle;
            if (bool(top.answer_found) != query.found
                || (query.found && top.answer_value != value_of(query.key)))
                fail("query " + std::to_string(number) + " has a wrong answer");
            for (const Read &read : query.reads)
                if (!read.done) fail("query " + std::to_string(number) + " was answered with a read outstanding");
            int64_t difference = int64_t(cycle) - int64_t(query.at);
            differences[difference]++;
            if (difference < -1 || difference > 1)
                std::printf("query %zu (arrived at %lu): off by %+ld cycles\n", number,
                    (unsigned long)query.arrived, long(difference));
            // Answers that the simulator gives in the same cycle, or one apart, may
            // arrive in any order.
            out_of_order += query.at + 1 < last_at;
            last_at = std::max(last_at, query.at);
            answered++;
        }
        cycle++;
    }
    bool wrong = out_of_order > 0;
    for (auto [difference, count] : differences) {
        std::printf("%+ld cycles: %d queries\n", long(difference), count);
        wrong |= difference < -1 || difference > 1;
    }
    std::printf("%zu queries, %d out of order\n", answered, out_of_order);
    return wrong;
}
