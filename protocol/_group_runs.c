/* Whole groups out of the packets of a dump stream, in C. Optional: see `group_runs.py`, which says what a run is.
 *
 * Nothing here raises for what came. Whatever is not as plain as nearly everything is (a group that is not whole yet,
 * a packet out of sequence, a wrong checksum, an event that is none of a group) ends the run in front of its group, and
 * is left to the Python that takes one event after the other, and knows what to say of it.
 *
 * Only CPython's limited API, of 3.11: one binary for that version and all later ones.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In front of an event: length of the payload (3), sequence number (1), status (1), which is part of the payload. */
#define PACKET_HEADER 4
#define STATUS_SIZE 1
#define PAYLOAD_MAX 0xFFFFFF

/* The header of an event: timestamp 0, type 4, server_id 5, length 9, end position 13, flags 17. */
#define TYPE_AT 4
#define SERVER_AT 5
#define LENGTH_AT 9
#define FLAGS_AT 17
#define HEADER_SIZE 19
#define FLAG_ARTIFICIAL 0x20
#define CRC_SIZE 4

/* A GTID event: seq_no 19, domain 27, flags 31; with at least 19 bytes of body. */
#define GTID_SEQ_AT 19
#define GTID_DOMAIN_AT 27
#define GTID_FLAGS_AT 31
#define GTID_SIZE_MIN 38
#define STANDALONE 0x01

/* A QUERY event: length of the database name 27, of the status variables 30; what is variable from 32 on. */
#define QUERY_DATABASE_LENGTH_AT 27
#define QUERY_STATUS_LENGTH_AT 30
#define QUERY_SIZE_MIN 32

/* What an event means for its group: the table comes from Python. */
enum role { OTHER = 0, PREFIX = 1, QUERY = 2, COMMIT = 3, GTID = 4, NOT_HERE = 5 };

/* Below this many bytes, letting other threads run costs more than it gives. */
#define UNLOCK_BYTES 32768

#define CRC_TABLES 16
static uint32_t crc_tables[CRC_TABLES][256];

static uint16_t
load_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t
load_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t
load_u64(const unsigned char *at)
{
    return (uint64_t)load_u32(at) | (uint64_t)load_u32(at + 4) << 32;
}

static void
store_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
    at[2] = (unsigned char)(value >> 16);
    at[3] = (unsigned char)(value >> 24);
}

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

/* CRC-32 of zlib, 16 bytes a step. */
static uint32_t
crc32_of(const unsigned char *at, Py_ssize_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    while (size >= CRC_TABLES) {
        uint32_t first = crc ^ load_u32(at);
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            next ^= crc_tables[15 - i][first >> 8 * i & 0xFF];
        for (int i = 4; i < CRC_TABLES; i++)
            next ^= crc_tables[15 - i][at[i]];
        crc = next;
        at += CRC_TABLES;
        size -= CRC_TABLES;
    }
    while (size-- > 0)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}

/* Whether a QUERY event (without checksum) is the statement COMMIT or ROLLBACK; -1 if it cannot be read. */
static int
query_ends_group(const unsigned char *event, Py_ssize_t size)
{
    if (size < QUERY_SIZE_MIN)
        return -1;
    Py_ssize_t text = QUERY_SIZE_MIN + (Py_ssize_t)load_u16(event + QUERY_STATUS_LENGTH_AT)
                      + event[QUERY_DATABASE_LENGTH_AT] + 1;
    if (text > size)
        return -1;
    Py_ssize_t length = size - text;
    return (length == 6 && memcmp(event + text, "COMMIT", 6) == 0)
           || (length == 8 && memcmp(event + text, "ROLLBACK", 8) == 0);
}

typedef struct {
    /* what there is */
    const unsigned char *at, *stop;
    unsigned char seq;
    int checksums;
    const unsigned char *roles;
    /* what was taken */
    unsigned char *out;
    Py_ssize_t out_size;
    uint64_t *ends, *seq_nos;
    Py_ssize_t count;
    uint32_t domain, server, timestamp;
} Run;

