/* The command line of the load generator. One thread, epoll, loopback only, always bounded. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acked.h"
#include "attack.h"
#include "calibrate.h"
#include "crowd.h"
#include "delivered.h"
#include "fetch.h"
#include "latency.h"
#include "paced.h"
#include "stream.h"

enum { SECONDS_MAX = 60, PEERS_MAX = 256, PUBLISHERS_MAX = 10000, COUNT_MAX = 100000000,
       HEADER_MAX = 80 };

static const char USAGE[] =
    "usage: loadgen LOAD [options]\n"
    "\n"
    "Puts one load on a NATS server on this machine and prints one JSON line. Exits 1 with a\n"
    "sentence when a message is lost, comes twice or differs. One thread; loopback only.\n"
    "\n"
    "loads\n"
    "  stream         publishers and subscribers as fast as they can; 0 subscribers: publish only,\n"
    "                 timed up to the PONG behind the last message\n"
    "  latency        requesters with one request in flight each, responders that answer at once\n"
    "  acked          publishes to bench.js with --in-flight of them unanswered; a stream answers; with\n"
    "                 --keys to so many keys of the bucket B in turn, with --get they are read\n"
    "  delivered      one publish to bench.js under way at a time; when it comes back to another\n"
    "                 connection from the pull consumer P of stream B\n"
    "  paced          --publishers on subjects bench.paced.<i>, each publishes --rate a second; with\n"
    "                 --acks each waits for answers, with --heard it hears its own messages\n"
    "  fetch          takes --count messages of the consumer P of stream B in batches of --batch,\n"
    "                 acknowledged with --acks; --batch 0: they are pushed to an ordered consumer\n"
    "  connections    opens --count connections (CONNECT, PING, PONG), looks at the server's memory\n"
    "  subscriptions  --count unique subjects over --connections, looks at the server's memory\n"
    "  attack         misbehaves at a steady pace for --seconds; prints 'attacking' when it begins\n"
    "  calibrate      the generator's own ceilings, against a child that costs almost nothing\n"
    "\n"
    "options (defaults in brackets)\n"
    "  --host A            an address of 127.0.0.0/8 [127.0.0.1]\n"
    "  --port N            the server's client port\n"
    "  --server-pid N      whose CPU time and memory to report [0: none]\n"
    "  --size N            payload bytes, at least 1 [16]\n"
    "  --seconds F         how long, at most 60 [2]\n"
    "  --warmup F          the same load before, not counted [0.5]\n"
    "  --count N           stop after N messages of each publisher, N requests in all, or how many\n"
    "                      connections or subscriptions [stream, latency: 0, no such limit]\n"
    "  --stall-ms N        stream: nothing moves for so long: messages are lost [20000]\n"
    "  --publishers N      [1]\n"
    "  --subscribers N     [1]\n"
    "  --subjects N        publisher i and subscriber i use subject i modulo N [1]\n"
    "  --requesters N      [1]\n"
    "  --responders N      [1]\n"
    "  --queue             responders share a queue group\n"
    "  --connections N     that share the subscriptions [10]\n"
    "  --in-flight N       publishes without an ack yet [1]\n"
    "  --keys N            of the bucket [0: none]\n"
    "  --get               the bucket's values are asked for\n"
    "  --header FIELD      of acked: a line of each publish's header; # stands for its number\n"
    "  --record FILE       of acked: publishes have ids; number and sequence of each acknowledged one\n"
    "                      are a line of FILE, also when the server goes\n"
    "  --first N           the number of the first publish, with --record [0]\n"
    "  --rate N            publishes a second of each paced publisher [100]\n"
    "  --batch N           messages of one pull request [500]\n"
    "  --last-per-subject  pushed: the last message of each subject only\n"
    "  --acks              paced: publishers ask for answers; fetch: messages are acknowledged\n"
    "  --heard             paced: publishers subscribe to their subjects\n"
    "  --at-once N         connections being opened at the same time [64]\n"
    "  --settle F          seconds between the last answer and the look at memory [1]\n"
    "  --kind K            of attack: slow (reads 3 MB/s), deaf (never reads), garbage (1,000\n"
    "                      connections a second, each sends nonsense), alone (the same to a port\n"
    "                      of its own: what its process costs the others)\n"
    "  --bytes-per-ms N    published towards slow or deaf subscribers [32768]\n";

struct arguments {
    const char *host, *kind, *record, *header;
    int port, server_pid, size, publishers, subscribers, subjects, requesters, responders;
    int batch, last_per_subject, in_flight, rate, acks, heard, keys, get, queue, connections, at_once, bytes_per_ms, stall_ms;
    long long count, first;
    double seconds, warmup, settle;
};

enum kind_of_value { TEXT, WHOLE, BIG, REAL, FLAG };

struct option_row {
    const char *name;
    enum kind_of_value kind;
    void *value;
    double least, most;
};

static void option_set(const struct option_row *row, const char *text)
{
    char *end = NULL;
    if (row->kind == FLAG) {
        *(int *)row->value = 1;
        return;
    }
    if (row->kind == TEXT) {
        *(const char **)row->value = text;
        return;
    }
    double number = strtod(text, &end);
    if (end == text || *end || number < row->least || number > row->most
        || (row->kind != REAL && number != (double)(long long)number))
        fail("--%s must be %s number between %g and %g, not '%s'", row->name,
             row->kind == REAL ? "a" : "a whole", row->least, row->most, text);
    if (row->kind == REAL)
        *(double *)row->value = number;
    else if (row->kind == BIG)
        *(long long *)row->value = (long long)number;
    else
        *(int *)row->value = (int)number;
}

static struct arguments arguments_parse(int argc, char **argv)
{
    static struct arguments a = {.host = "127.0.0.1", .kind = "slow", .size = 16, .publishers = 1,
        .subscribers = 1, .subjects = 1, .requesters = 1, .responders = 1, .connections = 10, .in_flight = 1, .rate = 100,
        .batch = 500,
        .at_once = 64, .bytes_per_ms = 32768, .stall_ms = 20000, .seconds = 2, .warmup = 0.5, .settle = 1};
    const struct option_row rows[] = {
        {"host", TEXT, &a.host, 0, 0}, {"kind", TEXT, &a.kind, 0, 0},
        {"header", TEXT, &a.header, 0, 0}, {"record", TEXT, &a.record, 0, 0}, {"first", BIG, &a.first, 0, 1e11},
        {"port", WHOLE, &a.port, 1, 65535}, {"server-pid", WHOLE, &a.server_pid, 0, 1e9},
        {"size", WHOLE, &a.size, 1, 1 << 20}, {"publishers", WHOLE, &a.publishers, 0, PUBLISHERS_MAX},
        {"subscribers", WHOLE, &a.subscribers, 0, PEERS_MAX},
        {"subjects", WHOLE, &a.subjects, 1, 26}, {"requesters", WHOLE, &a.requesters, 1, 99},
        {"responders", WHOLE, &a.responders, 1, 99}, {"queue", FLAG, &a.queue, 0, 0},
        {"connections", WHOLE, &a.connections, 1, PEERS_MAX},
        {"in-flight", WHOLE, &a.in_flight, 1, 1 << 20},
        {"keys", WHOLE, &a.keys, 0, 1e9}, {"get", FLAG, &a.get, 0, 0},
        {"rate", WHOLE, &a.rate, 1, 100000}, {"acks", FLAG, &a.acks, 0, 0},
        {"heard", FLAG, &a.heard, 0, 0},
        {"last-per-subject", FLAG, &a.last_per_subject, 0, 0}, {"batch", WHOLE, &a.batch, 0, 1 << 20},
        {"at-once", WHOLE, &a.at_once, 1, 1024},
        {"bytes-per-ms", WHOLE, &a.bytes_per_ms, 1, 1 << 20},
        {"stall-ms", WHOLE, &a.stall_ms, 1, 60000},
        {"count", BIG, &a.count, 0, COUNT_MAX}, {"seconds", REAL, &a.seconds, 0, SECONDS_MAX},
        {"warmup", REAL, &a.warmup, 0, SECONDS_MAX}, {"settle", REAL, &a.settle, 0, SECONDS_MAX},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct option names[ROWS + 1] = {0};
    for (int i = 0; i < ROWS; i++)
        names[i] = (struct option){rows[i].name, rows[i].kind != FLAG, NULL, i};
    int chosen;
    while ((chosen = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (chosen == '?')
            fail("see loadgen --help");
        option_set(&rows[chosen], optarg);
    }
    if (optind < argc)
        fail("'%s' is not an option; see loadgen --help", argv[optind]);
    return a;
}

static struct target target_of(const struct arguments *a)
{
    return target_parse(a->host, a->port, a->server_pid);
}

static void run_stream(const struct arguments *a)
{
    struct target target = target_of(a);
    struct stream_options options = {.publishers = a->publishers, .subscribers = a->subscribers,
        .subjects = a->subjects, .payload_bytes = a->size, .seconds = a->seconds,
        .warmup_seconds = a->warmup, .count = (uint64_t)a->count, .stall_ms = a->stall_ms};
    if (a->publishers < 1 || a->publishers > PEERS_MAX)
        fail("stream needs between 1 and %d publishers", PEERS_MAX);
    struct stream_result result = stream_run(&target, &options);
    stream_print(&options, &result);
}

static void run_latency(const struct arguments *a)
{
    struct target target = target_of(a);
    struct latency_options options = {.requesters = a->requesters, .responders = a->responders,
        .queue = a->queue, .payload_bytes = a->size, .seconds = a->seconds,
        .warmup_seconds = a->warmup, .count = (uint64_t)a->count};
    if (a->responders > 1 && !a->queue)
        fail("several responders without --queue would answer each request several times");
    if (a->size > 4096)
        fail("latency takes payloads of up to 4096 bytes");
    latency_run(&target, &options);
}

static void run_acked(const struct arguments *a)
{
    struct target target = target_of(a);
    struct acked_options options = {.in_flight = a->in_flight, .keys = a->keys, .get = a->get, .payload_bytes = a->size,
        .record = a->record, .first = a->first, .header = a->header,
        .seconds = a->seconds, .warmup_seconds = a->warmup, .stall_ms = a->stall_ms};
    if (a->get && a->keys == 0)
        fail("--get needs --keys");
    if (a->header && (a->keys || a->record || strlen(a->header) > HEADER_MAX))
        fail("--header is for publishes to bench.js, at most %d bytes", HEADER_MAX);
    if (a->record && a->keys)
        fail("--record is for publishes to bench.js");
    acked_run(&target, &options);
}

static void run_delivered(const struct arguments *a)
{
    struct target target = target_of(a);
    struct delivered_options options = {.payload_bytes = a->size, .seconds = a->seconds,
        .warmup_seconds = a->warmup, .stall_ms = a->stall_ms};
    delivered_run(&target, &options);
}

static void run_paced(const struct arguments *a)
{
    struct target target = target_of(a);
    struct paced_options options = {.publishers = a->publishers, .rate = a->rate, .acked = a->acks,
        .heard = a->heard, .payload_bytes = a->size, .seconds = a->seconds, .warmup_seconds = a->warmup,
        .stall_ms = a->stall_ms};
    if (a->publishers < 1)
        fail("paced needs a publisher");
    if (a->acks && a->heard)
        fail("--acks or --heard: the same answers would be counted twice");
    paced_run(&target, &options);
}

static void run_fetch(const struct arguments *a)
{
    struct target target = target_of(a);
    struct fetch_options options = {.count = (uint64_t)a->count, .batch = a->batch,
        .acks = a->acks, .last_per_subject = a->last_per_subject, .stall_ms = a->stall_ms};
    fetch_run(&target, &options);
}

static void run_crowd(const struct arguments *a,
                      void (*run)(const struct target *, const struct crowd_options *))
{
    struct target target = target_of(a);
    struct crowd_options options = {.count = (int)a->count, .connections = a->connections,
        .connecting_at_once = a->at_once, .settle_seconds = a->settle};
    if (a->count < a->connections)
        fail("--count must be at least --connections");
    run(&target, &options);
}

static void run_attack(const struct arguments *a)
{
    static const char *names[] = {"slow", "deaf", "garbage", "alone"};
    struct target target = target_of(a);
    struct attack_options options = {.subscribers = a->subscribers > 0 ? a->subscribers : 1,
        .bytes_per_ms = a->bytes_per_ms, .seconds = a->seconds};
    for (int i = 0; i < 4; i++)
        if (strcmp(a->kind, names[i]) == 0) {
            options.kind = (enum attack_kind)i;
            attack_run(&target, &options);
            return;
        }
    fail("--kind must be slow, deaf, garbage or alone, not %s", a->kind);
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(USAGE, argc < 2 ? stderr : stdout);
        return argc < 2;
    }
    const char *load = argv[1];
    struct arguments arguments = arguments_parse(argc - 1, argv + 1);
    raise_descriptor_limit();
    alarm(4 * SECONDS_MAX); /* whatever happens, it ends */
    if (strcmp(load, "stream") == 0)
        run_stream(&arguments);
    else if (strcmp(load, "latency") == 0)
        run_latency(&arguments);
    else if (strcmp(load, "acked") == 0)
        run_acked(&arguments);
    else if (strcmp(load, "delivered") == 0)
        run_delivered(&arguments);
    else if (strcmp(load, "paced") == 0)
        run_paced(&arguments);
    else if (strcmp(load, "fetch") == 0)
        run_fetch(&arguments);
    else if (strcmp(load, "connections") == 0)
        run_crowd(&arguments, connections_run);
    else if (strcmp(load, "subscriptions") == 0)
        run_crowd(&arguments, subscriptions_run);
    else if (strcmp(load, "attack") == 0)
        run_attack(&arguments);
    else if (strcmp(load, "calibrate") == 0)
        calibrate_run(arguments.size, arguments.seconds);
    else
        fail("'%s' is not a load; see loadgen --help", load);
    return 0;
}
