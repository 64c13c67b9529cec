/* Whole groups out of the packets of a dump stream, in C, and events into a binlog file (`lay_out`). Optional: see
 * `group_runs.py`, which says what a run is, and `checksum.py`.
 *
 * Nothing here raises for what came. Whatever is not as plain as nearly everything is (a group that is not whole yet,
 * a packet out of sequence, a wrong checksum, an event that is none of a group, or one that is cut short) ends the run in
 * front of its group, and is left to the Python that takes one event after the other, and knows what to say of it.
 */

#include "../speedups.h"

/* In front of an event: length of the payload (3), sequence number (1), and the status, which is part of the payload:
 * 0; with semi-sync also the magic byte, and whether the event is to be acknowledged. Then the packets are numbered
 * from 1 again. In a binlog file the events are bare: there is nothing in front of them. */
#define PACKET_HEADER 4
#define STATUS_SIZE 1
#define SEMI_SYNC_STATUS_SIZE 3
#define SEMI_SYNC_MAGIC 0xEF
#define ACK_WANTED 1
#define SEQUENCE_AFTER_ACK 1
#define PAYLOAD_MAX 0xFFFFFF

/* The header of an event: timestamp 0, type 4, server_id 5, length 9, end position 13, flags 17. */
#define TYPE_AT 4
#define SERVER_AT 5
#define LENGTH_AT 9
#define END_AT 13
#define FLAGS_AT 17
#define HEADER_SIZE 19
#define FLAG_ARTIFICIAL 0x20
#define CRC_SIZE 4

/* A GTID event: seq_no 19, domain 27, flags 31; with at least 19 bytes of body. What the flags announce comes behind. */
#define GTID_SEQ_AT 19
#define GTID_DOMAIN_AT 27
#define GTID_FLAGS_AT 31
#define GTID_SIZE_MIN 38
#define GTID_BODY_MIN (GTID_SIZE_MIN - HEADER_SIZE)
#define STANDALONE 0x01
#define GROUP_COMMIT_ID 0x02
#define ANY_XA 0xC0
#define MULTI_ENGINE 0x01
#define ALTER_END 0x0C
#define THREAD_ID 0x10

/* A QUERY event: length of the database name 27, of the status variables 30; what is variable from 32 on. */
#define QUERY_DATABASE_LENGTH_AT 27
#define QUERY_STATUS_LENGTH_AT 30
#define QUERY_SIZE_MIN 32
#define LOAD_OWN_SIZE 13

/* Limits, as `binlog_protocol.limits`, `events.table_map` and `events.compressed` have them. */
#define COLUMNS_MAX 4096
#define EVENT_BYTES_MAX (1024u * 1024 * 1024)
#define ZLIB_MARK 0x80
#define ZLIB_RATIO_MAX 1100
#define ZLIB_RATIO_SLACK 1024

/* What an event means for its group, and how its body is laid out: the table comes from Python (`vocabulary.C_TABLE`),
 * the role in its low three bits, the form above. */
enum role { OTHER = 0, PREFIX = 1, QUERY = 2, COMMIT = 3, GTID = 4, NOT_HERE = 5 };
#define ROLE_BITS 3
#define ROLE_MASK 7
enum form {
    FORM_ANY = 0,
    FORM_GTID = 1,
    FORM_QUERY = 2,
    FORM_QUERY_COMPRESSED = 3,
    FORM_TABLE_MAP = 4,
    FORM_ROWS = 5,
    FORM_ROWS_TWICE = 6,
    FORM_ROWS_COMPRESSED = 7,
    FORM_ROWS_COMPRESSED_TWICE = 8,
    FORM_XID = 9,
    FORM_INTVAR = 10,
    FORM_RAND = 11,
    FORM_USER_VAR = 12,
    FORM_FILE_PIECE = 13,
    FORM_EXECUTE_LOAD = 14,
    FORM_XA_PREPARE = 15,
    FORM_PARTIAL_ROWS = 16,
};

#define CRC_TABLES 16
static uint32_t crc_tables[CRC_TABLES][256];