/* The event of one packet, without checksum, to `out`. Returns its role; NOT_HERE if it is not plain. */
static enum role
take_event(Run *run, const unsigned char **at, unsigned char *seq, unsigned char **out, Py_ssize_t *size)
{
    const unsigned char *packet = *at;
    if (run->stop - packet < PACKET_HEADER + STATUS_SIZE + HEADER_SIZE)
        return NOT_HERE;
    uint32_t payload = load_u32(packet) & PAYLOAD_MAX;
    if (payload == PAYLOAD_MAX || packet[3] != *seq || packet[PACKET_HEADER] != 0)
        return NOT_HERE;
    const unsigned char *event = packet + PACKET_HEADER + STATUS_SIZE;
    Py_ssize_t length = (Py_ssize_t)payload - STATUS_SIZE;
    Py_ssize_t kept = length - (run->checksums ? CRC_SIZE : 0);
    if (length > run->stop - event || kept < HEADER_SIZE || load_u32(event + LENGTH_AT) != (uint32_t)length)
        return NOT_HERE;
    enum role role = (enum role)run->roles[event[TYPE_AT]];
    if (role == NOT_HERE || load_u16(event + FLAGS_AT) & FLAG_ARTIFICIAL)
        return NOT_HERE;
    if (run->checksums && crc32_of(event, kept) != load_u32(event + kept))
        return NOT_HERE;
    memcpy(*out, event, (size_t)kept);
    store_u32(*out + LENGTH_AT, (uint32_t)kept);
    store_u32(*out + LENGTH_AT + 4, 0);
    *size = kept;
    *at = event + length;
    *seq = (unsigned char)(*seq + 1);
    return role;
}

/* One whole group to the end of what was taken. False, and nothing is taken, if there is none that is plain. */
static int
take_group(Run *run)
{
    const unsigned char *at = run->at;
    unsigned char seq = run->seq;
    unsigned char *out = run->out + run->out_size, *event = out;
    Py_ssize_t size;

    if (take_event(run, &at, &seq, &out, &size) != GTID || size < GTID_SIZE_MIN)
        return 0;
    uint32_t server = load_u32(event + SERVER_AT), domain = load_u32(event + GTID_DOMAIN_AT);
    uint64_t seq_no = load_u64(event + GTID_SEQ_AT);
    int standalone = event[GTID_FLAGS_AT] & STANDALONE;
    if (run->count
        && (server != run->server || domain != run->domain || seq_no <= run->seq_nos[run->count - 1]))
        return 0;
    uint32_t timestamp = load_u32(event);
    for (;;) {
        event = out += size;
        enum role role = take_event(run, &at, &seq, &out, &size);
        if (role == NOT_HERE || role == GTID)
            return 0;
        int ended = role == COMMIT;
        if (standalone)
            ended = role != PREFIX;
        else if (role == QUERY)
            ended = query_ends_group(event, size);
        if (ended < 0)
            return 0;
        if (ended)
            break;
    }
    out += size;
    run->at = at;
    run->seq = seq;
    run->out_size = out - run->out;
    run->ends[run->count] = (uint64_t)run->out_size;
    run->seq_nos[run->count++] = seq_no;
    run->server = server;
    run->domain = domain;
    run->timestamp = timestamp;
    return 1;
}

/* The least that a group has: a GTID event and one more, each in a packet. */
#define GROUP_SIZE_MIN (2 * (PACKET_HEADER + STATUS_SIZE + HEADER_SIZE))

PyDoc_STRVAR(take_run_doc,
"take_run(buffer, at, stop, seq, checksums, roles)\n--\n\n"
"See `group_runs.take_run`: (new at, new seq, payloads, ends, numbers, domain_id, server_id, timestamp), or None.");

