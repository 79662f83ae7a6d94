/* A raw load: speaks the protocol to one broker and nothing else, so that the broker is what is measured.

     load_generator publish HOST PORT TOPIC MESSAGES BYTES WINDOW CONNECTIONS TOPICS
     load_generator drain   HOST PORT TOPIC MESSAGES

   publish   MESSAGES entries of BYTES payload, divided among CONNECTIONS with a producer each; every producer has up
             to WINDOW entries without a receipt. With TOPICS above 1, connection i publishes to TOPIC-(i mod TOPICS).
   drain     reads MESSAGES from the beginning of TOPIC through one exclusive consumer and acknowledges each with an
             ACK of its own. The time ends when the broker has read the last ACK (it answers a PING behind it).

   Prints one line of JSON. One thread and poll(2). Payload and names never change, so an entry costs two varints and a
   checksum over its metadata: see `shift`. Receipts are checked: each names the send whose turn it is. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT = 2, CONNECTED = 3, SUBSCRIBE = 4, PRODUCER = 5, SEND = 6, SEND_RECEIPT = 7, MESSAGE = 9, ACK = 10,
       FLOW = 11, SUCCESS = 13, PRODUCER_SUCCESS = 17, PING = 18, PONG = 19, ACTIVE_CONSUMER_CHANGE = 31 };
enum { OUT_BYTES = 4 << 20, IN_BYTES = 6 << 20, PERMITS = 1000, RECEIVE_SECONDS_MAX = 120 };

typedef struct {
    int fd;
    uint8_t *in, *out;
    size_t in_length, out_start, out_end;
    char name[64];
    int ready;          /* the producer or consumer is open */
    long sent, answered; /* of this connection */
    uint64_t *sent_ns;  /* ring of WINDOW times */
} Connection;

static Connection *connections;
static int connection_count = 1, window = 1, finished;
static long messages_each, answered_total, messages_total;
static size_t payload_bytes;
static uint8_t *payload;
static uint32_t *latencies_us;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "load_generator: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- CRC32C, and how it goes on over the payload that is always the same ---- */

static uint32_t crc_table[256], payload_crc, shift[32];

static uint32_t crc_over(uint32_t state, const uint8_t *data, size_t length) {
    while (length--) state = crc_table[(state ^ *data++) & 255] ^ (state >> 8);
    return state;
}

/* A CRC is linear: its state after the payload is `payload_crc` (from state 0) xor what the payload's length makes of
   the state before, which is the xor of `shift[i]` for the bits i of that state. */
static void prepare_checksums(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? (value >> 1) ^ 0x82f63b78u : value >> 1;
        crc_table[i] = value;
    }
    payload_crc = crc_over(0, payload, payload_bytes);
    uint8_t *zeros = calloc(payload_bytes + 1, 1);
    for (int bit = 0; bit < 32; bit++) shift[bit] = crc_over(1u << bit, zeros, payload_bytes);
    free(zeros);
}

static uint32_t entry_checksum(const uint8_t *head, size_t length) {
    uint32_t state = crc_over(~0u, head, length), result = payload_crc;
    for (int bit = 0; bit < 32; bit++) if (state >> bit & 1) result ^= shift[bit];
    return ~result;
}

/* ---- Protobuf, as little as is needed ---- */

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    for (; value > 127; value >>= 7) *at++ = (uint8_t)value | 128;
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_number(uint8_t *at, int field, uint64_t value) {
    return put_varint(put_varint(at, (uint64_t)field << 3), value);
}

static uint8_t *put_bytes(uint8_t *at, int field, const void *data, size_t length) {
    at = put_varint(put_varint(at, (uint64_t)field << 3 | 2), length);
    memcpy(at, data, length);
    return at + length;
}

static uint8_t *put_text(uint8_t *at, int field, const char *text) { return put_bytes(at, field, text, strlen(text)); }

static void put_size(uint8_t *at, size_t size) {
    uint32_t big_endian = htonl((uint32_t)size);
    memcpy(at, &big_endian, 4);
}