static void
make_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < CRC_TABLES; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_tables[table - 1][byte];
            crc_tables[table][byte] = crc >> 8 ^ crc_tables[0][crc & 0xFF];
        }
}

/* The state of a CRC-32 of zlib behind `width` more bytes, from 4 to 16. */
static inline uint32_t
crc32_step(uint32_t crc, const unsigned char *at, int width)
{
    uint32_t first = crc ^ load_u32(at);
    uint32_t next = 0;
    for (int i = 0; i < 4; i++)
        next ^= crc_tables[width - 1 - i][first >> 8 * i & 0xFF];
    for (int i = 4; i < width; i++)
        next ^= crc_tables[width - 1 - i][at[i]];
    return next;
}

/* The same behind any number of bytes. */
static uint32_t
crc32_by_tables(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    for (; size >= CRC_TABLES; at += CRC_TABLES, size -= CRC_TABLES)
        crc = crc32_step(crc, at, CRC_TABLES);
    if (size >= 8) {
        crc = crc32_step(crc, at, 8);
        at += 8;
        size -= 8;
    }
    if (size >= 4) {
        crc = crc32_step(crc, at, 4);
        at += 4;
        size -= 4;
    }
    while (size-- > 0)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *at++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_MULTIPLICATION (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
/* Below this it is not worth its end. */
#define MULTIPLIED_MIN 64

/* The same for a multiple of 16 bytes, at least 64, by carry-less multiplication: 64 bytes a step are folded onto the
 * next 64, these onto 16, and those reduced. The constants are powers of x modulo the polynomial, its inverse, and the
 * polynomial, all with their bits reversed (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel 2009). */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
crc32_by_multiplication(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    __m128i lanes[4];

    for (int i = 0; i < 4; i++)
        lanes[i] = _mm_loadu_si128((const __m128i *)at + i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int i = 0; i < 4; i++) {
            __m128i low = _mm_clmulepi64_si128(lanes[i], by_64, 0x00);
            __m128i high = _mm_clmulepi64_si128(lanes[i], by_64, 0x11);
            __m128i next = _mm_loadu_si128((const __m128i *)at + i);
            lanes[i] = _mm_xor_si128(_mm_xor_si128(low, high), next);
        }
    __m128i sum = lanes[0];
    for (int i = 1; i < 4; i++) {
        __m128i low = _mm_clmulepi64_si128(sum, by_16, 0x00);
        sum = _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(sum, by_16, 0x11)), lanes[i]);
    }
    for (; size >= 16; at += 16, size -= 16) {
        __m128i low = _mm_clmulepi64_si128(sum, by_16, 0x00);
        __m128i next = _mm_loadu_si128((const __m128i *)at);
        sum = _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(sum, by_16, 0x11)), next);
    }
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_16, 0x10));
    __m128i folded = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), by_8, 0x00);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), folded);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), polynomial, 0x10);
    __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, product), 1);
}
#else
#define HAS_MULTIPLICATION 0
#define MULTIPLIED_MIN PY_SSIZE_T_MAX
#define crc32_by_multiplication crc32_by_tables
#endif

static int has_multiplication;

/* So many bytes are read twice while they are near the processor. */
#define BLOCK 16384

/* Copies, if there is an `out`, and returns the CRC-32 of zlib of these bytes behind those of which it is `before`. */
static uint32_t
copy_with_crc32(unsigned char *out, const unsigned char *at, Py_ssize_t size, uint32_t before)
{
    uint32_t crc = ~before;
    while (has_multiplication && size >= MULTIPLIED_MIN) {
        Py_ssize_t some = size > BLOCK ? BLOCK : size - size % 16;
        if (out != NULL) {
            memcpy(out, at, (size_t)some);
            out += some;
        }
        crc = crc32_by_multiplication(crc, at, some);
        at += some;
        size -= some;
    }
    if (out != NULL)
        memcpy(out, at, (size_t)size);
    return ~crc32_by_tables(crc, at, size);
}

/* What is left of a body. The functions that take something of it say whether it was there; the Python that they stand
 * for is named behind each of them (`binlog_protocol.events`). */
typedef struct {
    const unsigned char *at, *stop;
} Body;