static PyObject *
take_run(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *payloads = NULL, *result = NULL;
    Py_buffer buffer, roles;
    Py_ssize_t at, stop;
    int checksums;
    Run run = {0};

    if (!PyArg_ParseTuple(args, "Onnbpy*:take_run", &given, &at, &stop, &run.seq, &checksums, &roles))
        return NULL;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&roles);
        return NULL;
    }
    if (roles.len != 256 || at < 0 || at > stop || stop > buffer.len) {
        PyErr_SetString(PyExc_IndexError, "no such place in the buffer, or no 256 roles");
        goto done;
    }
    Py_ssize_t most = (stop - at) / GROUP_SIZE_MIN + 1;
    payloads = PyByteArray_FromStringAndSize(NULL, stop - at);
    run.ends = PyMem_Calloc((size_t)most, sizeof(uint64_t));
    run.seq_nos = PyMem_Calloc((size_t)most, sizeof(uint64_t));
    if (payloads == NULL || run.ends == NULL || run.seq_nos == NULL) {
        if (payloads != NULL)
            PyErr_NoMemory();
        goto done;
    }
    const unsigned char *begin = buffer.buf;
    run.at = begin + at;
    run.stop = begin + stop;
    run.checksums = checksums;
    run.roles = roles.buf;
    run.out = (unsigned char *)PyByteArray_AsString(payloads);
    /* The buffer cannot be resized while it is lent, and nobody else knows the payloads yet. */
    PyThreadState *unlocked = stop - at >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    while (take_group(&run))
        ;
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    if (run.count == 0) {
        result = Py_None;
        Py_INCREF(result);
        goto done;
    }
    if (PyByteArray_Resize(payloads, run.out_size) < 0)
        goto done;
    Py_ssize_t size = run.count * (Py_ssize_t)sizeof(uint64_t);
    result = Py_BuildValue("nbOy#y#kkk", (Py_ssize_t)(run.at - begin), run.seq, payloads, (char *)run.ends, size,
                           (char *)run.seq_nos, size, (unsigned long)run.domain, (unsigned long)run.server,
                           (unsigned long)run.timestamp);

done:
    PyMem_Free(run.ends);
    PyMem_Free(run.seq_nos);
    Py_XDECREF(payloads);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&roles);
    return result;
}

PyDoc_STRVAR(take_part_doc,
"take_part(buffer, at, stop, seq, checksums, roles)\n--\n\n"
"See `group_runs.take_part`: (new at, new seq, events, count), or None.");

static PyObject *
take_part(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *events = NULL, *result = NULL;
    Py_buffer buffer, roles;
    Py_ssize_t at, stop, count = 0;
    int checksums;
    Run run = {0};

    if (!PyArg_ParseTuple(args, "Onnbpy*:take_part", &given, &at, &stop, &run.seq, &checksums, &roles))
        return NULL;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&roles);
        return NULL;
    }
    if (roles.len != 256 || at < 0 || at > stop || stop > buffer.len) {
        PyErr_SetString(PyExc_IndexError, "no such place in the buffer, or no 256 roles");
        goto done;
    }
    events = PyByteArray_FromStringAndSize(NULL, stop - at);
    if (events == NULL)
        goto done;
    const unsigned char *begin = buffer.buf;
    run.at = begin + at;
    run.stop = begin + stop;
    run.checksums = checksums;
    run.roles = roles.buf;
    run.out = (unsigned char *)PyByteArray_AsString(events);
    PyThreadState *unlocked = stop - at >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    for (;;) {
        const unsigned char *next = run.at;
        unsigned char seq = run.seq, *out = run.out + run.out_size;
        Py_ssize_t size = 0;
        enum role role = take_event(&run, &next, &seq, &out, &size);
        if (role == QUERY ? query_ends_group(out, size) != 0 : role != OTHER && role != PREFIX)
            break;
        run.at = next;
        run.seq = seq;
        run.out_size += size;
        count++;
    }
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    if (count == 0) {
        result = Py_None;
        Py_INCREF(result);
    } else if (PyByteArray_Resize(events, run.out_size) == 0)
        result = Py_BuildValue("nbOn", (Py_ssize_t)(run.at - begin), run.seq, events, count);

done:
    Py_XDECREF(events);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&roles);
    return result;
}

static PyMethodDef methods[] = {
    {"take_part", take_part, METH_VARARGS, take_part_doc},
    {"take_run", take_run, METH_VARARGS, take_run_doc},
    {NULL, NULL, 0, NULL},
};

/* Python does without this when it cannot be imported, so that is how it is switched off. */
static int
refuse_if_unwanted(PyObject *Py_UNUSED(module))
{
    const char *pure = getenv("BINLOG_SERVER_PURE");
    if (pure != NULL && *pure != '\0' && strcmp(pure, "0") != 0) {
        PyErr_SetString(PyExc_ImportError, "BINLOG_SERVER_PURE is set");
        return -1;
    }
    make_crc_tables();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)refuse_if_unwanted},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "protocol._group_runs",
    .m_doc = "The loop of `group_runs` in C.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__group_runs(void)
{
    return PyModuleDef_Init(&definition);
}