static const uint8_t *get_varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int bits = 0; at < end && bits < 64; bits += 7) {
        *value |= (uint64_t)(*at & 127) << bits;
        if (!(*at++ & 128)) return at;
    }
    fail("the broker sent a broken varint");
    return end;
}

/* The field of a message: its number or, for a nested one, where it lies. Returns 0 when it is not there. */
static int find_field(const uint8_t *at, const uint8_t *end, int field, uint64_t *number, const uint8_t **nested) {
    while (at < end) {
        uint64_t tag, value;
        at = get_varint(at, end, &tag);
        at = get_varint(at, end, &value); /* whatever is read here has fields of these two kinds only */
        if (tag >> 3 == (uint64_t)field) {
            *number = value;
            *nested = at;
            return 1;
        }
        if ((tag & 7) == 2) at += value;
    }
    return 0;
}

/* ---- A connection ---- */

static size_t room(const Connection *c) { return OUT_BYTES - c->out_end; }

static void command(Connection *c, int type, const uint8_t *body, size_t length) {
    uint8_t head[16], *end = put_number(head, 1, (uint64_t)type);
    end = put_varint(put_varint(end, (uint64_t)type << 3 | 2), length);
    size_t size = (size_t)(end - head) + length;
    if (room(c) < size + 8) fail("the broker does not read");
    uint8_t *at = c->out + c->out_end;
    put_size(at, size + 4);
    put_size(at + 4, size);
    memcpy(at + 8, head, (size_t)(end - head));
    if (length) memcpy(at + 8 + (end - head), body, length);
    c->out_end += size + 8;
}

static void send_entry(Connection *c, uint64_t time_ms) {
    uint8_t body[64], metadata[256], *end = put_number(put_number(body, 1, 1), 2, (uint64_t)c->sent);
    size_t body_length = (size_t)(end - body);
    uint8_t *at = c->out + c->out_end, *start = at + 8;
    end = put_varint(put_varint(put_number(start, 1, SEND), SEND << 3 | 2), body_length);
    memcpy(end, body, body_length);
    end += body_length;
    put_size(at + 4, (size_t)(end - start));
    uint8_t *metadata_end = put_number(put_number(put_text(metadata + 4, 1, c->name), 2, (uint64_t)c->sent), 3, time_ms);
    size_t head_length = (size_t)(metadata_end - metadata);
    put_size(metadata, head_length - 4);
    *end++ = 0x0e;
    *end++ = 0x01;
    put_size(end, entry_checksum(metadata, head_length));
    memcpy(end + 4, metadata, head_length);
    end += 4 + head_length;
    memcpy(end, payload, payload_bytes);
    end += payload_bytes;
    put_size(at, (size_t)(end - at) - 4);
    c->out_end += (size_t)(end - at);
    c->sent_ns[c->sent++ % window] = now_ns();
}

static void fill(Connection *c) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t time_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    while (c->sent < messages_each && c->sent - c->answered < window && room(c) > payload_bytes + 512)
        send_entry(c, time_ms);
}

static void flow(Connection *c, uint64_t permits) {
    uint8_t body[16], *end = put_number(put_number(body, 1, 1), 2, permits);
    command(c, FLOW, body, (size_t)(end - body));
}

static void receipt(Connection *c, const uint8_t *body, const uint8_t *end) {
    uint64_t number = 0;
    const uint8_t *nested;
    if (find_field(body, end, 2, &number, &nested) && (long)number != c->answered)
        fail("receipt for %lu, expected %ld", (unsigned long)number, c->answered);
    latencies_us[answered_total++] = (uint32_t)((now_ns() - c->sent_ns[c->answered++ % window]) / 1000);
    finished = answered_total == messages_total;
}