static int
skip(Body *body, uint64_t size)
{
    if (size > (uint64_t)(body->stop - body->at))
        return 0;
    body->at += size;
    return 1;
}

static int
skip_short(Body *body) /* Cursor.short_bytes */
{
    return body->at < body->stop && skip(body, 1u + (uint64_t)*body->at);
}

static int
take_lenenc(Body *body, uint64_t *value) /* Cursor.lenenc_int */
{
    if (body->at == body->stop)
        return 0;
    unsigned char first = *body->at++;
    int size = first == 0xFC ? 2 : first == 0xFD ? 3 : first == 0xFE ? 8 : 0;
    if (first < 0xFB) {
        *value = first;
        return 1;
    }
    if (size == 0 || body->stop - body->at < size)
        return 0;
    *value = 0;
    for (int i = 0; i < size; i++)
        *value |= (uint64_t)body->at[i] << 8 * i;
    body->at += size;
    return 1;
}

static int
gtid_is_whole(Body body) /* GtidEvent.parse */
{
    const unsigned char *flags = body.at + GTID_FLAGS_AT - HEADER_SIZE;
    if (body.stop - body.at < GTID_BODY_MIN || !skip(&body, GTID_FLAGS_AT - HEADER_SIZE + 1))
        return 0;
    if (*flags & GROUP_COMMIT_ID && !skip(&body, 8))
        return 0;
    if (*flags & ANY_XA && (body.stop - body.at < 6 || !skip(&body, 6u + (uint64_t)body.at[4] + body.at[5])))
        return 0;
    if (body.at == body.stop || *body.at == 0)
        return 1;
    unsigned char extra = *body.at++;
    return skip(&body, (extra & MULTI_ENGINE ? 1 : 0) + (extra & ALTER_END ? 8 : 0) + (extra & THREAD_ID ? 4 : 0));
}

static int
status_is_whole(Body status) /* StatusVariables.parse */
{
    /* By code: bytes of the value. */
    static const unsigned char sizes[] = {4, 8, 0, 4, 6, 0, 0, 2, 2, 8, 4};

    while (status.at < status.stop) {
        unsigned char code = *status.at++;
        switch (code) {
        case 2:
            if (!skip_short(&status) || !skip(&status, 1))
                return 0;
            break;
        case 5:
        case 6:
            if (!skip_short(&status))
                return 0;
            break;
        case 11:
            if (!skip_short(&status) || !skip_short(&status))
                return 0;
            break;
        case 128:
            if (!skip(&status, 3))
                return 0;
            break;
        case 129:
            if (!skip(&status, 8))
                return 0;
            break;
        case 130:
            if (status.at == status.stop || !skip(&status, *status.at & ALTER_END ? 9 : 1))
                return 0;
            break;
        case 131:
            if (status.at == status.stop || !skip(&status, 1u + 4u * (uint64_t)*status.at))
                return 0;
            break;
        default:
            if (code >= sizeof sizes)
                return 1; /* not known, nor what comes behind it */
            if (!skip(&status, sizes[code]))
                return 0;
        }
    }
    return 1;
}

/* `own`: bytes of an EXECUTE_LOAD_QUERY event in front of the status variables. */
static int
skip_query_head(Body *body, uint64_t own) /* QueryHead.take */
{
    if (body->stop - body->at < QUERY_SIZE_MIN - HEADER_SIZE)
        return 0;
    uint64_t database = body->at[QUERY_DATABASE_LENGTH_AT - HEADER_SIZE];
    uint64_t variables = load_u16(body->at + QUERY_STATUS_LENGTH_AT - HEADER_SIZE);
    Body status = *body;
    if (!skip(&status, QUERY_SIZE_MIN - HEADER_SIZE + own))
        return 0;
    *body = status;
    if (!skip(body, variables + database + 1) || body->at[-1] != 0)
        return 0;
    status.stop = status.at + variables;
    return status_is_whole(status);
}

static int
load_is_whole(Body body) /* ExecuteLoadQuery.parse */
{
    const unsigned char *own = body.at + QUERY_SIZE_MIN - HEADER_SIZE;
    if (!skip_query_head(&body, LOAD_OWN_SIZE))
        return 0;
    uint32_t start = load_u32(own + 4), end = load_u32(own + 8);
    return start <= end && end <= (uint64_t)(body.stop - body.at);
}

/* What was announced is not more than zlib can make of what there is. */
static int
compressed_is_possible(Body body) /* CompressedPart.find */
{
    if (body.at == body.stop)
        return 0;
    unsigned char first = *body.at++;
    unsigned length_bytes = first & 7;
    if ((first & 0xF8) != ZLIB_MARK || length_bytes < 1 || length_bytes > 4 || body.stop - body.at < length_bytes)
        return 0;
    uint64_t length = 0;
    while (length_bytes--)
        length = length << 8 | *body.at++;
    uint64_t most = (uint64_t)(body.stop - body.at) * ZLIB_RATIO_MAX + ZLIB_RATIO_SLACK;
    return length <= most && length <= EVENT_BYTES_MAX;
}

static int
skip_rows_head(Body *body, uint64_t bitmaps) /* RowsHead.take */
{
    uint64_t width;
    return skip(body, 8) && take_lenenc(body, &width) && width > 0 && width <= COLUMNS_MAX
           && skip(body, bitmaps * ((width + 7) / 8));
}

static int
skip_name(Body *body)
{
    return skip_short(body) && skip(body, 1) && body->at[-1] == 0;
}

static int
table_map_is_whole(Body body) /* TableMapHead.parse */
{
    uint64_t count, size;
    if (!skip(&body, 8) || !skip_name(&body) || !skip_name(&body) || !take_lenenc(&body, &count) || count == 0
        || count > COLUMNS_MAX || !skip(&body, count) || !take_lenenc(&body, &size) || !skip(&body, size)
        || !skip(&body, (count + 7) / 8))
        return 0;
    while (body.at < body.stop)
        if (!skip(&body, 1) || !take_lenenc(&body, &size) || !skip(&body, size))
            return 0;
    return 1;
}

static int
user_var_is_whole(Body body) /* UserVarEvent.parse; decimals are left to it */
{
    if (body.stop - body.at < 4 || !skip(&body, 4 + (uint64_t)load_u32(body.at)) || !skip(&body, 1))
        return 0;
    if (body.at[-1])
        return 1;
    const unsigned char *value = body.at;
    if (!skip(&body, 9))
        return 0;
    uint32_t length = load_u32(value + 5);
    return skip(&body, length) && (value[0] == 0 || ((value[0] == 1 || value[0] == 2) && length == 8));
}

/* Whether an event (without checksum) can be read by those who will read it from the store. */
static int
is_whole(enum form form, const unsigned char *event, Py_ssize_t size)
{
    Body body = {event + HEADER_SIZE, event + size};
    Py_ssize_t length = size - HEADER_SIZE;

    switch (form) {
    case FORM_ANY:
        return 1;
    case FORM_GTID:
        return gtid_is_whole(body);
    case FORM_QUERY:
        return skip_query_head(&body, 0);
    case FORM_QUERY_COMPRESSED:
        return skip_query_head(&body, 0) && compressed_is_possible(body);
    case FORM_TABLE_MAP:
        return table_map_is_whole(body);
    case FORM_ROWS:
        return skip_rows_head(&body, 1);
    case FORM_ROWS_TWICE:
        return skip_rows_head(&body, 2);
    case FORM_ROWS_COMPRESSED:
        return skip_rows_head(&body, 1) && compressed_is_possible(body);
    case FORM_ROWS_COMPRESSED_TWICE:
        return skip_rows_head(&body, 2) && compressed_is_possible(body);
    case FORM_XID:
        return length == 8;
    case FORM_INTVAR:
        return length == 9 && (body.at[0] == 1 || body.at[0] == 2);
    case FORM_RAND:
        return length == 16;
    case FORM_USER_VAR:
        return user_var_is_whole(body);
    case FORM_FILE_PIECE:
        return length >= 4;
    case FORM_EXECUTE_LOAD:
        return load_is_whole(body);
    case FORM_XA_PREPARE:
        return length >= 13 && (uint64_t)length == 13 + (uint64_t)load_u32(body.at + 5) + load_u32(body.at + 9);
    case FORM_PARTIAL_ROWS:
        return length >= 9;
    }
    return 0;
}