static void message(Connection *c, const uint8_t *body, const uint8_t *end) {
    uint64_t length;
    const uint8_t *id;
    if (answered_total == messages_total) return; /* part of a longer backlog, sent for the last permits */
    if (!find_field(body, end, 2, &length, &id)) fail("a message without an id");
    uint64_t ledger = 0, entry = 0;
    const uint8_t *nested;
    find_field(id, id + length, 1, &ledger, &nested);
    find_field(id, id + length, 2, &entry, &nested);
    uint8_t id_body[32], ack[64], *id_end = put_number(put_number(id_body, 1, ledger), 2, entry);
    uint8_t *ack_end = put_bytes(put_number(put_number(ack, 1, 1), 2, 0), 3, id_body, (size_t)(id_end - id_body));
    command(c, ACK, ack, (size_t)(ack_end - ack));
    answered_total++;
    if (++c->answered % (PERMITS / 2) == 0) flow(c, PERMITS / 2);
    if (answered_total == messages_total) command(c, PING, NULL, 0);
}

static void handle(Connection *c, const uint8_t *start, const uint8_t *end) {
    uint64_t type, length = 0;
    const uint8_t *body = end;
    if (!find_field(start, end, 1, &type, &body)) fail("a command without a type");
    if (!find_field(start, end, (int)type, &length, &body)) body = end;
    const uint8_t *body_end = body + length;
    switch (type) {
    case SEND_RECEIPT: receipt(c, body, body_end); return;
    case MESSAGE: message(c, body, body_end); return;
    case CONNECTED: case PRODUCER_SUCCESS: case SUCCESS: c->ready++; return;
    case PING: command(c, PONG, NULL, 0); return;
    case PONG: finished = answered_total == messages_total; return;
    case ACTIVE_CONSUMER_CHANGE: return;
    default: fail("the broker answers with command %lu: %.*s", (unsigned long)type, (int)(end - start), start);
    }
}

static void read_some(Connection *c) {
    ssize_t got = read(c->fd, c->in + c->in_length, IN_BYTES - c->in_length);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed the connection");
    c->in_length += (size_t)got;
    size_t at = 0;
    while (c->in_length - at >= 8) {
        uint32_t sizes[2];
        memcpy(sizes, c->in + at, 8);
        size_t total = ntohl(sizes[0]) + 4u, size = ntohl(sizes[1]);
        if (total > IN_BYTES) fail("a frame of %zu bytes", total);
        if (c->in_length - at < total) break;
        handle(c, c->in + at + 8, c->in + at + 8 + size);
        at += total;
    }
    memmove(c->in, c->in + at, c->in_length - at);
    c->in_length -= at;
}

static void write_some(Connection *c) {
    while (c->out_start < c->out_end) {
        ssize_t put = write(c->fd, c->out + c->out_start, c->out_end - c->out_start);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (put < 0) fail("write: %s", strerror(errno));
        c->out_start += (size_t)put;
    }
    if (c->out_start == c->out_end || c->out_start > OUT_BYTES / 2) {
        memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
        c->out_end -= c->out_start;
        c->out_start = 0;
    }
}

/* One look at all connections: read what came, let `more` add to what goes, write. */
static void turn(struct pollfd *polls, void (*more)(Connection *)) {
    for (int i = 0; i < connection_count; i++)
        polls[i].events = POLLIN | (connections[i].out_start < connections[i].out_end ? POLLOUT : 0);
    if (poll(polls, (nfds_t)connection_count, RECEIVE_SECONDS_MAX * 1000) <= 0)
        fail("nothing came for %d s; %ld of %ld", RECEIVE_SECONDS_MAX, answered_total, messages_total);
    for (int i = 0; i < connection_count; i++) {
        if (!polls[i].revents) continue;
        Connection *c = &connections[i];
        if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) read_some(c);
        if (more) more(c);
        write_some(c);
    }
}

static void dial(Connection *c, const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) fail("no host %s", host);
    c->fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(c->fd, found->ai_addr, found->ai_addrlen)) fail("%s:%s: %s", host, port, strerror(errno));
    freeaddrinfo(found);
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->in = malloc(IN_BYTES);
    c->out = malloc(OUT_BYTES);
    c->sent_ns = calloc((size_t)window, sizeof *c->sent_ns);
}