/* Whether a QUERY event that is whole is the statement COMMIT or ROLLBACK. */
static int
query_ends_group(const unsigned char *event, Py_ssize_t size)
{
    Py_ssize_t text = QUERY_SIZE_MIN + (Py_ssize_t)load_u16(event + QUERY_STATUS_LENGTH_AT)
                      + event[QUERY_DATABASE_LENGTH_AT] + 1;
    Py_ssize_t length = size - text;
    return (length == 6 && memcmp(event + text, "COMMIT", 6) == 0)
           || (length == 8 && memcmp(event + text, "ROLLBACK", 8) == 0);
}

/* How far a stream has been taken: place, number of the next packet, what its events did to the position of a replica
 * (`semi_sync.PositionStep`), and whether one is to be acknowledged. */
typedef struct {
    const unsigned char *at;
    unsigned char seq;
    uint64_t advance, floor;
    uint32_t end_position; /* of its last event, as the master has it */
    int ack_wanted;
} Place;

typedef struct {
    /* what there is */
    Place place;
    const unsigned char *stop;
    int checksums, semi_sync, bare;
    const unsigned char *roles;
    /* what was taken; of groups that are only passed, their number */
    unsigned char *out;
    Py_ssize_t out_size;
    uint64_t *ends, *seq_nos;
    uint32_t *end_positions;
    Py_ssize_t count;
    uint32_t domain, server, timestamp;
} Run;

/* Where the event at a place begins, and its length; NULL if its packet is not plain. */
static const unsigned char *
find_event(const Run *run, const Place *place, Py_ssize_t *length, int *ack_wanted)
{
    const unsigned char *packet = place->at;
    *ack_wanted = 0;
    if (run->bare) {
        if (run->stop - packet < HEADER_SIZE)
            return NULL;
        *length = (Py_ssize_t)load_u32(packet + LENGTH_AT);
        return packet;
    }
    Py_ssize_t status_size = run->semi_sync ? SEMI_SYNC_STATUS_SIZE : STATUS_SIZE;
    if (run->stop - packet < PACKET_HEADER + status_size + HEADER_SIZE)
        return NULL;
    uint32_t payload = load_u32(packet) & PAYLOAD_MAX;
    const unsigned char *status = packet + PACKET_HEADER;
    if (payload == PAYLOAD_MAX || packet[3] != place->seq || status[0] != 0
        || (run->semi_sync && status[1] != SEMI_SYNC_MAGIC))
        return NULL;
    *ack_wanted = run->semi_sync && status[2] & ACK_WANTED;
    *length = (Py_ssize_t)payload - status_size;
    return status + status_size;
}

/* The event at a place, without checksum, to `out`, if there is one. Returns its role; NOT_HERE if it is not plain. */
static enum role
take_event(const Run *run, Place *place, unsigned char *out, Py_ssize_t *size)
{
    Py_ssize_t length;
    int ack_wanted;
    const unsigned char *event = find_event(run, place, &length, &ack_wanted);
    if (event == NULL)
        return NOT_HERE;
    Py_ssize_t kept = length - (run->checksums ? CRC_SIZE : 0);
    if (length > run->stop - event || kept < HEADER_SIZE || load_u32(event + LENGTH_AT) != (uint32_t)length)
        return NOT_HERE;
    unsigned char meaning = run->roles[event[TYPE_AT]];
    enum role role = (enum role)(meaning & ROLE_MASK);
    if (role == NOT_HERE || load_u16(event + FLAGS_AT) & FLAG_ARTIFICIAL
        || !is_whole((enum form)(meaning >> ROLE_BITS), event, kept))
        return NOT_HERE;
    if (run->checksums) {
        if (copy_with_crc32(out, event, kept, 0) != load_u32(event + kept))
            return NOT_HERE;
    } else if (out != NULL)
        memcpy(out, event, (size_t)kept);
    if (out != NULL) {
        store_u32(out + LENGTH_AT, (uint32_t)kept);
        store_u32(out + END_AT, 0);
    }
    *size = kept;
    uint64_t end_position = place->end_position = load_u32(event + END_AT);
    place->at = event + length;
    place->advance += (uint64_t)length;
    place->floor += (uint64_t)length;
    if (place->floor < end_position)
        place->floor = end_position;
    place->ack_wanted |= ack_wanted;
    place->seq = ack_wanted ? SEQUENCE_AFTER_ACK : (unsigned char)(place->seq + 1);
    return role;
}

/* One whole group to the end of what was taken. False, and nothing is taken, if there is none that is plain. Without an
 * `out` bare groups are only passed, of whatever domain and server. */
static int
take_group(Run *run)
{
    Place place = run->place;
    unsigned char *out = run->out == NULL ? NULL : run->out + run->out_size;
    const unsigned char *event = out == NULL ? place.at : out;
    Py_ssize_t size;

    if (take_event(run, &place, out, &size) != GTID)
        return 0;
    uint32_t server = load_u32(event + SERVER_AT), domain = load_u32(event + GTID_DOMAIN_AT);
    uint64_t seq_no = load_u64(event + GTID_SEQ_AT);
    int standalone = event[GTID_FLAGS_AT] & STANDALONE;
    if (out != NULL && run->count
        && (server != run->server || domain != run->domain || seq_no <= run->seq_nos[run->count - 1]))
        return 0;
    uint32_t timestamp = load_u32(event);
    for (;;) {
        if (out != NULL)
            out += size;
        event = out == NULL ? place.at : out;
        enum role role = take_event(run, &place, out, &size);
        if (role == NOT_HERE || role == GTID)
            return 0;
        int ended = role == COMMIT;
        if (standalone)
            ended = role != PREFIX;
        else if (role == QUERY)
            ended = query_ends_group(event, size);
        if (ended)
            break;
    }
    run->place = place;
    if (out == NULL) {
        run->count++;
        return 1;
    }
    run->out_size = out + size - run->out;
    run->ends[run->count] = (uint64_t)run->out_size;
    run->end_positions[run->count] = place.end_position;
    run->seq_nos[run->count++] = seq_no;
    run->server = server;
    run->domain = domain;
    run->timestamp = timestamp;
    return 1;
}

/* The least that a group has: a GTID event and one more. */
#define GROUP_SIZE_MIN (GTID_SIZE_MIN + HEADER_SIZE)

/* A call: a part of a buffer, lent until `end_call`, and the bytes that are taken out of it. */
typedef struct {
    Py_buffer buffer, roles;
    const unsigned char *begin;
    Py_ssize_t size;
    PyObject *taken;
} Call;

static PyObject *
end_call(Call *call, PyObject *result)
{
    Py_XDECREF(call->taken);
    PyBuffer_Release(&call->buffer);
    PyBuffer_Release(&call->roles);
    return result;
}

/* False, with an exception, if the arguments are wrong; there is nothing to end then. */
static int
begin_call(Call *call, Run *run, PyObject *args, const char *format)
{
    PyObject *given;
    Py_ssize_t at, stop;

    if (!PyArg_ParseTuple(args, format, &given, &at, &stop, &run->place.seq, &run->checksums, &call->roles,
                          &run->semi_sync, &run->bare))
        return 0;
    if (PyObject_GetBuffer(given, &call->buffer, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&call->roles);
        return 0;
    }
    if (call->roles.len != 256 || at < 0 || at > stop || stop > call->buffer.len)
        PyErr_SetString(PyExc_IndexError, "no such place in the buffer, or no 256 roles");
    else
        call->taken = PyByteArray_FromStringAndSize(NULL, stop - at);
    if (call->taken == NULL) {
        end_call(call, NULL);
        return 0;
    }
    call->size = stop - at;
    call->begin = call->buffer.buf;
    run->place.at = call->begin + at;
    run->stop = call->begin + stop;
    run->roles = call->roles.buf;
    run->out = (unsigned char *)PyByteArray_AsString(call->taken);
    return 1;
}