static void greet(Connection *c) {
    uint8_t body[64], *end = put_number(put_text(body, 1, "geoemu-load"), 4, 19);
    command(c, CONNECT, body, (size_t)(end - body));
}

static void open_producer(Connection *c, const char *topic) {
    uint8_t body[512], *end = put_number(put_number(put_text(body, 1, topic), 2, 1), 3, 1);
    end = put_text(end, 4, c->name);
    command(c, PRODUCER, body, (size_t)(end - body));
}

static void open_consumer(Connection *c, const char *topic) {
    uint8_t body[512], *end = put_text(put_text(body, 1, topic), 2, "load");
    end = put_number(put_number(put_number(end, 3, 0), 4, 1), 5, 1); /* exclusive; consumer 1, request 1 */
    end = put_number(put_text(end, 6, "load"), 13, 1);               /* from the beginning */
    command(c, SUBSCRIBE, body, (size_t)(end - body));
}

static void wait_until_ready(struct pollfd *polls, int answers) {
    for (int i = 0; i < connection_count; i++) {
        write_some(&connections[i]);
        while (connections[i].ready < answers) turn(polls, NULL);
    }
}

static int by_size(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

int main(int count, char **arguments) {
    int publishes = count == 10 && !strcmp(arguments[1], "publish");
    if (!publishes && !(count == 6 && !strcmp(arguments[1], "drain"))) fail("see the head of load_generator.c");
    const char *host = arguments[2], *port = arguments[3], *topic = arguments[4];
    messages_each = messages_total = atol(arguments[5]);
    int topics = 1;
    if (publishes) {
        payload_bytes = (size_t)atol(arguments[6]);
        window = atoi(arguments[7]);
        connection_count = atoi(arguments[8]);
        topics = atoi(arguments[9]);
        if (payload_bytes > OUT_BYTES / 2 || window < 1 || connection_count < 1 || topics < 1) fail("out of range");
        messages_each /= connection_count;
        messages_total = messages_each * connection_count;
    }
    payload = malloc(payload_bytes + 1);
    for (size_t i = 0; i < payload_bytes; i++) payload[i] = (uint8_t)(i * 131 + (i >> 8));
    prepare_checksums();
    latencies_us = calloc((size_t)messages_total, sizeof *latencies_us);
    connections = calloc((size_t)connection_count, sizeof *connections);
    struct pollfd *polls = calloc((size_t)connection_count, sizeof *polls);
    for (int i = 0; i < connection_count; i++) {
        snprintf(connections[i].name, sizeof connections[i].name, "load-%d-%d", (int)getpid(), i);
        dial(&connections[i], host, port);
        polls[i].fd = connections[i].fd;
        greet(&connections[i]);
    }
    wait_until_ready(polls, 1);
    for (int i = 0; i < connection_count; i++) {
        char name[256];
        snprintf(name, sizeof name, topics > 1 ? "%s-%d" : "%s", topic, i % topics);
        (publishes ? open_producer : open_consumer)(&connections[i], name);
    }
    wait_until_ready(polls, 2);
    uint64_t begin = now_ns();
    for (int i = 0; i < connection_count; i++) {
        if (publishes) fill(&connections[i]);
        else flow(&connections[i], PERMITS);
        write_some(&connections[i]);
    }
    while (!finished) turn(polls, publishes ? fill : NULL);
    double seconds = (double)(now_ns() - begin) / 1e9;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double processor = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
                     + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    qsort(latencies_us, (size_t)messages_total, sizeof *latencies_us, by_size);
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"own_processor_seconds\": %.6f, \"p50_us\": %u, \"p99_us\": %u}\n",
           messages_total, seconds, processor, latencies_us[messages_total / 2],
           latencies_us[messages_total * 99 / 100]);
    return 0;
}