PyDoc_STRVAR(take_run_doc,
"take_run(buffer, at, stop, seq, checksums, roles, semi_sync, bare)\n--\n\n"
"See `group_runs.take_run`, and for `bare` `take_bare_run`: (new at, new seq, payloads, ends, numbers, domain_id,\n"
"server_id, timestamp, advance, floor, ack_wanted, end positions), or None.");

static PyObject *
take_run(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *result = NULL;
    Call call = {0};
    Run run = {0};

    if (!begin_call(&call, &run, args, "Onnbpy*|pp:take_run"))
        return NULL;
    Py_ssize_t most = call.size / GROUP_SIZE_MIN + 1;
    run.ends = PyMem_Calloc((size_t)most, sizeof(uint64_t));
    run.seq_nos = PyMem_Calloc((size_t)most, sizeof(uint64_t));
    run.end_positions = PyMem_Calloc((size_t)most, sizeof(uint32_t));
    if (run.ends == NULL || run.seq_nos == NULL || run.end_positions == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    /* The buffer cannot be resized while it is lent, and nobody else knows the payloads yet. */
    PyThreadState *unlocked = call.size >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    while (take_group(&run))
        ;
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    if (run.count == 0) {
        result = Py_None;
        Py_INCREF(result);
        goto done;
    }
    if (PyByteArray_Resize(call.taken, run.out_size) < 0)
        goto done;
    Py_ssize_t size = run.count * (Py_ssize_t)sizeof(uint64_t);
    result = Py_BuildValue("nbOy#y#kkkKKiy#", (Py_ssize_t)(run.place.at - call.begin), run.place.seq, call.taken,
                           (char *)run.ends, size, (char *)run.seq_nos, size, (unsigned long)run.domain,
                           (unsigned long)run.server, (unsigned long)run.timestamp,
                           (unsigned long long)run.place.advance, (unsigned long long)run.place.floor,
                           run.place.ack_wanted, (char *)run.end_positions,
                           run.count * (Py_ssize_t)sizeof(uint32_t));

done:
    PyMem_Free(run.ends);
    PyMem_Free(run.seq_nos);
    PyMem_Free(run.end_positions);
    return end_call(&call, result);
}

PyDoc_STRVAR(pass_groups_doc,
"pass_groups(buffer, at, stop, enough, checksums, roles)\n--\n\n"
"See `group_runs.pass_bare_groups`: new at.");

static PyObject *
pass_groups(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer buffer, roles;
    Py_ssize_t at, stop, enough;
    Run run = {.bare = 1};
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*nnnpy*:pass_groups", &buffer, &at, &stop, &enough, &run.checksums, &roles))
        return NULL;
    if (roles.len != 256 || at < 0 || at > stop || stop > buffer.len)
        PyErr_SetString(PyExc_IndexError, "no such place in the buffer, or no 256 roles");
    else {
        const unsigned char *begin = buffer.buf;
        run.place.at = begin + at;
        run.stop = begin + stop;
        run.roles = roles.buf;
        PyThreadState *unlocked = stop - at >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        while (run.place.at - begin < enough && take_group(&run))
            ;
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        result = PyLong_FromSsize_t(run.place.at - begin);
    }
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&roles);
    return result;
}

PyDoc_STRVAR(take_part_doc,
"take_part(buffer, at, stop, seq, checksums, roles, semi_sync)\n--\n\n"
"See `group_runs.take_part`: (new at, new seq, events, count, advance, floor, ack_wanted), or None.");

static PyObject *
take_part(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *result = NULL;
    Py_ssize_t count = 0;
    Call call = {0};
    Run run = {0};

    if (!begin_call(&call, &run, args, "Onnbpy*|p:take_part"))
        return NULL;
    PyThreadState *unlocked = call.size >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    for (;;) {
        Place next = run.place;
        unsigned char *out = run.out + run.out_size;
        Py_ssize_t size = 0;
        enum role role = take_event(&run, &next, out, &size);
        if (role == QUERY ? query_ends_group(out, size) : role != OTHER && role != PREFIX)
            break;
        run.place = next;
        run.out_size += size;
        count++;
    }
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    if (count == 0) {
        result = Py_None;
        Py_INCREF(result);
    } else if (PyByteArray_Resize(call.taken, run.out_size) == 0)
        result = Py_BuildValue("nbOnKKi", (Py_ssize_t)(run.place.at - call.begin), run.place.seq, call.taken, count,
                               (unsigned long long)run.place.advance, (unsigned long long)run.place.floor,
                               run.place.ack_wanted);
    return end_call(&call, result);
}

PyDoc_STRVAR(lay_out_doc,
"lay_out(payload, begin, checksums)\n--\n\n"
"See `checksum.laid_out_events`; None: ask the twin.");

static PyObject *
lay_out(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    unsigned long long end;
    int checksums;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*Kp:lay_out", &payload, &end, &checksums))
        return NULL;
    const unsigned char *begin = payload.buf, *stop = begin + payload.len, *at = begin;
    Py_ssize_t events = 0, added = checksums ? CRC_SIZE : 0;
    while (stop - at >= HEADER_SIZE) {
        uint32_t length = load_u32(at + LENGTH_AT);
        if (length < HEADER_SIZE || length > (uint64_t)(stop - at))
            break;
        at += length;
        events++;
    }
    if (at != stop) {
        result = Py_None;
        Py_INCREF(result);
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, payload.len + events * added);
    if (result == NULL)
        goto done;
    unsigned char *out = (unsigned char *)PyBytes_AsString(result); /* nobody else knows it yet */
    PyThreadState *unlocked = payload.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    for (at = begin; at < stop;) {
        Py_ssize_t length = (Py_ssize_t)load_u32(at + LENGTH_AT);
        end += (uint64_t)(length + added);
        memcpy(out, at, (size_t)length);
        store_u32(out + LENGTH_AT, (uint32_t)(length + added));
        store_u32(out + END_AT, (uint32_t)end);
        if (checksums)
            store_u32(out + length, copy_with_crc32(NULL, out, length, 0));
        out += length + added;
        at += length;
    }
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);

done:
    PyBuffer_Release(&payload);
    return result;
}

PyDoc_STRVAR(crc32_doc,
"crc32(data, before=0)\n--\n\n"
"See `checksum.crc32`.");

static PyObject *
crc32_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    unsigned int crc = 0;

    if (!PyArg_ParseTuple(args, "y*|I:crc32", &data, &crc))
        return NULL;
    PyThreadState *unlocked = data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    crc = copy_with_crc32(NULL, data.buf, data.len, crc);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

PyDoc_STRVAR(is_sound_doc,
"is_sound(event, roles)\n--\n\n"
"See `vocabulary.is_sound`.");

static PyObject *
is_sound(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer event, roles;
    int sound = 0;

    if (!PyArg_ParseTuple(args, "y*y*:is_sound", &event, &roles))
        return NULL;
    if (event.len >= HEADER_SIZE && roles.len == 256) {
        const unsigned char *at = event.buf;
        unsigned char meaning = ((const unsigned char *)roles.buf)[at[TYPE_AT]];
        sound = (meaning & ROLE_MASK) != NOT_HERE && is_whole((enum form)(meaning >> ROLE_BITS), at, event.len);
    }
    PyBuffer_Release(&event);
    PyBuffer_Release(&roles);
    return PyBool_FromLong(sound);
}

static PyMethodDef methods[] = {
    {"crc32", crc32_of, METH_VARARGS, crc32_doc},
    {"is_sound", is_sound, METH_VARARGS, is_sound_doc},
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {"pass_groups", pass_groups, METH_VARARGS, pass_groups_doc},
    {"take_part", take_part, METH_VARARGS, take_part_doc},
    {"take_run", take_run, METH_VARARGS, take_run_doc},
    {NULL, NULL, 0, NULL},
};

static int
make_ready(PyObject *module)
{
    make_crc_tables();
    has_multiplication = HAS_MULTIPLICATION;
    return refuse_if_unwanted(module);
}

OPTIONAL_MODULE(PyInit__group_runs, "binlog_protocol.events._group_runs", "The loop of `group_runs` in C.", make_ready)
